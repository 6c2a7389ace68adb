/* A stack of memory with mark and reset: the workspace of a step. Blocks are 64-byte aligned and not cleared. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include "base/alloc.h"

typedef struct weft_arena {
    char *base;
    size_t size_bytes; /* SIZE_MAX in a dry run: grows for ever and only the peak counts */
    size_t used_bytes;
    size_t peak_bytes;
} weft_arena;

/** `base` is the caller's memory of `size_bytes` (a dry address in a dry run). */
void weft_i_arena_init(weft_arena *a, void *base, size_t size_bytes);

/** @return WEFT_OK | INTERNAL when the dry run that sized the arena predicted less: prints both numbers */
weft_status weft_i_arena_get(weft_arena *a, size_t bytes, void **out);

size_t weft_i_arena_mark(const weft_arena *a);
void weft_i_arena_reset(weft_arena *a, size_t mark);

#endif
