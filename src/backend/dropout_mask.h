/* The one definition of which elements dropout keeps (contract: weft_dropout in weft/ext/backend.h). */
#ifndef WEFT_BACKEND_DROPOUT_MASK_H
#define WEFT_BACKEND_DROPOUT_MASK_H

#include "base/rng.h"
#include "weft/ext/backend.h"

/** Words below this are dropped: p * 2^32, p in [0, 1). */
static inline uint32_t weft_i_dropout_threshold(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}

/** The random words of elements 4 * quad .. 4 * quad + 3 of one row. */
static inline weft_rng_block
weft_i_dropout_words(const weft_dropout *d, uint32_t quad, int32_t position, int64_t sample)
{
    const weft_rng_key key = {{d->key[0], d->key[1]}};
    const weft_rng_block counter = {{quad, (uint32_t)position,
                                     (uint32_t)((uint64_t)sample & 0xffffffffu),
                                     ((uint32_t)((uint64_t)sample >> 32) << 24) | d->site}};
    return weft_i_rng_philox(key, counter);
}

#endif
