/* Parallel regions: cover, pieces, errors, scratch, nesting, many callers, shutdown. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

typedef struct cover {
    int64_t n;
    int64_t grain;
    char* seen;              /* plain: the thread sanitizer sees two pieces meet */
    atomic_long pieces;
    int64_t begins[PL_MAX_CHUNKS];
} cover;

static int32_t mark(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    cover* c = closure;
    CHECK(0 <= begin && begin < end && end <= c->n);
    CHECK(end - begin >= (c->grain < c->n ? c->grain : c->n));
    CHECK(0 <= ctx->thread && ctx->thread < ctx->num_threads);
    for (int64_t i = begin; i < end; i++) c->seen[i]++;
    long k = atomic_fetch_add(&c->pieces, 1);
    CHECK(k < PL_MAX_CHUNKS);
    c->begins[k] = begin;
    return PL_OK;
}

static int compare(const void* a, const void* b) {
    int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
    return x < y ? -1 : x > y;
}

static void every_index_once(int64_t n, int64_t grain, int64_t threads, cover* c) {
    *c = (cover){.n = n, .grain = grain, .seen = calloc(1, (size_t)n + 1)};
    pl_ctx* ctx = begin(threads);
    CHECK(ctx->parallel(ctx, mark, c, n, grain) == PL_OK);
    end(ctx);
    for (int64_t i = 0; i < n; i++) CHECK(c->seen[i] == 1);
    qsort(c->begins, (size_t)c->pieces, sizeof *c->begins, compare);
    free(c->seen);
}

static void pieces_depend_on_extent_and_grain_alone(void) {
    int64_t extents[] = {1, 2, 3, 7, 64, 255, 256, 257, 1000, 4099};
    int64_t grains[] = {-3, 0, 1, 2, 10, 100, 5000};
    for (int e = 0; e < 10; e++)
        for (int g = 0; g < 7; g++) {
            static cover one, other;
            every_index_once(extents[e], grains[g], 1, &one);
            for (int64_t threads = 2; threads < 6; threads += 3) {
                every_index_once(extents[e], grains[g], threads, &other);
                CHECK(one.pieces == other.pieces);
                CHECK(!memcmp(one.begins, other.begins, (size_t)one.pieces * sizeof *one.begins));
            }
        }
}

static int32_t huge_piece(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    (void)ctx;
    CHECK(begin >= 0 && end > begin);
    atomic_fetch_add((atomic_llong*)closure, end - begin);
    return PL_OK;
}

static void extents_at_the_ends(void) {
    pl_ctx* ctx = begin(4);
    CHECK(ctx->parallel(ctx, mark, NULL, 0, 1) == PL_OK);
    CHECK(ctx->parallel(ctx, mark, NULL, -7, 1) == PL_OK);
    atomic_llong total = 0;
    CHECK(ctx->parallel(ctx, huge_piece, &total, INT64_MAX, 1) == PL_OK);
    CHECK(total == INT64_MAX);
    end(ctx);
}

static int32_t fail_from(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    int64_t first = *(int64_t*)closure;
    for (volatile int spin = 0; spin < 200; spin++) {
    }
    if (end <= first) return PL_OK;
    return pl_fail(ctx, PL_INDEX, 3, begin, end, 0, 0);
}

static void the_lowest_error_is_reported(void) {
    for (int round = 0; round < 300; round++) {
        int64_t first = round * 3;
        pl_ctx* ctx = begin(round % 4 + 1);
        CHECK(ctx->parallel(ctx, fail_from, &first, 1000, 10) == PL_INDEX);
        CHECK(ctx->error_code == PL_INDEX && ctx->payload[0] == 3);
        CHECK(ctx->payload[1] <= first && first < ctx->payload[2]);
        CHECK(pl_call_finish(ctx, ctx->error_code) == PL_INDEX);
        pl_call_end(ctx);
    }
}

static int32_t use_scratch(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    (void)closure;
    char* a = ctx->scratch(ctx, 1000);
    char* b = ctx->scratch(ctx, (begin * 977) % 200000);
    CHECK(a && b && is_aligned(a) && is_aligned(b));
    CHECK((uintptr_t)a % PL_PAGE == PL_AMID);
    memset(a, 1, 1000);
    memset(b, 2, (size_t)((begin * 977) % 200000));
    int64_t mark = ctx->mark(ctx);
    char* c = ctx->scratch(ctx, 10);
    ctx->release(ctx, mark);
    CHECK(ctx->scratch(ctx, 10) == c);
    CHECK(a[999] == 1 && end > begin);
    char* segment = ctx->arena(ctx, 100); /* from any thread */
    CHECK(segment);
    memset(segment, 3, 100);
    return PL_OK;
}

static void scratch_is_per_thread_and_released(void) {
    for (int round = 0; round < 20; round++) {
        pl_ctx* ctx = begin(4);
        int64_t before = ctx->mark(ctx);
        CHECK(ctx->parallel(ctx, use_scratch, NULL, 400, 1) == PL_OK);
        CHECK(ctx->mark(ctx) == before);
        end(ctx);
    }
}

static int32_t inner(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    (void)ctx;
    atomic_fetch_add((atomic_long*)closure, end - begin);
    return PL_OK;
}

static int32_t outer(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        int32_t code = ctx->parallel(ctx, inner, closure, 100, 7);
        if (code) return code;
    }
    return PL_OK;
}

static int32_t nested_failure(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    (void)begin, (void)end;
    return ctx->parallel(ctx, fail_from, closure, 100, 1);
}

static void nested_regions_run_serially(void) {
    atomic_long total = 0;
    pl_ctx* ctx = begin(4);
    CHECK(ctx->parallel(ctx, outer, &total, 50, 1) == PL_OK);
    CHECK(total == 5000);
    int64_t first = 40;
    CHECK(ctx->parallel(ctx, nested_failure, &first, 8, 1) == PL_INDEX);
    CHECK(ctx->payload[1] == 40);
    CHECK(pl_call_finish(ctx, ctx->error_code) == PL_INDEX);
    pl_call_end(ctx);
}

static void* call_often(void* unused) {
    (void)unused;
    for (int i = 0; i < 300; i++) {
        atomic_long total = 0;
        pl_ctx* ctx = begin(i % 4 + 1);
        char* segment = ctx->arena(ctx, 5000);
        memset(segment, i & 0xff, 5000);
        for (int k = 0; k < 4; k++) CHECK(ctx->parallel(ctx, inner, &total, 1000, 10) == PL_OK);
        CHECK(total == 4000);
        for (int k = 0; k < 5000; k++) CHECK(segment[k] == (char)(i & 0xff));
        end(ctx);
    }
    return NULL;
}

static void many_callers_at_once(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, call_often, NULL));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    for (int round = 0; round < 2; round++) { /* the second time with a pool that was shut down */
        pieces_depend_on_extent_and_grain_alone();
        extents_at_the_ends();
        the_lowest_error_is_reported();
        scratch_is_per_thread_and_released();
        nested_regions_run_serially();
        many_callers_at_once();
        CHECK(pl_pool_workers() >= 3);
        pl_pool_shutdown();
        CHECK(pl_pool_workers() == 0);
    }
    pl_call_trim();
    return 0;
}
