/**
 * One rank's state of a training run, and its step. The dry run and the real run are this code on two contexts.
 */
#ifndef WEFT_TRAIN_TRAINER_H
#define WEFT_TRAIN_TRAINER_H

#include "nn/models/load.h"
#include "parallel/parallel.h"
#include "train/settings.h"
#include "weft/model.h"

typedef struct weft_trainer {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_train_settings settings; /* of the run, resolved */
    weft_model *model;
    weft_parallel *parallel;
    weft_run *run;
    weft_optimizer *optimizer;
    int64_t *samples;     /* [global_batch] numbers of a step's samples */
    bool is_warned_empty; /* a step without targets was reported */
} weft_trainer;

/** A global batch on the host: n_seqs sequences of n_tokens, in the order of the run's samples. */
typedef struct weft_train_batch {
    int64_t n_seqs;
    int64_t n_tokens;
    const int32_t *ids;     /* [n_seqs * n_tokens] */
    const int32_t *targets; /* the same shape, shifted by one already; -100: not counted */
    int64_t first_sample;   /* number of the first sequence in the run */
} weft_train_batch;

typedef struct weft_train_outcome {
    double
        loss; /* mean over the counted targets of the global batch, before the update; 0 without any */
    double grad_norm; /* before clipping */
    double lr;
    int64_t n_targets; /* counted ones; 0: nothing was updated */
} weft_train_outcome;

/**
 * Takes all memory of the run: weights (filled, but on a dry context), gradients, optimizer state, the activations of one
 * micro-batch, workspace.
 *
 * @collective  every rank: that of weft_i_parallel_share_weights
 * @param[in] mesh             this rank's, outlives the trainer; a dry one plans
 * @param[in] source           the model; its weights may be unmapped afterwards
 * @param[in] workspace_bytes  what the plan found; a dry context ignores it
 * @return      WEFT_OK | ARG a glob that freezes nothing, or all parameters frozen | NOMEM | FORMAT
 */
weft_status weft_i_trainer_create(weft_trainer **out,
                                  weft_mesh *mesh,
                                  const weft_source *source,
                                  const weft_train_settings *settings,
                                  size_t workspace_bytes);
void weft_i_trainer_destroy(weft_trainer *t);

/**
 * One optimizer step on one global batch, micro-batch by micro-batch. A step without a counted target changes nothing.
 * Takes no memory.
 *
 * @collective  every rank with the same batch: that of the parallel methods, and 1 all_reduce of the step's sums
 * @param[in] step  1-based
 * @return      WEFT_OK | NUMERIC the step and the first tensor and element that is not finite; nothing was updated
 */
weft_status weft_i_trainer_step(weft_trainer *t,
                                int64_t step,
                                const weft_train_batch *batch,
                                weft_train_outcome *out);

#endif
