/* The interface between generated code and the runtime, version 1.
 *
 * Generated code knows this file only through the byte offsets asserted at the end and mirrored in
 * abi.py. A field never moves or changes its meaning within a version; new fields go to the end, and
 * `size` says how many there are.
 *
 *   kernel       int32_t k(pl_ctx*, ptr..., int64_t...)
 *   host entry   int32_t entry(pl_ctx*)
 *
 * Both return PL_OK or an error code. Whoever returns a code has put the details into
 * `ctx->payload` first; a NULL from `arena`, `scratch` or `output` has set `ctx->error_code` and the
 * payload, and the caller returns that code.
 *
 * What holds when an entry runs: every input is in CPU memory, its dtype and rank are those of the
 * manifest, `strides` is never NULL (in elements, any sign, 0 allowed) and `byte_offset` is 0. Data
 * is aligned to its element. Extents and strides are unchecked: that is the entry's work.
 */
#ifndef PLIANT_H
#define PLIANT_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_ABI_VERSION 1u
#define PL_ALIGNMENT 64
#define PL_PAGE 4096
#define PL_AMID 2048 /* where scratch memory begins in a page */
#define PL_MAX_NDIM 64
#define PL_PAYLOAD 8
/* A region is cut into at most this many pieces, whatever the number of threads. */
#define PL_MAX_CHUNKS 256

enum {
    PL_OK = 0,
    PL_CHECK = 1,       /* payload: check site, then the values its message names           */
    PL_MEMORY = 2,      /* payload: -1, bytes asked for, the limit (0: the system refused)  */
    PL_INDEX = 3,       /* payload: site (or -1), index, extent                             */
    PL_DIVIDE = 4,      /* payload: site (or -1)                                            */
    PL_OUTPUT = 5,      /* payload: output, PL_OUTPUT_*, dimension, expected, got           */
    PL_INTERRUPTED = 6, /* the process received a signal that ends the call                 */
};

enum {
    PL_OUTPUT_DTYPE = 1,
    PL_OUTPUT_RANK = 2,
    PL_OUTPUT_EXTENT = 3,
    PL_OUTPUT_NOT_COMPACT = 4,
    PL_OUTPUT_SHARED = 5,   /* shares memory with another output; payload[2] is that output */
    PL_OUTPUT_MISSING = 6,  /* the entry never asked for it, or asked for one too many      */
    PL_OUTPUT_NEGATIVE = 7, /* an extent below zero                                         */
};

typedef struct pl_ctx pl_ctx;
typedef int32_t (*pl_body)(pl_ctx* ctx, void* closure, int64_t begin, int64_t end);
typedef int32_t (*pl_entry)(pl_ctx* ctx);

struct pl_ctx {
    uint32_t version;
    uint32_t size;
    /* Runs body over [0, n) in disjoint pieces of at least `grain` (the last piece too, unless n is
     * smaller). The pieces depend on n and grain alone. Inside another region, or while another
     * thread has the pool, the same pieces run one after the other on this thread. Of several
     * errors the one of the lowest piece is returned, with its payload in this ctx. */
    int32_t (*parallel)(pl_ctx*, pl_body body, void* closure, int64_t n, int64_t grain);
    /* A new 64-byte aligned segment that lives until the call ends; never NULL for 0 bytes. */
    void* (*arena)(pl_ctx*, int64_t bytes);
    /* A block for this thread, disjoint from its others until released. A piece of a parallel
     * region releases on its own return; the rest goes when the call ends or by mark/release. */
    void* (*scratch)(pl_ctx*, int64_t bytes);
    int64_t (*mark)(pl_ctx*);
    void (*release)(pl_ctx*, int64_t mark);
    /* The compact row-major buffer to write output `index` to; dtype is DLPack's code << 8 | bits. */
    void* (*output)(pl_ctx*, int64_t index, int64_t dtype, int64_t ndim, const int64_t* shape);
    void* const* weights;
    int64_t num_threads;
    int32_t error_code;
    int32_t reserved;
    int64_t payload[PL_PAYLOAD];
    const DLTensor* const* inputs;
    /* PL_OK, or PL_INTERRUPTED when the call should end. Cheap enough for every kernel launch;
     * `parallel` asks by itself. */
    int32_t (*poll)(pl_ctx*);
    int64_t thread; /* 0 is the caller; below num_threads, distinct within a region */
    int64_t num_inputs;
    int64_t num_outputs;
};

/* ---- for whoever calls entries: the Python module, tests, other languages ------------------- */

typedef struct pl_call pl_call;
typedef struct pl_buffer pl_buffer;

typedef struct pl_call_args {
    const DLTensor* const* inputs;
    int64_t num_inputs;
    const DLTensor* const* out; /* NULL, or num_outputs pointers of which any may be NULL */
    int64_t num_outputs;
    void* const* weights;
    int64_t num_threads;  /* 0: pl_default_threads() */
    int64_t memory_limit; /* bytes of arena and new outputs; 0: pl_default_memory_limit() */
    int32_t (*interrupted)(void* data); /* NULL, or asked now and then on the calling thread */
    void* interrupted_data;
} pl_call_args;

typedef struct pl_result {
    int64_t dtype;
    int64_t ndim;
    const int64_t* shape; /* valid until pl_call_end */
    pl_buffer* buffer;    /* a new buffer, now the caller's to release; NULL: it is in `out` */
} pl_result;

/* pl_call_begin -> entry(ctx) -> pl_call_finish -> pl_call_result... -> pl_call_end.
 * begin returns NULL when there is no memory. finish copies what had to be written aside into `out`
 * and returns the final code; after an error there are no results. end drops untaken results. */
pl_ctx* pl_call_begin(const pl_call_args* args);
int32_t pl_call_finish(pl_ctx* ctx, int32_t code);
pl_result pl_call_result(pl_ctx* ctx, int64_t index);
int64_t pl_call_peak_bytes(const pl_ctx* ctx);
void pl_call_end(pl_ctx* ctx);
/* Frees the cached arenas of finished calls. */
void pl_call_trim(void);

/* Output buffers, recycled: released memory is kept, up to a cap, for the next acquire. */
pl_buffer* pl_buffer_acquire(int64_t bytes);
void pl_buffer_retain(pl_buffer* buffer);
void pl_buffer_release(pl_buffer* buffer);
void* pl_buffer_data(const pl_buffer* buffer);
int64_t pl_buffers_cached(void);
void pl_buffers_set_cap(int64_t bytes); /* also frees what is above it; 0 frees all */

int64_t pl_default_threads(void);
int64_t pl_default_memory_limit(void);
int64_t pl_pool_workers(void);
/* Ends the worker threads; the next region starts new ones. Not while a region runs. */
void pl_pool_shutdown(void);
/* Asks the system for AMX tiles (once a process); 0 on success or where there is nothing to ask. */
int pl_request_amx(void);

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus)
#define PL_OFFSET(field, at) static_assert(offsetof(pl_ctx, field) == (at), #field)
#else
#define PL_OFFSET(field, at) _Static_assert(offsetof(pl_ctx, field) == (at), #field)
#endif
PL_OFFSET(version, 0);
PL_OFFSET(size, 4);
PL_OFFSET(parallel, 8);
PL_OFFSET(arena, 16);
PL_OFFSET(scratch, 24);
PL_OFFSET(mark, 32);
PL_OFFSET(release, 40);
PL_OFFSET(output, 48);
PL_OFFSET(weights, 56);
PL_OFFSET(num_threads, 64);
PL_OFFSET(error_code, 72);
PL_OFFSET(payload, 80);
PL_OFFSET(inputs, 144);
PL_OFFSET(poll, 152);
PL_OFFSET(thread, 160);
PL_OFFSET(num_inputs, 168);
PL_OFFSET(num_outputs, 176);

#endif
