/*
 * FNV-1a (contract: hash.h).
 * Source: G. Fowler, L. C. Noll, K.-P. Vo, http://www.isthe.com/chongo/tech/comp/fnv/ (offset basis and prime of 64 bits).
 */
#include "base/hash.h"

uint64_t weft_i_hash_bytes(const void *x, size_t n_bytes)
{
    const unsigned char *const bytes = x;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n_bytes; i++)
        h = (h ^ bytes[i]) * UINT64_C(1099511628211);
    return h;
}
