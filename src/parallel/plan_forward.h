/* The memory of forward (and backward) passes outside the trainer, found by running them on a dry context first. */
#ifndef WEFT_PARALLEL_PLAN_FORWARD_H
#define WEFT_PARALLEL_PLAN_FORWARD_H

#include "parallel/replica.h"
#include "weft/model.h"

/** A shape that passes will have. Workspace need not grow with the shape, so every one that occurs is tried. */
typedef struct weft_pass_shape {
    int64_t n_seqs;
    int64_t n_tokens;
    int64_t n_head_rows; /* rows the head works on, the first ones; 0: all */
} weft_pass_shape;

/** Zero-initialise, then set. */
typedef struct weft_pass_plan {
    weft_run_options run; /* workspace_bytes and hooks are ignored */
    const weft_pass_shape *shapes;
    size_t n_shapes;
    bool is_loss_wanted;    /* of forward-only passes */
    bool is_backward;       /* training passes, shapes as micro-batches; not forward only */
    int64_t n_rounds;       /* of a training pass: what a pipeline has in flight; 0: 1 */
    int64_t logit_rows;     /* rows of the buffer for logits; 0: none */
    int64_t cache_seqs;     /* sequences in the cache of keys and values; 0: no cache */
    int64_t cache_capacity; /* tokens of each */
    int n_places;           /* buffers of communication that the caller takes ... */
    size_t place_bytes;     /* ... of so many bytes; 0: none */
    const struct weft_pass_plan
        *also; /* run and shapes of a second run on the same model, logits and cache; NULL: none */
} weft_pass_plan;

typedef struct weft_pass_memory {
    size_t workspace_bytes;      /* for weft_run_options */
    size_t also_workspace_bytes; /* of the second run */
    size_t total_bytes;          /* of all device kinds on this rank, workspaces included */
} weft_pass_memory;

/**
 * Takes the model as this rank holds it and a run as `plan` says on a dry context and a dry mesh that stand for this
 * rank's, and runs passes of each shape.
 *
 * @collective  none
 * @return      WEFT_OK | NOMEM the passes would take more than this process can get | what building the model fails with
 */
weft_status weft_i_plan_passes(weft_pass_memory *out,
                               const weft_mesh *mesh,
                               const weft_source *source,
                               const weft_pass_plan *plan);

/**
 * The same on a dry run that exists already and is bound to its parallel (a trainer's): runs the shapes forward only, so
 * that the run's workspace peak covers them.
 *
 * @param[in] logits  f32 of the dry context, or none; kv: [layers] of the dry context, or NULL
 */
weft_status
weft_i_plan_run_shapes(weft_run *run, const weft_pass_plan *plan, weft_view logits, weft_kv *kv);

/**
 * The shapes as micro-batches of forward passes through the whole layout, one for each dp rank: what a pipeline needs, whose
 * run is a part of the model. The run's settings are the caller's.
 */
weft_status weft_i_plan_forward_shapes(weft_parallel *p,
                                       weft_run *run,
                                       const weft_pass_plan *plan,
                                       weft_view logits);

#endif
