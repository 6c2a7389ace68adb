/*
 * Sums of strips (--tp-strips): what is cut between tensor ranks is added up in one order, whatever their number.
 *
 * A rank has the results of its strips, one below the other (nn/linear_strips.c). The strips of all ranks are gathered, and
 * every rank adds them up: ((s0 + s1) + s2) + ..., in f32, rounded once. One rank does the same without the gathering. So
 * neither the summands nor their order depend on how many ranks there are, and no layout of the tensor axis shows in a bit.
 *
 * Communication (tp), n_all strips of which n lie here, R rows of C elements, in the model's type:
 *   LEAVE_ROW       forward: all_gather [n_all * R, C]
 *   ENTER_COLUMN    backward: the same, on its way while the weight gradients are computed
 *   HEAD_INPUT      backward: the same for every chunk
 *   VOCAB_SUM       all_gather of every chunk's [n_all * r, 1], f32
 * of which a rank sends (t - 1) * n * R * C elements. Largest logits, targets' logits and embeddings stay all_reduces: a
 * maximum is exact, and of the others all summands but one are zero.
 * Under sequence parallelism a rank adds up the rows of the stream that it has, of strips with all rows.
 * Memory: workspace for what is gathered, and in bf16 for the sum in f32.
 */
#include "parallel/tensor_parallel.h"

#include "base/error.h"
#include "tensor/split.h"

bool weft_i_strip_sum_has(const weft_tensor_axis *a, weft_region_kind kind, weft_pass way)
{
    if (a->layout->n_strips == 0)
        return false;
    switch (kind) {
    case WEFT_REGION_ENTER_COLUMN:
    case WEFT_REGION_HEAD_INPUT:
        return way == WEFT_PASS_BACKWARD;
    case WEFT_REGION_LEAVE_ROW:
    case WEFT_REGION_VOCAB_SUM:
        return way == WEFT_PASS_FORWARD;
    case WEFT_REGION_VOCAB_MAX:
    case WEFT_REGION_VOCAB_TARGET:
    case WEFT_REGION_EMBEDDING_OUT:
    case WEFT_REGION_LOGITS:
    case WEFT_REGION_NORM_ROWS:
    case WEFT_REGION_ATTENTION_KV:
    case WEFT_REGION_DISPATCH:
    case WEFT_REGION_COMBINE:
        break;
    }
    return false;
}

/* Whether the sum has the rows of the stream here alone. */
static bool is_scattered(const weft_tensor_axis *a, weft_region_kind kind)
{
    return a->is_sequence_parallel && weft_i_sequence_has(a, kind);
}

void weft_i_strip_sum_shape(const weft_tensor_axis *a,
                            weft_region_kind kind,
                            weft_view in,
                            weft_view *out)
{
    out->rows = is_scattered(a, kind) ? a->exec->shape.rows_stream
                                      : in.rows / weft_i_model_slice(a->model)->n_strips;
}

weft_status weft_i_strip_sum_start(weft_tensor_axis *a, weft_view in)
{
    const int n_all = a->layout->n_strips;
    const int size = a->comm->size;
    const int64_t rows = in.rows / weft_i_model_slice(a->model)->n_strips;
    WEFT_ASSERT(in.ld == in.cols);
    a->gathered = in;
    if (size == 1)
        return WEFT_OK;
    WEFT_TRY(weft_exec_view(a->exec, in.dtype, n_all * rows, in.cols, &a->gathered));
    for (int r = 0; r < size; r++)
        a->counts[r] = weft_i_split_count(n_all, 1, size, r) * rows * in.cols;
    const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                            .dtype = in.dtype,
                            .send = in.data,
                            .recv = a->gathered.data,
                            .n_elems = n_all * rows * in.cols,
                            .counts = a->counts,
                            .tensor = a->layer};
    return weft_i_tensor_start(a, &m);
}

/* Of strip i the rows that `out` has. */
static weft_view strip(const weft_tensor_axis *a, weft_region_kind kind, weft_view out, int i)
{
    const int64_t rows = a->gathered.rows / a->layout->n_strips;
    const int64_t first = is_scattered(a, kind) ? a->exec->shape.first_row : 0;
    return weft_view_rows(a->gathered, i * rows + first, out.rows);
}

weft_status weft_i_strip_sum_finish(weft_tensor_axis *a, weft_region_kind kind, weft_view out)
{
    weft_exec *e = a->exec;
    const int n = a->layout->n_strips;
    const size_t mark = weft_exec_mark(e);
    const weft_view first = strip(a, kind, out, 0);
    weft_view sum = out;
    if (n == 1) {
        const weft_copy_args c = {.dst = out, .src = first};
        return out.data == first.data ? WEFT_OK : weft_exec_op(e, WEFT_OP_COPY, &c);
    }
    if (n > 2 && out.dtype != WEFT_DTYPE_F32)
        WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, out.rows, out.cols, &sum));
    for (int i = 1; i < n; i++) {
        const weft_add_args add = {
            .dst = i == n - 1 ? out : sum, .a = i == 1 ? first : sum, .b = strip(a, kind, out, i)};
        WEFT_TRY(weft_exec_op(e, WEFT_OP_ADD, &add));
    }
    weft_exec_reset(e, mark);
    return WEFT_OK;
}
