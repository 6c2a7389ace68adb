/*
 * Trains a list of layers of one's own with weft's public API (#include "weft.h") and nothing else.
 *
 * The task: sequences x(t+1) = (x(t) + x(t-1)) mod 31 that start from two random numbers. The next number follows from
 * the last two, so a layer must bring neighbours together before an MLP can learn the table of sums.
 *
 *   ids -> embed -> mix -> loss             embed   y = table[id]
 *                                           mix     y = x + gelu([x(t) | x(t-1)] W1') W2'
 *                                           loss    cross-entropy of the logits x V'
 *
 * A layer is a table of functions (weft_layer_ops). `items` says, from sizes alone, what forward leaves for backward; the
 * run decides whether that is kept or computed again, and hands the layer a view of it. A layer looks at no element: every
 * step is an operation of the backend. That is why session_create below can be called twice: on a dry context, which
 * computes nothing and tells how much workspace a step takes, and then on a real one.
 *
 * Ends with 0 when the loss fell below a tenth of where it began. Takes less than a second.
 */
#include "weft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 31, WIDTH = 32, SEQS = 64, TOKENS = 16, ROWS = SEQS * TOKENS, STEPS = 600 };

/* Every call that can fail returns a status; its message waits in weft_last_error(). */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const weft_status try_status = (call);                                                     \
        if (try_status != WEFT_OK)                                                                 \
            return try_status;                                                                     \
    } while (0)

/* y (+)= x W', or x W on the way back; W is stored [out, in]. need and done stand around every read of a parameter: there
 * a parallel method may fetch it and let it go again. */
static weft_status
product(weft_exec *e, weft_view y, weft_view x, weft_param *w, bool is_back, bool is_added)
{
    const weft_gemm_args g = {
        .c = y, .a = x, .b = w->value, .is_b_transposed = !is_back, .is_added = is_added};
    TRY(weft_exec_need(e, w));
    TRY(weft_exec_op(e, WEFT_OP_GEMM, &g));
    return weft_exec_done(e, w);
}

/* W's gradient dy' x, at the place and in the manner (overwrite or add) that the run says. */
static weft_status weight_gradient(weft_exec *e, weft_param *w, weft_view dy, weft_view x)
{
    weft_grad_target to;
    TRY(weft_exec_grad_begin(e, w, &to));
    const weft_gemm_args g = {
        .c = to.view, .a = dy, .b = x, .is_a_transposed = true, .is_added = to.is_added};
    TRY(weft_exec_op(e, WEFT_OP_GEMM, &g));
    return weft_exec_grad_end(e, w);
}

/* ---- embed: the first layer of a model has no x ---- */

static weft_status
embed_items(const weft_layer *l, const weft_layer_shape *s, weft_item *item, int *n_items)
{
    (void)l, (void)s, (void)item;
    *n_items = 0;
    return WEFT_OK;
}

static weft_status embed_forward(weft_layer *l, weft_layer_io *io)
{
    const weft_embedding_forward_args a = {
        .y = io->y, .table = l->params[0]->value, .ids = io->batch->ids};
    if (io->exec->is_again) /* a recompute wants items, and there are none */
        return WEFT_OK;
    TRY(weft_exec_need(io->exec, l->params[0]));
    TRY(weft_exec_op(io->exec, WEFT_OP_EMBEDDING_FORWARD, &a));
    return weft_exec_done(io->exec, l->params[0]);
}

/* Backward may come in two calls, INPUT then WEIGHT. The layers here do all their work with INPUT, which is allowed. */
static weft_status embed_backward(weft_layer *l, weft_layer_io *io, unsigned parts)
{
    weft_grad_target to;
    if ((parts & WEFT_BACKWARD_INPUT) == 0)
        return WEFT_OK;
    TRY(weft_exec_grad_begin(io->exec, l->params[0], &to));
    const weft_embedding_backward_args a = {
        .dtable = to.view, .dy = io->dy, .ids = io->batch->ids, .is_added = to.is_added};
    TRY(weft_exec_op(io->exec, WEFT_OP_EMBEDDING_BACKWARD, &a));
    return weft_exec_grad_end(io->exec, l->params[0]);
}

static const weft_layer_ops embed_ops = {
    .kind = "embed", .items = embed_items, .forward = embed_forward, .backward = embed_backward};

/* ---- mix: a residual MLP that sees each token beside the one before it ---- */

enum { PAIR, UP, ACT, MIX_ITEMS }; /* [x(t) | x(t-1)], W1's product, gelu of it */

typedef struct mix {
    int64_t hidden; /* rows of W1 */
    weft_param *w1, *w2;
} mix;

static weft_status
mix_items(const weft_layer *l, const weft_layer_shape *s, weft_item *item, int *n_items)
{
    const mix *m = l->data;
    const unsigned read =
        WEFT_ITEM_FOR_INPUT | WEFT_ITEM_FOR_WEIGHT; /* what backward reads it for */
    item[PAIR] = (weft_item){"pair", s->rows_inside, 2 * WIDTH, s->dtype, read};
    item[UP] = (weft_item){"up", s->rows_inside, m->hidden, s->dtype, read};
    item[ACT] = (weft_item){"act", s->rows_inside, m->hidden, s->dtype, read};
    *n_items = MIX_ITEMS;
    return WEFT_OK;
}

/* to[r] = from[r - 1] inside each sequence, zeros for its first token; is_back: the transpose of that. */
static weft_status shift(weft_layer_io *io, weft_view to, weft_view from, bool is_back)
{
    const int64_t n = io->batch->n_tokens;
    for (int64_t i = 0; i < io->batch->n_seqs * n; i += n) {
        const weft_fill_args zero = {weft_view_rows(to, is_back ? i + n - 1 : i, 1), 0.0F};
        const weft_copy_args move = {weft_view_rows(to, is_back ? i : i + 1, n - 1),
                                     weft_view_rows(from, is_back ? i + 1 : i, n - 1)};
        TRY(weft_exec_op(io->exec, WEFT_OP_FILL, &zero));
        TRY(weft_exec_op(io->exec, WEFT_OP_COPY, &move));
    }
    return WEFT_OK;
}

static weft_status mix_forward(weft_layer *l, weft_layer_io *io)
{
    const mix *m = l->data;
    const weft_view *item = io->item;
    const weft_copy_args here = {weft_view_cols(item[PAIR], 0, WIDTH), io->x};
    const weft_copy_args residual = {io->y, io->x};
    const weft_activation_forward_args gelu = {
        .kind = WEFT_ACTIVATION_GELU_TANH, .y = item[ACT], .x = item[UP]};
    TRY(weft_exec_op(io->exec, WEFT_OP_COPY, &here));
    TRY(shift(io, weft_view_cols(item[PAIR], WIDTH, WIDTH), io->x, false));
    TRY(product(io->exec, item[UP], item[PAIR], m->w1, false, false));
    TRY(weft_exec_op(io->exec, WEFT_OP_ACTIVATION_FORWARD, &gelu));
    if (io->exec->is_again) /* the items are full again; y is not wanted */
        return WEFT_OK;
    TRY(weft_exec_op(io->exec, WEFT_OP_COPY, &residual));
    return product(io->exec, io->y, item[ACT], m->w2, false, true);
}

static weft_status mix_backward(weft_layer *l, weft_layer_io *io, unsigned parts)
{
    const mix *m = l->data;
    weft_exec *e = io->exec;
    const weft_view *item = io->item;
    const size_t mark = weft_exec_mark(e); /* workspace is a stack: what is taken after this ... */
    weft_view d_up, d_pair, d_back;
    if ((parts & WEFT_BACKWARD_INPUT) == 0)
        return WEFT_OK;
    TRY(weft_exec_view(e, io->x.dtype, io->x.rows, m->hidden, &d_up));
    TRY(weft_exec_view(e, io->x.dtype, io->x.rows, 2 * WIDTH, &d_pair));
    TRY(weft_exec_view(e, io->x.dtype, io->x.rows, WIDTH, &d_back));
    const weft_activation_backward_args gelu = {
        .kind = WEFT_ACTIVATION_GELU_TANH, .dx = d_up, .dy = d_up, .x = item[UP]};
    const weft_add_args here = {io->dx, io->dy, weft_view_cols(d_pair, 0, WIDTH)};
    const weft_add_args back = {io->dx, io->dx, d_back};
    TRY(weight_gradient(e, m->w2, io->dy, item[ACT]));
    TRY(product(e, d_up, io->dy, m->w2, true, false));
    TRY(weft_exec_op(e, WEFT_OP_ACTIVATION_BACKWARD, &gelu));
    TRY(weight_gradient(e, m->w1, d_up, item[PAIR]));
    TRY(product(e, d_pair, d_up, m->w1, true, false));
    TRY(shift(io, d_back, weft_view_cols(d_pair, WIDTH, WIDTH), true));
    TRY(weft_exec_op(e, WEFT_OP_ADD, &here));
    TRY(weft_exec_op(e, WEFT_OP_ADD, &back));
    weft_exec_reset(e, mark); /* ... is given back here */
    return WEFT_OK;
}

static void mix_destroy(weft_layer *l)
{
    free(l->data);
}

static const weft_layer_ops mix_ops = {.kind = "mix",
                                       .items = mix_items,
                                       .forward = mix_forward,
                                       .backward = mix_backward,
                                       .destroy = mix_destroy};

/* ---- loss: the last layer has no y; token losses are an item that outlives backward ---- */

static weft_status
loss_items(const weft_layer *l, const weft_layer_shape *s, weft_item *item, int *n_items)
{
    (void)l;
    item[0] = (weft_item){"token_loss", s->rows_inside, 1, WEFT_DTYPE_F32, WEFT_ITEM_RESULT};
    *n_items = 1;
    return WEFT_OK;
}

/* Losses and gradients need the same logits, so backward makes both in one go and forward has nothing to do. (An
 * evaluation would ask forward for losses, by exec->is_loss_wanted.) */
static weft_status loss_forward(weft_layer *l, weft_layer_io *io)
{
    (void)l, (void)io;
    return WEFT_OK;
}

static weft_status loss_backward(weft_layer *l, weft_layer_io *io, unsigned parts)
{
    weft_exec *e = io->exec;
    const size_t mark = weft_exec_mark(e);
    const weft_view ids = io->batch->targets; /* -100 is not counted: loss 0, gradient 0 */
    weft_view logits, max, sum, target;
    if ((parts & WEFT_BACKWARD_INPUT) == 0)
        return WEFT_OK;
    TRY(weft_exec_view(e, WEFT_DTYPE_F32, io->x.rows, VOCAB, &logits));
    TRY(weft_exec_view(e, WEFT_DTYPE_F32, io->x.rows, 1, &max));
    TRY(weft_exec_view(e, WEFT_DTYPE_F32, io->x.rows, 1, &sum));
    TRY(weft_exec_view(e, WEFT_DTYPE_F32, io->x.rows, 1, &target));
    const weft_xent_stats_args stats = {max, sum, target, logits, ids, .first_id = 0};
    const weft_xent_loss_args loss = {io->item[0], max, sum, target, ids};
    const weft_xent_grad_args grad = {
        logits, logits, max, sum, ids, .first_id = 0, .scale = e->loss_scale};
    TRY(product(e, logits, io->x, l->params[0], false, false));
    TRY(weft_exec_op(e, WEFT_OP_XENT_STATS, &stats));
    TRY(weft_exec_op(e, WEFT_OP_XENT_LOSS, &loss));
    TRY(weft_exec_op(e, WEFT_OP_XENT_GRAD, &grad)); /* the gradient takes the logits' place */
    TRY(weight_gradient(e, l->params[0], logits, io->x));
    TRY(product(e, io->dx, logits, l->params[0], true, false));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

static const weft_layer_ops loss_ops = {
    .kind = "loss", .items = loss_items, .forward = loss_forward, .backward = loss_backward};

/* ---- a session: context, model, run, and the two moments of AdamW ---- */

typedef struct session {
    weft_ctx *ctx;
    weft_model *model;
    weft_run *run;
    weft_backend *backend;
    void *moments; /* backend memory: only operations may read it */
} session;

static weft_status add_layers(weft_model *m)
{
    const int64_t hidden = 128;
    weft_param *table, *w1, *w2, *v;
    TRY(weft_model_add_param(m, "embed.weight", 2, VOCAB, WIDTH, &table));
    TRY(weft_model_add_param(m, "mix.w1", 2, hidden, 2 * WIDTH, &w1));
    TRY(weft_model_add_param(m, "mix.w2", 2, WIDTH, hidden, &w2));
    TRY(weft_model_add_param(m, "loss.weight", 2, VOCAB, WIDTH, &v));
    table->init_std = w1->init_std = w2->init_std = v->init_std = 0.1;
    TRY(weft_model_add_layer(m, &embed_ops, NULL, WIDTH, &table, 1));
    weft_param *const both[] = {w2, w1}; /* as backward ends their gradients */
    mix *data = malloc(sizeof(*data));
    if (data == NULL)
        return WEFT_STATUS_NOMEM;
    *data = (mix){hidden, w1, w2};
    TRY(weft_model_add_layer(m, &mix_ops, data, WIDTH, both, 2)); /* the layer owns data now */
    return weft_model_add_layer(m, &loss_ops, NULL, 0, &v, 1);
}

static weft_status session_create(session *s, weft_backend_kind kind, size_t workspace_bytes)
{
    const weft_ctx_options options = {.backend = kind, .n_threads = 1};
    const weft_run_options run = {
        .n_seqs = SEQS, .n_tokens = TOKENS, .n_slots = 1, .workspace_bytes = workspace_bytes};
    TRY(weft_ctx_create(&s->ctx, &options));
    TRY(weft_model_create(&s->model, s->ctx, WEFT_DTYPE_F32));
    TRY(add_layers(s->model));
    TRY(weft_model_allocate(s->model, true));
    TRY(weft_model_init_weights(s->model, 1));
    TRY(weft_run_create(&s->run, s->model, &run));
    s->backend = weft_run_exec(s->run)->backend;
    const size_t n_bytes = (size_t)weft_model_element_count(s->model) * 2 * sizeof(float);
    return s->backend->ops->mem_get(s->backend, WEFT_MEM_OPTIMIZER, n_bytes, "m, v", &s->moments);
}

static void session_destroy(session *s)
{
    if (s->moments != NULL)
        s->backend->ops->mem_put(s->backend, s->moments);
    weft_run_destroy(s->run);
    weft_model_destroy(s->model);
    weft_ctx_destroy(s->ctx);
    *s = (session){.ctx = NULL};
}

static weft_status update(session *s, int step)
{
    float *m = s->moments;
    for (int64_t i = 0; i < weft_model_param_count(s->model); i++) {
        const weft_param *p = weft_model_param(s->model, i);
        const int64_t n = p->rows * p->cols;
        weft_adamw_args a = {.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_scale = 1};
        a.x = weft_view_make(p->value.data, WEFT_DTYPE_F32, 1, n);
        a.grad = weft_view_make(p->grad.data, WEFT_DTYPE_F32, 1, n);
        a.m = weft_view_make(m, WEFT_DTYPE_F32, 1, n);
        a.v = weft_view_make(m + n, WEFT_DTYPE_F32, 1, n);
        a.bias1 = 1.0 - pow(a.beta1, step);
        a.bias2 = 1.0 - pow(a.beta2, step);
        TRY(weft_exec_op(weft_run_exec(s->run), WEFT_OP_ADAMW, &a));
        m += 2 * n;
    }
    return WEFT_OK;
}

/* One step on a fresh batch. A sequence's first number says nothing of its second: that target is not counted. */
static weft_status train_step(session *s, int step, double *loss)
{
    static uint32_t state = 1;
    int32_t ids[ROWS], targets[ROWS];
    float token_loss[ROWS];
    const weft_host_batch batch = {
        .n_seqs = SEQS, .n_tokens = TOKENS, .ids = ids, .targets = targets};
    for (int r = 0; r < ROWS; r++) {
        state = state * 1664525U + 1013904223U;
        ids[r] =
            r % TOKENS < 2 ? (int32_t)((state >> 16) % VOCAB) : (ids[r - 1] + ids[r - 2]) % VOCAB;
        targets[r] = r % TOKENS == 0 ? -100 : (ids[r] + ids[r - 1]) % VOCAB;
    }
    weft_run_exec(s->run)->loss_scale = 1.0F / (SEQS * (TOKENS - 1)); /* 1 / counted targets */
    weft_model_begin_step(s->model); /* the first gradient of each parameter overwrites */
    TRY(weft_run_load(s->run, 0, &batch));
    TRY(weft_run_forward(s->run, 0));
    TRY(weft_run_backward(s->run, 0, WEFT_BACKWARD_BOTH));
    TRY(weft_model_end_step(s->model));
    TRY(s->backend->ops->copy_to_host(s->backend, token_loss, weft_run_losses(s->run, 0).data,
                                      sizeof(token_loss)));
    *loss = 0.0;
    for (int r = 0; r < ROWS; r++)
        *loss += (double)token_loss[r] / (SEQS * (TOKENS - 1));
    return update(s, step);
}

static weft_status train(session *s, double *first, double *last)
{
    TRY(session_create(s, WEFT_BACKEND_DRY, 0)); /* the same code, nothing computed */
    TRY(train_step(s, 1, last));
    const size_t workspace_bytes = weft_run_workspace_peak(s->run);
    session_destroy(s);
    printf("workspace of a step, found by a dry run: %zu bytes\n", workspace_bytes);
    TRY(session_create(s, WEFT_BACKEND_CPU, workspace_bytes));
    for (int step = 1; step <= STEPS; step++) {
        TRY(train_step(s, step, last));
        if (step == 1)
            *first = *last;
        if (step == 1 || step % 100 == 0)
            printf("step %3d  loss %.4f\n", step, *last);
    }
    return WEFT_OK;
}

int main(void)
{
    session s = {.ctx = NULL};
    double first = 0.0, last = 0.0;
    const weft_status st = train(&s, &first, &last);
    if (st != WEFT_OK)
        fprintf(stderr, "%s: %s\n", weft_status_name(st), weft_last_error());
    session_destroy(&s);
    return st == WEFT_OK && last < first / 10.0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
