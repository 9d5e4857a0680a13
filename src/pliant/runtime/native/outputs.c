/* Output buffers: a process-wide store that takes a buffer back when its last reference goes.
 *
 * What it holds follows what calls had in use at once, not how many sizes there were: over the last
 * calls, idle buffers and those in use are together at most the most that was in use and half of
 * what came and went. A thousand sizes in turn thus share a few buffers. Idle ones are never more
 * than the cap. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "internal.h"

/* Four sizes to each power of two: at most a quarter of a buffer is unused. */
#define CLASSES 256
#define NEAR 3 /* classes: less than twice the size */
#define DEFAULT_CAP ((int64_t)256 << 20)
#define ALWAYS_KEPT ((int64_t)1 << 20)
#define ROUND 64 /* acquisitions; the last one to two rounds count */
/* Where long results begin in a page: behind where others place arrays, which is in its first lines.
 * What is loaded from the place in a page that was stored to just before waits, and a row that is
 * stored in the lines before those that are read next has that all along (Zen 4: softmax of rows of
 * 16 KB takes 1.1 to 1.4 times as long with its result 0 to 128 bytes before its input in a page). */
#define START 1024
#define LONG ((int64_t)16 * PL_PAGE)

struct pl_buffer {
    atomic_int_fast32_t references;
    int size_class;
    int64_t capacity;
    void* memory;
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
    int64_t used;   /* bytes of the others */
    int64_t cap;
    struct {
        int64_t most, least; /* bytes in use at once */
    } round[2];              /* this one and the one before */
    int acquired;            /* in this round */
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

static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes in use changed. */
static void use(int64_t bytes) {
    store.used += bytes;
    store.round[0].most = greater(store.round[0].most, store.used);
    store.round[0].least = lesser(store.round[0].least, store.used);
    if (bytes > 0 && ++store.acquired == ROUND) {
        store.round[1] = store.round[0];
        store.round[0].most = store.round[0].least = store.used;
        store.acquired = 0;
    }
}

/* Whether `more` bytes of new buffers would be, with the others, too much. */
static bool is_much(int64_t more) {
    int64_t most = greater(store.round[0].most, store.round[1].most);
    int64_t least = lesser(store.round[0].least, store.round[1].least);
    int64_t idle = store.cached + more;
    return idle > ALWAYS_KEPT && store.used + idle > most + (most - least) / 2;
}

/* Takes what is too much out of the store and returns it as a list, to be freed unlocked. The
 * newest buffer stays: one large output, call after call, would otherwise be mapped and faulted in
 * every time. */
static pl_buffer* evict(void) {
    pl_buffer* list = NULL;
    while (store.cached > store.cap || is_much(0)) {
        pl_buffer* b = store.oldest;
        if (!b || (b == store.newest && store.cap > 0)) break;
        unlink_idle(b);
        b->older = list;
        list = b;
    }
    return list;
}

/* What is mapped for so many bytes. */
static int64_t mapped(int64_t capacity) { return capacity < LONG ? capacity : capacity + PL_PAGE; }

static void free_list(pl_buffer* list) {
    while (list) {
        pl_buffer* next = list->older;
        pl_memory_free(list->memory, mapped(list->capacity));
        free(list);
        list = next;
    }
}

static pl_buffer* new_buffer(int size_class, int64_t capacity) {
    pl_buffer* b = malloc(sizeof *b);
    if (!b) return NULL;
    b->size_class = size_class;
    b->capacity = capacity;
    b->memory = b->data = pl_memory_new(mapped(capacity));
    if (capacity >= LONG) b->data = (char*)b->memory + (START - (uintptr_t)b->memory) % PL_PAGE;
    if (b->memory) return b;
    free(b);
    return NULL;
}

/* An idle buffer of that class: not much larger, or any larger one where a new one is too much. */
static pl_buffer* find(int size_class, int64_t capacity) {
    int end = is_much(capacity) || size_class + NEAR > CLASSES ? CLASSES : size_class + NEAR;
    for (int c = size_class; c < end; c++)
        if (store.classes[c]) return store.classes[c];
    return NULL;
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
        use(-capacity);
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
    use(-b->capacity);
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
