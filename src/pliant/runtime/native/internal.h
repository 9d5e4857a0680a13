/* What the files of the runtime share among themselves. */
#ifndef PLIANT_INTERNAL_H
#define PLIANT_INTERNAL_H

#include <stdbool.h>

#include "pliant.h"

/* Memory: 64-byte aligned; from 2 MiB on, mapped at 2 MiB and advised to be huge pages. */
void* pl_memory_new(int64_t bytes);
void pl_memory_free(void* data, int64_t bytes);

/* A stack of memory. Blocks never move; emptying it keeps (and merges) the memory for next time. */
typedef struct pl_chunk pl_chunk;
typedef struct pl_stack {
    pl_chunk* first;
    pl_chunk* current;
    int64_t peak;        /* most bytes in use since the stack was last empty */
    int64_t want;        /* size of the next first chunk                     */
    int64_t window_peak; /* most bytes in use over the last `window` rounds  */
    int window;
} pl_stack;

void* pl_stack_take(pl_stack* stack, int64_t bytes);
int64_t pl_stack_mark(const pl_stack* stack);
void pl_stack_release(pl_stack* stack, int64_t mark);
/* Memory of which `window` rounds in a row needed less than a fifth is given back. */
void pl_stack_empty(pl_stack* stack, int window);
void pl_stack_free(pl_stack* stack);

/* One thread's view of a call: the ctx that generated code sees comes first. */
typedef struct pl_thread {
    pl_ctx ctx;
    pl_stack scratch;
    struct pl_call* call;
} pl_thread;

static inline pl_thread* pl_thread_of(pl_ctx* ctx) { return (pl_thread*)ctx; }

/* Sets the code and up to five values of payload; returns the code. */
int32_t pl_fail(pl_ctx* ctx, int32_t code, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e);

int32_t pl_pool_parallel(pl_ctx* ctx, pl_body body, void* closure, int64_t n, int64_t grain);

/* A fork must not leave a lock of ours held in the child. */
void pl_outputs_lock(void);
void pl_outputs_unlock(void);
void pl_calls_lock(void);
void pl_calls_unlock(void);
void pl_fork_guard(void);

/* The control groups' CPU quota in CPUs (rounded up) and memory in bytes; 0 where unlimited.
 * `groups` is /proc/self/cgroup, `root` /sys/fs/cgroup; tests pass their own. */
int64_t pl_cgroup_cpus(const char* groups, const char* root);
int64_t pl_cgroup_memory(const char* groups, const char* root);

#endif
