/*
 * What all optimizers share: options, memory, the walk over spans.
 *
 * Invariants
 *  1. All state is taken (and so touched) at creation: the first step takes no memory that a later one would not.
 *  2. A model that computes in bf16 has master weights for every span; one that computes in fp32 has none.
 * The arithmetic of an update is the backend's; which element decays is the caller's (spans).
 */
#include "optim/optimizer.h"

#include "backend/run_op.h"
#include "base/ctx.h"

#include <math.h>
#include <string.h>

static const char *const state_names[WEFT_STATE_COUNT] = {"master", "exp_avg", "exp_avg_sq",
                                                          "momentum"};

weft_status weft_i_optimizer_kind_from_name(weft_optimizer_kind *out, const char *name)
{
    if (strcmp(name, "adamw") == 0)
        *out = WEFT_OPTIMIZER_ADAMW;
    else if (strcmp(name, "sgd") == 0)
        *out = WEFT_OPTIMIZER_SGD;
    else
        WEFT_FAIL(WEFT_STATUS_ARG, "optimizer \"%s\" is none of adamw, sgd", name);
    return WEFT_OK;
}

const char *weft_i_optimizer_name(weft_optimizer_kind kind)
{
    return kind == WEFT_OPTIMIZER_ADAMW ? "adamw" : "sgd";
}

const char *weft_i_state_name(weft_state state)
{
    return state_names[state];
}

weft_status weft_i_optimizer_check(const weft_optimizer_options *o)
{
    if (!(o->beta1 >= 0.0 && o->beta1 < 1.0) || !(o->beta2 >= 0.0 && o->beta2 < 1.0))
        WEFT_FAIL(WEFT_STATUS_ARG, "adam_beta1 %g and adam_beta2 %g must be in [0, 1)", o->beta1,
                  o->beta2);
    /* With 0 an element that never had a gradient (an unseen token's row) would become 0 / 0. */
    if (o->kind == WEFT_OPTIMIZER_ADAMW && (!(o->eps > 0.0) || !isfinite(o->eps)))
        WEFT_FAIL(WEFT_STATUS_ARG, "adam_eps %g must be finite and greater than 0", o->eps);
    if (!(o->momentum >= 0.0 && o->momentum < 1.0))
        WEFT_FAIL(WEFT_STATUS_ARG, "sgd_momentum %g must be in [0, 1)", o->momentum);
    if (!(o->weight_decay >= 0.0) || !isfinite(o->weight_decay))
        WEFT_FAIL(WEFT_STATUS_ARG, "weight_decay %g must be finite and not negative",
                  o->weight_decay);
    return WEFT_OK;
}

static bool is_kept(const weft_optimizer *o, weft_state state)
{
    switch (state) {
    case WEFT_STATE_MASTER:
        return o->n_spans > 0 && o->spans[0].value.dtype != WEFT_DTYPE_F32;
    case WEFT_STATE_EXP_AVG:
    case WEFT_STATE_EXP_AVG_SQ:
        return o->options.kind == WEFT_OPTIMIZER_ADAMW;
    case WEFT_STATE_MOMENTUM:
        return o->options.kind == WEFT_OPTIMIZER_SGD && o->options.momentum > 0.0;
    case WEFT_STATE_COUNT:
        break;
    }
    return false;
}

weft_status weft_i_optimizer_create(weft_optimizer **out,
                                    weft_ctx *ctx,
                                    const weft_optimizer_options *options,
                                    const weft_span *spans,
                                    int64_t n_spans,
                                    int64_t n_elems)
{
    weft_status st = WEFT_OK;
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_optimizer), &block));
    weft_optimizer *o = block;
    o->ctx = ctx;
    o->options = *options;
    o->n_elems = n_elems;
    void *copy = NULL;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(ctx->alloc, (size_t)n_spans, sizeof(*spans), &copy), out);
    o->spans = copy;
    o->n_spans = n_spans;
    if (n_spans > 0)
        memcpy(o->spans, spans, (size_t)n_spans * sizeof(*spans));
    for (int i = 0; i < WEFT_STATE_COUNT; i++) {
        void *data = NULL;
        o->state[i] = weft_view_none();
        if (!is_kept(o, (weft_state)i))
            continue;
        WEFT_TRY_GOTO(st,
                      ctx->backend->ops->mem_get(ctx->backend, WEFT_MEM_OPTIMIZER,
                                                 (size_t)n_elems * sizeof(float), state_names[i],
                                                 &data),
                      out);
        o->state[i] = weft_view_make(data, WEFT_DTYPE_F32, 1, n_elems);
    }
out:
    if (st == WEFT_OK)
        *out = o;
    else
        weft_i_optimizer_destroy(o);
    return st;
}

void weft_i_optimizer_destroy(weft_optimizer *o)
{
    if (o == NULL)
        return;
    weft_backend *b = o->ctx->backend;
    for (int i = 0; i < WEFT_STATE_COUNT; i++) {
        if (o->state[i].data != NULL)
            b->ops->mem_put(b, o->state[i].data);
    }
    weft_i_alloc_put(o->ctx->alloc, o->spans);
    weft_i_alloc_put(o->ctx->alloc, o);
}

weft_view
weft_i_optimizer_state(const weft_optimizer *o, weft_state state, int64_t first, int64_t n)
{
    if (o->state[state].data == NULL)
        return weft_view_none();
    return weft_view_cols(o->state[state], first, n);
}

weft_status weft_i_optimizer_fill_master(weft_optimizer *o, weft_arena *workspace)
{
    if (o->state[WEFT_STATE_MASTER].data == NULL)
        return WEFT_OK;
    for (int64_t i = 0; i < o->n_spans; i++) {
        const weft_span *s = &o->spans[i];
        const weft_copy_args args = {
            .dst = weft_i_optimizer_state(o, WEFT_STATE_MASTER, s->first, s->value.cols),
            .src = s->value,
        };
        WEFT_TRY(weft_i_op_run(o->ctx->backend, WEFT_OP_COPY, &args, workspace));
    }
    return WEFT_OK;
}

weft_status
weft_i_optimizer_apply(weft_optimizer *o, weft_arena *workspace, const weft_optimizer_step *step)
{
    for (int64_t i = 0; i < o->n_spans; i++) {
        if (o->options.kind == WEFT_OPTIMIZER_ADAMW)
            WEFT_TRY(weft_i_adamw_apply(o, workspace, &o->spans[i], step));
        else
            WEFT_TRY(weft_i_sgd_apply(o, workspace, &o->spans[i], step));
    }
    return WEFT_OK;
}
