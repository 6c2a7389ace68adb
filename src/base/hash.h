/* A hash of bytes, where equal texts are to be found or compared quickly; no protection against who wants two alike. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/** FNV-1a, 64 bits: the same on every machine, so that ranks may compare it. */
uint64_t weft_i_hash_bytes(const void *x, size_t n_bytes);

#endif
