/*
 * The state of a training run on one context, and its step.
 *
 * A step: count the targets of the global batch on the host; forward and backward of each micro-batch, gradients adding
 * up; exact sums of token losses and of squared gradients; clipping's factor; the update.
 *
 * Invariants
 *  1. The loss is divided once: every token's gradient is multiplied by 1 / (counted targets of the global batch) where it
 *     is made, so micro-batches of any size, also unequal ones, add up to the same gradient.
 *  2. Backward follows each forward: activations are those of one micro-batch, whatever the accumulation.
 *  3. A step takes no memory. All state exists (and is touched) before the first one.
 *  4. A loss or gradient that is not finite stops the step before the update.
 * Reading data, saving and the loop over steps are left to the callers.
 */
#include "train/trainer.h"

#include "base/ctx.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "optim/clip.h"

#include <math.h>
#include <string.h>

#define NOT_COUNTED (-100)

static weft_arena *workspace_of(const weft_trainer *t)
{
    return weft_run_exec(t->run)->workspace;
}

/* ---- creation ---- */

static weft_status freeze(weft_model *m, const weft_train_settings *s)
{
    int64_t n_trained = 0;
    for (size_t i = 0; i < s->n_freeze; i++) {
        int64_t n_matched = 0;
        WEFT_TRY(weft_model_freeze(m, s->freeze[i], &n_matched));
        if (n_matched == 0)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "freeze \"%s\" matches none of the model's %lld parameters (the first is %s)",
                      s->freeze[i], (long long)weft_model_param_count(m),
                      weft_model_param(m, 0)->name);
    }
    for (int64_t i = 0; i < weft_model_param_count(m); i++)
        n_trained += weft_model_param(m, i)->is_frozen ? 0 : 1;
    if (n_trained == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "every parameter is frozen: there is nothing to train");
    return WEFT_OK;
}

static weft_status make_model(weft_trainer *t, const weft_source *source)
{
    weft_config config = source->hf.config;
    config.embd_dropout = t->settings.embd_dropout;
    config.resid_dropout = t->settings.resid_dropout;
    config.attn_dropout = t->settings.attn_dropout;
    WEFT_TRY(weft_model_from_config(&t->model, t->ctx, &config, source->dtype));
    WEFT_TRY(freeze(t->model, &t->settings));
    WEFT_TRY(weft_model_allocate(t->model, true));
    if (weft_i_alloc_is_dry(t->ctx->alloc))
        return WEFT_OK;
    if (source->weights != NULL)
        return weft_i_weights_load(t->model, source->weights, &source->names);
    return weft_model_init_weights(t->model, t->settings.seed);
}

static weft_status make_run(weft_trainer *t, size_t workspace_bytes)
{
    const weft_run_options options = {
        .n_seqs = t->settings.micro_batch,
        .n_tokens = t->settings.seq_length,
        .n_slots = 1,
        .recompute = t->settings.recompute,
        .workspace_bytes = workspace_bytes,
    };
    void *samples = NULL;
    WEFT_TRY(weft_run_create(&t->run, t->model, &options));
    WEFT_TRY(weft_i_alloc_new(t->ctx->alloc, (size_t)t->settings.micro_batch, sizeof(*t->samples),
                              &samples));
    t->samples = samples;
    return WEFT_OK;
}

/*
 * Whether b goes on where a's span is: neighbours in weights and gradients alike (the padding between them is zeros with
 * zero gradients, which every optimizer leaves as they are) that decay alike.
 */
static bool is_next(const weft_param *first, const weft_param *b)
{
    return first->is_decayed == b->is_decayed &&
           b->value_first - first->value_first == b->grad_first - first->grad_first;
}

/* The trained parameters as spans, as few as there can be, into spans [parameters]. */
static int64_t make_spans(weft_model *m, weft_span *spans, int64_t *n_elems)
{
    int64_t n = 0;
    const weft_param *first = NULL;
    *n_elems = 0;
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        if (p->is_frozen)
            continue;
        const int64_t end = p->grad_first + p->rows * p->cols;
        if (first == NULL || !is_next(first, p)) {
            first = p;
            spans[n].value = weft_view_make(p->value.data, p->value.dtype, 1, 0);
            spans[n].grad = weft_view_make(p->grad.data, p->grad.dtype, 1, 0);
            spans[n].first = p->grad_first;
            spans[n].is_decayed = p->is_decayed;
            n++;
        }
        const int64_t length = end - first->grad_first;
        spans[n - 1].value = weft_view_make(spans[n - 1].value.data, p->value.dtype, 1, length);
        spans[n - 1].grad = weft_view_make(spans[n - 1].grad.data, p->grad.dtype, 1, length);
        *n_elems = WEFT_MAX(*n_elems, end);
    }
    return n;
}

static weft_status make_optimizer(weft_trainer *t)
{
    void *spans = NULL;
    int64_t n_elems = 0;
    WEFT_TRY(weft_i_alloc_new(t->ctx->alloc, (size_t)weft_model_param_count(t->model),
                              sizeof(weft_span), &spans));
    const int64_t n_spans = make_spans(t->model, spans, &n_elems);
    weft_status st = weft_i_optimizer_create(&t->optimizer, t->ctx, &t->settings.optimizer, spans,
                                             n_spans, n_elems);
    weft_i_alloc_put(t->ctx->alloc, spans);
    if (st == WEFT_OK)
        st = weft_i_optimizer_fill_master(t->optimizer, workspace_of(t));
    return st;
}

weft_status weft_i_trainer_create(weft_trainer **out,
                                  weft_ctx *ctx,
                                  const weft_source *source,
                                  const weft_train_settings *settings,
                                  size_t workspace_bytes)
{
    weft_status st = WEFT_OK;
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_trainer), &block));
    weft_trainer *t = block;
    t->ctx = ctx;
    t->settings = *settings;
    WEFT_TRY_GOTO(st, make_model(t, source), out);
    WEFT_TRY_GOTO(st, make_run(t, workspace_bytes), out);
    WEFT_TRY_GOTO(st, make_optimizer(t), out);
out:
    if (st == WEFT_OK)
        *out = t;
    else
        weft_i_trainer_destroy(t);
    return st;
}

void weft_i_trainer_destroy(weft_trainer *t)
{
    if (t == NULL)
        return;
    weft_i_optimizer_destroy(t->optimizer);
    weft_run_destroy(t->run);
    weft_model_destroy(t->model);
    weft_i_alloc_put(t->ctx->alloc, t->samples);
    weft_i_alloc_put(t->ctx->alloc, t);
}

/* ---- what is not finite ---- */

static weft_status find_in(weft_trainer *t, weft_view x, int64_t *index)
{
    const weft_find_nonfinite_args args = {.x = x, .index = index};
    *index = -1;
    return weft_exec_op(weft_run_exec(t->run), WEFT_OP_FIND_NONFINITE, &args);
}

/* "gradient of NAME at [1, 2]", the weights before the gradients (they are the cause when they are bad). */
static weft_status name_nonfinite(weft_trainer *t, char *out, size_t size)
{
    static const char *const what[] = {"weight", "gradient of"};
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < weft_model_param_count(t->model); i++) {
            const weft_param *p = weft_model_param(t->model, i);
            if (pass == 1 && p->is_frozen)
                continue;
            int64_t index = -1;
            WEFT_TRY(find_in(t, pass == 0 ? p->value : p->grad, &index));
            if (index < 0)
                continue;
            if (p->n_dims == 1)
                return weft_i_str_print(out, size, "%s %s at [%lld]", what[pass], p->name,
                                        (long long)index);
            return weft_i_str_print(out, size, "%s %s at [%lld, %lld]", what[pass], p->name,
                                    (long long)(index / p->cols), (long long)(index % p->cols));
        }
    }
    return weft_i_str_print(out, size, "none of the weights and gradients");
}

/* Fails when the loss or the norm is not finite. A dry run looks too, for the workspace of looking. */
static weft_status check_finite(weft_trainer *t, int64_t step, double loss, double norm)
{
    const bool is_finite = isfinite(loss) && isfinite(norm);
    if (is_finite && !weft_i_alloc_is_dry(t->ctx->alloc))
        return WEFT_OK;
    char where[WEFT_PARAM_NAME_BYTES + 80];
    WEFT_TRY(name_nonfinite(t, where, sizeof(where)));
    if (is_finite)
        return WEFT_OK;
    WEFT_FAIL(
        WEFT_STATUS_NUMERIC,
        "step %lld: the %s was not finite (loss %g, gradient norm %g); the first tensor that "
        "is not: %s. The last checkpoint is untouched; a smaller lr or a longer warm-up often "
        "helps",
        (long long)step, isfinite(loss) ? "gradient" : "loss", loss, norm, where);
}

/* ---- the step ---- */

static int64_t count_targets(const weft_train_batch *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < b->n_seqs * b->n_tokens; i++)
        n += b->targets[i] != NOT_COUNTED ? 1 : 0;
    return n;
}

static void set_exec(weft_trainer *t, int64_t step, int64_t n_targets)
{
    weft_exec *e = weft_run_exec(t->run);
    char name[48];
    (void)weft_i_str_print(name, sizeof(name), "dropout/%lld", (long long)step);
    const weft_rng_key key = weft_i_rng_key(t->settings.seed, name);
    e->is_training = true;
    e->dropout_key[0] = key.word[0];
    e->dropout_key[1] = key.word[1];
    e->loss_scale = (float)(1.0 / (double)n_targets);
}

static weft_status run_micro_batch(
    weft_trainer *t, const weft_train_batch *b, int64_t first, int64_t n_seqs, weft_sum *loss)
{
    const int64_t at = first * b->n_tokens;
    for (int64_t i = 0; i < n_seqs; i++)
        t->samples[i] = b->first_sample + first + i;
    const weft_host_batch host = {
        .n_seqs = n_seqs,
        .n_tokens = b->n_tokens,
        .ids = b->ids + at,
        .targets = b->targets + at,
        .samples = t->samples,
    };
    WEFT_TRY(weft_run_load(t->run, 0, &host));
    WEFT_TRY(weft_run_forward(t->run, 0));
    WEFT_TRY(weft_run_backward(t->run, 0, WEFT_BACKWARD_BOTH));
    const weft_sum_args sum = {.x = weft_run_losses(t->run, 0), .sum = loss};
    return weft_exec_op(weft_run_exec(t->run), WEFT_OP_SUM, &sum);
}

static weft_status gradient_norm(weft_trainer *t, double *out)
{
    weft_sum squares;
    weft_i_sum_init(&squares);
    for (int64_t i = 0; i < t->optimizer->n_spans; i++)
        WEFT_TRY(weft_i_clip_add_squares(&squares, t->ctx->backend, workspace_of(t),
                                         t->optimizer->spans[i].grad));
    *out = weft_i_clip_norm(&squares);
    return WEFT_OK;
}

static void warn_empty(weft_trainer *t, int64_t step)
{
    if (t->is_warned_empty)
        return;
    t->is_warned_empty = true;
    weft_log(t->ctx, WEFT_LOG_WARN, "train",
             "step %lld has no counted target: nothing was updated (said once, for all such steps)",
             (long long)step);
}

weft_status weft_i_trainer_step(weft_trainer *t,
                                int64_t step,
                                const weft_train_batch *batch,
                                weft_train_outcome *out)
{
    weft_sum loss;
    const int64_t n_targets = count_targets(batch);
    *out = (weft_train_outcome){
        .lr = weft_i_lr_schedule_at(&t->settings.schedule, step),
        .n_targets = n_targets,
    };
    if (n_targets == 0) {
        warn_empty(t, step);
        return WEFT_OK;
    }
    weft_i_sum_init(&loss);
    set_exec(t, step, n_targets);
    weft_model_begin_step(t->model);
    for (int64_t first = 0; first < batch->n_seqs; first += t->settings.micro_batch) {
        const int64_t n_seqs = WEFT_MIN(t->settings.micro_batch, batch->n_seqs - first);
        WEFT_TRY(run_micro_batch(t, batch, first, n_seqs, &loss));
    }
    WEFT_TRY(weft_model_end_step(t->model));
    out->loss = weft_i_sum_value(&loss) / (double)n_targets;
    WEFT_TRY(gradient_norm(t, &out->grad_norm));
    WEFT_TRY(check_finite(t, step, out->loss, out->grad_norm));
    const weft_optimizer_step update = {
        .step = step,
        .lr = out->lr,
        .grad_scale = weft_i_clip_scale(out->grad_norm, t->settings.clip_grad),
    };
    return weft_i_optimizer_apply(t->optimizer, workspace_of(t), &update);
}
