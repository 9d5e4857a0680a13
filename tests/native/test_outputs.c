/* The store of output buffers: reuse, cap, many threads. */
#include <pthread.h>

#include "check.h"

static void released_buffers_return(void) {
    pl_buffer* a = pl_buffer_acquire(1000);
    void* data = pl_buffer_data(a);
    CHECK(is_aligned(data));
    pl_buffer_retain(a);
    pl_buffer_release(a);
    pl_buffer* b = pl_buffer_acquire(1000);
    CHECK(pl_buffer_data(b) != data); /* still referenced */
    pl_buffer_release(a);
    pl_buffer* c = pl_buffer_acquire(990);
    CHECK(pl_buffer_data(c) == data);
    pl_buffer_release(b);
    pl_buffer_release(c);
    pl_buffer_release(NULL);
}

static void sizes_fit(void) {
    for (int64_t bytes = 0; bytes < 40 << 20; bytes += 1 + bytes / 7) {
        pl_buffer* b = pl_buffer_acquire(bytes);
        memset(pl_buffer_data(b), 7, (size_t)bytes); /* the sanitizer sees an overrun */
        pl_buffer_release(b);
    }
    CHECK(!pl_buffer_acquire(-1) && !pl_buffer_acquire(INT64_MAX));
}

/* Behind the first lines of a page, where the arrays of others are. */
static void long_ones_begin_behind(void) {
    for (int64_t bytes = 64 << 10; bytes < 40 << 20; bytes += 1 + bytes / 5) {
        pl_buffer* b = pl_buffer_acquire(bytes);
        CHECK((uintptr_t)pl_buffer_data(b) % PL_PAGE == 1024);
        pl_buffer_release(b);
    }
}

static void the_cap_holds(void) {
    pl_buffers_set_cap(0);
    CHECK(pl_buffers_cached() == 0);
    pl_buffers_set_cap(1 << 20);
    pl_buffer* many[64];
    for (int i = 0; i < 64; i++) many[i] = pl_buffer_acquire(100000);
    for (int i = 0; i < 64; i++) pl_buffer_release(many[i]);
    CHECK(pl_buffers_cached() > 0 && pl_buffers_cached() <= 1 << 20);
    /* One large buffer stays although it is above the cap; the next release pushes it out. */
    pl_buffer* large = pl_buffer_acquire(8 << 20);
    void* data = pl_buffer_data(large);
    pl_buffer_release(large);
    large = pl_buffer_acquire(8 << 20);
    CHECK(pl_buffer_data(large) == data);
    pl_buffer_release(large);
    pl_buffer_release(pl_buffer_acquire(100));
    CHECK(pl_buffers_cached() <= 1 << 20);
    pl_buffers_set_cap(64 << 20);
}

/* Sizes in turn leave no more than 1.5 times the largest behind, however much stays in use; equal
 * ones are the same memory. */
static void many_sizes_share(void) {
    pl_buffers_set_cap(0);
    pl_buffers_set_cap(INT64_MAX);
    pl_buffer* held = pl_buffer_acquire(200 << 20); /* its memory is never touched */
    for (int i = 0; i < 200; i++) pl_buffer_release(pl_buffer_acquire(1000));
    unsigned seed = 1;
    const int64_t most = 40 << 20; /* the class of 32 MiB and a bit */
    for (int i = 0; i < 2000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int64_t bytes = ((int64_t)1 << (10 + (seed >> 28))) + (seed >> 8) % 1000;
        pl_buffer* b = pl_buffer_acquire(bytes);
        CHECK(is_aligned(pl_buffer_data(b)));
        pl_buffer_release(b);
        CHECK(pl_buffers_cached() <= most + most / 2);
    }
    for (int64_t bytes = 100; bytes < 30 << 20; bytes *= 5) {
        pl_buffer* b = pl_buffer_acquire(bytes);
        void* data = pl_buffer_data(b);
        pl_buffer_release(b);
        b = pl_buffer_acquire(bytes);
        CHECK(pl_buffer_data(b) == data);
        pl_buffer_release(b);
    }
    pl_buffer_release(held);
    pl_buffers_set_cap(64 << 20);
}

static void* churn(void* seed_pointer) {
    unsigned seed = *(unsigned*)seed_pointer;
    pl_buffer* held[8] = {0};
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int slot = seed >> 29;
        pl_buffer_release(held[slot]);
        int64_t bytes = (seed >> 8) % 20000 + 1;
        held[slot] = pl_buffer_acquire(bytes);
        char* data = pl_buffer_data(held[slot]);
        data[0] = data[bytes - 1] = (char)slot; /* a race if two hold one buffer */
    }
    for (int i = 0; i < 8; i++) pl_buffer_release(held[i]);
    return NULL;
}

int main(void) {
    released_buffers_return();
    sizes_fit();
    long_ones_begin_behind();
    the_cap_holds();
    many_sizes_share();
    pthread_t threads[6];
    unsigned seeds[6];
    for (unsigned i = 0; i < 6; i++) {
        seeds[i] = i;
        CHECK(!pthread_create(&threads[i], NULL, churn, &seeds[i]));
    }
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    pl_buffers_set_cap(0);
    CHECK(pl_buffers_cached() == 0);
    return 0;
}
