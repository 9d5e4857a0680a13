/* Stacks of memory: alignment, disjointness, mark and release, reuse, limits. */
#include "check.h"

static void blocks_are_aligned_and_disjoint(void) {
    pl_stack s = {0};
    char* blocks[500];
    int64_t sizes[500];
    for (int i = 0; i < 500; i++) {
        sizes[i] = (int64_t)i * i * 7 % 50000;
        blocks[i] = pl_stack_take(&s, sizes[i]);
        CHECK(blocks[i] && is_aligned(blocks[i]));
        memset(blocks[i], i & 0xff, (size_t)sizes[i]);
    }
    for (int i = 0; i < 500; i++)
        for (int64_t j = 0; j < sizes[i]; j++) CHECK(blocks[i][j] == (char)(i & 0xff));
    pl_stack_free(&s);
}

static void a_steady_state_allocates_nothing(void) {
    pl_stack s = {0};
    void* first = NULL;
    for (int round = 0; round < 50; round++) {
        void* a = pl_stack_take(&s, 1 << 20);
        CHECK(pl_stack_take(&s, 5 << 20) && pl_stack_take(&s, 3));
        CHECK(s.peak == (6 << 20) + 64);
        if (round == 1) first = a; /* after one round the chunks have been merged */
        if (round > 1) CHECK(a == first);
        pl_stack_empty(&s, 1000);
    }
    pl_stack_free(&s);
}

static void a_larger_call_leaves_its_memory_to_the_next(void) {
    pl_stack s = {0};
    for (int64_t bytes = 1 << 20; bytes <= 8 << 20; bytes *= 2) {
        char* block = pl_stack_take(&s, bytes);
        CHECK(block);
        memset(block, 7, (size_t)bytes);
        pl_stack_empty(&s, 1000);
        block = pl_stack_take(&s, bytes);
        CHECK(block[0] == 7 && block[bytes - 1] == 7); /* the same pages, not mapped anew */
        pl_stack_empty(&s, 1000);
    }
    pl_stack_free(&s);
}

static void unused_memory_goes_back(void) {
    pl_stack s = {0};
    CHECK(pl_stack_take(&s, 100 << 20));
    pl_stack_empty(&s, 4);
    for (int i = 0; i < 12; i++) {
        CHECK(pl_stack_take(&s, 1000));
        pl_stack_empty(&s, 4);
    }
    CHECK(pl_stack_take(&s, 1000));
    CHECK(s.want <= 1 << 20);
    pl_stack_free(&s);
}

static void release_returns_to_the_mark(void) {
    pl_stack s = {0};
    char* a = pl_stack_take(&s, 100);
    int64_t mark = pl_stack_mark(&s);
    char* b = pl_stack_take(&s, 100);
    CHECK(pl_stack_take(&s, 10 << 20)); /* other chunks */
    CHECK(pl_stack_take(&s, 20 << 20));
    pl_stack_release(&s, mark);
    CHECK(pl_stack_mark(&s) == mark);
    CHECK(pl_stack_take(&s, 100) == b);
    pl_stack_release(&s, 0);
    CHECK(pl_stack_take(&s, 100) == a);
    pl_stack_release(&s, 1 << 30); /* not a mark: ignored */
    pl_stack_release(&s, -5);
    /* Random marks nest as a stack does. */
    int64_t marks[40];
    unsigned seed = 1;
    for (int round = 0; round < 300; round++) {
        pl_stack_release(&s, 0);
        int depth = 0;
        for (int step = 0; step < 40; step++) {
            seed = seed * 1664525u + 1013904223u;
            if (seed >> 31 && depth) {
                depth--;
                pl_stack_release(&s, marks[depth]);
                CHECK(pl_stack_mark(&s) == marks[depth]);
            } else {
                marks[depth++] = pl_stack_mark(&s);
                char* p = pl_stack_take(&s, seed % 300000);
                CHECK(p);
                memset(p, 1, seed % 300000);
            }
        }
    }
    pl_stack_free(&s);
}

static void impossible_sizes_fail(void) {
    pl_stack s = {0};
    CHECK(!pl_stack_take(&s, -1) && !pl_stack_take(&s, INT64_MAX) && !pl_stack_take(&s, INT64_MIN));
    CHECK(!pl_memory_new(-1) && !pl_memory_new(INT64_MAX));
    pl_stack_free(&s);
    for (int64_t bytes = 0; bytes < 9 << 20; bytes = bytes * 3 + 1) {
        char* p = pl_memory_new(bytes);
        CHECK(p && is_aligned(p));
        if (bytes >= 2 << 20) CHECK((uintptr_t)p % (2 << 20) == 0);
        memset(p, 1, (size_t)bytes);
        pl_memory_free(p, bytes);
    }
}

static void a_call_respects_its_limit(void) {
    pl_call_args args = {.num_threads = 1, .memory_limit = 1000};
    pl_ctx* ctx = pl_call_begin(&args);
    void* p = ctx->arena(ctx, 0);
    CHECK(p && is_aligned(p));
    CHECK(ctx->arena(ctx, 800));
    CHECK(!ctx->arena(ctx, 800) && ctx->error_code == PL_MEMORY);
    CHECK(ctx->payload[1] == 800 && ctx->payload[2] == 1000);
    CHECK(!ctx->arena(ctx, -1) && !ctx->arena(ctx, INT64_MAX));
    CHECK(!ctx->scratch(ctx, -1) && !ctx->scratch(ctx, 2000) && ctx->scratch(ctx, 900));
    CHECK(pl_call_finish(ctx, ctx->error_code) == PL_MEMORY);
    CHECK(pl_call_peak_bytes(ctx) == 64 + 832);
    pl_call_end(ctx);
}

int main(void) {
    blocks_are_aligned_and_disjoint();
    a_steady_state_allocates_nothing();
    a_larger_call_leaves_its_memory_to_the_next();
    unused_memory_goes_back();
    release_returns_to_the_mark();
    impossible_sizes_fail();
    a_call_respects_its_limit();
    pl_call_trim();
    return 0;
}
