/* Output buffers: a process-wide store that takes a buffer back when its last reference goes.
 *
 * What it holds follows what was ever in use at once, not how many sizes there were: idle buffers and
 * those in use are together at most 1.5 times the most that was in use, and idle ones at most the
 * cap. A thousand sizes in turn thus share a few buffers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "internal.h"

/* Four sizes to each power of two: at most a quarter of a buffer is unused. */
#define CLASSES 256
#define NEAR 3 /* classes: less than twice the size */
#define DEFAULT_CAP ((int64_t)256 << 20)
#define ALWAYS_KEPT ((int64_t)1 << 20)

struct pl_buffer {
    atomic_int_fast32_t references;
    int size_class;
    int64_t capacity;
    void* data;
    pl_buffer* next_in_class; /* a stack: the warmest buffer first */
    pl_buffer* previous_in_class;
    pl_buffer* newer; /* all idle buffers by age */
    pl_buffer* older;
};

static struct {
    pthread_mutex_t lock;
    pl_buffer* classes[CLASSES];
    pl_buffer* newest;
    pl_buffer* oldest;
    int64_t cached; /* bytes of idle buffers */
    int64_t used;   /* bytes of the others, and the most that was used at once */
    int64_t most_used;
    int64_t cap;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER, .cap = DEFAULT_CAP};

void pl_outputs_lock(void) { pthread_mutex_lock(&store.lock); }
void pl_outputs_unlock(void) { pthread_mutex_unlock(&store.lock); }

/* The smallest class that holds `bytes`, and its size. */
static int class_of(int64_t bytes, int64_t* size) {
    int64_t lines = (bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT;
    if (lines <= 4) {
        *size = (lines > 0 ? lines : 1) * PL_ALIGNMENT;
        return (int)(lines > 0 ? lines : 1) - 1;
    }
    int log = 63 - __builtin_clzll((unsigned long long)(lines - 1));
    int64_t step = (int64_t)1 << (log - 2);
    int64_t steps = (lines + step - 1) / step; /* 5 .. 8 */
    *size = steps * step * PL_ALIGNMENT;
    return (log - 2) * 4 + (int)steps - 1;
}

static void unlink_idle(pl_buffer* b) {
    if (b->previous_in_class)
        b->previous_in_class->next_in_class = b->next_in_class;
    else
        store.classes[b->size_class] = b->next_in_class;
    if (b->next_in_class) b->next_in_class->previous_in_class = b->previous_in_class;
    if (b->newer)
        b->newer->older = b->older;
    else
        store.newest = b->older;
    if (b->older)
        b->older->newer = b->newer;
    else
        store.oldest = b->newer;
    store.cached -= b->capacity;
}

static void link_idle(pl_buffer* b) {
    b->previous_in_class = NULL;
    b->next_in_class = store.classes[b->size_class];
    if (b->next_in_class) b->next_in_class->previous_in_class = b;
    store.classes[b->size_class] = b;
    b->newer = NULL;
    b->older = store.newest;
    if (b->older)
        b->older->newer = b;
    else
        store.oldest = b;
    store.newest = b;
    store.cached += b->capacity;
}

static int64_t allowance(void) {
    int64_t bytes = store.most_used + store.most_used / 2;
    return bytes > ALWAYS_KEPT ? bytes : ALWAYS_KEPT;
}

static bool is_full(void) {
    return store.cached > store.cap || store.cached + store.used > allowance();
}

/* Takes what is too much out of the store and returns it as a list, to be freed unlocked. The
 * newest buffer stays: one large output, call after call, would otherwise be mapped and faulted in
 * every time. */
static pl_buffer* evict(void) {
    pl_buffer* list = NULL;
    while (is_full() && (store.oldest != store.newest || (store.oldest && store.cap == 0))) {
        pl_buffer* b = store.oldest;
        unlink_idle(b);
        b->older = list;
        list = b;
    }
    return list;
}

static void free_list(pl_buffer* list) {
    while (list) {
        pl_buffer* next = list->older;
        pl_memory_free(list->data, list->capacity);
        free(list);
        list = next;
    }
}

static pl_buffer* new_buffer(int size_class, int64_t capacity) {
    pl_buffer* b = malloc(sizeof *b);
    if (!b) return NULL;
    b->size_class = size_class;
    b->capacity = capacity;
    b->data = pl_memory_new(capacity);
    if (b->data) return b;
    free(b);
    return NULL;
}

/* An idle buffer of that class: not much larger, or any larger one where a new one is too much. */
static pl_buffer* find(int size_class, int64_t capacity) {
    bool afford = store.used + store.cached + capacity <= allowance();
    int end = afford && size_class + NEAR < CLASSES ? size_class + NEAR : CLASSES;
    for (int c = size_class; c < end; c++)
        if (store.classes[c]) return store.classes[c];
    return NULL;
}

static void use(int64_t bytes) {
    store.used += bytes;
    if (store.used > store.most_used) store.most_used = store.used;
}

pl_buffer* pl_buffer_acquire(int64_t bytes) {
    if (bytes < 0 || bytes > (int64_t)1 << 56) return NULL;
    int64_t capacity;
    int size_class = class_of(bytes, &capacity);
    pl_buffer* surplus = NULL;
    pthread_mutex_lock(&store.lock);
    pl_buffer* b = find(size_class, capacity);
    if (b) unlink_idle(b);
    use(b ? b->capacity : capacity);
    if (!b) surplus = evict();
    pthread_mutex_unlock(&store.lock);
    free_list(surplus);
    if (!b && !(b = new_buffer(size_class, capacity))) {
        pthread_mutex_lock(&store.lock);
        store.used -= capacity;
        pthread_mutex_unlock(&store.lock);
        return NULL;
    }
    atomic_init(&b->references, 1);
    return b;
}

void pl_buffer_retain(pl_buffer* b) {
    atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
}

void pl_buffer_release(pl_buffer* b) {
    if (!b || atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel) != 1) return;
    pthread_mutex_lock(&store.lock);
    store.used -= b->capacity;
    link_idle(b);
    pl_buffer* surplus = evict();
    pthread_mutex_unlock(&store.lock);
    free_list(surplus);
}

void* pl_buffer_data(const pl_buffer* b) { return b->data; }

int64_t pl_buffers_cached(void) {
    pthread_mutex_lock(&store.lock);
    int64_t cached = store.cached;
    pthread_mutex_unlock(&store.lock);
    return cached;
}

void pl_buffers_set_cap(int64_t bytes) {
    pthread_mutex_lock(&store.lock);
    store.cap = bytes > 0 ? bytes : 0;
    pl_buffer* surplus = evict();
    pthread_mutex_unlock(&store.lock);
    free_list(surplus);
}
