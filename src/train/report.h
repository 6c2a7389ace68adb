/**
 * What the ranks of a run took, sent and waited for: gathered on rank 0, printed, and written to OUT/report.json (fields:
 * docs/formats.md).
 */
#ifndef WEFT_TRAIN_REPORT_H
#define WEFT_TRAIN_REPORT_H

#include "train/idle_share.h"
#include "train/plan.h"

/** One rank's figures. Whole numbers, so that they travel as one message. */
typedef struct weft_rank_report {
    int64_t coord[WEFT_AXIS_COUNT];
    int64_t planned_bytes[WEFT_MEM_COUNT];
    int64_t taken_bytes[WEFT_MEM_COUNT];
    /* Of the last step; the plan's beside it. */
    int64_t planned_sent[WEFT_AXIS_COUNT][WEFT_COMM_OP_COUNT];
    int64_t sent[WEFT_AXIS_COUNT][WEFT_COMM_OP_COUNT];
    int64_t calls[WEFT_AXIS_COUNT][WEFT_COMM_OP_COUNT];
    int64_t
        plain_sent; /* what the step would send without --reproducible; -1: it was not asked for */
    /* Means of a step over all but the first one, nanoseconds. */
    int64_t step_ns;
    int64_t blocked_ns; /* inside calls of communication */
    int64_t
        moving_ns; /* of calls that move tensors, from when the last rank had come to their end */
    int64_t exposed_ns; /* the part of moving_ns that was waited for */
    /* Of the actions of a pipeline's schedule. */
    int64_t span_ns; /* from the first one's start to the last one's end */
    int64_t chunk_ns[WEFT_STEP_CHUNKS][WEFT_STEP_ACTIONS];
    int64_t n_forwards; /* in the last step */
} weft_rank_report;

/** Adds up while a run goes on. */
typedef struct weft_report {
    weft_rank_report rank; /* this rank's; times are sums until report_finish */
    int64_t n_steps;       /* whose times count */
} weft_report;

/** Before a step: counters and clocks of communication begin anew. */
void weft_i_report_begin_step(weft_report *r, weft_mesh *mesh);

/** After it. */
void weft_i_report_end_step(weft_report *r, weft_mesh *mesh, double seconds);

/**
 * Gathers, prints (rank 0, a line a call of `line`, which may be NULL) and writes `path` (rank 0).
 *
 * @collective  world: 1 gather, and agree on writing
 * @return      WEFT_OK | NOMEM | IO
 */
weft_status weft_i_report_finish(weft_report *r,
                                 weft_mesh *mesh,
                                 const weft_train_plan *plan,
                                 const char *path,
                                 void (*line)(void *user, const char *text),
                                 void *user);

#endif
