/*
 * Head and loss as a layer (contract: head.h).
 *
 * When training, forward keeps only x: the loss needs the logits, the gradient needs them too, and computing both in one
 * visit to a chunk is what saves storing them. So backward computes the token losses. Evaluation, probing and generation
 * ask forward for losses (exec->is_loss_wanted) or logits (exec->logits), for all rows or some (exec->head_rows). Where
 * somebody else computes the loss from those logits, backward starts from the gradient it is given (exec->grad_logits).
 *
 * Invariants
 *  1. A chunk's logits are fp32 [chunk, V]; their gradient takes their place (fp32) or a bf16 twin (bf16).
 *  2. The weight's gradient is made with BACKWARD_INPUT: it needs the chunk's logits.
 *  3. A row whose target is -100 has loss 0 and gradient 0.
 *  4. Backward cuts into the same chunks wherever the logits' gradient comes from, so the same one gives the same bits.
 *  5. Chunks depend on rows and the whole vocabulary alone, so all ranks of a cut one go through the same.
 * In strips (linear_strips.c) the sum of exponentials is taken of every strip by itself, and the regions add the strips up.
 * Where the stream has a part of the rows (sequence parallelism) the norm is taken once, over the rows here, and the chunks are
 * cut from what the region makes of it: all rows.
 * Communication: none of its own; the head's input and the three vocabulary numbers are regions.
 */
#include "nn/head.h"

#include "base/ctx.h"
#include "base/error.h"

enum { LOSS, N_ITEMS };

/* One chunk on its way through. */
typedef struct chunk {
    weft_view x, targets, loss;
    weft_view h, mean, rstd; /* normalised rows, statistics */
    weft_view wanted;        /* where the logits of the whole vocabulary go; not given: nowhere */
    weft_view logits, max, sum, target;
    weft_view dlogits;
} chunk;

static weft_param *weight_of(const weft_head *head)
{
    return head->product.weight[0];
}

/* Rows of logits in one chunk: 32 MiB of them, at least 256 rows, whole multiples of 256. */
static int64_t chunk_rows(int64_t rows, int64_t vocabulary)
{
    const int64_t budget = ((int64_t)32 << 20) / (4 * WEFT_MAX(vocabulary, 1));
    const int64_t whole = WEFT_MAX(budget / 256 * 256, 256);
    return WEFT_MIN(rows, whole);
}

static weft_status
head_items(const weft_layer *l, const weft_layer_shape *s, weft_item *item, int *n_items)
{
    (void)l;
    item[LOSS].name = "token_loss";
    item[LOSS].rows = s->rows_inside;
    item[LOSS].cols = 1;
    item[LOSS].dtype = WEFT_DTYPE_F32;
    item[LOSS].flags = WEFT_ITEM_RESULT;
    *n_items = N_ITEMS;
    return WEFT_OK;
}

/* h = norm(x), through the region before the product. Of a cut stream: of all of it at once, and h has all rows. */
static weft_status chunk_norm(weft_exec *e, const weft_head *head, chunk *c)
{
    const weft_dtype t = c->x.dtype;
    const bool has_mean = head->norm.kind == WEFT_NORM_LAYER;
    const weft_region_kind kind = WEFT_REGION_HEAD_INPUT;
    weft_view inside;
    WEFT_TRY(weft_exec_view(e, t, c->x.rows, head->cols, &c->h));
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, has_mean ? c->x.rows : 0, 1, &c->mean));
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, c->x.rows, 1, &c->rstd));
    WEFT_TRY(weft_i_norm_forward(e, &head->norm, c->x, c->h, c->mean, c->rstd));
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_FORWARD, c->h, &inside));
    WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_FORWARD, c->h, inside));
    c->h = inside;
    return WEFT_OK;
}

static weft_status region(weft_exec *e, weft_region_kind kind, weft_view v)
{
    weft_view same;
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_FORWARD, v, &same));
    return weft_exec_region_finish(e, kind, WEFT_PASS_FORWARD, v, same);
}

static bool is_cut(const weft_head *head)
{
    return weight_of(head)->rows != weight_of(head)->full_rows;
}

/* The logits of the whole vocabulary to where they are wanted. */
static weft_status chunk_deliver(weft_exec *e, const chunk *c)
{
    const size_t mark = weft_exec_mark(e);
    weft_view all;
    WEFT_TRY(weft_exec_region_start(e, WEFT_REGION_LOGITS, WEFT_PASS_FORWARD, c->logits, &all));
    WEFT_TRY(weft_exec_region_finish(e, WEFT_REGION_LOGITS, WEFT_PASS_FORWARD, c->logits, all));
    const weft_copy_args copy = {.dst = c->wanted, .src = all};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &copy));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

/* logits = h W^T, of the vocabulary here. */
static weft_status chunk_logits(weft_exec *e, const weft_head *head, chunk *c)
{
    const bool is_wanted = c->wanted.data != NULL;
    if (is_wanted && !is_cut(head))
        c->logits = c->wanted;
    else
        WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, c->h.rows, weight_of(head)->rows, &c->logits));
    WEFT_TRY(weft_i_linear_forward(e, &head->product, c->h, c->logits));
    return is_wanted && is_cut(head) ? chunk_deliver(e, c) : WEFT_OK;
}

static weft_status new_numbers(weft_exec *e, int64_t rows, weft_view *out)
{
    return weft_exec_view(e, WEFT_DTYPE_F32, rows, 1, out);
}

/* Of the logits here: largest, sum of exponentials below it, the targets' own. */
static weft_status
stats(weft_exec *e, const weft_head *head, const chunk *c, weft_view max, weft_view sum)
{
    const weft_xent_stats_args s = {.max = max,
                                    .sum = sum,
                                    .target = c->target,
                                    .logits = c->logits,
                                    .targets = c->targets,
                                    .first_id = head->first_id};
    return weft_exec_op(e, WEFT_OP_XENT_STATS, &s);
}

static weft_status rescale(weft_exec *e, weft_view sum, weft_view local_max, weft_view max)
{
    const weft_xent_rescale_args r = {.sum = sum, .local_max = local_max, .max = max};
    return weft_exec_op(e, WEFT_OP_XENT_RESCALE, &r);
}

/* Sums of exponentials of every strip by itself, one below the other, below the largest of all strips. */
static weft_status
strip_sums(weft_exec *e, const weft_head *head, const chunk *c, weft_view local_max, weft_view sums)
{
    const weft_linear *l = &head->product;
    const int64_t rows = c->logits.rows;
    for (int64_t i = 0; i < l->n_strips; i++) {
        const int64_t first = i > 0 ? l->strip_ends[i - 1] : 0;
        const weft_view sum = weft_view_rows(sums, i * rows, rows);
        chunk strip = *c;
        strip.logits = weft_view_cols(c->logits, first, l->strip_ends[i] - first);
        WEFT_TRY(stats(e, head, &strip, local_max, sum));
        WEFT_TRY(rescale(e, sum, local_max, c->max));
    }
    return WEFT_OK;
}

/* The numbers of the whole vocabulary from those of the vocabulary here. */
static weft_status whole_vocabulary(weft_exec *e, const weft_head *head, chunk *c)
{
    const weft_region_kind kind = WEFT_REGION_VOCAB_SUM;
    const int64_t rows = c->logits.rows;
    weft_view local_max;
    weft_view sums;
    WEFT_TRY(new_numbers(e, rows, &local_max));
    const weft_copy_args copy = {.dst = local_max, .src = c->max};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &copy));
    WEFT_TRY(region(e, WEFT_REGION_VOCAB_MAX, c->max));
    WEFT_TRY(region(e, WEFT_REGION_VOCAB_TARGET, c->target));
    if (head->product.n_strips == 0) {
        WEFT_TRY(rescale(e, c->sum, local_max, c->max));
        return region(e, kind, c->sum);
    }
    chunk strips = *c; /* its targets' logits are another buffer's: those here are complete */
    WEFT_TRY(new_numbers(e, rows, &strips.target));
    WEFT_TRY(new_numbers(e, rows * head->product.n_strips, &sums));
    WEFT_TRY(strip_sums(e, head, &strips, local_max, sums));
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_FORWARD, sums, &c->sum));
    return weft_exec_region_finish(e, kind, WEFT_PASS_FORWARD, sums, c->sum);
}

/* Token losses from the chunk's logits; the vocabulary may be cut over ranks (regions). */
static weft_status chunk_loss(weft_exec *e, const weft_head *head, chunk *c)
{
    const int64_t rows = c->logits.rows;
    WEFT_TRY(new_numbers(e, rows, &c->max));
    WEFT_TRY(new_numbers(e, rows, &c->sum));
    WEFT_TRY(new_numbers(e, rows, &c->target));
    WEFT_TRY(stats(e, head, c, c->max, c->sum));
    if (e->n_hooks > 0)
        WEFT_TRY(whole_vocabulary(e, head, c));
    const weft_xent_loss_args l = {
        .loss = c->loss, .max = c->max, .sum = c->sum, .target = c->target, .targets = c->targets};
    return weft_exec_op(e, WEFT_OP_XENT_LOSS, &l);
}

/* The chosen rows of the stream, gathered; or the stream itself. */
static weft_status head_stream(weft_layer_io *io, weft_view *x)
{
    const weft_exec *e = io->exec;
    *x = io->x;
    if (e->head_rows == NULL)
        return WEFT_OK;
    if (io->shape.is_stream_cut)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "rows were chosen of a stream that has a part of them");
    WEFT_TRY(weft_exec_view(io->exec, io->x.dtype, e->n_head_rows, io->x.cols, x));
    const weft_gather_rows_args g = {.dst = *x, .src = io->x, .row = e->head_rows};
    return weft_exec_op(io->exec, WEFT_OP_GATHER_ROWS, &g);
}

/* Rows that the chunks are cut from, and the normalised ones where the stream is cut. */
static weft_status head_begin(weft_layer_io *io, const weft_head *head, chunk *whole, int64_t *rows)
{
    WEFT_TRY(head_stream(io, &whole->x));
    *rows = whole->x.rows;
    if (!io->shape.is_stream_cut)
        return WEFT_OK;
    *rows = io->shape.rows_inside;
    return chunk_norm(io->exec, head, whole);
}

/* Rows [first, first + rows) of the head's input, normalised. */
static weft_status
begin_chunk(weft_layer_io *io, const weft_head *head, const chunk *whole, int64_t first, chunk *c)
{
    if (io->shape.is_stream_cut) {
        c->h = weft_view_rows(whole->h, first, c->h.rows);
        return WEFT_OK;
    }
    c->x = weft_view_rows(whole->x, first, c->h.rows);
    return chunk_norm(io->exec, head, c);
}

static weft_status head_forward(weft_layer *l, weft_layer_io *io)
{
    const weft_head *head = l->data;
    weft_exec *e = io->exec;
    const bool is_logits_wanted = e->logits.data != NULL;
    if (e->is_again || (!e->is_loss_wanted && !is_logits_wanted))
        return WEFT_OK;
    const size_t outer = weft_exec_mark(e);
    chunk whole = {.x = io->x};
    int64_t all_rows = 0;
    WEFT_TRY(head_begin(io, head, &whole, &all_rows));
    const int64_t step = chunk_rows(all_rows, weight_of(head)->full_rows);
    for (int64_t first = 0; first < all_rows; first += step) {
        const size_t mark = weft_exec_mark(e);
        const int64_t rows = WEFT_MIN(step, all_rows - first);
        chunk c = {.h = {.rows = rows}};
        if (is_logits_wanted)
            c.wanted = weft_view_rows(e->logits, first, rows);
        WEFT_TRY(begin_chunk(io, head, &whole, first, &c));
        WEFT_TRY(chunk_logits(e, head, &c));
        if (e->is_loss_wanted) {
            c.targets = weft_view_rows(io->batch->targets, first, rows);
            c.loss = weft_view_rows(io->item[LOSS], first, rows);
            WEFT_TRY(chunk_loss(e, head, &c));
        }
        weft_exec_reset(e, mark);
    }
    weft_exec_reset(e, outer);
    return WEFT_OK;
}

/* Gradient of the chunk's logits, in their place or beside them. */
static weft_status chunk_loss_gradient(weft_exec *e, const weft_head *head, chunk *c)
{
    c->dlogits = c->logits;
    if (c->h.dtype != WEFT_DTYPE_F32)
        WEFT_TRY(weft_exec_view(e, c->h.dtype, c->logits.rows, c->logits.cols, &c->dlogits));
    const weft_xent_grad_args x = {.dlogits = c->dlogits,
                                   .logits = c->logits,
                                   .max = c->max,
                                   .sum = c->sum,
                                   .targets = c->targets,
                                   .first_id = head->first_id,
                                   .scale = e->loss_scale};
    return weft_exec_op(e, WEFT_OP_XENT_GRAD, &x);
}

/* What backward adds to, chunk by chunk: `weight` and `norm` add from the second one on. */
typedef struct head_gradients {
    weft_grad_target weight;
    weft_norm_targets norm;
} head_gradients;

/* dh = dlogits W: of the vocabulary here; in strips theirs apart, one below the other. */
static weft_status
chunk_input_gradient(weft_exec *e, const weft_head *head, const chunk *c, weft_view dh)
{
    return weft_i_linear_backward_input(e, &head->product, c->dlogits, dh);
}

static weft_status
chunk_weight_gradient(weft_exec *e, const weft_head *head, const chunk *c, weft_grad_target *w)
{
    WEFT_TRY(weft_i_linear_weight_product(e, &head->product, w, c->h, c->dlogits));
    w->is_added = true;
    return WEFT_OK;
}

/* Through the norm, from the gradient of its output: gain, bias and the stream. */
static weft_status norm_backward(weft_exec *e,
                                 const weft_head *head,
                                 const chunk *c,
                                 weft_view dh,
                                 head_gradients *g,
                                 weft_view dx)
{
    const weft_norm_backward nb = {c->x, dh, c->mean, c->rstd};
    WEFT_TRY(weft_i_norm_backward_weight(e, &head->norm, &nb, &g->norm));
    return weft_i_norm_backward_input(e, &head->norm, &nb, weft_view_none(), dx);
}

/* Gradients of one chunk from that of its logits: weight, normalised rows, norm, stream. */
static weft_status
chunk_backward(weft_exec *e, const weft_head *head, chunk *c, head_gradients *g, weft_view dx)
{
    const weft_region_kind kind = WEFT_REGION_HEAD_INPUT;
    weft_view dh;
    weft_view dh_sum;
    WEFT_TRY(weft_exec_view(e, c->h.dtype, c->h.rows, head->cols, &dh));
    WEFT_TRY(chunk_input_gradient(e, head, c, dh));
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_BACKWARD, dh, &dh_sum));
    WEFT_TRY(chunk_weight_gradient(e, head, c, &g->weight));
    WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_BACKWARD, dh, dh_sum));
    return norm_backward(e, head, c, dh_sum, g, dx);
}

/* The gradient of a chunk's logits, computed or given. */
static weft_status chunk_gradient(weft_layer_io *io, const weft_head *head, chunk *c, int64_t first)
{
    weft_exec *e = io->exec;
    const int64_t rows = c->h.rows;
    if (e->grad_logits.data != NULL) {
        c->dlogits = weft_view_rows(e->grad_logits, first, rows);
        return WEFT_OK;
    }
    c->targets = weft_view_rows(io->batch->targets, first, rows);
    c->loss = weft_view_rows(io->item[LOSS], first, rows);
    WEFT_TRY(chunk_logits(e, head, c));
    WEFT_TRY(chunk_loss(e, head, c));
    return chunk_loss_gradient(e, head, c);
}

static weft_status backward_chunks(weft_layer_io *io, const weft_head *head, head_gradients *g)
{
    weft_exec *e = io->exec;
    const int64_t step = chunk_rows(io->x.rows, weight_of(head)->full_rows);
    const chunk whole = {.x = io->x};
    for (int64_t first = 0; first < io->x.rows; first += step) {
        const size_t mark = weft_exec_mark(e);
        const int64_t rows = WEFT_MIN(step, io->x.rows - first);
        chunk c = {.h = {.rows = rows}};
        WEFT_TRY(begin_chunk(io, head, &whole, first, &c));
        WEFT_TRY(chunk_gradient(io, head, &c, first));
        WEFT_TRY(chunk_backward(e, head, &c, g, weft_view_rows(io->dx, first, rows)));
        weft_exec_reset(e, mark);
    }
    return WEFT_OK;
}

/* dh of a chunk's rows [first, first + rows) of every strip into the whole stack of strips. */
static weft_status chunk_into_stack(
    weft_exec *e, const weft_head *head, const chunk *c, int64_t first, weft_view whole)
{
    const int64_t n = weft_i_linear_stack(&head->product);
    const int64_t rows = c->h.rows;
    const int64_t all_rows = whole.rows / n;
    weft_view dh;
    if (n == 1)
        return chunk_input_gradient(e, head, c, weft_view_rows(whole, first, rows));
    WEFT_TRY(weft_exec_view(e, whole.dtype, n * rows, whole.cols, &dh));
    WEFT_TRY(chunk_input_gradient(e, head, c, dh));
    for (int64_t i = 0; i < n; i++) {
        const weft_copy_args copy = {.dst = weft_view_rows(whole, i * all_rows + first, rows),
                                     .src = weft_view_rows(dh, i * rows, rows)};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &copy));
    }
    return WEFT_OK;
}

/*
 * A cut stream: norm, one region, the chunks of all rows, one region, the norm's gradients. So with strips on any stream:
 * the norm's gradients are sums over all rows then, whatever its cut.
 */
static weft_status backward_whole(weft_layer_io *io, const weft_head *head, head_gradients *g)
{
    weft_exec *e = io->exec;
    const weft_region_kind kind = WEFT_REGION_HEAD_INPUT;
    const size_t outer = weft_exec_mark(e);
    const int64_t all_rows = io->shape.rows_inside;
    const int64_t step = chunk_rows(all_rows, weight_of(head)->full_rows);
    chunk whole = {.x = io->x};
    weft_view dh;
    weft_view dh_sum;
    WEFT_TRY(chunk_norm(e, head, &whole));
    WEFT_TRY(weft_exec_view(e, whole.h.dtype, all_rows * weft_i_linear_stack(&head->product),
                            head->cols, &dh));
    for (int64_t first = 0; first < all_rows; first += step) {
        const size_t mark = weft_exec_mark(e);
        const int64_t rows = WEFT_MIN(step, all_rows - first);
        chunk c = {.h = weft_view_rows(whole.h, first, rows)};
        WEFT_TRY(chunk_gradient(io, head, &c, first));
        WEFT_TRY(chunk_into_stack(e, head, &c, first, dh));
        WEFT_TRY(chunk_weight_gradient(e, head, &c, &g->weight));
        weft_exec_reset(e, mark);
    }
    WEFT_TRY(weft_exec_region_start(e, kind, WEFT_PASS_BACKWARD, dh, &dh_sum));
    WEFT_TRY(weft_exec_region_finish(e, kind, WEFT_PASS_BACKWARD, dh, dh_sum));
    WEFT_TRY(norm_backward(e, head, &whole, dh_sum, g, io->dx));
    weft_exec_reset(e, outer);
    return WEFT_OK;
}

static weft_status head_backward(weft_layer *l, weft_layer_io *io, unsigned parts)
{
    const weft_head *head = l->data;
    weft_exec *e = io->exec;
    head_gradients g = {.weight = {weft_view_none(), false}};
    if ((parts & WEFT_BACKWARD_INPUT) == 0)
        return WEFT_OK;
    if (!weight_of(head)->is_frozen)
        WEFT_TRY(weft_exec_grad_begin(e, weight_of(head), &g.weight));
    WEFT_TRY(weft_i_norm_grad_begin(e, &head->norm, &g.norm));
    const bool is_whole = io->shape.is_stream_cut || head->product.n_strips > 0;
    WEFT_TRY(is_whole ? backward_whole(io, head, &g) : backward_chunks(io, head, &g));
    if (!weight_of(head)->is_frozen)
        WEFT_TRY(weft_exec_grad_end(e, weight_of(head)));
    return weft_i_norm_grad_end(e, &head->norm, &g.norm);
}

/* As of a block: the weights' own part of a backward, which is empty here, needs none. */
static bool head_is_reading(const weft_layer *l, const weft_exec *e)
{
    (void)l;
    if (e->pass == WEFT_PASS_BACKWARD)
        return e->parts != WEFT_BACKWARD_WEIGHT || e->is_recomputing;
    return !e->is_again && (e->is_loss_wanted || e->logits.data != NULL);
}

static void head_destroy(weft_layer *l)
{
    weft_i_alloc_put(l->ctx->alloc, l->data);
}

static const weft_layer_ops head_ops = {.kind = "head",
                                        .items = head_items,
                                        .forward = head_forward,
                                        .backward = head_backward,
                                        .is_reading = head_is_reading,
                                        .has_weights_with_input = true,
                                        .destroy = head_destroy};

weft_status weft_i_head_add(weft_model *m, const weft_head *head)
{
    void *copy = NULL;
    weft_param *weight = weight_of(head);
    weft_param *list[3] = {weight, head->norm.gain, head->norm.bias};
    WEFT_TRY(weft_i_alloc_new(weft_model_ctx(m)->alloc, 1, sizeof(*head), &copy));
    weft_head *own = copy;
    *own = *head;
    own->product.n_parts = 1;
    own->product.out[0] = weight->rows;
    own->product.in = weight->cols;
    own->product.n_runs = 1;
    own->product.run[0] = (weft_linear_run){.unit = 1};
    return weft_model_add_layer(m, &head_ops, copy, 0, list, head->norm.bias != NULL ? 3 : 2);
}
