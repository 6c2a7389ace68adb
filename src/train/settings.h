/* The options of a run, resolved against the model's config and checked: what trainer, plan and checkpoint work with. */
#ifndef WEFT_TRAIN_SETTINGS_H
#define WEFT_TRAIN_SETTINGS_H

#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "weft/train.h"

typedef struct weft_train_settings {
    int64_t seq_length;
    int64_t micro_batch;  /* sequences in a pass, at most */
    int64_t global_batch; /* sequences in a step */
    int64_t train_steps;
    uint64_t seed;
    weft_recompute recompute;
    weft_lr_schedule schedule;
    weft_optimizer_options optimizer;
    double clip_grad;
    bool is_shuffled;
    const char *const *freeze; /* borrowed from the options */
    size_t n_freeze;
    bool is_evaluating;
    int64_t eval_tokens;    /* targets an evaluation counts at most; 0: all */
    const char *save_dtype; /* "model", "fp32", "bf16" */
    double embd_dropout, resid_dropout, attn_dropout;
} weft_train_settings;

/**
 * Resolves defaults (sequence length, batch sizes) and checks every number against the others and the config. The batch
 * need not divide: the last micro-batch of a step is then smaller.
 *
 * @return WEFT_OK | ARG option, value and what is allowed | UNSUPPORTED
 */
weft_status weft_i_train_settings_make(weft_train_settings *out,
                                       const weft_train_options *options,
                                       const weft_config *config);

/** The type weights are saved in, for a model that computes in `dtype`. */
weft_dtype weft_i_train_settings_save_dtype(const weft_train_settings *s, weft_dtype dtype);

/** Of --recompute; NULL and "" are none. @return WEFT_OK | ARG none of none, selective, full */
weft_status weft_i_recompute_from_name(weft_recompute *out, const char *name);

#endif
