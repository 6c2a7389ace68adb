/**
 * The mesh: where a rank stands on the axes (pp, dp, tp), and its communicators. The only place that creates
 * communicators and stacks wrappers on them.
 */
#ifndef WEFT_PARALLEL_MESH_H
#define WEFT_PARALLEL_MESH_H

#include "base/trace.h"
#include "comm/wrap/wrap.h"
#include "parallel/layout.h"
#include "weft/ext/comm.h"

typedef enum weft_axis {
    WEFT_AXIS_WORLD,
    WEFT_AXIS_DP,
    WEFT_AXIS_TP,
    WEFT_AXIS_PP,
    WEFT_AXIS_COUNT
} weft_axis;

/** Bytes this rank sent and calls it made over one axis by operation; filled by the count wrapper. */
typedef struct weft_traffic {
    uint64_t n_calls[WEFT_COMM_OP_COUNT];
    uint64_t sent_bytes[WEFT_COMM_OP_COUNT];
} weft_traffic;

typedef struct weft_mesh {
    weft_ctx *ctx; /* this rank's */
    weft_layout layout;
    int world_rank, world_size;
    int coord[WEFT_AXIS_COUNT]; /* place on each axis; WORLD: world_rank */
    int size[WEFT_AXIS_COUNT];
    weft_comm *comm[WEFT_AXIS_COUNT]; /* never NULL; `self` where the size is 1 */
    weft_trace *trace;                /* NULL: nobody traces */
    struct weft_thread_world *world;  /* of threads; NULL: one rank, or a dry run */
    weft_step_record record;          /* of this rank's step */
    bool has_begun;                   /* weft_i_mesh_begin */
    /* inside comm[axis] */
    weft_comm *counter[WEFT_AXIS_COUNT];
    weft_comm *checked[WEFT_AXIS_COUNT]; /* NULL: calls are not compared */
    weft_pace_link link;                 /* of this rank, when paced */
    uint64_t n_calls;                    /* started on all of them: what WEFT_FAULT counts */
} weft_mesh;

/**
 * Communicators of rank `world_rank` of `world` (NULL for one rank): transport, then fault (WEFT_FAULT, for tests), pace
 * (layout.pace), check (WEFT_COMM_CHECK), count, trace.
 *
 * WEFT_FAULT is RANK:KIND:CALL[:SECONDS] with KIND fail, delay or lose; CALL counts from 0 over all communicators of that
 * rank. WEFT_COMM_CHECK is off, local (the default: arguments) or global (calls are compared over the ranks).
 *
 * @collective  logical: every rank with the same layout
 * @return      WEFT_OK | ARG also a value of these variables | NOMEM
 */
weft_status weft_i_mesh_create(weft_mesh **out,
                               weft_ctx *ctx,
                               const weft_layout *layout,
                               struct weft_thread_world *world,
                               int world_rank,
                               weft_trace *trace);

/** The same rank's mesh for a dry run on a dry context: communicators that only count. */
weft_status weft_i_mesh_create_dry(weft_mesh **out, weft_ctx *dry, const weft_mesh *like);
void weft_i_mesh_destroy(weft_mesh *m);

/** *out stands for any rank of the layout, on the caller's context: what a dry run is made after. No communicators. */
void weft_i_mesh_stand_for(weft_mesh *out,
                           weft_ctx *ctx,
                           const weft_layout *layout,
                           int world_rank);

/** What was sent over an axis since the last reset. */
void weft_i_mesh_traffic(const weft_mesh *m, weft_axis axis, weft_traffic *out);
void weft_i_mesh_traffic_reset(weft_mesh *m);

/** Time in calls over an axis since the last reset: blocked, moving, exposed (comm/wrap/wrap.h). */
weft_comm_seconds weft_i_mesh_seconds(const weft_mesh *m, weft_axis axis);

/** Steps begin: what fails from now on is a failure of the run (weft_last_error_is_of_run), exit code 5. */
void weft_i_mesh_begin(weft_mesh *m);

/**
 * This rank failed: the calls of all ranks end, and none touches this rank's buffers any more, so that it may free them. To be
 * called before anything is freed; `st` and weft_last_error() are the cause for the others. WEFT_OK: nothing.
 *
 * @collective  none
 * @return      st
 */
weft_status weft_i_mesh_fail(weft_mesh *m, weft_status st);

/**
 * A step ends: with WEFT_COMM_CHECK=global every message that was sent over an axis was received.
 *
 * @collective  each axis longer than 1, when calls are compared: weft_i_check_end_step
 * @return      WEFT_OK | MISMATCH
 */
weft_status weft_i_mesh_end_step(weft_mesh *m);

/** Micro-batches a rank has in a batch of n_seqs sequences, at most. */
int64_t weft_i_mesh_rounds(const weft_mesh *m, int64_t n_seqs, int64_t micro_batch);

/** Where a rank of the layout stands on each axis. coord: [WEFT_AXIS_COUNT]. */
void weft_i_mesh_place(const weft_layout *layout, int world_rank, int *coord);

/** The rank that stands there; coord[WEFT_AXIS_WORLD] is not read. */
int weft_i_mesh_rank_at(const weft_layout *layout, const int *coord);

/** "world", "dp", "tp", "pp". */
const char *weft_i_axis_name(weft_axis axis);

#endif
