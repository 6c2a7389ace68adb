/**
 * Pipeline schedules as data: pure functions (stages, micro-batches, chunks, rank) -> ordered list of actions. The same list
 * is run (pipeline.c), simulated (schedule_sim.c) and drawn.
 *
 * Stage of chunk q on rank r of p: q * p + r. With one chunk a rank has one stage.
 */
#ifndef WEFT_PARALLEL_SCHEDULE_H
#define WEFT_PARALLEL_SCHEDULE_H

#include "base/alloc.h"

typedef enum weft_action_kind {
    WEFT_ACTION_FORWARD,
    WEFT_ACTION_BACKWARD, /* input and weight gradients in one */
    WEFT_ACTION_INPUT,    /* input gradient alone */
    WEFT_ACTION_WEIGHT    /* weight gradient, some time after INPUT of the same micro-batch */
} weft_action_kind;

typedef struct weft_action {
    weft_action_kind kind;
    int micro_batch; /* 0 .. n_micro_batches */
    int chunk;       /* 0 .. n_chunks */
} weft_action;

typedef enum weft_schedule_kind {
    WEFT_SCHEDULE_NAIVE,
    WEFT_SCHEDULE_GPIPE,
    WEFT_SCHEDULE_1F1B,
    WEFT_SCHEDULE_INTERLEAVED,
    WEFT_SCHEDULE_ZB_H1,
    WEFT_SCHEDULE_ZB_H2,
    WEFT_SCHEDULE_COUNT
} weft_schedule_kind;

/** What a list is made for. */
typedef struct weft_schedule_shape {
    weft_schedule_kind kind;
    int n_stages;        /* p, ranks of the pipeline; >= 1 */
    int n_micro_batches; /* m >= 1 */
    int n_chunks;        /* v >= 1; over 1 for interleaved alone */
} weft_schedule_shape;

/** One rank's list. */
typedef struct weft_actions {
    weft_alloc *alloc;
    weft_action *action;
    int64_t n;
    size_t capacity; /* in elements */
} weft_actions;

/** "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2". */
const char *weft_i_schedule_name(weft_schedule_kind kind);

/** Chunks of a stage where no number is given. */
int weft_i_schedule_usual_chunks(weft_schedule_kind kind);

/** @return WEFT_OK | ARG no schedule of that name */
weft_status weft_i_schedule_from_name(weft_schedule_kind *out, const char *name);

/** Whether its backward runs as INPUT and WEIGHT. */
bool weft_i_schedule_is_split(weft_schedule_kind kind);

/** @return WEFT_OK | ARG numbers below 1, chunks for a schedule without, ZB-H2 is fine with any m */
weft_status weft_i_schedule_check(const weft_schedule_shape *shape);

/**
 * The list of rank `rank` of the pipeline.
 *
 * @collective  logical: every rank its own
 * @return      WEFT_OK | ARG | NOMEM
 */
weft_status weft_i_schedule_make(weft_actions *out,
                                 weft_alloc *alloc,
                                 const weft_schedule_shape *shape,
                                 int rank);
void weft_i_actions_fini(weft_actions *a);

/** Appends; used by the schedule_*.c. */
weft_status weft_i_actions_add(weft_actions *a, weft_action_kind kind, int micro_batch, int chunk);

/** Each method's own file. */
weft_status weft_i_schedule_naive(weft_actions *out, const weft_schedule_shape *shape, int rank);
weft_status weft_i_schedule_gpipe(weft_actions *out, const weft_schedule_shape *shape, int rank);
weft_status weft_i_schedule_1f1b(weft_actions *out, const weft_schedule_shape *shape, int rank);
weft_status
weft_i_schedule_interleaved(weft_actions *out, const weft_schedule_shape *shape, int rank);
weft_status weft_i_schedule_zb_h1(weft_actions *out, const weft_schedule_shape *shape, int rank);
weft_status weft_i_schedule_zb_h2(weft_actions *out, const weft_schedule_shape *shape, int rank);

#endif
