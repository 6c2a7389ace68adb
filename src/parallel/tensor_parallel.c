/*
 * Tensor parallelism: every block's products are cut over the ranks of the tensor axis.
 *
 * Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053, sec. 3: q, k, v and the MLP's first product by columns (whole
 * heads), the output products by rows, so that one sum a branch and direction is all; the vocabulary's table, head and
 * cross-entropy by rows of the vocabulary.
 *
 * Communication (tp), a micro-batch of R rows of C elements, in the model's type unless said otherwise:
 *   LEAVE_ROW       forward: all_reduce [R, C]   (g there; ENTER_COLUMN is f)
 *   ENTER_COLUMN    backward: all_reduce [R, C], on its way while the weight gradients are computed
 *   EMBEDDING_OUT   forward: all_reduce [R, C]
 *   HEAD_INPUT      backward: all_reduce of every chunk's [r, C]
 *   VOCAB_MAX, VOCAB_SUM, VOCAB_TARGET   all_reduce of every chunk's [r, 1], f32: largest, sum, sum
 *   LOGITS          where somebody wants them: all_gather of the chunk's [r, V], f32
 * With --tp-strips the sums of strips are strip_sums.c's, and this axis is there with one rank too.
 * With --sequence-parallel the first four are sequence_parallel.c's; partial gradients are partial_gradients.c's.
 * Invariants
 *  1. A sum over ranks has the same bits on every rank (rank order, f32, rounded once), so what every rank has whole (norms,
 *     row biases, the residual stream) stays equal without being compared.
 *  2. Every rank of the axis runs the same micro-batches and the same chunks.
 *  3. Dropout is keyed by global head, position and element: the loss does not depend on the cut.
 * Leaves to others: which pieces a parameter has (nn/models), weights over the data axis (zero).
 */
#include "parallel/tensor_parallel.h"

#include "base/ctx.h"
#include "base/error.h"
#include "tensor/split.h"

/* ---- slices ---- */

/* Everything by itself as evenly as can be. */
static void cut_evenly(weft_model_slice *s, const weft_config *c, int size, int rank)
{
    s->first_head = weft_i_split_first(c->n_heads, 1, size, rank);
    s->n_heads = weft_i_split_count(c->n_heads, 1, size, rank);
    s->first_ffn = weft_i_split_first(c->ffn_size, 1, size, rank);
    s->n_ffn = weft_i_split_count(c->ffn_size, 1, size, rank);
    s->first_id = weft_i_split_first(c->vocab_size, 1, size, rank);
    s->n_ids = weft_i_split_count(c->vocab_size, 1, size, rank);
    for (int r = 1; r < size; r++) {
        const int64_t head = weft_i_split_first(c->n_heads, 1, size, r);
        s->is_kv_copied = s->is_kv_copied || head % (c->n_heads / c->n_kv_heads) != 0;
    }
}

weft_model_slice weft_i_tensor_slice(const weft_config *c, const weft_layout *l, int rank)
{
    weft_model_slice s = weft_i_slice_whole(c);
    s.is_first = rank == 0;
    s.is_sequence_parallel = l->is_sequence_parallel;
    s.n_all_strips = l->n_strips;
    if (l->n_strips == 0) {
        cut_evenly(&s, c, l->tp, rank);
        return s;
    }
    s.first_strip = weft_i_split_first(l->n_strips, 1, l->tp, rank);
    s.n_strips = weft_i_split_count(l->n_strips, 1, l->tp, rank);
    weft_i_slice_from_strips(&s, c);
    return s;
}

/* ---- calls ---- */

weft_status weft_i_tensor_start(weft_tensor_axis *a, const weft_message *m)
{
    WEFT_ASSERT(!a->is_in_flight);
    WEFT_TRY(a->comm->ops->start(a->comm, m, &a->request));
    a->is_in_flight = true;
    return WEFT_OK;
}

weft_status weft_i_tensor_wait(weft_tensor_axis *a)
{
    if (!a->is_in_flight)
        return WEFT_OK;
    a->is_in_flight = false;
    return a->comm->ops->wait(a->comm, &a->request);
}

/* ---- regions ---- */

static weft_status start_sum(weft_tensor_axis *a, weft_view v, weft_reduction reduction)
{
    WEFT_ASSERT(v.ld == v.cols);
    if (a->comm->size == 1)
        return WEFT_OK;
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = v.dtype,
                            .reduction = reduction,
                            .send = v.data,
                            .recv = v.data,
                            .n_elems = v.rows * v.cols,
                            .tensor = a->layer};
    return weft_i_tensor_start(a, &m);
}

/* Every rank's columns into `out` [rows, vocabulary]: gathered one rank after another, then put side by side. */
static weft_status gather_logits(weft_tensor_axis *a, weft_view in, weft_view out)
{
    weft_exec *e = a->exec;
    const weft_config *c = weft_model_config(a->model);
    const size_t mark = weft_exec_mark(e);
    const int size = a->comm->size;
    weft_view parts;
    int64_t at = 0;
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, 1, out.rows * out.cols, &parts));
    for (int r = 0; r < size; r++)
        a->counts[r] = weft_i_tensor_slice(c, a->layout, r).n_ids * out.rows;
    const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                            .dtype = WEFT_DTYPE_F32,
                            .send = in.data,
                            .recv = parts.data,
                            .n_elems = out.rows * out.cols,
                            .counts = a->counts,
                            .tensor = "logits"};
    WEFT_TRY(weft_comm_call(a->comm, &m));
    for (int r = 0; r < size; r++) {
        const weft_model_slice s = weft_i_tensor_slice(c, a->layout, r);
        const weft_copy_args copy = {
            .dst = weft_view_cols(out, s.first_id, s.n_ids),
            .src = weft_view_make((float *)parts.data + at, WEFT_DTYPE_F32, out.rows, s.n_ids)};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_COPY, &copy));
        at += a->counts[r];
    }
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

static weft_status
region_shape(void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view *out)
{
    const weft_tensor_axis *a = user;
    if (kind == WEFT_REGION_LOGITS)
        out->ld = out->cols = weft_model_config(a->model)->vocab_size;
    else if (weft_i_strip_sum_has(a, kind, way))
        weft_i_strip_sum_shape(a, kind, in, out);
    else if (a->is_sequence_parallel && weft_i_sequence_has(a, kind))
        weft_i_sequence_shape(a, kind, way, out);
    return WEFT_OK;
}

static weft_status
region_start(void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view out)
{
    weft_tensor_axis *a = user;
    if (weft_i_strip_sum_has(a, kind, way))
        return weft_i_strip_sum_start(a, in);
    if (a->is_sequence_parallel && weft_i_sequence_has(a, kind))
        return weft_i_sequence_start(a, kind, way, in, out);
    switch (kind) {
    case WEFT_REGION_ENTER_COLUMN:
    case WEFT_REGION_HEAD_INPUT:
        return way == WEFT_PASS_BACKWARD ? start_sum(a, in, WEFT_REDUCTION_SUM) : WEFT_OK;
    case WEFT_REGION_LEAVE_ROW:
    case WEFT_REGION_EMBEDDING_OUT:
        return way == WEFT_PASS_FORWARD ? start_sum(a, in, WEFT_REDUCTION_SUM) : WEFT_OK;
    case WEFT_REGION_VOCAB_MAX:
        return start_sum(a, in, WEFT_REDUCTION_MAX);
    case WEFT_REGION_VOCAB_SUM:
    case WEFT_REGION_VOCAB_TARGET:
        return start_sum(a, in, WEFT_REDUCTION_SUM);
    case WEFT_REGION_LOGITS:
        return gather_logits(a, in, out);
    case WEFT_REGION_NORM_ROWS: /* every rank has all rows, or its own share of the gradient */
    case WEFT_REGION_ATTENTION_KV:
    case WEFT_REGION_DISPATCH:
    case WEFT_REGION_COMBINE:
        break;
    }
    return WEFT_OK;
}

static weft_status
region_finish(void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view out)
{
    weft_tensor_axis *a = user;
    (void)in;
    WEFT_TRY(weft_i_tensor_wait(a));
    return weft_i_strip_sum_has(a, kind, way) ? weft_i_strip_sum_finish(a, kind, out) : WEFT_OK;
}

/* ---- gradients, layers ---- */

static weft_status grad_need(void *user, weft_param *p, weft_grad_target *target)
{
    weft_tensor_axis *a = user;
    if (p->grad_kind == WEFT_GRAD_PARTIAL)
        a->grad[p->number] = target->view;
    return WEFT_OK;
}

static weft_status grad_ready(void *user, weft_param *p)
{
    weft_tensor_axis *a = user;
    a->is_ready[p->number] = a->is_reducing && p->grad_kind == WEFT_GRAD_PARTIAL;
    return WEFT_OK;
}

static weft_status layer_begin(void *user, const weft_layer *l, weft_pass pass)
{
    weft_tensor_axis *a = user;
    (void)pass;
    a->layer = l->n_params > 0 ? l->params[0]->name : l->ops->kind;
    return WEFT_OK;
}

static weft_status layer_end(void *user, const weft_layer *l, weft_pass pass)
{
    weft_tensor_axis *a = user;
    return pass == WEFT_PASS_BACKWARD && a->is_reducing ? weft_i_partial_sum(a, l) : WEFT_OK;
}

void weft_i_tensor_begin_action(weft_tensor_axis *a, bool is_reducing)
{
    a->is_reducing = is_reducing;
}

/* ---- creation ---- */

weft_status weft_i_tensor_axis_create(weft_tensor_axis **out,
                                      weft_mesh *mesh,
                                      weft_model *model,
                                      bool is_training)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_tensor_axis), &block));
    weft_tensor_axis *a = block;
    a->ctx = mesh->ctx;
    a->comm = mesh->comm[WEFT_AXIS_TP];
    a->model = model;
    a->layout = &mesh->layout;
    a->is_sequence_parallel = weft_i_model_slice(model)->is_sequence_parallel;
    a->is_training = is_training;
    a->layer = "";
    a->hooks = (weft_hooks){.user = a,
                            .region_shape = region_shape,
                            .region_start = region_start,
                            .region_finish = region_finish,
                            .layer_begin = layer_begin};
    if (is_training) {
        a->hooks.grad_need = grad_need;
        a->hooks.grad_ready = grad_ready;
        a->hooks.layer_end = layer_end;
    }
    weft_status st = weft_i_alloc_array(a->ctx->alloc, a->comm->size, sizeof(int64_t), &a->counts);
    if (st == WEFT_OK && is_training)
        st = weft_i_partial_create(a);
    if (st == WEFT_OK)
        *out = a;
    else
        weft_i_tensor_axis_destroy(a);
    return st;
}

void weft_i_tensor_axis_destroy(weft_tensor_axis *a)
{
    if (a == NULL)
        return;
    weft_i_partial_destroy(a);
    weft_i_alloc_put(a->ctx->alloc, a->counts);
    weft_i_alloc_put(a->ctx->alloc, a);
}
