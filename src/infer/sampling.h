/*
 * The next token from a row of logits: greedy, or drawn after temperature, top-k and top-p in the order transformers
 * applies them.
 */
#ifndef WEFT_INFER_SAMPLING_H
#define WEFT_INFER_SAMPLING_H

#include <stdint.h>

#include "weft/status.h"

typedef struct weft_sampling {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
} weft_sampling;

/** Scratch of a draw. */
typedef struct weft_candidate {
    float logit;
    int32_t id;
} weft_candidate;

/** @return WEFT_OK | ARG option, value and what is allowed */
weft_status weft_i_sampling_check(const weft_sampling *s);

/**
 * Picks among ids 0 .. n_ids - 1. Greedy: the lowest id among equal maxima. Drawn: a function of (seed, prompt, position)
 * and the logits alone, so what else is in the batch changes nothing.
 *
 * @param[in] logits    [n_ids]
 * @param     scratch   [n_ids]
 * @param[in] prompt    number of the prompt
 * @param[in] position  of the new token in its sequence
 * @return    WEFT_OK | NUMERIC a logit is not finite, naming prompt, position and id
 */
weft_status weft_i_sampling_pick(int32_t *out,
                                 const weft_sampling *s,
                                 const float *logits,
                                 int64_t n_ids,
                                 weft_candidate *scratch,
                                 int64_t prompt,
                                 int64_t position);

#endif
