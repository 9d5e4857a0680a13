/* Calls: the ctx that an entry gets, its arena, its outputs. Finished calls are kept for the next. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define ARENA_WINDOW 64
#define POLL_NANOSECONDS 20000000

typedef struct output {
    const DLTensor* given;
    pl_buffer* buffer;
    bool asked;
    bool aside; /* written to `buffer` because `given` overlaps an input; copied at the end */
    int64_t dtype;
    int64_t ndim;
    int64_t bytes;
    int64_t shape[PL_MAX_NDIM];
} output;

typedef struct pl_call {
    pl_thread main; /* first: the ctx is the call */
    pl_stack arena;
    pthread_mutex_t arena_lock; /* kernels on worker threads may take segments too */
    int64_t limit;
    int64_t output_bytes;
    output* outputs;
    int64_t num_outputs;
    int64_t output_room;
    int32_t (*interrupted)(void*);
    void* interrupted_data;
    atomic_int stopped;
    int64_t next_poll;
    struct pl_call* next;
} pl_call;

static struct {
    pthread_mutex_t lock;
    pl_call* idle; /* a stack: the warmest first */
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER};

void pl_calls_lock(void) { pthread_mutex_lock(&calls.lock); }
void pl_calls_unlock(void) { pthread_mutex_unlock(&calls.lock); }

static pl_call* call_of(pl_ctx* ctx) { return pl_thread_of(ctx)->call; }

int32_t pl_fail(pl_ctx* ctx, int32_t code, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    int64_t values[PL_PAYLOAD] = {a, b, c, d, e};
    memcpy(ctx->payload, values, sizeof values);
    return ctx->error_code = code;
}

/* ---- what generated code calls ----------------------------------------------------------------- */

static void* ctx_arena(pl_ctx* ctx, int64_t bytes) {
    pl_call* call = call_of(ctx);
    void* segment = NULL;
    pthread_mutex_lock(&call->arena_lock);
    int64_t used = pl_stack_mark(&call->arena) + call->output_bytes;
    if (bytes >= 0 && bytes <= call->limit - used) segment = pl_stack_take(&call->arena, bytes);
    pthread_mutex_unlock(&call->arena_lock);
    if (!segment) pl_fail(ctx, PL_MEMORY, -1, bytes, call->limit, 0, 0);
    return segment;
}

/* The first block of a kernel begins amid a page, far from where arrays do (runtime/abi.py); others
 * follow, each elsewhere in its page. */
static void* ctx_scratch(pl_ctx* ctx, int64_t bytes) {
    pl_call* call = call_of(ctx);
    pl_stack* stack = &pl_thread_of(ctx)->scratch;
    int64_t more = pl_stack_mark(stack) ? 0 : PL_PAGE;
    char* block = NULL;
    if (bytes >= 0 && bytes <= call->limit && bytes <= INT64_MAX - PL_PAGE)
        block = pl_stack_take(stack, bytes + more);
    if (!block) pl_fail(ctx, PL_MEMORY, -1, bytes, call->limit, 0, 0);
    return block && more ? block + (PL_AMID - (uintptr_t)block) % PL_PAGE : block;
}

static int64_t ctx_mark(pl_ctx* ctx) { return pl_stack_mark(&pl_thread_of(ctx)->scratch); }

static void ctx_release(pl_ctx* ctx, int64_t mark) {
    pl_stack_release(&pl_thread_of(ctx)->scratch, mark);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Only the calling thread may ask its host; the others learn it from `stopped`. */
static int32_t ctx_poll(pl_ctx* ctx) {
    pl_call* call = call_of(ctx);
    if (!call->interrupted) return PL_OK;
    if (ctx == &call->main.ctx && !atomic_load_explicit(&call->stopped, memory_order_relaxed)) {
        int64_t t = now();
        if (t < call->next_poll) return PL_OK;
        bool first = call->next_poll == 0; /* a short call never asks */
        call->next_poll = t + POLL_NANOSECONDS;
        if (!first && call->interrupted(call->interrupted_data)) atomic_store(&call->stopped, 1);
    }
    if (!atomic_load_explicit(&call->stopped, memory_order_relaxed)) return PL_OK;
    return pl_fail(ctx, PL_INTERRUPTED, -1, 0, 0, 0, 0);
}

/* ---- outputs ----------------------------------------------------------------------------------- */

/* The bytes of a compact tensor; -1 when they do not fit 63 bits, -2 for a negative extent. */
static int64_t compact_bytes(int64_t dtype, int64_t ndim, const int64_t* shape) {
    int64_t bytes = ((dtype & 0xff) + 7) / 8;
    bool empty = false, overflow = false;
    for (int64_t i = 0; i < ndim; i++) {
        if (shape[i] < 0) return -2;
        empty |= shape[i] == 0;
        overflow |= __builtin_mul_overflow(bytes, shape[i], &bytes);
    }
    return empty ? 0 : overflow ? -1 : bytes;
}

typedef struct range {
    uintptr_t begin;
    uintptr_t end;
} range;

/* The addresses between which a tensor's elements lie. */
static range range_of(const DLTensor* t) {
    int64_t item = ((int64_t)t->dtype.bits * t->dtype.lanes + 7) / 8;
    uintptr_t begin = (uintptr_t)t->data + t->byte_offset, end = begin + (uintptr_t)item;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0) return (range){0, 0};
        uintptr_t reach = (uintptr_t)(t->shape[i] - 1) * (uintptr_t)t->strides[i] * (uintptr_t)item;
        if (t->strides[i] < 0)
            begin += reach;
        else
            end += reach;
    }
    return (range){begin, end};
}

static bool overlap(range a, range b) { return a.begin < b.end && b.begin < a.end; }

static bool is_compact(const DLTensor* t) {
    int64_t stride = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0) return true;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != stride) return false;
        if (__builtin_mul_overflow(stride, t->shape[i], &stride)) return false;
    }
    return true;
}

/* Checks a given buffer against what the entry wants; PL_OK, or fails naming the first difference. */
static int32_t check_given(pl_ctx* ctx, int64_t index, const output* o) {
    const DLTensor* t = o->given;
    int64_t dtype = (int64_t)t->dtype.code << 8 | t->dtype.bits;
    if (dtype != o->dtype || t->dtype.lanes != 1)
        return pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_DTYPE, 0, o->dtype, dtype);
    if (t->ndim != o->ndim)
        return pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_RANK, 0, o->ndim, t->ndim);
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] != o->shape[i])
            return pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_EXTENT, i, o->shape[i], t->shape[i]);
    if (!is_compact(t)) return pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_NOT_COMPACT, 0, 0, 0);
    const pl_call* call = call_of(ctx);
    for (int64_t i = 0; i < call->num_outputs; i++) {
        const DLTensor* other = call->outputs[i].given;
        if (i != index && other && overlap(range_of(t), range_of(other)))
            return pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_SHARED, i, 0, 0);
    }
    return PL_OK;
}

static bool overlaps_input(const pl_ctx* ctx, const DLTensor* given) {
    for (int64_t i = 0; i < ctx->num_inputs; i++)
        if (overlap(range_of(given), range_of(ctx->inputs[i]))) return true;
    return false;
}

static void drop_buffer(pl_call* call, output* o) {
    if (!o->buffer) return;
    pl_buffer_release(o->buffer);
    o->buffer = NULL;
    call->output_bytes -= o->bytes;
}

static void* new_buffer(pl_ctx* ctx, output* o) {
    pl_call* call = call_of(ctx);
    int64_t used = pl_stack_mark(&call->arena) + call->output_bytes;
    if (o->bytes >= 0 && o->bytes <= call->limit - used) o->buffer = pl_buffer_acquire(o->bytes);
    if (!o->buffer) {
        pl_fail(ctx, PL_MEMORY, -1, o->bytes < 0 ? INT64_MAX : o->bytes, call->limit, 0, 0);
        return NULL;
    }
    call->output_bytes += o->bytes;
    return pl_buffer_data(o->buffer);
}

static void* ctx_output(pl_ctx* ctx, int64_t index, int64_t dtype, int64_t ndim,
                        const int64_t* shape) {
    pl_call* call = call_of(ctx);
    if (index < 0 || index >= call->num_outputs || ndim < 0 || ndim > PL_MAX_NDIM) {
        pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_MISSING, 0, 0, 0);
        return NULL;
    }
    output* o = &call->outputs[index];
    drop_buffer(call, o);
    o->asked = true;
    o->aside = false;
    o->dtype = dtype;
    o->ndim = ndim;
    if (ndim) memcpy(o->shape, shape, (size_t)ndim * sizeof *shape);
    o->bytes = compact_bytes(dtype, ndim, o->shape);
    if (o->bytes == -2) {
        pl_fail(ctx, PL_OUTPUT, index, PL_OUTPUT_NEGATIVE, 0, 0, 0);
        return NULL;
    }
    if (!o->given) return new_buffer(ctx, o);
    if (check_given(ctx, index, o)) return NULL;
    o->aside = overlaps_input(ctx, o->given);
    if (o->aside) return new_buffer(ctx, o);
    /* An empty tensor may have no address; NULL means failure here. */
    void* data = (char*)o->given->data + o->given->byte_offset;
    return data ? data : (void*)o->shape;
}

/* ---- the life of a call ------------------------------------------------------------------------ */

static void free_call(pl_call* call) {
    pl_stack_free(&call->arena);
    pl_stack_free(&call->main.scratch);
    pthread_mutex_destroy(&call->arena_lock);
    free(call->outputs);
    free(call);
}

static pl_call* take_call(void) {
    pthread_mutex_lock(&calls.lock);
    pl_call* call = calls.idle;
    if (call) calls.idle = call->next;
    pthread_mutex_unlock(&calls.lock);
    if (call) return call;
    pl_fork_guard();
    call = calloc(1, sizeof *call);
    if (!call) return NULL;
    pthread_mutex_init(&call->arena_lock, NULL);
    call->main.call = call;
    call->main.ctx = (pl_ctx){
        .version = PL_ABI_VERSION,
        .size = sizeof(pl_ctx),
        .parallel = pl_pool_parallel,
        .arena = ctx_arena,
        .scratch = ctx_scratch,
        .mark = ctx_mark,
        .release = ctx_release,
        .output = ctx_output,
        .poll = ctx_poll,
    };
    return call;
}

static bool prepare_outputs(pl_call* call, const pl_call_args* args) {
    if (args->num_outputs > call->output_room) {
        output* room = realloc(call->outputs, (size_t)args->num_outputs * sizeof *room);
        if (!room) return false;
        call->outputs = room;
        call->output_room = args->num_outputs;
    }
    call->num_outputs = args->num_outputs;
    for (int64_t i = 0; i < args->num_outputs; i++) {
        output* o = &call->outputs[i];
        o->given = args->out ? args->out[i] : NULL;
        o->buffer = NULL;
        o->asked = o->aside = false;
    }
    return true;
}

pl_ctx* pl_call_begin(const pl_call_args* args) {
    static atomic_int_fast64_t default_threads, default_limit;
    pl_call* call = take_call();
    if (!call) return NULL;
    if (!prepare_outputs(call, args)) {
        free_call(call);
        return NULL;
    }
    int64_t threads = args->num_threads, limit = args->memory_limit;
    if (threads <= 0 && !(threads = atomic_load(&default_threads)))
        atomic_store(&default_threads, threads = pl_default_threads());
    if (limit <= 0 && !(limit = atomic_load(&default_limit)))
        atomic_store(&default_limit, limit = pl_default_memory_limit());
    call->limit = limit;
    call->output_bytes = 0;
    call->interrupted = args->interrupted;
    call->interrupted_data = args->interrupted_data;
    atomic_store_explicit(&call->stopped, 0, memory_order_relaxed);
    call->next_poll = 0;
    pl_ctx* ctx = &call->main.ctx;
    ctx->weights = args->weights;
    ctx->num_threads = threads;
    ctx->error_code = PL_OK;
    memset(ctx->payload, 0, sizeof ctx->payload);
    ctx->inputs = args->inputs;
    ctx->num_inputs = args->num_inputs;
    ctx->num_outputs = args->num_outputs;
    return ctx;
}

int32_t pl_call_finish(pl_ctx* ctx, int32_t code) {
    pl_call* call = call_of(ctx);
    for (int64_t i = 0; i < call->num_outputs && !code; i++)
        if (!call->outputs[i].asked) code = pl_fail(ctx, PL_OUTPUT, i, PL_OUTPUT_MISSING, 0, 0, 0);
    for (int64_t i = 0; i < call->num_outputs; i++) {
        output* o = &call->outputs[i];
        if (!code && o->aside && o->bytes)
            memcpy((char*)o->given->data + o->given->byte_offset, pl_buffer_data(o->buffer),
                   (size_t)o->bytes);
        if (code || o->aside) drop_buffer(call, o);
    }
    return ctx->error_code = code;
}

pl_result pl_call_result(pl_ctx* ctx, int64_t index) {
    output* o = &call_of(ctx)->outputs[index];
    pl_result result = {o->dtype, o->ndim, o->shape, o->buffer};
    o->buffer = NULL;
    return result;
}

int64_t pl_call_peak_bytes(const pl_ctx* ctx) { return ((const pl_thread*)ctx)->call->arena.peak; }

void pl_call_end(pl_ctx* ctx) {
    pl_call* call = call_of(ctx);
    for (int64_t i = 0; i < call->num_outputs; i++) drop_buffer(call, &call->outputs[i]);
    pl_stack_empty(&call->arena, ARENA_WINDOW);
    pl_stack_empty(&call->main.scratch, ARENA_WINDOW);
    pthread_mutex_lock(&calls.lock);
    call->next = calls.idle;
    calls.idle = call;
    pthread_mutex_unlock(&calls.lock);
}

void pl_call_trim(void) {
    pthread_mutex_lock(&calls.lock);
    pl_call* call = calls.idle;
    calls.idle = NULL;
    pthread_mutex_unlock(&calls.lock);
    while (call) {
        pl_call* next = call->next;
        free_call(call);
        call = next;
    }
}
