/*
 * Idle shares of pipelines, measured beside simulated (contract: idle_share.h).
 *
 * The simulation is fed with what actions took, meaned over the micro-batches that the ranks of a stage had, each chunk by
 * itself (where there are more chunks than are recorded apart, an equal share of its stage). Both shares are one minus the
 * mean of the ranks' own work over the longest span from a rank's first action to its last. The simulated pipeline is that
 * of the ranks along dp with most micro-batches: others are idle for longer in both.
 * Communication: none.
 */
#include "train/idle_share.h"

#include "base/compiler.h"
#include "parallel/schedule_sim.h"

double weft_i_idle_share_message(const weft_layout *layout, int64_t sent_bytes, int64_t n_calls)
{
    const weft_pace *pace = layout->pace;
    const int64_t n_bytes = n_calls > 0 ? sent_bytes / n_calls : 0;
    if (pace == NULL)
        return 0.0;
    return pace->latency_s + (pace->bytes_per_s > 0 ? (double)n_bytes / pace->bytes_per_s : 0.0);
}

/* Micro-batches of all ranks of a stage: where they do not divide by dp, ranks have different numbers of them. */
static int64_t count_of_stage(const weft_layout *l, const weft_rank_times *ranks, int64_t stage)
{
    int64_t n = 0;
    for (int r = 0; r < l->n_ranks; r++)
        n += ranks[r].stage == stage ? ranks[r].n_forwards : 0;
    return WEFT_MAX(n / l->n_chunks, 1);
}

/* Times of every part (n_times: stages x chunks), or of every whole stage. times: [n_times], zero. */
static void
mean_times(weft_sim_times *times, int n_times, const weft_layout *l, const weft_rank_times *ranks)
{
    for (int r = 0; r < l->n_ranks; r++) {
        const double weight = 1e-9 / (double)count_of_stage(l, ranks, ranks[r].stage);
        for (int c = 0; c < WEFT_MIN(l->n_chunks, WEFT_STEP_CHUNKS); c++) {
            weft_sim_times *t = &times[(c * l->pp + ranks[r].stage) % n_times];
            const int64_t *ns = ranks[r].chunk_ns[c];
            t->forward += weight * (double)ns[WEFT_STEP_FORWARD];
            t->backward += weight * (double)(ns[WEFT_STEP_BACKWARD] + ns[WEFT_STEP_INPUT]);
            t->weight += weight * (double)ns[WEFT_STEP_WEIGHT];
        }
    }
}

/* Mean of what the ranks did, in ns, and both shares. */
static void measure(weft_idle_share *out,
                    const weft_layout *l,
                    const weft_rank_times *ranks,
                    const weft_sim *sim)
{
    const double simulated_span = 1e9 * sim->span;
    double work = 0.0, span = 0.0;
    for (int r = 0; r < l->n_ranks; r++) {
        for (int c = 0; c < WEFT_STEP_CHUNKS; c++) {
            for (int k = 0; k < WEFT_STEP_ACTIONS; k++)
                work += (double)ranks[r].chunk_ns[c][k];
        }
        span = WEFT_MAX(span, (double)ranks[r].span_ns);
    }
    work /= l->n_ranks;
    out->span_ms = span / 1e6;
    out->measured = 1.0 - work / span;
    out->simulated_ms = simulated_span / 1e6;
    out->simulated = simulated_span > 0.0 ? 1.0 - work / simulated_span : 0.0;
}

weft_status weft_i_idle_share_find(weft_idle_share *out,
                                   weft_alloc *alloc,
                                   const weft_layout *layout,
                                   const weft_rank_times *ranks,
                                   double message_s)
{
    weft_sim_times *times = NULL;
    weft_sim sim;
    int64_t most = 0;
    *out = (weft_idle_share){0};
    for (int r = 0; r < layout->n_ranks; r++)
        most = WEFT_MAX(most, ranks[r].n_forwards);
    if (layout->pp == 1 || most == 0)
        return WEFT_OK;
    out->n_micro_batches = most / layout->n_chunks;
    const weft_schedule_shape shape = {layout->schedule, layout->pp, (int)out->n_micro_batches,
                                       layout->n_chunks};
    const int n_times = layout->pp * (layout->n_chunks <= WEFT_STEP_CHUNKS ? layout->n_chunks : 1);
    WEFT_TRY(weft_i_alloc_array(alloc, n_times, sizeof(*times), &times));
    mean_times(times, n_times, layout, ranks);
    for (int i = 0; i < n_times; i++)
        times[i].comm = message_s;
    const weft_status st = weft_i_sim_run(&sim, alloc, &shape, times, n_times);
    weft_i_alloc_put(alloc, times);
    WEFT_TRY(st);
    measure(out, layout, ranks, &sim);
    out->is_known = true;
    weft_i_sim_fini(&sim);
    return WEFT_OK;
}
