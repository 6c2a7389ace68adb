/*
 * Sampling (contract: sampling.h).
 *
 * Order, and what is kept at the borders, follow transformers' generation (logits_process.py, 5.24): logits / temperature;
 * top-k keeps every logit not below the k-th largest (so ties with it stay); top-p removes from the least probable up
 * while the removed mass stays at or below 1 - top_p, and never the most probable. Of equal logits at top-p's border the
 * lower ids stay, where transformers leaves it to its sort. Probabilities are computed in double.
 */
#include "infer/sampling.h"

#include "base/error.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

weft_status weft_i_sampling_check(const weft_sampling *s)
{
    if (!(s->temperature >= 0.0) || !isfinite(s->temperature))
        WEFT_FAIL(WEFT_STATUS_ARG, "temperature %g must be finite and not negative (0 is greedy)",
                  s->temperature);
    if (s->top_k < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "top_k %" PRId64 " must not be negative (0 is all)", s->top_k);
    if (!(s->top_p > 0.0 && s->top_p <= 1.0))
        WEFT_FAIL(WEFT_STATUS_ARG, "top_p %g is not in (0, 1]", s->top_p);
    return WEFT_OK;
}

/* The lowest id among equal maxima. */
static weft_status largest(int32_t *out, const float *logits, int64_t n, int64_t prompt, int64_t at)
{
    int64_t best = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            WEFT_FAIL(WEFT_STATUS_NUMERIC,
                      "prompt %" PRId64 ": the logit of id %" PRId64 " for position %" PRId64
                      " is not finite (%g)",
                      prompt, i, at, (double)logits[i]);
        best = logits[i] > logits[best] ? i : best;
    }
    *out = (int32_t)best;
    return WEFT_OK;
}

/* ---- top-k ---- */

/* Restores a heap whose least logit is on top after its top changed. */
static void sift_down(weft_candidate *heap, int64_t n)
{
    const weft_candidate moved = heap[0];
    int64_t at = 0;

    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1].logit < heap[child].logit)
            child++;
        if (heap[child].logit >= moved.logit)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void sift_up(weft_candidate *heap, int64_t at)
{
    const weft_candidate moved = heap[at];

    while (at > 0 && heap[(at - 1) / 2].logit > moved.logit) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = moved;
}

/* The k-th largest logit, by a heap of the k largest so far. */
static float kth_largest(const float *logits, int64_t n, int64_t k, weft_candidate *heap)
{
    for (int64_t i = 0; i < n; i++) {
        const weft_candidate c = {.logit = logits[i], .id = (int32_t)i};
        if (i < k) {
            heap[i] = c;
            sift_up(heap, i);
        } else if (c.logit > heap[0].logit) {
            heap[0] = c;
            sift_down(heap, k);
        }
    }
    return heap[0].logit;
}

/* ---- top-p ---- */

static int by_logit_then_id(const void *a, const void *b)
{
    const weft_candidate *x = a;
    const weft_candidate *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static double weight_of(const weft_sampling *s, float logit, float max)
{
    return exp(((double)logit - (double)max) / s->temperature);
}

static double total_weight(const weft_sampling *s, const weft_candidate *c, int64_t n, float max)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += weight_of(s, c[i].logit, max);
    return total;
}

/*
 * Cuts the candidates to top-p; returns how many stay, most probable first. Those of at most (1 - top_p) / n each are
 * surely removed, since together they are at most 1 - top_p: they need not be sorted.
 */
static int64_t keep_top_p(const weft_sampling *s, weft_candidate *c, int64_t n, float max)
{
    const double total = total_weight(s, c, n, max);
    const double removable = (1.0 - s->top_p) * total;
    const double surely = removable / (double)n;
    double removed = 0.0;
    int64_t n_left = 0;

    for (int64_t i = 0; i < n; i++) {
        const double w = weight_of(s, c[i].logit, max);
        if (w <= surely && c[i].logit < max)
            removed += w;
        else
            c[n_left++] = c[i];
    }
    qsort(c, (size_t)n_left, sizeof(*c), by_logit_then_id);
    while (n_left > 1) {
        removed += weight_of(s, c[n_left - 1].logit, max);
        if (removed > removable)
            break;
        n_left--;
    }
    return n_left;
}

/* ---- the draw ---- */

static double uniform(const weft_sampling *s, int64_t prompt, int64_t position)
{
    char name[48];
    (void)snprintf(name, sizeof(name), "generate/%" PRId64, prompt);
    return weft_i_rng_uniform(weft_i_rng_key(s->seed, name), (uint64_t)position);
}

/* The candidate at which the running sum passes u of the whole. */
static int32_t draw(const weft_sampling *s, const weft_candidate *c, int64_t n, float max, double u)
{
    const double target = u * total_weight(s, c, n, max);
    double sum = 0.0;

    for (int64_t i = 0; i < n - 1; i++) {
        sum += weight_of(s, c[i].logit, max);
        if (sum > target)
            return c[i].id;
    }
    return c[n - 1].id;
}

weft_status weft_i_sampling_pick(int32_t *out,
                                 const weft_sampling *s,
                                 const float *logits,
                                 int64_t n_ids,
                                 weft_candidate *scratch,
                                 int64_t prompt,
                                 int64_t position)
{
    int32_t best = 0;
    int64_t n = 0;

    WEFT_TRY(largest(&best, logits, n_ids, prompt, position));
    if (s->temperature > 0.0) {
        const bool is_cut = s->top_k > 0 && s->top_k < n_ids;
        const float max = logits[best];
        const float least = is_cut ? kth_largest(logits, n_ids, s->top_k, scratch) : -HUGE_VALF;
        for (int64_t i = 0; i < n_ids; i++) {
            if (logits[i] >= least)
                scratch[n++] = (weft_candidate){.logit = logits[i], .id = (int32_t)i};
        }
        if (s->top_p < 1.0)
            n = keep_top_p(s, scratch, n, max);
        best = draw(s, scratch, n, max, uniform(s, prompt, position));
    }
    *out = best;
    return WEFT_OK;
}
