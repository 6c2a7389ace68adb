/* All that one rank of a weft_train_run holds: what was opened, planned and taken, in the order it is given back. */
#ifndef WEFT_TRAIN_TRAIN_SESSION_H
#define WEFT_TRAIN_TRAIN_SESSION_H

#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/plan.h"
#include "train/report.h"
#include "train/train_batch.h"

/** What the loop measures as it goes. */
typedef struct weft_train_timing {
    double start;         /* of the call, on the monotonic clock */
    double step_seconds;  /* smoothed */
    double round_seconds; /* the longest round: step, evaluation, metrics, without saving */
    double save_seconds;  /* of the last save, or what it is thought to take */
} weft_train_timing;

typedef struct weft_train_session {
    const weft_train_options *options;
    const weft_train_callbacks *callbacks; /* never NULL */
    weft_note_sink notes;
    weft_train_timing timing;

    weft_mesh *mesh; /* this rank's */
    weft_ctx *ctx;   /* the mesh's */
    bool is_speaker; /* rank 0: notes, metrics, the caller's callbacks, the folder's lock */
    int lock;        /* on OUT (out_lock.h); -1 */
    char resume_dir[WEFT_PATH_MAX]; /* the checkpoint that was gone on from; "" */
    weft_trainer_state saved;       /* what it says */
    weft_source source;
    weft_companions companions; /* rank 0's */
    weft_train_settings settings;
    weft_tokenizer *tokenizer;
    weft_dataset *data;
    weft_dataset *eval_data;  /* NULL: the end of `data` is held out */
    weft_sampler sampler;     /* of the training part */
    weft_evaluation_job job;  /* data NULL: no evaluation */
    weft_trainer_state state; /* of this run, now */

    weft_train_plan plan;
    int64_t all_bytes; /* planned by all ranks */
    int64_t all_flops; /* of a step, all ranks */
    weft_report report;
    uint64_t base_bytes; /* resident before tensors were taken */
    weft_trainer *trainer;
    weft_batch_reader reader;
    weft_eval_callbacks evaluating; /* should_stop alone */
    weft_evaluator *evaluator;
    weft_metrics metrics;
} weft_train_session;

/**
 * Opens model, data and, on resume, the checkpoint; checks all of it against each other, and over the ranks. Takes no tensor.
 *
 * @collective  every rank
 * @return WEFT_OK | what opening and checking fail with
 */
weft_status weft_i_train_session_open(weft_train_session *s);

/** Plans by a dry run, refuses what does not fit, takes all memory, fills it, says so in notes. */
weft_status weft_i_train_session_take(weft_train_session *s);

/** Gives everything back; whatever was not opened is left alone. */
void weft_i_train_session_close(weft_train_session *s);

/**
 * One round: the next step, the evaluation when it is due, the line of metrics, the caller's callback. Takes no memory.
 * train_round.c.
 *
 * @return WEFT_OK | NUMERIC | IO
 */
weft_status weft_i_train_round(weft_train_session *s);

/** What a checkpoint of the run is made of, or read into. train_round.c. */
weft_checkpoint weft_i_train_checkpoint(const weft_train_session *s);

/** What a rank decides for all: whether to stop, asked of the caller and the clock by rank 0. train_round.c. */
weft_status weft_i_train_ask_stop(weft_train_session *s, bool *is_stopping);

/** Whether next_seconds more and a save would not fit before --max-minutes. train_round.c. */
bool weft_i_train_is_time_over(const weft_train_session *s, double next_seconds);

/** The evaluator's should_stop: the caller's, or the time is over. user: the session. train_round.c. */
bool weft_i_train_is_evaluation_stopped(void *session);

/** Saves a checkpoint of the last step. What memory it takes is control memory and given back. train_round.c. */
weft_status weft_i_train_save(weft_train_session *s);

/** A line for the caller (printf form). */
void weft_i_train_note(const weft_train_session *s, const char *fmt, ...) WEFT_PRINTF(2, 3);

#endif
