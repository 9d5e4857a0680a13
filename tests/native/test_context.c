/* Outputs of a call: new, given, overlapping, refused; interruption. */
#include "check.h"

#define F32 (2 << 8 | 32)

static DLTensor tensor(void* data, int64_t* shape, int64_t* strides, int ndim) {
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {kDLFloat, 32, 1},
                      .shape = shape, .strides = strides};
}

static pl_ctx* start(const DLTensor* input, const DLTensor* out) {
    static const DLTensor *inputs[1], *outs[1];
    inputs[0] = input;
    outs[0] = out;
    pl_call_args args = {.inputs = inputs, .num_inputs = input != NULL, .out = outs, .num_outputs = 1,
                         .num_threads = 1, .memory_limit = 1 << 20};
    pl_ctx* ctx = pl_call_begin(&args);
    CHECK(ctx && ctx->num_outputs == 1);
    return ctx;
}

static void refused(pl_ctx* ctx, int32_t code, int64_t reason) {
    CHECK(ctx->error_code == code);
    if (reason) CHECK(ctx->payload[1] == reason);
    CHECK(pl_call_finish(ctx, code) == code);
    pl_call_end(ctx);
}

static void new_outputs(void) {
    int64_t shape[] = {2, 3};
    pl_ctx* ctx = start(NULL, NULL);
    float* first = ctx->output(ctx, 0, F32, 2, shape);
    CHECK(first && is_aligned(first));
    CHECK(ctx->output(ctx, 0, F32, 2, shape)); /* asked again: the first goes back */
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK);
    pl_result r = pl_call_result(ctx, 0);
    CHECK(r.ndim == 2 && r.shape[1] == 3 && r.dtype == F32 && r.buffer);
    pl_call_end(ctx);
    memset(pl_buffer_data(r.buffer), 0, 24); /* lives on */
    pl_buffer_release(r.buffer);

    ctx = start(NULL, NULL); /* an untaken result goes back */
    CHECK(ctx->output(ctx, 0, F32, 0, NULL));
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK);
    pl_call_end(ctx);
}

static void impossible_outputs(void) {
    int64_t huge[] = {INT64_MAX, 4}, negative[] = {3, -1}, empty[] = {INT64_MAX, 0, INT64_MAX};
    pl_ctx* ctx = start(NULL, NULL);
    CHECK(!ctx->output(ctx, 0, F32, 2, huge));
    refused(ctx, PL_MEMORY, INT64_MAX);
    ctx = start(NULL, NULL);
    CHECK(!ctx->output(ctx, 0, F32, 2, negative));
    refused(ctx, PL_OUTPUT, PL_OUTPUT_NEGATIVE);
    ctx = start(NULL, NULL);
    CHECK(!ctx->output(ctx, 1, F32, 0, NULL));
    refused(ctx, PL_OUTPUT, PL_OUTPUT_MISSING);
    ctx = start(NULL, NULL);
    CHECK(!ctx->output(ctx, 0, F32, PL_MAX_NDIM + 1, NULL));
    refused(ctx, PL_OUTPUT, PL_OUTPUT_MISSING);
    ctx = start(NULL, NULL);
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OUTPUT && ctx->payload[1] == PL_OUTPUT_MISSING);
    pl_call_end(ctx);
    ctx = start(NULL, NULL);
    CHECK(ctx->output(ctx, 0, F32, 3, empty)); /* no elements, so no overflow */
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK);
    pl_call_end(ctx);
    ctx = start(NULL, NULL); /* outputs and arena share the limit */
    int64_t most[] = {200000};
    CHECK(ctx->output(ctx, 0, F32, 1, most) && !ctx->arena(ctx, 400000));
    refused(ctx, PL_MEMORY, 400000);
}

static void given_outputs(void) {
    float data[12] = {0};
    int64_t shape[] = {2, 3}, strides[] = {3, 1}, wide[] = {6, 2}, other[] = {2, 4};
    DLTensor t = tensor(data, shape, strides, 2);
    pl_ctx* ctx = start(NULL, &t);
    CHECK(ctx->output(ctx, 0, F32, 2, shape) == data);
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK && !pl_call_result(ctx, 0).buffer);
    pl_call_end(ctx);
    ctx = start(NULL, &t);
    CHECK(!ctx->output(ctx, 0, F32, 2, other) && ctx->payload[2] == 1 && ctx->payload[3] == 4);
    refused(ctx, PL_OUTPUT, PL_OUTPUT_EXTENT);
    ctx = start(NULL, &t);
    CHECK(!ctx->output(ctx, 0, F32, 1, shape));
    refused(ctx, PL_OUTPUT, PL_OUTPUT_RANK);
    ctx = start(NULL, &t);
    CHECK(!ctx->output(ctx, 0, 0 << 8 | 32, 2, shape));
    refused(ctx, PL_OUTPUT, PL_OUTPUT_DTYPE);
    t.strides = wide;
    ctx = start(NULL, &t);
    CHECK(!ctx->output(ctx, 0, F32, 2, shape));
    refused(ctx, PL_OUTPUT, PL_OUTPUT_NOT_COMPACT);
}

/* The overlap may be with a reversed or strided view; then the result is written aside first. */
static void overlapping_outputs(void) {
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t four[] = {4}, one[] = {1}, back[] = {-2};
    DLTensor out = tensor(data, four, one, 1);
    DLTensor in = tensor(data + 7, four, back, 1); /* 7 5 3 1 */
    pl_ctx* ctx = start(&in, &out);
    float* y = ctx->output(ctx, 0, F32, 1, four);
    CHECK(y && y != data);
    for (int i = 0; i < 4; i++) y[i] = data[7 - 2 * i] * 10;
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK);
    CHECK(!pl_call_result(ctx, 0).buffer);
    pl_call_end(ctx);
    CHECK(data[0] == 70 && data[1] == 50 && data[2] == 30 && data[3] == 10 && data[4] == 4);

    in.data = data + 4;
    in.strides = one;
    ctx = start(&in, &out); /* neighbours do not overlap */
    CHECK(ctx->output(ctx, 0, F32, 1, four) == data);
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK);
    pl_call_end(ctx);

    in.data = data;
    ctx = start(&in, &out); /* a failed call leaves `out` alone */
    y = ctx->output(ctx, 0, F32, 1, four);
    y[0] = -1;
    CHECK(pl_call_finish(ctx, PL_CHECK) == PL_CHECK && data[0] == 70);
    pl_call_end(ctx);
}

static int32_t yes(void* count) { return ++*(int*)count > 1; }

static void interruption(void) {
    int count = 0;
    pl_call_args args = {.num_threads = 1, .interrupted = yes, .interrupted_data = &count};
    pl_ctx* ctx = pl_call_begin(&args);
    int64_t polls = 0;
    while (ctx->poll(ctx) == PL_OK) polls++;
    CHECK(count == 2 && polls > 100); /* asked every 20 ms, not every time */
    CHECK(ctx->poll(ctx) == PL_INTERRUPTED);
    CHECK(pl_call_finish(ctx, PL_INTERRUPTED) == PL_INTERRUPTED);
    pl_call_end(ctx);
    args.interrupted = NULL;
    ctx = pl_call_begin(&args);
    CHECK(ctx->poll(ctx) == PL_OK);
    end(ctx);
}

int main(void) {
    new_outputs();
    impossible_outputs();
    given_outputs();
    overlapping_outputs();
    interruption();
    pl_call_trim();
    pl_buffers_set_cap(0);
    return 0;
}
