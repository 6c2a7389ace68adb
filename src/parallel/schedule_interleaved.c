/*
 * Interleaved 1F1B: a rank has v chunks of layers, stages q * p + r, so the bubble shrinks v times.
 *
 * Source: Narayanan et al., arXiv:2104.04473, sec. 2.2.2. Micro-batches run in groups: all of a group pass chunk 0, then
 * chunk 1, ... The paper wants m to be a multiple of p; here the groups are max(1, m / p) of nearly equal size, the first
 * ones larger, which never deadlocks where a short last group would.
 * Invariant: rank r has min(2 (p - r - 1) + (v - 1) N + 1, m v) chunks in flight at most, N the largest group.
 * Communication: none here (pipeline.c).
 */
#include "parallel/schedule.h"

#include "base/compiler.h"

/* The k-th forward of the rank: which micro-batch, which chunk. */
static weft_action forward_at(const weft_schedule_shape *s, int k)
{
    const int m = s->n_micro_batches;
    const int n_groups = WEFT_MAX(1, m / s->n_stages);
    int first = 0; /* micro-batch */
    for (int g = 0; g < n_groups; g++) {
        const int n = m / n_groups + (g < m % n_groups ? 1 : 0);
        if (k < n * s->n_chunks)
            return (weft_action){WEFT_ACTION_FORWARD, first + k % n, k / n};
        k -= n * s->n_chunks;
        first += n;
    }
    return (weft_action){WEFT_ACTION_FORWARD, m - 1, s->n_chunks - 1};
}

static weft_status add_forward(weft_actions *out, const weft_schedule_shape *s, int k)
{
    const weft_action a = forward_at(s, k);
    return weft_i_actions_add(out, WEFT_ACTION_FORWARD, a.micro_batch, a.chunk);
}

/* Backwards follow the same table with the chunks in reverse. */
static weft_status add_backward(weft_actions *out, const weft_schedule_shape *s, int k)
{
    const weft_action a = forward_at(s, k);
    return weft_i_actions_add(out, WEFT_ACTION_BACKWARD, a.micro_batch, s->n_chunks - 1 - a.chunk);
}

weft_status
weft_i_schedule_interleaved(weft_actions *out, const weft_schedule_shape *shape, int rank)
{
    const int m = shape->n_micro_batches;
    const int n_all = m * shape->n_chunks;
    const int n_groups = WEFT_MAX(1, m / shape->n_stages);
    const int largest = (m + n_groups - 1) / n_groups;
    const int wanted = 2 * (shape->n_stages - rank - 1) + (shape->n_chunks - 1) * largest;
    const int n_warm_up = WEFT_MIN(wanted, n_all);
    for (int k = 0; k < n_warm_up; k++)
        WEFT_TRY(add_forward(out, shape, k));
    for (int k = 0; k < n_all - n_warm_up; k++) {
        WEFT_TRY(add_forward(out, shape, n_warm_up + k));
        WEFT_TRY(add_backward(out, shape, k));
    }
    for (int k = n_all - n_warm_up; k < n_all; k++)
        WEFT_TRY(add_backward(out, shape, k));
    return WEFT_OK;
}
