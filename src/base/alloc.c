/*
 * The counting allocator: the only file that calls malloc and free.
 *
 * Every block, dry or real, is listed in one hash table from its address to its kind and size (open addressing,
 * linear probing, backward-shift deletion). The table makes put need no header beside the data, works for dry
 * addresses that cannot hold one, and finds a block given back twice or to the wrong allocator.
 *
 * Real device memory is resident as soon as it is counted: big blocks are their own anonymous map (so freeing
 * returns them to the system), asked to be huge pages, and one byte of every page is written; small ones are
 * cleared. Under sanitizers every block comes from malloc at its exact size, so that overruns are seen.
 *
 * Invariants: 1. the bytes of all blocks of a kind add up to now_bytes of that kind. 2. n_blocks * 2 <= n_slots.
 */
#include "base/alloc.h"

#include "base/env.h"
#include "base/str.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAP_FROM_BYTES ((size_t)1 << 20) /* blocks from here on are their own map */
#define ASK_SYSTEM_FROM_BYTES                                                                      \
    ((size_t)64 << 20) /* before taking this much, see whether the machine has it */
#define TOUCH_STEP_BYTES ((size_t)4096)
#define DRY_FIRST_ADDRESS ((uintptr_t)1 << 44)
#ifdef WEFT_SANITIZED
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif
#define FIRST_SLOTS ((size_t)64)

typedef enum block_source { SOURCE_HEAP, SOURCE_MAP, SOURCE_DRY } block_source;

typedef struct block_info {
    uintptr_t address; /* 0: the slot is empty */
    size_t bytes;      /* as counted */
    weft_mem kind;
    block_source source;
} block_info;

struct weft_alloc {
    pthread_mutex_t *lock; /* apart, so that reading counts works on a const allocator */
    bool is_dry;
    size_t limit_bytes;
    uintptr_t next_dry_address;
    weft_alloc_count kind[WEFT_MEM_COUNT];
    weft_alloc_count device; /* all kinds but CONTROL together */
    block_info *slots;
    size_t n_slots; /* a power of two */
    size_t n_blocks;
};

/* ---- the table of blocks ---- */

static size_t slot_of(const weft_alloc *a, uintptr_t address)
{
    const uint64_t mixed = (uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> 32) & (a->n_slots - 1);
}

/* The slot of `address`, or the empty one where it would go. */
static size_t table_find(const weft_alloc *a, uintptr_t address)
{
    size_t i = slot_of(a, address);
    while (a->slots[i].address != 0 && a->slots[i].address != address)
        i = (i + 1) & (a->n_slots - 1);
    return i;
}

/* Makes room for one more block. */
static bool table_reserve(weft_alloc *a)
{
    if ((a->n_blocks + 1) * 2 <= a->n_slots)
        return true;
    block_info *const old = a->slots;
    const size_t n_old = a->n_slots;
    const size_t n_new = WEFT_MAX(FIRST_SLOTS, n_old * 2);
    block_info *const grown = calloc(n_new, sizeof(*grown));
    if (grown == NULL)
        return false;
    a->slots = grown;
    a->n_slots = n_new;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].address != 0)
            grown[table_find(a, old[i].address)] = old[i];
    }
    free(old);
    return true;
}

static void table_add(weft_alloc *a, block_info info)
{
    a->slots[table_find(a, info.address)] = info;
    a->n_blocks++;
}

/* Empties slot i and moves later entries of its run back, so that no probe meets a hole. */
static void table_remove(weft_alloc *a, size_t i)
{
    const size_t mask = a->n_slots - 1;
    size_t hole = i;
    for (size_t j = (i + 1) & mask; a->slots[j].address != 0; j = (j + 1) & mask) {
        const size_t home = slot_of(a, a->slots[j].address);
        if (((j - home) & mask) >= ((j - hole) & mask)) {
            a->slots[hole] = a->slots[j];
            hole = j;
        }
    }
    a->slots[hole].address = 0;
    a->n_blocks--;
}

/* ---- memory itself ---- */

static void *take_map(size_t bytes)
{
    void *const block =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    (void)madvise(block, bytes, MADV_HUGEPAGE); /* a wish; refused on some systems */
    char *const bytes_of = block;
    for (size_t i = 0; i < bytes; i += TOUCH_STEP_BYTES)
        bytes_of[i] = 0;
    return block;
}

static void *take_heap(weft_mem kind, size_t bytes)
{
    const size_t at_least_one = WEFT_MAX(bytes, (size_t)1);
    if (kind == WEFT_MEM_CONTROL)
        return calloc(1, at_least_one);
    void *block = NULL;
    if (posix_memalign(&block, WEFT_ALIGN_BYTES, at_least_one) != 0)
        return NULL;
    memset(block, 0, at_least_one);
    return block;
}

/* `bytes` as asked for, `counted` as rounded. */
static void *
take_block(weft_alloc *a, weft_mem kind, size_t bytes, size_t counted, block_source *source)
{
    if (a->is_dry && kind != WEFT_MEM_CONTROL) {
        *source = SOURCE_DRY;
        const uintptr_t address = a->next_dry_address;
        a->next_dry_address += WEFT_MAX(counted, WEFT_ALIGN_BYTES);
        return (void *)address;
    }
    if (!IS_SANITIZED && kind != WEFT_MEM_CONTROL && counted >= MAP_FROM_BYTES) {
        *source = SOURCE_MAP;
        return take_map(counted);
    }
    *source = SOURCE_HEAP;
    return take_heap(kind, IS_SANITIZED ? bytes : counted);
}

static void drop_block(const block_info *info)
{
    if (info->source == SOURCE_HEAP)
        free((void *)info->address);
    else if (info->source == SOURCE_MAP)
        (void)munmap((void *)info->address, info->bytes);
}

/* ---- counting ---- */

static void count_add(weft_alloc_count *c, size_t bytes)
{
    c->now_bytes += bytes;
    c->peak_bytes = WEFT_MAX(c->peak_bytes, c->now_bytes);
    c->n_calls++;
}

/* Everything NOMEM has to say; `why` is the last clause. */
static weft_status
fail_nomem(const weft_alloc *a, weft_mem kind, size_t bytes, const char *what, const char *why)
{
    char asked[32], used[32];
    WEFT_FAIL(
        WEFT_STATUS_NOMEM,
        "memory for %s ran out: asked for %zu bytes (%s) of kind %s with %zu bytes (%s) in use; %s",
        what, bytes, weft_i_str_bytes((double)bytes, asked, sizeof(asked)), weft_i_mem_name(kind),
        a->device.now_bytes, weft_i_str_bytes((double)a->device.now_bytes, used, sizeof(used)),
        why);
}

/* The limit given, and for big blocks what the machine still has: better refused here than killed later. */
static weft_status
check_room(const weft_alloc *a, weft_mem kind, size_t bytes, size_t counted, const char *what)
{
    if (counted < bytes)
        return fail_nomem(a, kind, bytes, what, "that is more than any machine has");
    if (kind == WEFT_MEM_CONTROL)
        return WEFT_OK;
    char why[96];
    if (a->limit_bytes != 0 &&
        (counted > a->limit_bytes || a->device.now_bytes > a->limit_bytes - counted)) {
        WEFT_TRY(weft_i_str_print(why, sizeof(why), "the limit is %zu bytes", a->limit_bytes));
        return fail_nomem(a, kind, bytes, what, why);
    }
    if (!a->is_dry && counted >= ASK_SYSTEM_FROM_BYTES) {
        const uint64_t available = weft_i_env_memory_available_bytes();
        if (counted > available) {
            WEFT_TRY(weft_i_str_print(why, sizeof(why), "the machine has %llu bytes left",
                                      (unsigned long long)available));
            return fail_nomem(a, kind, bytes, what, why);
        }
    }
    return WEFT_OK;
}

static weft_status
get_locked(weft_alloc *a, weft_mem kind, size_t bytes, const char *what, void **out)
{
    const size_t counted = kind == WEFT_MEM_CONTROL ? bytes : weft_i_alloc_rounded(bytes);
    WEFT_TRY(check_room(a, kind, bytes, counted, what));
    block_info info = {.bytes = counted, .kind = kind};
    void *const block = table_reserve(a) ? take_block(a, kind, bytes, counted, &info.source) : NULL;
    if (block == NULL)
        return fail_nomem(a, kind, bytes, what, "the system gave no more");
    info.address = (uintptr_t)block;
    table_add(a, info);
    count_add(&a->kind[kind], counted);
    if (kind != WEFT_MEM_CONTROL)
        count_add(&a->device, counted);
    *out = block;
    return WEFT_OK;
}

/* ---- public ---- */

weft_status weft_i_alloc_create(weft_alloc **out, bool is_dry, size_t limit_bytes)
{
    weft_alloc *a = calloc(1, sizeof(*a));
    pthread_mutex_t *lock = calloc(1, sizeof(*lock));
    if (a == NULL || lock == NULL || pthread_mutex_init(lock, NULL) != 0) {
        free(lock);
        free(a);
        WEFT_FAIL(WEFT_STATUS_NOMEM, "memory for the allocator itself ran out");
    }
    a->lock = lock;
    a->is_dry = is_dry;
    a->limit_bytes = limit_bytes;
    a->next_dry_address = DRY_FIRST_ADDRESS;
    *out = a;
    return WEFT_OK;
}

void weft_i_alloc_destroy(weft_alloc *a)
{
    if (a == NULL)
        return;
    WEFT_ASSERT(a->n_blocks == 0);
    for (size_t i = 0; i < a->n_slots; i++) {
        if (a->slots[i].address != 0)
            drop_block(&a->slots[i]);
    }
    free(a->slots);
    (void)pthread_mutex_destroy(a->lock);
    free(a->lock);
    free(a);
}

weft_status
weft_i_alloc_get(weft_alloc *a, weft_mem kind, size_t bytes, const char *what, void **out)
{
    (void)pthread_mutex_lock(a->lock);
    const weft_status st = get_locked(a, kind, bytes, what, out);
    (void)pthread_mutex_unlock(a->lock);
    return st;
}

void weft_i_alloc_put(weft_alloc *a, void *block)
{
    if (block == NULL)
        return;
    (void)pthread_mutex_lock(a->lock);
    const size_t i = a->n_slots == 0 ? 0 : table_find(a, (uintptr_t)block);
    const bool is_ours = a->n_slots != 0 && a->slots[i].address == (uintptr_t)block;
    WEFT_ASSERT(is_ours); /* given back twice, or taken elsewhere */
    if (is_ours) {
        const block_info info = a->slots[i];
        table_remove(a, i);
        a->kind[info.kind].now_bytes -= info.bytes;
        if (info.kind != WEFT_MEM_CONTROL)
            a->device.now_bytes -= info.bytes;
        drop_block(&info);
    }
    (void)pthread_mutex_unlock(a->lock);
}

weft_status weft_i_alloc_new(weft_alloc *a, size_t n, size_t size, void **out)
{
    if (size != 0 && n > SIZE_MAX / size)
        WEFT_FAIL(WEFT_STATUS_NOMEM,
                  "a table of %zu entries of %zu bytes is more than memory can hold", n, size);
    return weft_i_alloc_get(a, WEFT_MEM_CONTROL, n * size, "tables of the program", out);
}

weft_status weft_i_alloc_array(weft_alloc *a, int64_t n, size_t size, void *out)
{
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_new(a, (size_t)n, size, &block));
    memcpy(out, &block, sizeof(block));
    return WEFT_OK;
}

weft_status
weft_i_alloc_grow(weft_alloc *a, size_t n_wanted, size_t size, size_t *capacity, void **array)
{
    if (n_wanted <= *capacity)
        return WEFT_OK;
    const size_t n_new = *capacity > SIZE_MAX / 2 ? n_wanted : WEFT_MAX(n_wanted, *capacity * 2);
    void *grown = NULL;
    WEFT_TRY(weft_i_alloc_new(a, n_new, size, &grown));
    if (*array != NULL)
        memcpy(grown, *array, *capacity * size);
    weft_i_alloc_put(a, *array);
    *array = grown;
    *capacity = n_new;
    return WEFT_OK;
}

void weft_i_alloc_counts(const weft_alloc *a, weft_mem kind, weft_alloc_count *out)
{
    (void)pthread_mutex_lock(a->lock);
    *out = a->kind[kind];
    (void)pthread_mutex_unlock(a->lock);
}

void weft_i_alloc_total(const weft_alloc *a, weft_alloc_count *out)
{
    (void)pthread_mutex_lock(a->lock);
    *out = a->device;
    (void)pthread_mutex_unlock(a->lock);
}

bool weft_i_alloc_is_dry(const weft_alloc *a)
{
    return a->is_dry;
}

const char *weft_i_mem_name(weft_mem kind)
{
    static const char *const name[WEFT_MEM_COUNT] = {
        "parameters", "gradients", "optimizer", "activations", "communication",
        "workspace",  "cache",     "tables",    "control",
    };
    return (unsigned)kind < WEFT_MEM_COUNT ? name[kind] : "unknown";
}

size_t weft_i_alloc_rounded(size_t bytes)
{
    /* Wraps to less than `bytes` only within 63 of SIZE_MAX; check_room refuses that. */
    return (bytes + WEFT_ALIGN_BYTES - 1) / WEFT_ALIGN_BYTES * WEFT_ALIGN_BYTES;
}

int64_t weft_i_alloc_bytes_of_mb(double mb)
{
    const double bytes = mb * 1e6;
    if (!(bytes > 0.0))
        return 0;
    if (bytes >= 0x1p62) /* a cast of more than 63 bits has no value */
        return INT64_C(1) << 62;
    return bytes < 1.0 ? 1 : (int64_t)bytes;
}
