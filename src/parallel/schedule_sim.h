/* Event simulation of a schedule's action lists: how long, how idle, how much in flight, and whether it can end at all. */
#ifndef WEFT_PARALLEL_SCHEDULE_SIM_H
#define WEFT_PARALLEL_SCHEDULE_SIM_H

#include "parallel/schedule.h"

/** Times of one whole stage, of which a chunk takes 1 / n_chunks, or of one chunk. Any unit. */
typedef struct weft_sim_times {
    double forward, backward, weight; /* backward: input gradient alone */
    double comm;                      /* of an edge between two ranks */
} weft_sim_times;

/** When an action ran. */
typedef struct weft_sim_event {
    weft_action action;
    double start, end;
} weft_sim_event;

/** What one rank did. */
typedef struct weft_sim_rank {
    weft_sim_event *event; /* [n_events] in order */
    int64_t n_events;
    double busy;         /* sum of its actions */
    int in_flight;       /* most chunks forwarded whose last backward action was not done */
    int in_flight_input; /* most chunks forwarded whose input gradient was not done */
} weft_sim_rank;

typedef struct weft_sim {
    weft_alloc *alloc;
    weft_sim_rank *rank; /* [n_stages] */
    int n_ranks;
    int64_t n_actions;    /* of all ranks */
    double makespan;      /* from 0 to the last end */
    double span;          /* largest own last end less own first start */
    double ideal;         /* m (forward + backward + weight) */
    double idle_of_total; /* 1 - ideal / span */
    double idle_of_ideal; /* span / ideal - 1 */
} weft_sim;

/**
 * Runs the lists of all ranks: an action starts when its rank is free and what it needs is there (forward: the stage
 * before, backward: own forward and the stage behind, each plus comm from another rank; weight: own input gradient).
 *
 * @collective  none
 * @param[in] times  by n_times: 1: of every rank's whole stage; n_stages: of each rank's; n_stages * n_chunks: of each chunk
 *                   in model order
 * @return      WEFT_OK | ARG | NOMEM | LAYOUT the lists wait for each other: the ranks and actions they stand at
 */
weft_status weft_i_sim_run(weft_sim *out,
                           weft_alloc *alloc,
                           const weft_schedule_shape *shape,
                           const weft_sim_times *times,
                           int n_times);
void weft_i_sim_fini(weft_sim *s);

#endif
