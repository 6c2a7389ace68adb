/**
 * A pipeline schedule alone, without model or ranks: its length, idle share, micro-batches in flight, and its picture.
 */
#ifndef WEFT_SIMULATE_H
#define WEFT_SIMULATE_H

#include "weft/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Fields are the long options of `weft simulate`. Times are of one whole stage, in any unit. */
typedef struct weft_simulate_options {
    const char *schedule; /* ["1f1b"] naive gpipe 1f1b interleaved zb-h1 zb-h2 */
    int64_t stages;       /* ranks of the pipeline */
    int64_t micro_batches;
    int64_t chunks;       /* 0: 1, of interleaved 2; over 1: interleaved */
    double forward;       /* [1] */
    double backward;      /* [1] input gradient alone */
    double weight;        /* [1] weight gradient */
    double comm;          /* [0] of an edge between two ranks */
    const char *timeline; /* "" or a file for the picture (SVG) */
    bool json;
} weft_simulate_options;

typedef struct weft_simulate_result {
    int64_t n_chunks;     /* of a stage, as simulated */
    int64_t n_actions;    /* of all ranks */
    double makespan;      /* from 0 to the last end */
    double span;          /* largest own last end less own first start of a rank */
    double ideal;         /* what a rank without waiting would take */
    double idle_of_total; /* 1 - ideal / span */
    double idle_of_ideal; /* span / ideal - 1 */
    int64_t n_ranks;
    const int64_t *in_flight; /* [n_ranks] most chunks whose activations are still held */
    const int64_t *
        in_flight_input; /* [n_ranks] ... whose input gradient is still to come (split schedules) */
} weft_simulate_result;

/**
 * Simulates, writes the picture when asked for, and gives the result to `done` (its arrays are valid inside alone).
 *
 * @collective  none
 * @return      WEFT_OK | ARG | LAYOUT the schedule waits for itself | IO the picture | NOMEM
 */
WEFT_API weft_status weft_simulate_run(const weft_simulate_options *options,
                                       void (*done)(void *user, const weft_simulate_result *r),
                                       void *user);

#ifdef __cplusplus
}
#endif
#endif
