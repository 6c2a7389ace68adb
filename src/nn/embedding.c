/*
 * Embedding as a layer (contract: embedding.h). Its gradients are scatters, done with BACKWARD_INPUT: there is no dx, and
 * nothing would be won by waiting.
 *
 * Communication: none of its own; the region after the token table is where a vocabulary cut over ranks is summed.
 */
#include "nn/embedding.h"

#include "base/ctx.h"
#include "base/error.h"
#include "nn/dropout.h"

static weft_status
embedding_items(const weft_layer *l, const weft_layer_shape *s, weft_item *item, int *n_items)
{
    (void)l;
    (void)s;
    (void)item;
    *n_items = 0;
    return WEFT_OK;
}

static weft_status look_up(
    weft_exec *e, weft_param *table, weft_view ids, int64_t first_id, bool is_added, weft_view y)
{
    WEFT_TRY(weft_exec_need(e, table));
    const weft_embedding_forward_args a = {
        .y = y, .table = table->value, .ids = ids, .first_id = first_id, .is_added = is_added};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_EMBEDDING_FORWARD, &a));
    return weft_exec_done(e, table);
}

static weft_status embedding_forward(weft_layer *l, weft_layer_io *io)
{
    const weft_embedding *m = l->data;
    weft_exec *e = io->exec;
    const weft_region_kind kind = WEFT_REGION_EMBEDDING_OUT;
    const size_t mark = weft_exec_mark(e);
    weft_view partial = io->y;
    weft_view summed;
    if (e->is_again)
        return WEFT_OK;
    if (io->shape.rows_inside != io->shape.rows_stream)
        WEFT_TRY(weft_exec_view(e, io->y.dtype, io->shape.rows_inside, m->cols, &partial));
    WEFT_TRY(look_up(e, m->tokens, io->batch->ids, m->first_id, false, partial));
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_FORWARD, partial, &summed));
    WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_FORWARD, partial, summed));
    if (summed.data != io->y.data) {
        const weft_copy_args c = {.dst = io->y, .src = summed};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &c));
    }
    if (m->positions != NULL)
        WEFT_TRY(look_up(
            e, m->positions,
            weft_view_rows(io->batch->positions, io->shape.first_row, io->shape.rows_stream), 0,
            true, io->y));
    const weft_dropout d = weft_i_dropout_stream(io, m->dropout, m->site);
    if (d.p > 0.0f) {
        const weft_dropout_args a = {.y = io->y, .x = io->y, .dropout = d};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_DROPOUT, &a));
    }
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

static weft_status
scatter(weft_exec *e, weft_param *table, weft_view ids, int64_t first_id, weft_view dy)
{
    if (table->is_frozen)
        return WEFT_OK;
    weft_grad_target t;
    WEFT_TRY(weft_exec_grad_begin(e, table, &t));
    const weft_embedding_backward_args a = {
        .dtable = t.view, .dy = dy, .ids = ids, .first_id = first_id, .is_added = t.is_added};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_EMBEDDING_BACKWARD, &a));
    return weft_exec_grad_end(e, table);
}

static weft_status embedding_backward(weft_layer *l, weft_layer_io *io, unsigned parts)
{
    const weft_embedding *m = l->data;
    weft_exec *e = io->exec;
    const weft_region_kind kind = WEFT_REGION_EMBEDDING_OUT;
    const size_t mark = weft_exec_mark(e);
    weft_view dy = io->dy;
    weft_view d_tokens;
    if ((parts & WEFT_BACKWARD_INPUT) == 0)
        return WEFT_OK;
    const weft_dropout d = weft_i_dropout_stream(io, m->dropout, m->site);
    if (d.p > 0.0f) {
        WEFT_TRY(weft_exec_view(e, dy.dtype, dy.rows, dy.cols, &dy));
        const weft_dropout_args a = {.y = dy, .x = io->dy, .dropout = d};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_DROPOUT, &a));
    }
    /* Of a stream that has a part of the rows the positions' gradient waits for all of them, so that every rank has all of
       it and no sum of a whole table is needed. */
    const bool is_early = m->positions != NULL && !io->shape.is_stream_cut;
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_BACKWARD, dy, &d_tokens));
    if (is_early)
        WEFT_TRY(scatter(e, m->positions, io->batch->positions, 0, dy));
    WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_BACKWARD, dy, d_tokens));
    if (m->positions != NULL && !is_early)
        WEFT_TRY(scatter(e, m->positions, io->batch->positions, 0, d_tokens));
    WEFT_TRY(scatter(e, m->tokens, io->batch->ids, m->first_id, d_tokens));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

/* Backward scatters into gradients and looks nothing up. */
static bool embedding_is_reading(const weft_layer *l, const weft_exec *e)
{
    (void)l;
    return e->pass == WEFT_PASS_FORWARD && !e->is_again;
}

static void embedding_destroy(weft_layer *l)
{
    weft_i_alloc_put(l->ctx->alloc, l->data);
}

static const weft_layer_ops embedding_ops = {.kind = "embedding",
                                             .items = embedding_items,
                                             .forward = embedding_forward,
                                             .backward = embedding_backward,
                                             .is_reading = embedding_is_reading,
                                             .has_weights_with_input = true,
                                             .destroy = embedding_destroy};

weft_status weft_i_embedding_add(weft_model *m, const weft_embedding *embedding)
{
    void *copy = NULL;
    weft_param *list[2] = {embedding->positions, embedding->tokens};
    const int n_absent = embedding->positions != NULL ? 0 : 1;
    WEFT_TRY(weft_i_alloc_new(weft_model_ctx(m)->alloc, 1, sizeof(*embedding), &copy));
    *(weft_embedding *)copy = *embedding;
    return weft_model_add_layer(m, &embedding_ops, copy, embedding->cols, list + n_absent,
                                2 - n_absent);
}
