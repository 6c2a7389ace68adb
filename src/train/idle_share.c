/*
 * Idle shares of pipelines, measured beside simulated (contract: idle_share.h).
 *
 * The simulation is fed with what the stages' actions took, meaned over the ranks of a stage and its micro-batches; a chunk
 * takes its share of its stage, as in `weft simulate`. Both shares are one minus the mean of the ranks' own work over the
 * longest span from a rank's first action to its last.
 * Communication: none.
 */
#include "train/idle_share.h"

#include "base/compiler.h"
#include "parallel/schedule_sim.h"

double weft_i_idle_share_message(const weft_layout *layout, int64_t n_bytes)
{
    const weft_pace *pace = layout->pace;
    if (pace == NULL)
        return 0.0;
    return pace->latency_s + (pace->bytes_per_s > 0 ? (double)n_bytes / pace->bytes_per_s : 0.0);
}

/* Times of a whole stage for one micro-batch. times: [pp], zero. */
static void mean_times(weft_sim_times *times,
                       const weft_layout *l,
                       const weft_rank_times *ranks,
                       int64_t m,
                       double message_s)
{
    const double weight = 1e-9 / ((double)m * (double)(l->n_ranks / l->pp));
    for (int r = 0; r < l->n_ranks; r++) {
        weft_sim_times *t = &times[ranks[r].stage];
        const int64_t *ns = ranks[r].action_ns;
        t->forward += weight * (double)ns[WEFT_STEP_FORWARD];
        t->backward += weight * (double)(ns[WEFT_STEP_BACKWARD] + ns[WEFT_STEP_INPUT]);
        t->weight += weight * (double)ns[WEFT_STEP_WEIGHT];
        t->comm = message_s;
    }
}

static void measure(weft_idle_share *out, const weft_layout *l, const weft_rank_times *ranks)
{
    double work = 0.0, span = 0.0;
    for (int r = 0; r < l->n_ranks; r++) {
        for (int k = 0; k < WEFT_STEP_ACTIONS; k++)
            work += (double)ranks[r].action_ns[k];
        span = WEFT_MAX(span, (double)ranks[r].span_ns);
    }
    out->span_ms = span / 1e6;
    out->measured = 1.0 - work / l->n_ranks / span;
}

static void take_simulated(weft_idle_share *out, const weft_sim *sim)
{
    double work = 0.0;
    for (int r = 0; r < sim->n_ranks; r++)
        work += sim->rank[r].busy;
    out->simulated_ms = 1e3 * sim->span;
    out->simulated = sim->span > 0.0 ? 1.0 - work / sim->n_ranks / sim->span : 0.0;
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
    WEFT_TRY(weft_i_alloc_array(alloc, layout->pp, sizeof(*times), &times));
    mean_times(times, layout, ranks, out->n_micro_batches, message_s);
    const weft_status st = weft_i_sim_run(&sim, alloc, &shape, times, layout->pp);
    weft_i_alloc_put(alloc, times);
    WEFT_TRY(st);
    measure(out, layout, ranks);
    take_simulated(out, &sim);
    out->is_known = true;
    weft_i_sim_fini(&sim);
    return WEFT_OK;
}
