/* Dropout factors of a run of elements: the words of src/backend/dropout_mask.h, many counters at once. */
#ifndef WEFT_BACKEND_CPU_ISA_SIMD_DROPOUT_H
#define WEFT_BACKEND_CPU_ISA_SIMD_DROPOUT_H

#include "backend/cpu/isa/simd.h"
#include "backend/dropout_mask.h"

enum { DROPOUT_CHUNK = 512, DROPOUT_QUADS = DROPOUT_CHUNK / 4 + 1 };

static WEFT_ALWAYS_INLINE uint32_t high_of_product(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

/* Philox 4x32-10 on four variables. A macro on scalars: an array, a pointer or a loop inside would keep the loop around it
   from being vectorised. */
#define PHILOX_ROUND(c0, c1, c2, c3, k0, k1)                                                       \
    do {                                                                                           \
        const uint32_t high0 = high_of_product(0xD2511F53u, c0), low0 = 0xD2511F53u * (c0);        \
        const uint32_t high1 = high_of_product(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * (c2);        \
        (c0) = high1 ^ (c1) ^ (k0);                                                                \
        (c1) = low1;                                                                               \
        (c2) = high0 ^ (c3) ^ (k1);                                                                \
        (c3) = low0;                                                                               \
    } while (0)

#define PHILOX_TWO_ROUNDS(c0, c1, c2, c3, k0, k1, n)                                               \
    PHILOX_ROUND(c0, c1, c2, c3, (k0) + (n)*0x9E3779B9u, (k1) + (n)*0xBB67AE85u);                  \
    PHILOX_ROUND(c0, c1, c2, c3, (k0) + ((n) + 1) * 0x9E3779B9u, (k1) + ((n) + 1) * 0xBB67AE85u)

#define PHILOX(c0, c1, c2, c3, k0, k1)                                                             \
    PHILOX_TWO_ROUNDS(c0, c1, c2, c3, k0, k1, 0u);                                                 \
    PHILOX_TWO_ROUNDS(c0, c1, c2, c3, k0, k1, 2u);                                                 \
    PHILOX_TWO_ROUNDS(c0, c1, c2, c3, k0, k1, 4u);                                                 \
    PHILOX_TWO_ROUNDS(c0, c1, c2, c3, k0, k1, 6u);                                                 \
    PHILOX_TWO_ROUNDS(c0, c1, c2, c3, k0, k1, 8u)

/** Words 4 * quad .. of n_quads counters that differ in their first word only, word e % 4 of quad e / 4 at word[e]. */
static inline void philox_quads(uint32_t *word,
                                const uint32_t key[2],
                                uint32_t first_quad,
                                const uint32_t rest[3],
                                int64_t n_quads)
{
    const uint32_t k0 = key[0], k1 = key[1], r0 = rest[0], r1 = rest[1], r2 = rest[2];
    WEFT_SIMD
    for (int64_t i = 0; i < n_quads; i++) {
        uint32_t c0 = first_quad + (uint32_t)i, c1 = r0, c2 = r1, c3 = r2;
        PHILOX(c0, c1, c2, c3, k0, k1);
        word[4 * i] = c0;
        word[4 * i + 1] = c1;
        word[4 * i + 2] = c2;
        word[4 * i + 3] = c3;
    }
}

/** factor[i] = 0 or 1 / (1 - p) of element first + i of row `row`; n <= DROPOUT_CHUNK. */
static inline void
dropout_factors(float *factor, const weft_dropout *d, int64_t row, int64_t first, int64_t n)
{
    uint32_t word[4 * DROPOUT_QUADS];
    const int64_t sample = ((const int64_t *)d->sample.data)[row * d->sample.ld];
    const uint32_t rest[3] = {(uint32_t)i32_at(d->position, row),
                              (uint32_t)((uint64_t)sample & 0xffffffffu),
                              ((uint32_t)((uint64_t)sample >> 32) << 24) | d->site};
    const int64_t quad = first / 4;
    philox_quads(word, d->key, (uint32_t)quad, rest, (first + n + 3) / 4 - quad);
    const uint32_t threshold = weft_i_dropout_threshold(d->p);
    const float kept = 1.0f / (1.0f - d->p);
    const uint32_t *const w = word + (first - 4 * quad);
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        factor[i] = w[i] >= threshold ? kept : 0.0f;
}

#endif
