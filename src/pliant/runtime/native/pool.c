/* The process's thread pool.
 *
 * One region runs at a time. Its owner posts a job, takes pieces itself, and at the end waits only
 * for workers that joined: one still asleep costs nothing. All of the hand-over is in one word:
 *
 *     state = generation << 32 | places left << 16 | workers inside << 1 | open
 *
 * A worker joins by taking a place while the job is open; the owner closes the job, then waits for
 * `workers inside` to fall to 0. Job fields are plain: they are written while nobody is inside.
 *
 * Each thread has a share of the pieces, the same share in each region of this size, so that what it
 * wrote in one kernel is in its cache for the next; when it is done it takes from the others' shares.
 *
 * Sleeping is by condition variables. The one who posts changes the word and then looks for
 * sleepers; the one who sleeps announces itself and then looks at the word; both orders are
 * sequentially consistent, so one of the two sees the other.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

#define OPEN ((uint64_t)1)
#define INSIDE ((uint64_t)1 << 1)
#define INSIDE_MASK ((uint64_t)0x7fff << 1)
#define PLACE ((uint64_t)1 << 16)
#define PLACE_MASK ((uint64_t)0xffff << 16)
#define GENERATION(state) ((uint32_t)((state) >> 32))
#define MOST_WORKERS 1023
/* Kernels of one call follow each other within microseconds; a longer spin steals other people's CPU. */
#define SPIN_NANOSECONDS 20000
#define SCRATCH_WINDOW 4096

typedef struct worker {
    pl_thread thread;
    pthread_t id;
    int64_t index; /* 1 .. : the owner is 0 */
} worker;

/* A run of pieces; on a cache line of its own. */
typedef struct share {
    _Alignas(64) atomic_int_fast64_t next;
    int64_t end;
} share;

static struct {
    atomic_uint_fast64_t state;
    atomic_int owned;
    atomic_int sleepers;
    atomic_int owner_waits;
    atomic_int stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t done;
    worker* workers[MOST_WORKERS];
    atomic_int count;

    /* the job */
    pl_ctx ctx; /* a copy: the owner writes errors into its own while workers start */
    struct pl_call* call;
    pl_body body;
    void* closure;
    int64_t n;
    int64_t chunks;
    int64_t threads;
    share shares[MOST_WORKERS + 1];
    atomic_int_fast64_t error_chunk; /* written under lock; chunks: none */
    int32_t error;
    int64_t payload[PL_PAYLOAD];
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static _Thread_local bool in_region;

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t load_state(void) { return atomic_load(&pool.state); }

static bool is_work(uint64_t state, uint32_t seen) {
    return (state & OPEN) && (state & PLACE_MASK) && GENERATION(state) != seen;
}

static bool is_over(uint64_t state, uint32_t unused) {
    (void)unused;
    return !(state & INSIDE_MASK);
}

/* Waits a little for a state of the given kind. */
static bool spin_until(bool (*wanted)(uint64_t, uint32_t), uint32_t seen) {
    int64_t end = 0;
    for (int i = 1; !wanted(load_state(), seen); i++) {
        if (i % 32 == 0) {
            int64_t t = now();
            if (!end) end = t + SPIN_NANOSECONDS;
            if (t > end) return false;
        }
        pause_cpu();
    }
    return true;
}

static int64_t piece_begin(int64_t n, int64_t chunks, int64_t i) {
    int64_t size = n / chunks, larger = n % chunks;
    return i * size + (i < larger ? i : larger);
}

static int64_t count_chunks(int64_t n, int64_t grain) {
    int64_t chunks = n / (grain > 1 ? grain : 1);
    if (chunks > PL_MAX_CHUNKS) return PL_MAX_CHUNKS;
    return chunks > 1 ? chunks : 1;
}

/* Scratch taken by a piece ends with it. */
static int32_t run_piece(pl_ctx* ctx, pl_body body, void* closure, int64_t begin, int64_t end) {
    pl_stack* scratch = &pl_thread_of(ctx)->scratch;
    int64_t mark = pl_stack_mark(scratch);
    int32_t code = body(ctx, closure, begin, end);
    pl_stack_release(scratch, mark);
    return code;
}

static int32_t run_serially(pl_ctx* ctx, pl_body body, void* closure, int64_t n, int64_t chunks) {
    bool outer = in_region;
    in_region = true;
    int32_t code = PL_OK;
    for (int64_t i = 0; i < chunks && !code; i++)
        code = run_piece(ctx, body, closure, piece_begin(n, chunks, i), piece_begin(n, chunks, i + 1));
    in_region = outer;
    if (code) ctx->error_code = code;
    return code;
}

static void note_error(pl_ctx* ctx, int32_t code, int64_t chunk) {
    pthread_mutex_lock(&pool.lock);
    if (chunk < atomic_load(&pool.error_chunk)) {
        atomic_store(&pool.error_chunk, chunk);
        pool.error = code;
        for (int i = 0; i < PL_PAYLOAD; i++) pool.payload[i] = ctx->payload[i];
    }
    pthread_mutex_unlock(&pool.lock);
}

/* After an error the pieces above it are skipped, but every one below it still runs: the lowest
 * error is the same whatever the threads do. */
static void take_from(pl_ctx* ctx, share* s) {
    int64_t i;
    while ((i = atomic_fetch_add(&s->next, 1)) < s->end) {
        if (i > atomic_load_explicit(&pool.error_chunk, memory_order_relaxed)) return;
        int32_t code = run_piece(ctx, pool.body, pool.closure, piece_begin(pool.n, pool.chunks, i),
                                 piece_begin(pool.n, pool.chunks, i + 1));
        if (code) note_error(ctx, code, i);
    }
}

static void take_pieces(pl_ctx* ctx, int64_t own) {
    for (int64_t k = 0; k < pool.threads; k++) {
        share* s = &pool.shares[(own + k) % pool.threads];
        /* Look before adding: an exhausted counter is best left in its reader's cache. */
        if (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) take_from(ctx, s);
    }
}

/* ---- workers ---------------------------------------------------------------------------------- */

/* Takes a place in the open job, unless it is the one already seen; the state just after. */
static bool join(uint32_t seen, uint64_t* joined) {
    uint64_t state = load_state();
    while (is_work(state, seen)) {
        *joined = state - PLACE + INSIDE;
        if (atomic_compare_exchange_weak(&pool.state, &state, *joined)) return true;
    }
    return false;
}

static void leave(void) {
    uint64_t state = atomic_fetch_sub(&pool.state, INSIDE) - INSIDE;
    if ((state & INSIDE_MASK) || !atomic_load(&pool.owner_waits)) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
}

static void sleep_until_work(uint32_t seen) {
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1);
    while (!is_work(load_state(), seen) && !atomic_load(&pool.stop))
        pthread_cond_wait(&pool.wake, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.lock);
}

static void* worker_main(void* argument) {
    pl_thread* self = &((worker*)argument)->thread;
    int64_t index = ((worker*)argument)->index;
    in_region = true;
#ifdef __linux__
    pthread_setname_np(pthread_self(), "pliant");
#endif
    uint32_t seen = 0;
    while (!atomic_load(&pool.stop)) {
        uint64_t joined;
        if (!spin_until(is_work, seen)) sleep_until_work(seen);
        if (!join(seen, &joined)) continue;
        seen = GENERATION(joined);
        self->ctx = pool.ctx;
        self->ctx.thread = pool.threads - 1 - (int64_t)((joined & PLACE_MASK) / PLACE);
        self->call = pool.call;
        take_pieces(&self->ctx, index < pool.threads ? index : self->ctx.thread);
        pl_stack_empty(&self->scratch, SCRATCH_WINDOW);
        leave();
    }
    return NULL;
}

/* Signals belong to the program's own threads. */
static bool start_worker(void) {
    worker* self = calloc(1, sizeof *self);
    if (!self) return false;
    self->index = atomic_load(&pool.count) + 1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&self->id, NULL, worker_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(self);
        return false;
    }
    pool.workers[atomic_fetch_add(&pool.count, 1)] = self;
    return true;
}

int64_t pl_pool_workers(void) { return atomic_load(&pool.count); }

void pl_pool_shutdown(void) {
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.stop, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < atomic_load(&pool.count); i++) {
        pthread_join(pool.workers[i]->id, NULL);
        pl_stack_free(&pool.workers[i]->thread.scratch);
        free(pool.workers[i]);
        pool.workers[i] = NULL;
    }
    atomic_store(&pool.count, 0);
    atomic_store(&pool.stop, 0);
}

/* ---- fork -------------------------------------------------------------------------------------- */

static void before_fork(void) {
    pl_calls_lock();
    pl_outputs_lock();
}

static void after_fork_in_parent(void) {
    pl_outputs_unlock();
    pl_calls_unlock();
}

/* The child has this thread alone. The old workers' memory cannot be trusted and is left behind. */
static void after_fork_in_child(void) {
    pl_outputs_unlock();
    pl_calls_unlock();
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    atomic_store(&pool.state, 0);
    atomic_store(&pool.owned, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.owner_waits, 0);
    atomic_store(&pool.count, 0);
    atomic_store(&pool.stop, 0); /* another thread may have been shutting the pool down */
}

static void register_fork(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void pl_fork_guard(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
}

/* ---- owner ------------------------------------------------------------------------------------- */

static void share_out(int64_t chunks, int64_t threads) {
    for (int64_t i = 0; i < threads; i++) {
        atomic_store_explicit(&pool.shares[i].next, piece_begin(chunks, threads, i), memory_order_relaxed);
        pool.shares[i].end = piece_begin(chunks, threads, i + 1);
    }
}

static void post_job(int64_t places) {
    uint64_t generation = (uint64_t)(GENERATION(load_state()) + 1) << 32;
    atomic_store(&pool.state, generation | (uint64_t)places * PLACE | OPEN);
    if (atomic_load(&pool.sleepers) == 0) return;
    pthread_mutex_lock(&pool.lock);
    for (int64_t i = 0; i < places; i++) pthread_cond_signal(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

static void close_job(void) {
    uint64_t state = atomic_fetch_and(&pool.state, ~OPEN);
    if (is_over(state, 0) || spin_until(is_over, 0)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.owner_waits, 1);
    while (!is_over(load_state(), 0)) pthread_cond_wait(&pool.done, &pool.lock);
    atomic_store(&pool.owner_waits, 0);
    pthread_mutex_unlock(&pool.lock);
}

int32_t pl_pool_parallel(pl_ctx* ctx, pl_body body, void* closure, int64_t n, int64_t grain) {
    if (n <= 0) return PL_OK;
    int32_t code = in_region ? PL_OK : ctx->poll(ctx);
    if (code) return code;
    int64_t chunks = count_chunks(n, grain);
    int64_t threads = ctx->num_threads < chunks ? ctx->num_threads : chunks;
    if (threads > MOST_WORKERS + 1) threads = MOST_WORKERS + 1;
    if (threads <= 1 || in_region || atomic_exchange(&pool.owned, 1))
        return run_serially(ctx, body, closure, n, chunks);

    pl_fork_guard();
    while (atomic_load(&pool.count) < threads - 1 && start_worker()) {
    }
    pool.ctx = *ctx;
    pool.call = pl_thread_of(ctx)->call;
    pool.body = body;
    pool.closure = closure;
    pool.n = n;
    pool.chunks = chunks;
    pool.threads = threads;
    atomic_store(&pool.error_chunk, chunks);
    pool.error = PL_OK;
    share_out(chunks, threads);

    in_region = true;
    post_job(threads - 1);
    take_pieces(ctx, 0);
    close_job();
    in_region = false;

    code = pool.error;
    if (code) {
        ctx->error_code = code;
        for (int i = 0; i < PL_PAYLOAD; i++) ctx->payload[i] = pool.payload[i];
    }
    atomic_store(&pool.owned, 0);
    return code;
}
