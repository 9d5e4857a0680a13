/* CHECK for tests, and a call with the usual arguments. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);   \
            abort();                                                                  \
        }                                                                             \
    } while (0)

static inline pl_ctx* begin(int64_t threads) {
    pl_call_args args = {.num_threads = threads};
    pl_ctx* ctx = pl_call_begin(&args);
    CHECK(ctx);
    return ctx;
}

static inline void end(pl_ctx* ctx) {
    CHECK(pl_call_finish(ctx, PL_OK) == PL_OK);
    pl_call_end(ctx);
}

static inline bool is_aligned(const void* p) { return (uintptr_t)p % PL_ALIGNMENT == 0; }

#endif
