/**
 * The counting allocator: the only place that calls malloc and free.
 *
 * Every byte weft takes has a kind, so that a run can print what it took beside what the dry run predicted.
 * Device kinds (all but CONTROL) are 64-byte aligned, rounded up to 64 bytes, zeroed and so touched: what is
 * counted is resident. A dry allocator hands out addresses that must never be read for the device kinds and real
 * memory for CONTROL, so that the same program runs on both.
 */
#ifndef WEFT_BASE_ALLOC_H
#define WEFT_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "weft/ext/memory.h"

#define WEFT_ALIGN_BYTES ((size_t)64)

typedef struct weft_alloc weft_alloc;

typedef struct weft_alloc_count {
    size_t now_bytes;
    size_t peak_bytes;
    uint64_t n_calls; /* blocks handed out since create */
} weft_alloc_count;

/**
 * @param is_dry       device kinds get addresses that only count
 * @param limit_bytes  refuse what would take the sum of device kinds over this; 0 = no limit
 * @return WEFT_OK | NOMEM
 */
weft_status weft_i_alloc_create(weft_alloc **out, bool is_dry, size_t limit_bytes);

/** Frees the allocator itself. Blocks still out are a leak: asserted in test builds. */
void weft_i_alloc_destroy(weft_alloc *a);

/**
 * Hands out zeroed memory. `what` names the thing in the error message ("gradients", "KV cache").
 * Zero bytes give a valid pointer that must be put back. Safe from any thread.
 *
 * @return WEFT_OK | NOMEM with the bytes asked for, the kind, what is in use, and the limit
 */
weft_status
weft_i_alloc_get(weft_alloc *a, weft_mem kind, size_t bytes, const char *what, void **out);

/** Gives a block back; NULL is fine. */
void weft_i_alloc_put(weft_alloc *a, void *block);

/** CONTROL memory, n * size checked against overflow. */
weft_status weft_i_alloc_new(weft_alloc *a, size_t n, size_t size, void **out);

/** The same into any pointer: `out` points to it (int64_t **, a struct's pointer, ...). */
weft_status weft_i_alloc_array(weft_alloc *a, int64_t n, size_t size, void *out);

/** Grows a CONTROL array to hold n_wanted elements (at least doubling); contents kept, the rest zeroed. */
weft_status
weft_i_alloc_grow(weft_alloc *a, size_t n_wanted, size_t size, size_t *capacity, void **array);

void weft_i_alloc_counts(const weft_alloc *a, weft_mem kind, weft_alloc_count *out);

/** Sum over the device kinds (all but CONTROL). */
void weft_i_alloc_total(const weft_alloc *a, weft_alloc_count *out);

bool weft_i_alloc_is_dry(const weft_alloc *a);

/** "parameters", "gradients", ... */
const char *weft_i_mem_name(weft_mem kind);

/** bytes rounded up to WEFT_ALIGN_BYTES: what a device block of that size counts as. */
size_t weft_i_alloc_rounded(size_t bytes);

/** Bytes of a size in units of 1,000,000, as options give it: at least 1 where mb is above 0, else 0; at most 2^62. */
int64_t weft_i_alloc_bytes_of_mb(double mb);

#endif
