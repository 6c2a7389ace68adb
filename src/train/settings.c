/*
 * From the options of a run to settings: defaults, names and the checks that need more than one option (those of one
 * option alone are the table's, weft_options_check).
 *
 * The single place where a default depends on something else (the config, another option), so that the plan, the run and a
 * resumed run cannot resolve them differently.
 */
#include "train/settings.h"

#include "parallel/layout.h"

#include <math.h>
#include <string.h>

#define DEFAULT_SEQ_LENGTH 256
#define DEFAULT_MICRO_BATCH 8
#define MAX_TOKENS_OF_A_STEP ((int64_t)1 << 31)

weft_status weft_i_recompute_from_name(weft_recompute *out, const char *name)
{
    if (name == NULL || strcmp(name, "") == 0 || strcmp(name, "none") == 0)
        *out = WEFT_RECOMPUTE_NONE;
    else if (strcmp(name, "selective") == 0)
        *out = WEFT_RECOMPUTE_SELECTIVE;
    else if (strcmp(name, "full") == 0)
        *out = WEFT_RECOMPUTE_FULL;
    else
        WEFT_FAIL(WEFT_STATUS_ARG, "recompute \"%s\" is none of none, selective, full", name);
    return WEFT_OK;
}

static weft_status
set_batch(weft_train_settings *s, const weft_train_options *o, const weft_config *c)
{
    s->seq_length =
        o->seq_length != 0 ? o->seq_length : WEFT_MIN(c->max_positions, DEFAULT_SEQ_LENGTH);
    if (s->seq_length < 1)
        WEFT_FAIL(WEFT_STATUS_ARG, "seq_length %lld must be at least 1", (long long)s->seq_length);
    const int64_t micro = o->layout.micro_batch_size;
    weft_layout layout;
    WEFT_TRY(weft_i_layout_make(&layout, &o->layout));
    const int64_t dp = layout.dp; /* by default every data-parallel rank has one micro-batch */
    const int64_t global = o->layout.global_batch_size;
    s->micro_batch = micro != 0 ? micro : DEFAULT_MICRO_BATCH;
    if (micro == 0 && global > 0)
        s->micro_batch = WEFT_MIN((global + dp - 1) / dp, DEFAULT_MICRO_BATCH);
    s->global_batch = global != 0 ? global : s->micro_batch * dp;
    if (s->micro_batch < 1 || s->global_batch < 1)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "micro_batch_size %lld and global_batch_size %lld must be at least 1",
                  (long long)micro, (long long)global);
    if (s->micro_batch > s->global_batch)
        WEFT_FAIL(WEFT_STATUS_ARG, "micro_batch_size %lld is greater than global_batch_size %lld",
                  (long long)s->micro_batch, (long long)s->global_batch);
    if (s->global_batch > MAX_TOKENS_OF_A_STEP / s->seq_length)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "a step of %lld sequences of %lld tokens is over 2^31 tokens; give a smaller "
                  "global_batch_size",
                  (long long)s->global_batch, (long long)s->seq_length);
    return WEFT_OK;
}

static weft_status set_dropout(weft_train_settings *s, double dropout, const weft_config *c)
{
    s->embd_dropout = c->embd_dropout;
    s->resid_dropout = c->resid_dropout;
    s->attn_dropout = c->attn_dropout;
    if (dropout == -1.0)
        return WEFT_OK;
    if (!(dropout >= 0.0 && dropout < 1.0))
        WEFT_FAIL(WEFT_STATUS_ARG, "dropout %g is not in [0, 1)", dropout);
    s->embd_dropout = dropout;
    s->resid_dropout = dropout;
    s->attn_dropout = dropout;
    return WEFT_OK;
}

static weft_status set_optimizer(weft_train_settings *s, const weft_train_options *o)
{
    WEFT_TRY(weft_i_optimizer_kind_from_name(&s->optimizer.kind, o->optimizer));
    s->optimizer.beta1 = o->adam_beta1;
    s->optimizer.beta2 = o->adam_beta2;
    s->optimizer.eps = o->adam_eps;
    s->optimizer.momentum = o->sgd_momentum;
    s->optimizer.weight_decay = o->weight_decay;
    WEFT_TRY(weft_i_optimizer_check(&s->optimizer));
    WEFT_TRY(weft_i_lr_kind_from_name(&s->schedule.kind, o->lr_schedule));
    s->schedule.lr = o->lr;
    s->schedule.min_lr = o->min_lr;
    s->schedule.warmup_steps = o->lr_warmup_steps;
    s->schedule.decay_steps = o->lr_decay_steps;
    s->schedule.train_steps = o->train_steps;
    s->train_steps = o->train_steps;
    WEFT_TRY(weft_i_lr_schedule_check(&s->schedule));
    s->clip_grad = o->clip_grad;
    if (!isfinite(o->clip_grad) || o->clip_grad < 0.0)
        WEFT_FAIL(WEFT_STATUS_ARG, "clip_grad %g must be finite and not negative", o->clip_grad);
    return WEFT_OK;
}

static weft_status set_evaluation(weft_train_settings *s, const weft_train_options *o)
{
    s->is_evaluating = o->eval_interval > 0;
    s->eval_tokens = o->eval_max_tokens;
    if (s->is_evaluating && o->n_eval_data == 0 &&
        !(o->eval_fraction > 0.0 && o->eval_fraction < 1.0))
        WEFT_FAIL(WEFT_STATUS_ARG, "eval_fraction %g is not in (0, 1)", o->eval_fraction);
    return WEFT_OK;
}

weft_status weft_i_train_settings_make(weft_train_settings *out,
                                       const weft_train_options *options,
                                       const weft_config *config)
{
    weft_train_settings s = {
        .seed = (uint64_t)options->layout.seed,
        .is_shuffled = options->shuffle,
        .freeze = options->freeze,
        .n_freeze = options->n_freeze,
        .save_dtype = options->save_dtype,
    };
    WEFT_TRY(set_batch(&s, options, config));
    WEFT_TRY(set_dropout(&s, options->dropout, config));
    WEFT_TRY(set_optimizer(&s, options));
    WEFT_TRY(set_evaluation(&s, options));
    WEFT_TRY(weft_i_recompute_from_name(&s.recompute, options->layout.recompute));
    if (strcmp(s.save_dtype, "model") != 0 && strcmp(s.save_dtype, "fp32") != 0 &&
        strcmp(s.save_dtype, "bf16") != 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "save_dtype \"%s\" is none of model, fp32, bf16", s.save_dtype);
    *out = s;
    return WEFT_OK;
}

weft_dtype weft_i_train_settings_save_dtype(const weft_train_settings *s, weft_dtype dtype)
{
    if (strcmp(s->save_dtype, "fp32") == 0)
        return WEFT_DTYPE_F32;
    return strcmp(s->save_dtype, "bf16") == 0 ? WEFT_DTYPE_BF16 : dtype;
}
