/*
 * What a rank computes, as events of its trace: a layer's forward and backward, and each weight gradient inside.
 *
 * A gradient's span goes from grad_need to grad_ready. Where grad_ready does not come within the layer (a parameter that
 * another layer uses too) it ends with the layer, and the other layer's use is a span of its own.
 * Communication: none.
 */
#include "parallel/trace_hooks.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "weft/ext/layer.h"

#include <stdio.h>
#include <string.h>

#define LINE "compute"
#define MAX_OPEN 64    /* gradients of a layer that are begun at a time; more are not shown */
#define NAME_BYTES 256 /* the trace cuts it */

typedef struct open_gradient {
    const weft_param *param;
    double start_s;
} open_gradient;

typedef struct trace_hooks {
    weft_hooks hooks; /* first: the caller's pointer */
    weft_ctx *ctx;
    weft_trace *trace;
    const weft_exec *exec; /* of the run whose passes are going on: which parts of backward run */
    const char *prefix;    /* "paced " */
    double layer_start_s;
    int n_open;
    open_gradient open[MAX_OPEN];
} trace_hooks;

/* The number a block has in its parameters' names ("h.3.ln_1.weight"), or the layer's in the list. */
static int number_of(const weft_layer *l)
{
    const char *const name = l->n_params > 0 ? l->params[0]->name : "";
    for (const char *dot = name; dot != NULL; dot = strchr(dot, '.')) {
        int number = 0, n_read = 0;
        dot += dot == name ? 0 : 1;
        if (dot[0] >= '0' && dot[0] <= '9' && sscanf(dot, "%9d%n", &number, &n_read) == 1 &&
            dot[n_read] == '.')
            return number;
    }
    return l->number;
}

static void add(const trace_hooks *t, const char *name, double start_s, const char *tensor)
{
    const weft_trace_event event = {.name = name,
                                    .line = LINE,
                                    .start_s = start_s,
                                    .end_s = weft_i_clock_seconds(),
                                    .tensor = tensor,
                                    .bytes = -1};
    weft_i_trace_add(t->trace, &event);
}

static void close_gradient(trace_hooks *t, int i)
{
    char name[NAME_BYTES];
    const open_gradient g = t->open[i];
    t->open[i] = t->open[--t->n_open];
    (void)snprintf(name, sizeof(name), "weight gradient %s", g.param->name);
    add(t, name, g.start_s, g.param->name);
}

static weft_status begin_layer(void *user, const weft_layer *l, weft_pass pass)
{
    trace_hooks *const t = user;
    (void)l;
    (void)pass;
    t->n_open = 0;
    t->layer_start_s = weft_i_clock_seconds();
    return WEFT_OK;
}

static const char *verb_of(const trace_hooks *t, weft_pass pass)
{
    const unsigned parts = t->exec != NULL ? t->exec->parts : WEFT_BACKWARD_BOTH;
    if (pass == WEFT_PASS_FORWARD)
        return "forward";
    return parts == WEFT_BACKWARD_INPUT    ? "input gradient"
           : parts == WEFT_BACKWARD_WEIGHT ? "weight gradients"
                                           : "backward";
}

static weft_status end_layer(void *user, const weft_layer *l, weft_pass pass)
{
    trace_hooks *const t = user;
    char name[NAME_BYTES];
    const char *const verb = verb_of(t, pass);
    while (t->n_open > 0)
        close_gradient(t, t->n_open - 1);
    if (strcmp(l->ops->kind, "block") == 0)
        (void)snprintf(name, sizeof(name), "%s%s block %d", t->prefix, verb, number_of(l));
    else
        (void)snprintf(name, sizeof(name), "%s%s %s", t->prefix, verb, l->ops->kind);
    add(t, name, t->layer_start_s, NULL);
    return WEFT_OK;
}

static int find_open(const trace_hooks *t, const weft_param *p)
{
    int i = 0;
    while (i < t->n_open && t->open[i].param != p)
        i++;
    return i;
}

static weft_status need_gradient(void *user, weft_param *p, weft_grad_target *target)
{
    trace_hooks *const t = user;
    (void)target;
    if (t->n_open < MAX_OPEN && find_open(t, p) == t->n_open)
        t->open[t->n_open++] = (open_gradient){.param = p, .start_s = weft_i_clock_seconds()};
    return WEFT_OK;
}

static weft_status ready_gradient(void *user, weft_param *p)
{
    trace_hooks *const t = user;
    const int i = find_open(t, p);
    if (i < t->n_open)
        close_gradient(t, i);
    return WEFT_OK;
}

weft_status
weft_i_trace_hooks_create(weft_hooks **out, weft_ctx *ctx, weft_trace *trace, bool is_paced)
{
    void *memory = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(trace_hooks), &memory));
    trace_hooks *const t = memory;
    t->ctx = ctx;
    t->trace = trace;
    t->prefix = is_paced ? "paced " : "";
    t->hooks = (weft_hooks){.user = t,
                            .grad_need = need_gradient,
                            .grad_ready = ready_gradient,
                            .layer_begin = begin_layer,
                            .layer_end = end_layer};
    *out = &t->hooks;
    return WEFT_OK;
}

void weft_i_trace_hooks_bind(weft_hooks *hooks, const weft_exec *exec)
{
    trace_hooks *const t = hooks->user;
    t->exec = exec;
}

void weft_i_trace_hooks_destroy(weft_hooks *hooks)
{
    if (hooks == NULL)
        return;
    trace_hooks *const t = hooks->user;
    weft_i_alloc_put(t->ctx->alloc, t);
}
