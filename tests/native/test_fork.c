/* A forked child has a working runtime, whatever the parent's threads were doing. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static atomic_int stop;

static int32_t add(pl_ctx* ctx, void* closure, int64_t begin, int64_t end) {
    (void)ctx;
    atomic_fetch_add((atomic_long*)closure, end - begin);
    return PL_OK;
}

static void one_region(void) {
    atomic_long total = 0;
    pl_ctx* ctx = begin(4);
    memset(ctx->arena(ctx, 1000), 1, 1000);
    CHECK(ctx->parallel(ctx, add, &total, 1000, 1) == PL_OK && total == 1000);
    end(ctx);
    pl_buffer_release(pl_buffer_acquire(1000));
}

static void* keep_busy(void* unused) {
    (void)unused;
    while (!atomic_load(&stop)) one_region();
    return NULL;
}

int main(void) {
    one_region();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, keep_busy, NULL));
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(30); /* a lock left held would hang */
            CHECK(pl_pool_workers() == 0);
            for (int i = 0; i < 20; i++) one_region();
            CHECK(pl_pool_workers() > 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    one_region();
    pl_pool_shutdown();
    pl_call_trim();
    pl_buffers_set_cap(0);
    return 0;
}
