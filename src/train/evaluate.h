/*
 * The loss of a model over a stream of tokens: every target counted once, whatever the batch.
 *
 * The stream is cut into windows of seq_length inputs; window w predicts tokens w * seq_length + 1 .. (w + 1) * seq_length.
 * The last window may be short and runs alone; the last batch of whole windows may hold fewer.
 */
#ifndef WEFT_TRAIN_EVALUATE_H
#define WEFT_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "parallel/parallel.h"
#include "parallel/plan_forward.h"
#include "weft/eval.h"

typedef struct weft_evaluation_job {
    const weft_dataset *data; /* outlives the evaluator */
    int64_t first;            /* in the stream */
    int64_t n_tokens;         /* >= 2: n_tokens - 1 targets */
    int64_t seq_length;
    int64_t n_seqs;                       /* windows a batch */
    const weft_eval_callbacks *callbacks; /* NULL: none */
} weft_evaluation_job;

typedef struct weft_evaluation {
    double loss_sum; /* nats, exact sum rounded once */
    int64_t n_targets;
    int64_t n_bytes; /* that the targets stand for; -1: unknown */
} weft_evaluation;

/** Host buffers for the passes, taken once, so that an evaluation between training steps takes nothing. */
typedef struct weft_evaluator weft_evaluator;

#define WEFT_EVALUATION_SHAPES 3

/** Shapes the passes will have: full batch, last batch, last window. @return how many, at most WEFT_EVALUATION_SHAPES */
size_t weft_i_evaluation_shapes(const weft_evaluation_job *job, weft_pass_shape *out);

/** The job's callbacks matter on rank 0 alone. @return WEFT_OK | FORMAT fewer than two tokens | NOMEM */
weft_status weft_i_evaluator_create(weft_evaluator **out,
                                    const weft_mesh *mesh,
                                    const weft_evaluation_job *job);
void weft_i_evaluator_destroy(weft_evaluator *e);

/**
 * Runs it, batches of windows dealt out over the dp ranks, with forward-only passes of `run`, whose batch is at least
 * [n_seqs, seq_length]; the run's settings are as they were afterwards.
 *
 * @collective  every rank with the same job; the same result on each
 * @return      WEFT_OK | NUMERIC a loss that is not finite, with its place in the stream
 */
weft_status weft_i_evaluator_run(weft_evaluation *out,
                                 weft_evaluator *e,
                                 weft_parallel *parallel,
                                 weft_run *run);

/** Fills in loss, perplexity, bits_per_byte and n_targets of a result. */
void weft_i_evaluation_result(weft_eval_result *out, const weft_evaluation *e);

#endif
