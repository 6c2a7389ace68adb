/* The memory, the work and the traffic of one rank of a training run, found by a dry run of the code that trains. */
#ifndef WEFT_TRAIN_PLAN_H
#define WEFT_TRAIN_PLAN_H

#include "train/evaluate.h"
#include "train/trainer.h"

typedef struct weft_train_plan {
    size_t bytes[WEFT_MEM_COUNT]; /* by kind; WORKSPACE is the run's stack; CONTROL stays 0 */
    size_t total_bytes;           /* of the device kinds */
    size_t workspace_bytes;       /* for weft_i_trainer_create */
    double step_flops;            /* of one optimizer step, without evaluation */
    weft_traffic step_traffic[WEFT_AXIS_COUNT]; /* sent in one step */
    int64_t
        plain_sent_bytes; /* --reproducible over several ranks: what a step would send without; else -1 */
    int64_t n_elems;         /* parameters, a tied one once */
    int64_t n_trained_elems; /* without the frozen ones */
    int64_t n_held_elems;    /* of the weights on this rank */
} weft_train_plan;

/**
 * Runs one step, and the passes of an evaluation, on a dry context and a dry mesh that stand for this rank's: the same
 * trainer, the same operations and messages, nothing computed, sent or taken.
 *
 * @collective  none
 * @param[in] evaluation  NULL: none
 * @return      WEFT_OK | ARG, NOMEM, UNSUPPORTED of the trainer
 */
weft_status weft_i_train_plan_make(weft_train_plan *out,
                                   const weft_mesh *mesh,
                                   const weft_source *source,
                                   const weft_train_settings *settings,
                                   const weft_evaluation_job *evaluation);

/**
 * Refuses a plan that does not fit.
 *
 * @param[in] limit_bytes  of this rank; 0: what this process could still take must do for all its ranks
 * @param[in] all_bytes    planned by all ranks of this process
 * @return WEFT_OK | NOMEM with the bytes by kind, the sum and the limit
 */
weft_status
weft_i_train_plan_check(const weft_train_plan *plan, uint64_t limit_bytes, uint64_t all_bytes);

/**
 * The plan beside what a real run took, a line a kind, each given to `line`.
 *
 * @param[in] taken  peak bytes by kind of the real run
 */
void weft_i_train_plan_print(const weft_train_plan *plan,
                             const size_t taken[WEFT_MEM_COUNT],
                             void (*line)(void *user, const char *text),
                             void *user);

#endif
