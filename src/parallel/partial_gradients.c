/*
 * Partial gradients: parameters that several ranks of the tensor axis have and of whose gradient each computes a share.
 *
 *   norm gains and biases under sequence parallelism   every rank has all of it, and saw its own rows (not with --tp-strips:
 *                                                      there it sees all rows, sequence_parallel.c)
 *   keys and values of a kv head that several ranks have   each saw its own query heads
 *
 * Communication (tp): where a layer has such parameters, at the end of its backward 1 all_reduce, f32: of the first kind all
 * elements, of the second those of the kv heads that more than one rank has (ranks without one add nothing). Once a step,
 * in the last micro-batch; with gradients that are reduced by micro-batch, in each. Before the data axis reduces them: this
 * layer_end runs before the data axis'.
 * Invariant: every rank has the same sum, bit for bit, so copies stay equal through every update.
 */
#include "backend/run_op.h"
#include "base/ctx.h"
#include "parallel/tensor_parallel.h"

static bool is_partial(const weft_param *p)
{
    return p->grad_kind == WEFT_GRAD_PARTIAL && !p->is_frozen;
}

/* Elements of a kv head in the parameter. */
static int64_t unit_elems(const weft_param *p)
{
    return p->n_dims == 1 ? p->partial_unit : p->partial_unit * p->cols;
}

/* Elements of p in the sum: the same on every rank. */
static int64_t shared_elems(const weft_tensor_axis *a, const weft_param *p)
{
    return p->partial_unit == 0 ? p->rows * p->cols : a->n_copied * unit_elems(p);
}

/* The kv heads that query heads of more than one rank use: those that a boundary between ranks cuts. */
static weft_status find_copied(weft_tensor_axis *a)
{
    const weft_config *c = weft_model_config(a->model);
    const int64_t group = c->n_heads / c->n_kv_heads;
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, a->comm->size, sizeof(int64_t), &a->copied));
    for (int r = 1; r < a->comm->size; r++) {
        const int64_t head = weft_i_tensor_slice(c, a->layout, r).first_head;
        const int64_t kv = head / group;
        if (head % group != 0 && (a->n_copied == 0 || a->copied[a->n_copied - 1] != kv))
            a->copied[a->n_copied++] = kv;
    }
    return WEFT_OK;
}

weft_status weft_i_partial_create(weft_tensor_axis *a)
{
    weft_backend *b = a->ctx->backend;
    const int64_t n = weft_model_param_count(a->model);
    void *block = NULL;
    WEFT_TRY(find_copied(a));
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, n, sizeof(weft_view), &a->grad));
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, n, sizeof(bool), &a->is_ready));
    for (int64_t i = 0; i < weft_model_layer_count(a->model); i++) {
        const weft_layer *l = weft_model_layer(a->model, i);
        int64_t elems = 0;
        for (int k = 0; k < l->n_params; k++)
            elems += is_partial(l->params[k]) ? shared_elems(a, l->params[k]) : 0;
        a->sum_elems = WEFT_MAX(a->sum_elems, elems);
    }
    if (a->sum_elems == 0)
        return WEFT_OK;
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, (size_t)a->sum_elems * sizeof(float),
                             "partial gradients", &block));
    a->sum = block;
    return WEFT_OK;
}

void weft_i_partial_destroy(weft_tensor_axis *a)
{
    a->ctx->backend->ops->mem_put(a->ctx->backend, a->sum);
    weft_i_alloc_put(a->ctx->alloc, a->is_ready);
    weft_i_alloc_put(a->ctx->alloc, a->grad);
    weft_i_alloc_put(a->ctx->alloc, a->copied);
}

/* n elements from element `first` of the gradient, as a row. */
static weft_view run_of(const weft_tensor_axis *a, const weft_param *p, int64_t first, int64_t n)
{
    const weft_view g = a->grad[p->number];
    return weft_view_make((float *)g.data + first, WEFT_DTYPE_F32, 1, n);
}

static weft_status copy(weft_tensor_axis *a, weft_view at, weft_view grad, bool is_back)
{
    const weft_copy_args c = {.dst = is_back ? grad : at, .src = is_back ? at : grad};
    return weft_i_op_run(a->ctx->backend, WEFT_OP_COPY, &c, NULL);
}

/* Between p's gradient and its place in the sum; the heads that are not here are zeros that change nothing. */
static weft_status move(weft_tensor_axis *a, const weft_param *p, float *at, bool is_back)
{
    const int64_t n = p->partial_unit == 0 ? p->rows * p->cols : unit_elems(p);
    int64_t first_kv = 0;
    int64_t n_kv = 0;
    if (p->partial_unit == 0)
        return copy(a, weft_view_make(at, WEFT_DTYPE_F32, 1, n), run_of(a, p, 0, n), is_back);
    weft_i_slice_kv(weft_i_model_slice(a->model), weft_model_config(a->model), &first_kv, &n_kv);
    for (int64_t i = 0; i < a->n_copied; i++, at += n) {
        const weft_view place = weft_view_make(at, WEFT_DTYPE_F32, 1, n);
        const int64_t here = a->copied[i] - first_kv;
        const weft_fill_args fill = {.x = place, .value = -0.0f};
        if (here >= 0 && here < n_kv)
            WEFT_TRY(copy(a, place, run_of(a, p, here * n, n), is_back));
        else if (!is_back)
            WEFT_TRY(weft_i_op_run(a->ctx->backend, WEFT_OP_FILL, &fill, NULL));
    }
    return WEFT_OK;
}

/* All that are ready into the sum, or back; *n_elems of it. */
static weft_status
move_all(weft_tensor_axis *a, const weft_layer *l, bool is_back, int64_t *n_elems)
{
    *n_elems = 0;
    for (int k = 0; k < l->n_params; k++) {
        const weft_param *p = l->params[k];
        if (!is_partial(p) || !a->is_ready[p->number])
            continue;
        WEFT_TRY(move(a, p, a->sum + *n_elems, is_back));
        *n_elems += shared_elems(a, p);
        a->is_ready[p->number] = !is_back;
    }
    return WEFT_OK;
}

weft_status weft_i_partial_sum(weft_tensor_axis *a, const weft_layer *l)
{
    int64_t n = 0;
    WEFT_TRY(move_all(a, l, false, &n));
    if (n == 0)
        return WEFT_OK;
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = WEFT_DTYPE_F32,
                            .send = a->sum,
                            .recv = a->sum,
                            .n_elems = n,
                            .tensor = a->layer};
    WEFT_TRY(weft_comm_call(a->comm, &m));
    return move_all(a, l, true, &n);
}
