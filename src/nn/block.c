/*
 * The pre-norm Transformer block (contract: block.h).
 *
 * Way of a row of tokens, with the regions a tensor-parallel method hangs on:
 *
 *   x -> norm1 -> [enter column] -> q | k | v -> attention -> out -> [leave row] -> + bias, dropout, + x = mid
 *   mid -> norm2 -> [enter column] -> up (gate | up) -> act -> down -> [leave row] -> + bias, dropout, + mid = y
 *
 * In strips (linear_strips.c) `out`, `down` and the input gradients before [enter column] are the strips' own, one below the
 * other, until their region adds them up.
 *
 * Items: what each step leaves for backward. norm outputs and the activated product are cheap: norm.c and mlp.c make them
 * again from x, mid and up. The gradient of every product's output is an item too, so that weight gradients can wait.
 *
 * Invariants
 *  1. The order of operations on any one value is the same whether backward runs as one call or as two.
 *  2. dy is only read; dx may be the memory of a gradient item never.
 * Communication: none of its own; regions and gradients go through exec.c's hooks.
 * Source: Radford et al. 2019 (GPT-2), Touvron et al. 2023 (arXiv:2302.13971, Llama).
 */
#include "nn/block.h"

#include "base/ctx.h"
#include "base/error.h"
#include "nn/dropout.h"

enum {
    NORM1_MEAN,
    NORM1_RSTD,
    NORM1_OUT,
    QKV,
    ATTENDED,
    LSE,
    MID,
    NORM2_MEAN,
    NORM2_RSTD,
    NORM2_OUT,
    UP,
    PRODUCT,
    D_BRANCH2,
    D_UP,
    D_NORM2_OUT,
    D_BRANCH1,
    D_QKV,
    D_NORM1_OUT,
    N_ITEMS
};

static const unsigned BOTH = WEFT_ITEM_FOR_INPUT | WEFT_ITEM_FOR_WEIGHT;

static void set_item(
    weft_item *item, const char *name, weft_dtype dtype, int64_t rows, int64_t cols, unsigned flags)
{
    item->name = name;
    item->dtype = dtype;
    item->rows = rows;
    item->cols = cols;
    item->flags = flags;
}

static weft_status
block_items(const weft_layer *l, const weft_layer_shape *s, weft_item *item, int *n_items)
{
    const weft_block *b = l->data;
    const weft_dtype t = s->dtype;
    const int64_t in = s->rows_inside;
    const int64_t st = s->rows_stream;
    const int64_t qkv = weft_i_attention_qkv_cols(&b->attention);
    const int64_t att = b->attention.n_heads * b->attention.head_dim;
    const int64_t up = weft_i_linear_out(&b->mlp.up);
    const int64_t has_mean1 = b->norm1.kind == WEFT_NORM_LAYER ? 1 : 0;
    const int64_t has_mean2 = b->norm2.kind == WEFT_NORM_LAYER ? 1 : 0;
    const unsigned cheap = WEFT_ITEM_CHEAP | WEFT_ITEM_FOR_WEIGHT;
    const unsigned grad = WEFT_ITEM_GRADIENT | WEFT_ITEM_FOR_WEIGHT;
    const unsigned branch = b->resid_dropout > 0.0f ? grad : grad | WEFT_ITEM_SPLIT;

    set_item(&item[NORM1_MEAN], "norm1_mean", WEFT_DTYPE_F32, st * has_mean1, 1, BOTH);
    set_item(&item[NORM1_RSTD], "norm1_rstd", WEFT_DTYPE_F32, st, 1, BOTH);
    set_item(&item[NORM1_OUT], "norm1_out", t, st, b->cols, cheap);
    set_item(&item[QKV], "qkv", t, in, qkv, WEFT_ITEM_FOR_INPUT);
    set_item(&item[ATTENDED], "attended", t, in, att, BOTH);
    set_item(&item[LSE], "lse", WEFT_DTYPE_F32, s->n_seqs * b->attention.n_heads, s->n_tokens,
             WEFT_ITEM_FOR_INPUT);
    set_item(&item[MID], "mid", t, st, b->cols, BOTH);
    set_item(&item[NORM2_MEAN], "norm2_mean", WEFT_DTYPE_F32, st * has_mean2, 1, BOTH);
    set_item(&item[NORM2_RSTD], "norm2_rstd", WEFT_DTYPE_F32, st, 1, BOTH);
    set_item(&item[NORM2_OUT], "norm2_out", t, st, b->cols, cheap);
    set_item(&item[UP], "up", t, in, up, BOTH);
    set_item(&item[PRODUCT], "product", t, in, b->mlp.width, cheap);

    /* Without dropout a branch's gradient is dy itself: kept only where backward runs as two calls. */
    set_item(&item[D_BRANCH2], "d_branch2", t, st, b->cols, branch);
    set_item(&item[D_UP], "d_up", t, in, up, grad);
    set_item(&item[D_NORM2_OUT], "d_norm2_out", t, st, b->cols, grad);
    set_item(&item[D_BRANCH1], "d_branch1", t, st, b->cols, branch);
    set_item(&item[D_QKV], "d_qkv", t, in, qkv, grad);
    set_item(&item[D_NORM1_OUT], "d_norm1_out", t, st, b->cols, grad);
    *n_items = N_ITEMS;
    return WEFT_OK;
}

/* out = residual + dropout(leave_row(x W^T) + bias): the second half of either branch. */
static weft_status finish_branch(weft_layer_io *io,
                                 const weft_linear *row,
                                 uint32_t site,
                                 weft_view x,
                                 weft_view residual,
                                 weft_view out)
{
    weft_exec *e = io->exec;
    const weft_block *b = io->layer->data;
    const size_t mark = weft_exec_mark(e);
    weft_view partial;
    weft_view sum;
    WEFT_TRY(weft_exec_view(e, out.dtype, x.rows * weft_i_linear_stack(row), out.cols, &partial));
    WEFT_TRY(weft_i_linear_forward(e, row, x, partial));
    WEFT_TRY(weft_exec_region_start(e, WEFT_REGION_LEAVE_ROW, WEFT_PASS_FORWARD, partial, &sum));
    WEFT_TRY(weft_exec_region_finish(e, WEFT_REGION_LEAVE_ROW, WEFT_PASS_FORWARD, partial, sum));
    weft_param *bias = row->bias[0];
    if (bias != NULL)
        WEFT_TRY(weft_exec_need(e, bias));
    const weft_residual_args r = {.y = out,
                                  .x = sum,
                                  .bias = bias != NULL ? bias->value : weft_view_none(),
                                  .residual = residual,
                                  .dropout = weft_i_dropout_stream(io, b->resid_dropout, site)};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_RESIDUAL, &r));
    if (bias != NULL)
        WEFT_TRY(weft_exec_done(e, bias));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

/* Through the region before a column-parallel product; on one rank `inside` is `in`. */
static weft_status enter_column(weft_exec *e, weft_view in, weft_view *inside)
{
    WEFT_TRY(weft_exec_region_start(e, WEFT_REGION_ENTER_COLUMN, WEFT_PASS_FORWARD, in, inside));
    return weft_exec_region_finish(e, WEFT_REGION_ENTER_COLUMN, WEFT_PASS_FORWARD, in, *inside);
}

static weft_status block_forward(weft_layer *l, weft_layer_io *io)
{
    const weft_block *b = l->data;
    weft_exec *e = io->exec;
    const weft_view *it = io->item;
    const size_t mark = weft_exec_mark(e);
    weft_view inside;

    WEFT_TRY(
        weft_i_norm_forward(e, &b->norm1, io->x, it[NORM1_OUT], it[NORM1_MEAN], it[NORM1_RSTD]));
    WEFT_TRY(enter_column(e, it[NORM1_OUT], &inside));
    WEFT_TRY(weft_i_attention_forward(io, &b->attention, inside, it[QKV], it[ATTENDED], it[LSE]));
    weft_exec_reset(e, mark);
    WEFT_TRY(finish_branch(io, &b->attention.out, b->site1, it[ATTENDED], io->x, it[MID]));

    WEFT_TRY(
        weft_i_norm_forward(e, &b->norm2, it[MID], it[NORM2_OUT], it[NORM2_MEAN], it[NORM2_RSTD]));
    WEFT_TRY(enter_column(e, it[NORM2_OUT], &inside));
    WEFT_TRY(weft_i_linear_forward(e, &b->mlp.up, inside, it[UP]));
    WEFT_TRY(weft_i_mlp_activate(e, &b->mlp, it[UP], it[PRODUCT]));
    weft_exec_reset(e, mark);
    if (e->is_again)
        return WEFT_OK;
    return finish_branch(io, &b->mlp.down, b->site2, it[PRODUCT], it[MID], io->y);
}

static weft_status block_recompute(weft_layer *l, weft_layer_io *io)
{
    const weft_block *b = l->data;
    const weft_view *it = io->item;
    WEFT_TRY(weft_i_norm_forward(io->exec, &b->norm1, io->x, it[NORM1_OUT], it[NORM1_MEAN],
                                 it[NORM1_RSTD]));
    WEFT_TRY(weft_i_norm_forward(io->exec, &b->norm2, it[MID], it[NORM2_OUT], it[NORM2_MEAN],
                                 it[NORM2_RSTD]));
    return weft_i_mlp_activate(io->exec, &b->mlp, it[UP], it[PRODUCT]);
}

/* The gradient of a branch's output: dropout's backward of dy, or dy itself (copied where it must outlive this call). */
static weft_status
branch_gradient(weft_layer_io *io, uint32_t site, weft_view dy, weft_view item, weft_view *d_branch)
{
    const weft_block *b = io->layer->data;
    *d_branch = item.data != NULL ? item : dy;
    if (item.data == NULL)
        return WEFT_OK;
    const weft_dropout d = weft_i_dropout_stream(io, b->resid_dropout, site);
    if (d.p > 0.0f) {
        const weft_dropout_args a = {.y = item, .x = dy, .dropout = d};
        return weft_exec_op(io->exec, WEFT_OP_DROPOUT, &a);
    }
    const weft_copy_args c = {.dst = item, .src = dy};
    return weft_exec_op(io->exec, WEFT_OP_COPY, &c);
}

/* One half of the block's backward: where its gradient comes from, its two products, its norm. */
typedef struct half {
    const weft_norm *norm;
    const weft_linear *row;    /* the product that leaves */
    const weft_linear *column; /* the product that enters */
    weft_norm_backward nb;     /* of the norm: x, gradient of its output, statistics */
    weft_view norm_out;        /* what the column product read */
    weft_view row_in;          /* what the row product read */
    weft_view d_branch;        /* gradient of the branch's output, in the stream */
    weft_view d_column;        /* gradient of the column product's output */
} half;

/* d_row_in = (gradient of the branch) W, and the row product's weight gradient. */
static weft_status half_row(weft_exec *e, const half *h, unsigned parts, weft_view d_row_in)
{
    weft_view d;
    const weft_region_kind kind = WEFT_REGION_LEAVE_ROW;
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_BACKWARD, h->d_branch, &d));
    WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_BACKWARD, h->d_branch, d));
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        WEFT_TRY(weft_i_linear_backward_input(e, h->row, d, d_row_in));
    if ((parts & WEFT_BACKWARD_WEIGHT) != 0)
        WEFT_TRY(weft_i_linear_backward_weight(e, h->row, h->row_in, d));
    return WEFT_OK;
}

/*
 * Gradient of the norm's output, then of the stream. What the weight gradients read comes while the input's gradient is
 * computed; they run while that one's region is on its way.
 */
static weft_status
half_column(weft_exec *e, const half *h, unsigned parts, weft_view residual, weft_view dx)
{
    const weft_region_kind kind = WEFT_REGION_ENTER_COLUMN;
    const weft_pass back = WEFT_PASS_BACKWARD;
    weft_view inside = h->norm_out;
    weft_view partial = h->nb.dy;
    weft_view summed = h->nb.dy;
    if ((parts & WEFT_BACKWARD_WEIGHT) != 0)
        WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_FORWARD, h->norm_out, &inside));
    if ((parts & WEFT_BACKWARD_INPUT) != 0) {
        const int64_t rows = h->d_column.rows * weft_i_linear_stack(h->column);
        if (rows != h->nb.dy.rows)
            WEFT_TRY(weft_exec_view(e, partial.dtype, rows, partial.cols, &partial));
        WEFT_TRY(weft_i_linear_backward_input(e, h->column, h->d_column, partial));
    }
    if ((parts & WEFT_BACKWARD_WEIGHT) != 0)
        WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_FORWARD, h->norm_out, inside));
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        WEFT_TRY(weft_exec_region_start(e, kind, back, partial, &summed));
    if ((parts & WEFT_BACKWARD_WEIGHT) != 0)
        WEFT_TRY(weft_i_linear_backward_weight(e, h->column, inside, h->d_column));
    if ((parts & WEFT_BACKWARD_INPUT) != 0) {
        WEFT_TRY(weft_exec_region_finish(e, kind, back, partial, summed));
        if (summed.data != h->nb.dy.data) {
            const weft_copy_args c = {.dst = h->nb.dy, .src = summed};
            WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &c));
        }
        WEFT_TRY(weft_i_norm_backward_input(e, h->norm, &h->nb, residual, dx));
    }
    if ((parts & WEFT_BACKWARD_WEIGHT) != 0) {
        weft_norm_targets t = {0};
        WEFT_TRY(weft_i_norm_grad_begin(e, h->norm, &t));
        WEFT_TRY(weft_i_norm_backward_weight(e, h->norm, &h->nb, &t));
        WEFT_TRY(weft_i_norm_grad_end(e, h->norm, &t));
    }
    return WEFT_OK;
}

/* The MLP's half: from dy to d_mid. */
static weft_status backward_mlp(weft_layer_io *io, unsigned parts, weft_view d_mid)
{
    const weft_block *b = io->layer->data;
    weft_exec *e = io->exec;
    const weft_view *it = io->item;
    const size_t mark = weft_exec_mark(e);
    half h = {.norm = &b->norm2,
              .row = &b->mlp.down,
              .column = &b->mlp.up,
              .nb = {it[MID], it[D_NORM2_OUT], it[NORM2_MEAN], it[NORM2_RSTD]},
              .norm_out = it[NORM2_OUT],
              .row_in = it[PRODUCT],
              .d_branch = it[D_BRANCH2],
              .d_column = it[D_UP]};
    weft_view d_product = weft_view_none();
    if ((parts & WEFT_BACKWARD_INPUT) != 0) {
        WEFT_TRY(branch_gradient(io, b->site2, io->dy, it[D_BRANCH2], &h.d_branch));
        WEFT_TRY(
            weft_exec_view(e, it[PRODUCT].dtype, it[PRODUCT].rows, it[PRODUCT].cols, &d_product));
    }
    WEFT_TRY(half_row(e, &h, parts, d_product));
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        WEFT_TRY(weft_i_mlp_activate_backward(e, &b->mlp, it[UP], d_product, it[D_UP]));
    WEFT_TRY(half_column(e, &h, parts, io->dy, d_mid));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

/* Attention's half: from d_mid to dx. */
static weft_status backward_attention(weft_layer_io *io, unsigned parts, weft_view d_mid)
{
    const weft_block *b = io->layer->data;
    weft_exec *e = io->exec;
    const weft_view *it = io->item;
    const size_t mark = weft_exec_mark(e);
    half h = {.norm = &b->norm1,
              .row = &b->attention.out,
              .column = &b->attention.qkv,
              .nb = {io->x, it[D_NORM1_OUT], it[NORM1_MEAN], it[NORM1_RSTD]},
              .norm_out = it[NORM1_OUT],
              .row_in = it[ATTENDED],
              .d_branch = it[D_BRANCH1],
              .d_column = it[D_QKV]};
    weft_attention_backward ab = {it[QKV], it[ATTENDED], it[LSE], weft_view_none()};
    if ((parts & WEFT_BACKWARD_INPUT) != 0) {
        WEFT_TRY(branch_gradient(io, b->site1, d_mid, it[D_BRANCH1], &h.d_branch));
        WEFT_TRY(weft_exec_view(e, it[ATTENDED].dtype, it[ATTENDED].rows, it[ATTENDED].cols,
                                &ab.d_attended));
    }
    WEFT_TRY(half_row(e, &h, parts, ab.d_attended));
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        WEFT_TRY(weft_i_attention_backward(io, &b->attention, &ab, it[D_QKV]));
    WEFT_TRY(half_column(e, &h, parts, d_mid, io->dx));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

static weft_status block_backward(weft_layer *l, weft_layer_io *io, unsigned parts)
{
    const weft_block *b = l->data;
    weft_exec *e = io->exec;
    const size_t mark = weft_exec_mark(e);
    weft_view d_mid = weft_view_none();
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        WEFT_TRY(weft_exec_view(e, io->shape.dtype, io->shape.rows_stream, b->cols, &d_mid));
    WEFT_TRY(backward_mlp(io, parts, d_mid));
    WEFT_TRY(backward_attention(io, parts, d_mid));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

static void block_destroy(weft_layer *l)
{
    weft_block *b = l->data;
    if (b != NULL)
        weft_i_alloc_put(l->ctx->alloc, b->attention.kv_of_head);
    weft_i_alloc_put(l->ctx->alloc, b);
}

/* Weight gradients alone need no weights, unless what they read is computed again. */
static bool block_is_reading(const weft_layer *l, const weft_exec *e)
{
    (void)l;
    return e->pass == WEFT_PASS_FORWARD || e->parts != WEFT_BACKWARD_WEIGHT || e->is_recomputing;
}

static const weft_layer_ops block_ops = {.kind = "block",
                                         .items = block_items,
                                         .forward = block_forward,
                                         .recompute = block_recompute,
                                         .backward = block_backward,
                                         .is_reading = block_is_reading,
                                         .destroy = block_destroy};

static int list_linear(const weft_linear *l, weft_param **list, int n)
{
    for (int i = 0; i < l->n_parts; i++)
        list[n++] = l->weight[i];
    for (int i = 0; i < l->n_parts; i++) {
        if (l->bias[i] != NULL)
            list[n++] = l->bias[i];
    }
    return n;
}

static int list_norm(const weft_norm *norm, weft_param **list, int n)
{
    list[n++] = norm->gain;
    if (norm->bias != NULL)
        list[n++] = norm->bias;
    return n;
}

weft_status weft_i_block_add(weft_model *m, const weft_block *take_block)
{
    weft_alloc *alloc = weft_model_ctx(m)->alloc;
    weft_param *list[4 + 4 * 2 * WEFT_LINEAR_PARTS];
    /* As backward goes. */
    int n = list_linear(&take_block->mlp.down, list, 0);
    n = list_linear(&take_block->mlp.up, list, n);
    n = list_norm(&take_block->norm2, list, n);
    n = list_linear(&take_block->attention.out, list, n);
    n = list_linear(&take_block->attention.qkv, list, n);
    n = list_norm(&take_block->norm1, list, n);
    void *copy = NULL;
    const weft_status st = weft_i_alloc_new(alloc, 1, sizeof(*take_block), &copy);
    if (st != WEFT_OK) {
        weft_i_alloc_put(alloc, take_block->attention.kv_of_head);
        return st;
    }
    *(weft_block *)copy = *take_block;
    return weft_model_add_layer(m, &block_ops, copy, take_block->cols, list, n);
}
