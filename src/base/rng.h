/**
 * Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011). A value is a function of its key and
 * counter alone, so any shard in any layout draws the same value for the same element.
 */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include <stdint.h>

typedef struct weft_rng_key {
    uint32_t word[2];
} weft_rng_key;

typedef struct weft_rng_block {
    uint32_t word[4];
} weft_rng_block;

/** Key of a named stream: the seed mixed with a 64-bit FNV-1a hash of the name ("init/model.norm.weight", "data"). */
weft_rng_key weft_i_rng_key(uint64_t seed, const char *name);

/** The ten-round bijection; known-answer tests are those of the paper's library (Random123). */
weft_rng_block weft_i_rng_philox(weft_rng_key key, weft_rng_block counter);

/** Standard normal of element `index`: Box-Muller in double on words of counter index / 2; index parity picks cos or sin. */
double weft_i_rng_normal(weft_rng_key key, uint64_t index);

/** out[i] = weft_i_rng_normal(key, first + i) for i < n, the same bits at half the work. */
void weft_i_rng_normals(weft_rng_key key, uint64_t first, int64_t n, double *out);

/** Uniform double in [0, 1) with 53 bits, element `index` of the stream. */
double weft_i_rng_uniform(weft_rng_key key, uint64_t index);

/** Uniform integer in [0, n), n >= 1, unbiased to 2^-64 (multiply-high of 64 random bits). */
uint64_t weft_i_rng_below(weft_rng_key key, uint64_t index, uint64_t n);

#endif
