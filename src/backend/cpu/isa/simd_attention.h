/* What the forward and the backward kernels of attention share: tile sizes, masks. */
#ifndef WEFT_BACKEND_CPU_ISA_SIMD_ATTENTION_H
#define WEFT_BACKEND_CPU_ISA_SIMD_ATTENTION_H

#include <math.h>

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/simd_dropout.h"
#include "backend/cpu/isa/simd_tile.h"

enum { QUERIES = WEFT_ATTENTION_QUERIES, KEYS = 64 };

/** Scores are kept transposed, [key][query]: reductions over keys are then sums of vectors. */
typedef float score_tile[KEYS][QUERIES];

/* Tiles on the diagonal are worked on in slabs of this many keys: queries before a slab see none of it. */
enum { SLAB = 16 };

/** First query (a multiple of SLAB) that may see key `j` of a tile; `first`: as for mask_scores. */
static inline int64_t first_seeing(int64_t j, int64_t first)
{
    return j > first ? (j - first) / SLAB * SLAB : 0;
}

/** C [n_keys, queries] = A [n_keys, d] B [d, QUERIES], but for queries that see none of a slab of keys. */
static inline void
score_product(float *c, const tile_a *a, const float *b, int64_t n_keys, int64_t d, int64_t first)
{
    for (int64_t j = 0; j < n_keys;) {
        const int64_t n = first >= n_keys - 1 ? n_keys : WEFT_MIN(n_keys - j, (int64_t)SLAB);
        const int64_t i = WEFT_MIN(first_seeing(j, first), (int64_t)QUERIES - SLAB);
        const tile_a part = {a->a + j * a->row, a->row, a->col};
        const tile_shape s = {n, QUERIES - i, d, QUERIES, QUERIES, false};
        tile_product(c + j * QUERIES + i, &part, b + i, &s);
        j += n;
    }
}

/** A tile of keys or values: where it lies when that is fp32 (in whole vectors), else converted. */
static inline tile_a
tile_rows(weft_view x, int64_t row, int64_t col, int64_t n, int64_t d, float *copy)
{
    if (x.dtype == WEFT_DTYPE_F32 && d % ROW_FLOATS == 0) {
        const tile_a direct = {at(x, row, col), x.ld, 1};
        return direct;
    }
    tile_load(copy, x, row, col, n, d);
    const tile_a converted = {copy, padded(d), 1};
    return converted;
}

/** Sets scores of keys a query must not see to -inf. `first`: index of tile query 0 minus that of tile key 0. */
static inline void mask_scores(float *score, int64_t n_keys, int64_t first)
{
    for (int64_t j = WEFT_MAX(first + 1, (int64_t)0); j < n_keys; j++) {
        const int64_t n = WEFT_MIN(j - first, (int64_t)QUERIES);
        for (int64_t i = 0; i < n; i++)
            score[j * QUERIES + i] = -INFINITY;
    }
}

/** Where the rows of a tile of queries are, for the dropout mask. */
typedef struct mask_rows {
    uint32_t position[QUERIES], sample_low[QUERIES], sample_high[QUERIES];
} mask_rows;

static inline void mask_rows_of(mask_rows *m, const weft_dropout *d, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < QUERIES; i++) {
        const int64_t r = row + WEFT_MIN(i, n - 1);
        const uint64_t sample = (uint64_t)((const int64_t *)d->sample.data)[r * d->sample.ld];
        m->position[i] = (uint32_t)i32_at(d->position, r);
        m->sample_low[i] = (uint32_t)(sample & 0xffffffffu);
        m->sample_high[i] = (uint32_t)(sample >> 32) << 24 | d->site;
    }
}

/** keep [KEYS][QUERIES] = 0 or 1 / (1 - p) for keys first_key .. of one head; first_key is a multiple of 4. */
static inline void mask_tile(float *keep,
                             const mask_rows *m,
                             const weft_dropout *d,
                             int64_t head,
                             int64_t first_key,
                             int64_t n_keys)
{
    const uint32_t threshold = weft_i_dropout_threshold(d->p);
    const float kept = 1.0f / (1.0f - d->p);
    const uint32_t first_quad = (uint32_t)(((d->first_elem + head) * 65536 + first_key) / 4);
    const uint32_t key0 = d->key[0], key1 = d->key[1];
    for (int64_t j = 0; j < n_keys; j += 4) {
        float *const to = keep + j * QUERIES;
        WEFT_SIMD
        for (int64_t i = 0; i < QUERIES; i++) {
            uint32_t c0 = first_quad + (uint32_t)(j / 4), c1 = m->position[i];
            uint32_t c2 = m->sample_low[i], c3 = m->sample_high[i];
            PHILOX(c0, c1, c2, c3, key0, key1);
            to[i] = c0 >= threshold ? kept : 0.0f;
            to[QUERIES + i] = c1 >= threshold ? kept : 0.0f;
            to[2 * QUERIES + i] = c2 >= threshold ? kept : 0.0f;
            to[3 * QUERIES + i] = c3 >= threshold ? kept : 0.0f;
        }
    }
}

#endif
