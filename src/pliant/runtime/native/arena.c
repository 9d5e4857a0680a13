/* Memory for one call: stacks of chunks, kept from call to call. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "internal.h"

#define HUGE ((int64_t)2 << 20)
#define PAGE ((int64_t)4096)
#define LARGEST ((int64_t)1 << 56)
#define SMALLEST_CHUNK ((int64_t)64 << 10)

static int64_t round_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

void* pl_memory_new(int64_t bytes) {
    if (bytes < 0 || bytes > LARGEST) return NULL;
    if (bytes < HUGE) return aligned_alloc(PL_ALIGNMENT, (size_t)round_up(bytes + !bytes, PL_ALIGNMENT));
    /* Map two megabytes more than needed and return the ends: huge pages want an aligned start. */
    int64_t size = round_up(bytes, PAGE);
    char* raw = mmap(NULL, (size_t)(size + HUGE), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    int64_t lead = (HUGE - (int64_t)((uintptr_t)raw % (uintptr_t)HUGE)) % HUGE;
    if (lead) munmap(raw, (size_t)lead);
    if (HUGE - lead) munmap(raw + lead + size, (size_t)(HUGE - lead));
#ifdef MADV_HUGEPAGE
    madvise(raw + lead, (size_t)size, MADV_HUGEPAGE);
#endif
    return raw + lead;
}

void pl_memory_free(void* data, int64_t bytes) {
    if (bytes < HUGE)
        free(data);
    else if (data)
        munmap(data, (size_t)round_up(bytes, PAGE));
}

struct pl_chunk {
    pl_chunk* next;
    pl_chunk* previous;
    char* data;
    int64_t capacity;
    int64_t used;
    int64_t start; /* bytes in the chunks before this one: positions count across chunks */
};

static void free_from(pl_chunk* chunk) {
    while (chunk) {
        pl_chunk* next = chunk->next;
        pl_memory_free(chunk->data, chunk->capacity);
        free(chunk);
        chunk = next;
    }
}

static pl_chunk* add_chunk(pl_stack* stack, int64_t bytes) {
    pl_chunk* last = stack->current;
    pl_chunk* chunk = malloc(sizeof *chunk);
    if (!chunk) return NULL;
    int64_t capacity = bytes > SMALLEST_CHUNK ? bytes : SMALLEST_CHUNK;
    if (!last && stack->want > capacity) capacity = stack->want;
    chunk->data = pl_memory_new(capacity);
    if (!chunk->data) {
        free(chunk);
        return NULL;
    }
    chunk->capacity = capacity;
    chunk->used = 0;
    chunk->start = last ? last->start + last->used : 0;
    chunk->next = NULL;
    chunk->previous = last;
    if (last)
        last->next = chunk;
    else
        stack->first = chunk;
    return stack->current = chunk;
}

void* pl_stack_take(pl_stack* stack, int64_t bytes) {
    if (bytes < 0 || bytes > LARGEST) return NULL;
    bytes = round_up(bytes + !bytes, PL_ALIGNMENT);
    pl_chunk* chunk = stack->current;
    if (chunk && chunk->capacity - chunk->used < bytes) {
        /* A later chunk, left by a release, serves if it is large enough. */
        pl_chunk* spare = chunk->next;
        if (spare && spare->capacity >= bytes) {
            spare->used = 0;
            spare->start = chunk->start + chunk->used;
            stack->current = chunk = spare;
        } else {
            free_from(spare);
            chunk->next = NULL;
            /* Nothing lies in the first one: it makes room, so that a growing size is in memory
             * once, and stays the only chunk. */
            if (!chunk->used && !chunk->previous) {
                free_from(chunk);
                stack->first = stack->current = NULL;
            }
            chunk = NULL;
        }
    }
    if (!chunk && !(chunk = add_chunk(stack, bytes))) return NULL;
    void* block = chunk->data + chunk->used;
    chunk->used += bytes;
    if (chunk->start + chunk->used > stack->peak) stack->peak = chunk->start + chunk->used;
    return block;
}

int64_t pl_stack_mark(const pl_stack* stack) {
    return stack->current ? stack->current->start + stack->current->used : 0;
}

void pl_stack_release(pl_stack* stack, int64_t mark) {
    pl_chunk* chunk = stack->current;
    if (!chunk || mark < 0 || mark > chunk->start + chunk->used) return;
    while (chunk->previous && chunk->start >= mark) chunk = chunk->previous;
    chunk->used = mark - chunk->start;
    stack->current = chunk;
}

void pl_stack_empty(pl_stack* stack, int window) {
    pl_chunk* first = stack->first;
    if (stack->peak > stack->window_peak) stack->window_peak = stack->peak;
    bool many = first && first->next;
    bool unused = false;
    if (++stack->window >= window) {
        unused = first && first->capacity > HUGE && first->capacity / 5 > stack->window_peak;
        if (unused) stack->want = stack->window_peak;
        stack->window = 0;
        stack->window_peak = 0;
    }
    /* Several chunks become one next time, so that a steady state allocates nothing. */
    if (many && stack->peak > stack->want) stack->want = stack->peak;
    if (many || unused) {
        free_from(first);
        stack->first = NULL;
    } else if (first) {
        first->used = 0;
    }
    stack->current = stack->first;
    stack->peak = 0;
}

void pl_stack_free(pl_stack* stack) {
    free_from(stack->first);
    *stack = (pl_stack){0};
}
