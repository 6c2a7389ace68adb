/*
 * Waits out what is left of a layer's stated time (--pace), so that a layout shows its time where there are fewer
 * processors than ranks. comm/wrap/pace_comm.c does the same for messages.
 *
 * A forward takes forward_ms, a backward input_gradient_ms + weight_gradient_ms from layer_begin to layer_end, the parts of a
 * split one their own. Within a backward the k-th of n gradients is complete at k/n of that time, not as early as a fast
 * processor has it, so that what is sent behind it overlaps with the layers before, as it would at the stated speed. A layer
 * that really takes longer than was stated is not made shorter.
 *
 * A rank without a micro-batch is held back like the others, who would otherwise wait in its stead. The forward that
 * recompute runs again is inside the backward's stated time.
 * Communication: none.
 */
#include "parallel/pace.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "weft/ext/layer.h"

#include <string.h>

typedef struct pace_hooks {
    weft_hooks hooks; /* first: the caller's pointer */
    weft_ctx *ctx;
    const weft_pace *pace;
    const weft_exec *exec; /* of the run whose passes are going on: which parts of backward run */
    double begin;          /* of the layer; monotonic clock */
    double seconds;        /* that it takes; 0: it is not held back */
    int n_ready, n_all;    /* of its gradients, in a backward */
} pace_hooks;

static const weft_pace_layer *stated(const weft_pace *pace, const char *kind)
{
    static const weft_pace_layer none = {0};
    if (strcmp(kind, "block") == 0)
        return &pace->block;
    if (strcmp(kind, "embedding") == 0)
        return &pace->embedding;
    return strcmp(kind, "head") == 0 ? &pace->head : &none;
}

/* Of the parts of backward that run; weight gradients of some layers come with the input's. */
static double backward_ms(const weft_pace_layer *s, unsigned input, unsigned weight)
{
    return (input != 0 ? s->input_gradient_ms : 0.0) + (weight != 0 ? s->weight_gradient_ms : 0.0);
}

static weft_status begin_layer(void *user, const weft_layer *l, weft_pass pass)
{
    pace_hooks *const p = user;
    const weft_pace_layer *const s = stated(p->pace, l->ops->kind);
    const unsigned parts = p->exec != NULL ? p->exec->parts : WEFT_BACKWARD_BOTH;
    const unsigned input = parts & WEFT_BACKWARD_INPUT;
    const unsigned weight = l->ops->has_weights_with_input ? input : parts & WEFT_BACKWARD_WEIGHT;
    p->begin = weft_i_clock_seconds();
    p->seconds = 1e-3 * (pass == WEFT_PASS_FORWARD ? s->forward_ms : backward_ms(s, input, weight));
    p->n_ready = p->n_all = 0;
    if (pass == WEFT_PASS_FORWARD || weight == 0)
        return WEFT_OK;
    for (int i = 0; i < l->n_params; i++)
        p->n_all += l->params[i]->is_frozen ? 0 : 1;
    return WEFT_OK;
}

static weft_status ready_gradient(void *user, weft_param *param)
{
    pace_hooks *const p = user;
    (void)param;
    if (p->seconds <= 0 || p->n_ready >= p->n_all)
        return WEFT_OK;
    p->n_ready++;
    return weft_i_ctx_sleep_until(p->ctx, p->begin + p->seconds * p->n_ready / p->n_all);
}

static weft_status end_layer(void *user, const weft_layer *l, weft_pass pass)
{
    const pace_hooks *const p = user;
    (void)l;
    (void)pass;
    return p->seconds > 0 ? weft_i_ctx_sleep_until(p->ctx, p->begin + p->seconds) : WEFT_OK;
}

weft_status weft_i_pace_hooks_create(weft_hooks **out, weft_ctx *ctx, const weft_pace *pace)
{
    void *memory = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(pace_hooks), &memory));
    pace_hooks *const p = memory;
    p->ctx = ctx;
    p->pace = pace;
    p->hooks = (weft_hooks){.user = p,
                            .grad_ready = ready_gradient,
                            .layer_begin = begin_layer,
                            .layer_end = end_layer};
    *out = &p->hooks;
    return WEFT_OK;
}

void weft_i_pace_hooks_bind(weft_hooks *hooks, const weft_exec *exec)
{
    pace_hooks *const p = hooks->user;
    p->exec = exec;
}

void weft_i_pace_hooks_destroy(weft_hooks *hooks)
{
    if (hooks == NULL)
        return;
    pace_hooks *const p = hooks->user;
    weft_i_alloc_put(p->ctx->alloc, p);
}
