/*
 * The state of a training run on one context, and its step.
 *
 * A step: count the targets of the global batch on the host; forward and backward of each micro-batch, gradients adding
 * up over micro-batches and ranks; exact sums of token losses and of squared gradients; clipping's factor; the update.
 *
 * Invariants
 *  1. The loss is divided once: every token's gradient is multiplied by 1 / (counted targets of the global batch) where it
 *     is made, so micro-batches of any size, also unequal ones, add up to the same gradient.
 *  2. Backward follows each forward: activations are those of one micro-batch, whatever the accumulation.
 *  3. A step takes no memory. All state exists (and is touched) before the first one.
 *  4. A loss or gradient that is not finite stops the step before the update.
 * Communication: that of the parallel methods; the reader's count of targets to those who do not read; 1 all_reduce of the
 * two sums.
 * Reading data, saving and the loop over steps are left to the callers.
 */
#include "train/trainer.h"

#include "base/clock.h"
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
    WEFT_TRY(weft_i_parallel_model(&t->model, t->mesh, &config, source->dtype));
    WEFT_TRY(freeze(t->model, &t->settings));
    WEFT_TRY(weft_i_parallel_create(&t->parallel, t->mesh, t->model, true));
    WEFT_TRY(weft_i_parallel_reserve(t->parallel, t->settings.micro_batch, t->settings.seq_length));
    if (weft_i_parallel_is_source(t->parallel) && !weft_i_alloc_is_dry(t->ctx->alloc)) {
        const weft_parts *here = weft_i_parallel_values(t->parallel);
        WEFT_TRY(weft_i_source_fill(source, t->model, here->part, here->n, t->settings.seed));
    }
    return weft_i_parallel_share_weights(t->parallel);
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
    WEFT_TRY(weft_i_parallel_run_create(
        &t->run, t->parallel, &options,
        weft_i_mesh_rounds(t->mesh, t->settings.global_batch, t->settings.micro_batch)));
    return weft_i_alloc_array(t->ctx->alloc, t->settings.global_batch, sizeof(*t->samples),
                              &t->samples);
}

/* Elements from a to b, both addresses of elements of `size` bytes; b lies at or behind a. */
static int64_t elems_between(const void *a, const void *b, size_t size)
{
    return (int64_t)(((uintptr_t)b - (uintptr_t)a) / size);
}

/*
 * Whether part b goes on where span a is: in weights, gradients and state alike, with less than a parameter's padding in
 * between (zeros with zero gradients, which every optimizer leaves as they are), and decays alike.
 */
static bool is_next(const weft_span *a, const weft_part *b)
{
    const int64_t at = b->state_first - a->first;
    return a->is_decayed == b->param->is_decayed && at >= a->value.cols &&
           at < a->value.cols + WEFT_PARAM_ALIGN_ELEMS &&
           elems_between(a->value.data, b->value.data, weft_dtype_bytes(a->value.dtype)) == at &&
           elems_between(a->grad.data, b->grad.data, sizeof(float)) == at;
}

/* The parts that are updated here as spans, as few as there can be, into spans [parts]. */
static int64_t make_spans(const weft_parts *parts, weft_span *spans)
{
    int64_t n = 0;
    for (int64_t i = 0; i < parts->n; i++) {
        const weft_part *p = &parts->part[i];
        weft_span *last = n > 0 ? &spans[n - 1] : NULL;
        if (last == NULL || !is_next(last, p)) {
            spans[n++] = (weft_span){.value = p->value,
                                     .grad = p->grad,
                                     .first = p->state_first,
                                     .is_decayed = p->param->is_decayed};
            continue;
        }
        const int64_t length = p->state_first + p->n - last->first;
        last->value = weft_view_make(last->value.data, last->value.dtype, 1, length);
        last->grad = weft_view_make(last->grad.data, last->grad.dtype, 1, length);
    }
    return n;
}

static weft_status make_optimizer(weft_trainer *t)
{
    const weft_parts *parts = weft_i_parallel_states(t->parallel);
    weft_span *spans = NULL;
    WEFT_TRY(weft_i_alloc_array(t->ctx->alloc, WEFT_MAX(parts->n, 1), sizeof(*spans), &spans));
    const int64_t n_spans = make_spans(parts, spans);
    weft_status st = weft_i_optimizer_create(&t->optimizer, t->ctx, &t->settings.optimizer, spans,
                                             n_spans, weft_i_parallel_state_elems(t->parallel));
    weft_i_alloc_put(t->ctx->alloc, spans);
    if (st == WEFT_OK)
        st = weft_i_optimizer_fill_master(t->optimizer, workspace_of(t));
    return st;
}

weft_status weft_i_trainer_create(weft_trainer **out,
                                  weft_mesh *mesh,
                                  const weft_source *source,
                                  const weft_train_settings *settings,
                                  size_t workspace_bytes)
{
    weft_status st = WEFT_OK;
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_trainer), &block));
    weft_trainer *t = block;
    t->ctx = mesh->ctx;
    t->mesh = mesh;
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
    weft_i_parallel_destroy(t->parallel);
    weft_model_destroy(t->model);
    weft_i_alloc_put(t->ctx->alloc, t->samples);
    weft_i_alloc_put(t->ctx->alloc, t);
}

/* ---- what is not finite ---- */

/* Something that is not finite: weights count before gradients (they are the cause when they are bad), then in flat order. */
typedef struct nonfinite {
    int64_t place;   /* of the parameter in that order; INT64_MAX: none */
    int64_t element; /* of the full tensor */
} nonfinite;

/* The first in what this rank owns. */
static weft_status find_here(weft_trainer *t, nonfinite *out)
{
    const weft_parts *owned = weft_i_parallel_owned(t->parallel);
    const int64_t n_params = weft_model_param_count(t->model);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < owned->n && out->place == INT64_MAX; i++) {
            const weft_part *p = &owned->part[i];
            int64_t index = -1;
            const weft_find_nonfinite_args args = {.x = pass == 0 ? p->value : p->grad,
                                                   .index = &index};
            if (args.x.data == NULL)
                continue;
            WEFT_TRY(weft_exec_op(weft_run_exec(t->run), WEFT_OP_FIND_NONFINITE, &args));
            if (index < 0)
                continue;
            weft_stretch s = {.full = 0};
            weft_stretch_walk walk = weft_i_stretch_begin(p->param, p->first + index, 1);
            (void)weft_i_stretch_next(&walk, &s);
            *out = (nonfinite){pass * n_params + p->number, s.full};
        }
    }
    return WEFT_OK;
}

/* The first over all ranks: the smallest place, then the smallest element of those there. */
static weft_status find_first(weft_trainer *t, nonfinite *out)
{
    *out = (nonfinite){INT64_MAX, 0};
    WEFT_TRY(find_here(t, out));
    if (weft_i_alloc_is_dry(t->ctx->alloc))
        return WEFT_OK; /* no step that goes well asks the other ranks */
    int64_t place = -out->place;
    WEFT_TRY(weft_i_parallel_largest(t->parallel, &place));
    int64_t element = out->place == -place ? -out->element : -INT64_MAX;
    WEFT_TRY(weft_i_parallel_largest(t->parallel, &element));
    *out = (nonfinite){-place, -element};
    return WEFT_OK;
}

/* "gradient of NAME at [1, 2]". */
static weft_status name_nonfinite(weft_trainer *t, char *out, size_t size)
{
    const int64_t n_params = weft_model_param_count(t->model);
    nonfinite first;
    WEFT_TRY(find_first(t, &first));
    if (first.place == INT64_MAX)
        return weft_i_str_print(out, size, "none of the weights and gradients");
    const weft_param *p = weft_model_param(t->model, first.place % n_params);
    const char *what = first.place < n_params ? "weight" : "gradient of";
    if (p->n_dims == 1)
        return weft_i_str_print(out, size, "%s %s at [%lld]", what, p->name,
                                (long long)first.element);
    return weft_i_str_print(out, size, "%s %s at [%lld, %lld]", what, p->name,
                            (long long)(first.element / p->full_cols),
                            (long long)(first.element % p->full_cols));
}

/* Fails when the loss or the norm is not finite. A dry run looks too, for the workspace of looking. */
static weft_status check_finite(weft_trainer *t, int64_t step, double loss, double norm)
{
    char where[WEFT_PARAM_NAME_BYTES + 80];
    nonfinite here = {INT64_MAX, 0};
    if (weft_i_alloc_is_dry(t->ctx->alloc))
        return find_here(t, &here);
    if (isfinite(loss) && isfinite(norm))
        return WEFT_OK;
    WEFT_TRY(name_nonfinite(t, where, sizeof(where)));
    WEFT_FAIL(
        WEFT_STATUS_NUMERIC,
        "step %lld: the %s was not finite (loss %g, gradient norm %g); the first tensor that "
        "is not: %s. The last checkpoint is untouched; a smaller lr or a longer warm-up often "
        "helps",
        (long long)step, isfinite(loss) ? "gradient" : "loss", loss, norm, where);
}

/* ---- the step ---- */

/* What a step adds up exactly. */
typedef struct step_sums {
    weft_trainer *trainer;
    weft_sum loss;    /* token losses */
    weft_sum squares; /* squared gradients */
} step_sums;

static int64_t count_targets(const weft_train_batch *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < b->n_seqs * b->n_tokens && b->targets != NULL; i++)
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

/* The token losses of a micro-batch into the exact sum. */
static weft_status add_losses(void *user, const weft_micro_batch *mb)
{
    step_sums *s = user;
    const weft_sum_args sum = {.x = mb->losses, .sum = &s->loss};
    return weft_exec_op(weft_run_exec(s->trainer->run), WEFT_OP_SUM, &sum);
}

static weft_status add_squares(weft_trainer *t, weft_view grad, weft_sum *squares)
{
    return weft_i_clip_add_squares(squares, t->ctx->backend, workspace_of(t), grad);
}

/* Squares of the part's gradients, those that this rank owns: every element counts once over all ranks. */
static weft_status add_owned_squares(weft_trainer *t, const weft_part *part, weft_sum *squares)
{
    const weft_param *p = part->param;
    int n_owned = 0;
    weft_stretch s;
    for (int i = 0; i < p->n_pieces; i++)
        n_owned += p->piece[i].is_owned ? 1 : 0;
    if (n_owned == p->n_pieces)
        return add_squares(t, part->grad, squares);
    weft_stretch_walk walk = weft_i_stretch_begin(p, part->first, part->n);
    while (n_owned > 0 && weft_i_stretch_next(&walk, &s)) {
        if (s.is_owned)
            WEFT_TRY(
                add_squares(t, weft_view_cols(part->grad, s.local - part->first, s.n), squares));
    }
    return WEFT_OK;
}

/* Forward and backward of the whole batch; the sums of losses and of squared gradients over all ranks. */
static weft_status run_batch(weft_trainer *t, const weft_train_batch *b, step_sums *s)
{
    for (int64_t i = 0; i < b->n_seqs; i++)
        t->samples[i] = b->first_sample + i;
    const weft_host_batch host = {
        .n_seqs = b->n_seqs,
        .n_tokens = b->n_tokens,
        .ids = b->ids,
        .targets = b->targets,
        .samples = t->samples,
    };
    const weft_parallel_pass pass = {
        .batch = &host, .micro_batch = t->settings.micro_batch, .done = add_losses, .user = s};
    WEFT_TRY(weft_i_parallel_train_pass(t->parallel, t->run, &pass));
    const weft_parts *owned = weft_i_parallel_owned(t->parallel);
    for (int64_t i = 0; i < owned->n; i++) {
        if (owned->part[i].grad.data != NULL)
            WEFT_TRY(add_owned_squares(t, &owned->part[i], &s->squares));
    }
    weft_sum both[2] = {s->loss, s->squares};
    WEFT_TRY(weft_i_parallel_add_up(t->parallel, both, 2, NULL, 0));
    s->loss = both[0];
    s->squares = both[1];
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
    step_sums sums = {.trainer = t};
    int64_t n_targets = count_targets(batch);
    WEFT_TRY(weft_i_parallel_from_reader(t->parallel, &n_targets));
    *out = (weft_train_outcome){
        .lr = weft_i_lr_schedule_at(&t->settings.schedule, step),
        .n_targets = n_targets,
    };
    if (n_targets == 0) {
        warn_empty(t, step);
        return WEFT_OK;
    }
    weft_i_sum_init(&sums.loss);
    weft_i_sum_init(&sums.squares);
    set_exec(t, step, n_targets);
    WEFT_TRY(run_batch(t, batch, &sums));
    out->loss = weft_i_sum_value(&sums.loss) / (double)n_targets;
    out->grad_norm = weft_i_clip_norm(&sums.squares);
    WEFT_TRY(check_finite(t, step, out->loss, out->grad_norm));
    const weft_optimizer_step update = {
        .step = step,
        .lr = out->lr,
        .grad_scale = weft_i_clip_scale(out->grad_norm, t->settings.clip_grad),
    };
    const double start = weft_i_clock_seconds();
    WEFT_TRY(weft_i_optimizer_apply(t->optimizer, workspace_of(t), &update));
    const weft_trace_event event = {.name = "optimizer",
                                    .line = "compute",
                                    .start_s = start,
                                    .end_s = weft_i_clock_seconds(),
                                    .bytes = -1};
    weft_i_trace_add(t->mesh->trace, &event);
    weft_i_step_record_add(&t->mesh->record, WEFT_STEP_OPTIMIZER, start, event.end_s);
    WEFT_TRY(weft_i_parallel_share_update(t->parallel));
    return weft_i_mesh_end_step(t->mesh);
}
