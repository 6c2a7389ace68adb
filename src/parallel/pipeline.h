/**
 * Pipeline: runs a rank's list of actions over its chunks of the model. Inside src/parallel, for hybrid.c.
 */
#ifndef WEFT_PARALLEL_PIPELINE_H
#define WEFT_PARALLEL_PIPELINE_H

#include "parallel/data_axis.h"
#include "parallel/schedule.h"
#include "parallel/tensor_parallel.h"

/** One chunk of the rank's part of the model. */
typedef struct weft_chunk {
    weft_model *model;
    weft_data_axis *data;
    weft_tensor_axis *tensor; /* NULL: one rank along it */
    weft_run *run;
    weft_hooks *trace, *pace; /* NULL: none; shared by all chunks */
    weft_hooks *hooks[4];
    int n_hooks;
    int n_slots;            /* of its run */
    int n_before_input;     /* of them, most before the INPUT part of their backward */
    bool is_first, is_last; /* of the whole model */
} weft_chunk;

typedef struct weft_pipeline weft_pipeline;

/** What a pipeline is made for. */
typedef struct weft_pipeline_options {
    weft_mesh *mesh;
    weft_chunk *chunks; /* [n_chunks] in the order of schedule.h; runs are there */
    int n_chunks;
    weft_schedule_kind kind;
    struct weft_tied *tied; /* NULL: none */
    int64_t n_rows;         /* of the largest micro-batch's stream */
    int64_t n_cols;         /* of the stream */
} weft_pipeline_options;

/**
 * Slots that each chunk's run must have for a step of m micro-batches.
 *
 * @param[out] n_slots         [n_chunks]
 * @param[out] n_before_input  [n_chunks] of them, most before the INPUT part of their backward
 */
weft_status weft_i_pipeline_slots(int *n_slots,
                                  int *n_before_input,
                                  weft_alloc *alloc,
                                  const weft_schedule_shape *shape,
                                  int rank);

/** Takes the buffers of boundaries (kind COMMUNICATION). @return WEFT_OK | NOMEM */
weft_status weft_i_pipeline_create(weft_pipeline **out, const weft_pipeline_options *options);
void weft_i_pipeline_destroy(weft_pipeline *p);

/** Makes the list for a step of m micro-batches, and takes what it needs. @return WEFT_OK | NOMEM | INTERNAL */
weft_status weft_i_pipeline_prepare(weft_pipeline *p, int64_t m);

/**
 * A step: every micro-batch forward and backward in the schedule's order. Messages of later actions are on their way while
 * an action computes.
 *
 * @collective  pp: a SEND and a RECV a micro-batch, boundary and direction, of the model's type; dp: as the methods do
 * @return      WEFT_OK | what layers, hooks and calls return
 */
weft_status weft_i_pipeline_train(weft_pipeline *p, const weft_parallel_pass *pass);

/**
 * Forward alone of every micro-batch (pipeline_forward.c): as many as stages follow each other through the stages.
 *
 * @collective  pp: a SEND and a RECV a micro-batch and boundary, of the model's type; dp: as the methods do
 * @return      WEFT_OK | what layers, hooks and calls return
 */
weft_status weft_i_pipeline_forward(weft_pipeline *p, const weft_parallel_pass *pass);

/* ---- passes.c ---- */

/** The passes that go on are of this run: what hooks ask. */
void weft_i_chunk_bind(weft_chunk *c, weft_run *run);

/** Micro-batch j of a pass; its loading into a slot. */
weft_micro_batch weft_i_micro_batch_of(const weft_parallel_pass *pass, int64_t j);
weft_status weft_i_micro_batch_load(weft_run *run,
                                    int slot,
                                    const weft_parallel_pass *pass,
                                    const weft_micro_batch *mb);

#endif
