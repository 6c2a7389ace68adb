/*
 * A stack of memory with mark and reset, for the workspace of a step.
 *
 * The caller owns the memory; in a dry run it is an address that is only counted, and the arena has no end. Every
 * block is rounded up to WEFT_ALIGN_BYTES, so a dry arena and a real one place everything alike.
 */
#include "base/arena.h"

void weft_i_arena_init(weft_arena *a, void *base, size_t size_bytes)
{
    *a = (weft_arena){.base = base, .size_bytes = size_bytes};
}

weft_status weft_i_arena_get(weft_arena *a, size_t bytes, void **out)
{
    const size_t rounded = weft_i_alloc_rounded(bytes);
    if (rounded < bytes || rounded > a->size_bytes - a->used_bytes)
        WEFT_FAIL(WEFT_STATUS_INTERNAL,
                  "workspace needed %zu bytes after %zu, but the dry run sized it as %zu", bytes,
                  a->used_bytes, a->size_bytes);
    *out = a->base + a->used_bytes;
    a->used_bytes += rounded;
    a->peak_bytes = WEFT_MAX(a->peak_bytes, a->used_bytes);
    return WEFT_OK;
}

size_t weft_i_arena_mark(const weft_arena *a)
{
    return a->used_bytes;
}

void weft_i_arena_reset(weft_arena *a, size_t mark)
{
    WEFT_ASSERT(mark <= a->used_bytes);
    a->used_bytes = mark;
}
