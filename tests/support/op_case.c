/* Runs cases of backend operations and compares results (op_case.h). */
#include "op_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "backend/run_op.h"
#include "tensor/convert.h"

#define GUARD_BYTES 64

void *op_bag_get(op_bag *bag, size_t n_bytes)
{
    assert_true(bag->n_blocks < OP_MAX_BLOCKS);
    void *block = calloc(1, n_bytes + 8); /* never NULL, also for no bytes */
    assert_non_null(block);
    bag->block[bag->n_blocks++] = block;
    return block;
}

void op_bag_empty(op_bag *bag)
{
    for (int i = 0; i < bag->n_blocks; i++)
        free(bag->block[i]);
    *bag = (op_bag){.seed = bag->seed};
}

/* Steele, Lea, Flood: splitmix64. Kept apart from base/rng so that a fault there cannot hide here. */
static uint64_t next_word(op_bag *bag)
{
    bag->seed += 0x9e3779b97f4a7c15u;
    uint64_t z = bag->seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double op_uniform(op_bag *bag)
{
    return (double)(next_word(bag) >> 11) * 0x1p-53;
}

int64_t op_below(op_bag *bag, int64_t n)
{
    return (int64_t)(next_word(bag) % (uint64_t)n);
}

double op_normal(op_bag *bag)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += op_uniform(bag);
    return sum;
}

static char *element(const weft_view *v, int64_t r, int64_t c)
{
    return (char *)v->data + (size_t)(r * v->ld + c) * weft_dtype_bytes(v->dtype);
}

double op_get(const weft_view *v, int64_t r, int64_t c)
{
    const char *at = element(v, r, c);
    if (v->dtype == WEFT_DTYPE_I32)
        return *(const int32_t *)(const void *)at;
    if (v->dtype == WEFT_DTYPE_I64)
        return (double)*(const int64_t *)(const void *)at;
    float f = 0.0f;
    CHECK_OK(weft_i_convert(&f, WEFT_DTYPE_F32, at, v->dtype, 1));
    return (double)f;
}

void op_set(const weft_view *v, int64_t r, int64_t c, double x)
{
    char *at = element(v, r, c);
    if (v->dtype == WEFT_DTYPE_I32)
        *(int32_t *)(void *)at = (int32_t)x;
    else if (v->dtype == WEFT_DTYPE_I64)
        *(int64_t *)(void *)at = (int64_t)x;
    else
        CHECK_OK(weft_i_convert(at, v->dtype, &x, WEFT_DTYPE_F64, 1));
}

static size_t view_bytes(const weft_view *v)
{
    return (size_t)(v->rows * v->ld) * weft_dtype_bytes(v->dtype);
}

weft_view op_matrix(op_bag *bag, weft_dtype dtype, int64_t rows, int64_t cols, int64_t pad)
{
    weft_view v = weft_view_make(NULL, dtype, rows, cols);
    v.ld = cols + pad;
    v.data = op_bag_get(bag, view_bytes(&v));
    memset(v.data, 0xff, view_bytes(&v));
    return v;
}

weft_view op_random(op_bag *bag,
                    weft_dtype dtype,
                    int64_t rows,
                    int64_t cols,
                    int64_t pad,
                    double scale,
                    double shift)
{
    const weft_view v = op_matrix(bag, dtype, rows, cols, pad);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++)
            op_set(&v, r, c, scale * op_normal(bag) + shift);
    }
    return v;
}

weft_view op_ids(op_bag *bag, weft_dtype dtype, int64_t rows, int64_t low, int64_t n)
{
    const weft_view v = op_matrix(bag, dtype, rows, 1, 0);
    for (int64_t r = 0; r < rows; r++)
        op_set(&v, r, 0, (double)(low + op_below(bag, n)));
    return v;
}

/* ---- views of operations ------------------------------------------------------------------------------------ */

#define IN(type, field)                                                                            \
    {                                                                                              \
        offsetof(weft_##type##_args, field), false                                                 \
    }
#define OUT(type, field)                                                                           \
    {                                                                                              \
        offsetof(weft_##type##_args, field), true                                                  \
    }
#define END                                                                                        \
    {                                                                                              \
        SIZE_MAX, false                                                                            \
    }
#define ATTENTION(type, field) IN(type, shape.dropout.field)

static const op_view views[WEFT_OP_COUNT][OP_MAX_VIEWS + 1] = {
    [WEFT_OP_FILL] = {OUT(fill, x), END},
    [WEFT_OP_COPY] = {OUT(copy, dst), IN(copy, src), END},
    [WEFT_OP_ADD] = {OUT(add, dst), IN(add, a), IN(add, b), END},
    [WEFT_OP_SCALE] = {OUT(scale, x), END},
    [WEFT_OP_INIT_NORMAL] = {OUT(init_normal, x), END},
    [WEFT_OP_GATHER_ROWS] = {OUT(gather_rows, dst), IN(gather_rows, src), END},
    [WEFT_OP_SUM] = {IN(sum, x), END},
    [WEFT_OP_SUM_SQUARES] = {IN(sum, x), END},
    [WEFT_OP_FIND_NONFINITE] = {IN(find_nonfinite, x), END},
    [WEFT_OP_GEMM] = {OUT(gemm, c), IN(gemm, a), IN(gemm, b), IN(gemm, bias), END},
    [WEFT_OP_COLUMN_SUM] = {OUT(column_sum, out), IN(column_sum, x), END},
    [WEFT_OP_EMBEDDING_FORWARD] = {OUT(embedding_forward, y), IN(embedding_forward, table),
                                   IN(embedding_forward, ids), END},
    [WEFT_OP_EMBEDDING_BACKWARD] = {OUT(embedding_backward, dtable), IN(embedding_backward, dy),
                                    IN(embedding_backward, ids), END},
    [WEFT_OP_NORM_FORWARD] = {OUT(norm_forward, y), OUT(norm_forward, mean),
                              OUT(norm_forward, rstd), IN(norm_forward, x), IN(norm_forward, gain),
                              IN(norm_forward, bias), END},
    [WEFT_OP_NORM_BACKWARD_INPUT] = {OUT(norm_backward_input, dx), IN(norm_backward_input, dy),
                                     IN(norm_backward_input, residual), IN(norm_backward_input, x),
                                     IN(norm_backward_input, gain), IN(norm_backward_input, mean),
                                     IN(norm_backward_input, rstd), END},
    [WEFT_OP_NORM_BACKWARD_WEIGHT] = {OUT(norm_backward_weight, dgain),
                                      OUT(norm_backward_weight, dbias),
                                      IN(norm_backward_weight, dy), IN(norm_backward_weight, x),
                                      IN(norm_backward_weight, mean),
                                      IN(norm_backward_weight, rstd), END},
    [WEFT_OP_ACTIVATION_FORWARD] = {OUT(activation_forward, y), IN(activation_forward, x),
                                    IN(activation_forward, up), END},
    [WEFT_OP_ACTIVATION_BACKWARD] = {OUT(activation_backward, dx), OUT(activation_backward, dup),
                                     IN(activation_backward, dy), IN(activation_backward, x),
                                     IN(activation_backward, up), END},
    [WEFT_OP_RESIDUAL] = {OUT(residual, y), IN(residual, x), IN(residual, bias),
                          IN(residual, residual), IN(residual, dropout.position),
                          IN(residual, dropout.sample), END},
    [WEFT_OP_DROPOUT] = {OUT(dropout, y), IN(dropout, x), IN(dropout, dropout.position),
                         IN(dropout, dropout.sample), END},
    [WEFT_OP_ROPE] = {OUT(rope, x), IN(rope, positions), IN(rope, cos), IN(rope, sin), END},
    [WEFT_OP_ATTENTION_FORWARD] = {OUT(attention_forward, out), OUT(attention_forward, lse),
                                   IN(attention_forward, q), IN(attention_forward, k),
                                   IN(attention_forward, v), ATTENTION(attention_forward, position),
                                   ATTENTION(attention_forward, sample), END},
    [WEFT_OP_ATTENTION_BACKWARD] = {OUT(attention_backward, dq), OUT(attention_backward, dk),
                                    OUT(attention_backward, dv), IN(attention_backward, dout),
                                    IN(attention_backward, out), IN(attention_backward, lse),
                                    IN(attention_backward, q), IN(attention_backward, k),
                                    IN(attention_backward, v),
                                    ATTENTION(attention_backward, position),
                                    ATTENTION(attention_backward, sample), END},
    [WEFT_OP_XENT_STATS] = {OUT(xent_stats, max), OUT(xent_stats, sum), OUT(xent_stats, target),
                            IN(xent_stats, logits), IN(xent_stats, targets), END},
    [WEFT_OP_XENT_RESCALE] = {OUT(xent_rescale, sum), IN(xent_rescale, local_max),
                              IN(xent_rescale, max), END},
    [WEFT_OP_XENT_LOSS] = {OUT(xent_loss, loss), IN(xent_loss, max), IN(xent_loss, sum),
                           IN(xent_loss, target), IN(xent_loss, targets), END},
    [WEFT_OP_XENT_GRAD] = {OUT(xent_grad, dlogits), IN(xent_grad, logits), IN(xent_grad, max),
                           IN(xent_grad, sum), IN(xent_grad, targets), END},
    [WEFT_OP_ADAMW] = {OUT(adamw, x), OUT(adamw, master), OUT(adamw, m), OUT(adamw, v),
                       IN(adamw, grad), END},
    [WEFT_OP_SGD] = {OUT(sgd, x), OUT(sgd, master), OUT(sgd, m), IN(sgd, grad), END},
};

const op_view *op_views(weft_op op, int *n_views)
{
    *n_views = 0;
    while (views[op][*n_views].offset != SIZE_MAX)
        ++*n_views;
    return views[op];
}

weft_view *op_view_at(op_args *args, size_t offset)
{
    return (void *)((char *)args + offset);
}

/* ---- running ------------------------------------------------------------------------------------------------ */

int op_case_count(weft_op op)
{
    return op_makers_memory[op].n_cases + op_makers_layer[op].n_cases + op_makers_loss[op].n_cases;
}

void op_case_make(weft_op op, int index, op_bag *bag, op_case *out)
{
    const op_maker *lists[3] = {op_makers_memory, op_makers_layer, op_makers_loss};
    memset(out, 0, sizeof(*out));
    out->op = op;
    out->n_terms = 1;
    bag->seed = ((uint64_t)op << 32) + (uint64_t)index;
    for (int i = 0; i < 3; i++) {
        if (lists[i][op].make != NULL)
            lists[i][op].make(index, bag, out);
    }
}

void op_rig_open(op_rig *rig, weft_backend_kind kind, int n_threads)
{
    const weft_ctx_options options = {.backend = kind, .n_threads = n_threads};
    CHECK_OK(weft_ctx_create(&rig->ctx, &options));
    rig->b = rig->ctx->backend;
}

void op_rig_close(op_rig *rig)
{
    weft_ctx_destroy(rig->ctx);
}

/* Moves the views of args to the backend's memory; views that lie on each other stay so. */
static void move_in(op_rig *rig, const op_case *c, op_args *args, void *device[OP_MAX_VIEWS])
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args host = c->args;
    for (int i = 0; i < n; i++) {
        weft_view *view = op_view_at(args, v[i].offset);
        device[i] = NULL;
        if (view->data == NULL)
            continue;
        for (int j = 0; j < i; j++) {
            if (op_view_at(&host, v[j].offset)->data == view->data)
                device[i] = op_view_at(args, v[j].offset)->data;
        }
        if (device[i] == NULL) {
            CHECK_OK(rig->b->ops->mem_get(rig->b, WEFT_MEM_ACTIVATIONS, view_bytes(view), "a case",
                                          &device[i]));
            CHECK_OK(rig->b->ops->copy_from_host(rig->b, device[i], view->data, view_bytes(view)));
        }
        view->data = device[i];
    }
}

static void move_out(op_rig *rig, const op_case *c, void *device[OP_MAX_VIEWS], op_result *out)
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args host = c->args;
    for (int i = 0; i < n; i++) {
        if (device[i] == NULL)
            continue;
        out->n_bytes[i] = view_bytes(op_view_at(&host, v[i].offset));
        out->data[i] = calloc(1, out->n_bytes[i] + 1);
        assert_non_null(out->data[i]);
        CHECK_OK(rig->b->ops->copy_to_host(rig->b, out->data[i], device[i], out->n_bytes[i]));
    }
    for (int i = n - 1; i >= 0; i--) {
        bool is_shared = false;
        for (int j = 0; j < i; j++)
            is_shared = is_shared || device[j] == device[i];
        if (!is_shared)
            rig->b->ops->mem_put(rig->b, device[i]);
    }
}

static weft_status run_with_workspace(op_rig *rig, const op_case *c, const op_args *args)
{
    size_t n_bytes = 0;
    void *block = NULL;
    weft_arena arena;
    CHECK_OK(rig->b->ops->workspace_bytes(rig->b, c->op, args, &n_bytes));
    assert_int_equal(n_bytes % WEFT_ALIGN_BYTES, 0);
    CHECK_OK(rig->b->ops->mem_get(rig->b, WEFT_MEM_WORKSPACE, n_bytes + GUARD_BYTES, "workspace",
                                  &block));
    const bool is_dry = weft_i_alloc_is_dry(rig->ctx->alloc);
    if (!is_dry)
        memset(block, 0xff, n_bytes + GUARD_BYTES);
    weft_i_arena_init(&arena, block, n_bytes);
    const weft_status st = weft_i_op_run(rig->b, c->op, args, &arena);
    assert_int_equal(arena.used_bytes, 0);
    for (size_t i = n_bytes; !is_dry && i < n_bytes + GUARD_BYTES; i++) {
        if (((unsigned char *)block)[i] != 0xff)
            fail_msg("%s wrote behind its workspace of %zu bytes", c->label, n_bytes);
    }
    rig->b->ops->mem_put(rig->b, block);
    return st;
}

weft_status op_case_run(op_rig *rig, const op_case *c, op_result *out)
{
    op_args args = c->args;
    void *device[OP_MAX_VIEWS] = {NULL};
    memset(out, 0, sizeof(*out));
    weft_i_sum_init(&out->sum);
    if (c->op == WEFT_OP_SUM || c->op == WEFT_OP_SUM_SQUARES)
        args.sum.sum = &out->sum;
    if (c->op == WEFT_OP_FIND_NONFINITE)
        args.find_nonfinite.index = &out->index;
    move_in(rig, c, &args, device);
    const weft_status st = run_with_workspace(rig, c, &args);
    move_out(rig, c, device, out);
    weft_i_sum_normalise(&out->sum);
    return st;
}

void op_result_free(op_result *r)
{
    for (int i = 0; i < OP_MAX_VIEWS; i++)
        free(r->data[i]);
    memset(r, 0, sizeof(*r));
}

void op_case_apply(op_rig *rig, const op_case *c)
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args args = c->args;
    op_result r;
    CHECK_OK(op_case_run(rig, c, &r));
    for (int i = 0; i < n; i++) {
        if (r.data[i] != NULL)
            memcpy(op_view_at(&args, v[i].offset)->data, r.data[i], r.n_bytes[i]);
    }
    op_result_free(&r);
}

/* ---- comparing ---------------------------------------------------------------------------------------------- */

/* Whether an output of the case lies on view i. */
static bool is_written(const op_case *c, int i)
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args args = c->args;
    const void *data = op_view_at(&args, v[i].offset)->data;
    for (int j = 0; j < n; j++) {
        if (v[j].is_output && op_view_at(&args, v[j].offset)->data == data)
            return true;
    }
    return false;
}

void op_check_untouched(const op_case *c, const op_result *got)
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args args = c->args;
    for (int i = 0; i < n; i++) {
        const weft_view *view = op_view_at(&args, v[i].offset);
        const size_t size = weft_dtype_bytes(view->dtype);
        const size_t kept_from = is_written(c, i) ? (size_t)view->cols * size : 0;
        const size_t row_bytes = (size_t)view->ld * size;
        for (int64_t r = 0; got->data[i] != NULL && r < view->rows; r++) {
            const size_t at = (size_t)r * row_bytes + kept_from;
            if (memcmp((const char *)got->data[i] + at, (const char *)view->data + at,
                       row_bytes - kept_from) != 0)
                fail_msg("%s: row %" PRId64 " of view %d was written %s", c->label, r, i,
                         kept_from > 0 ? "beyond its columns" : "and is an input");
        }
    }
}

void op_check_same_bits(const op_case *c, const op_result *got, const op_result *want)
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args args = c->args;
    for (int i = 0; i < n; i++) {
        if (got->data[i] == NULL)
            continue;
        weft_view a = *op_view_at(&args, v[i].offset);
        weft_view b = a;
        a.data = got->data[i];
        b.data = want->data[i];
        const size_t size = weft_dtype_bytes(a.dtype);
        for (int64_t e = 0; e < a.rows * a.cols; e++) {
            const int64_t r = e / a.cols;
            const int64_t col = e % a.cols;
            if (memcmp(element(&a, r, col), element(&b, r, col), size) != 0)
                fail_msg("%s: view %d [%" PRId64 ", %" PRId64 "] is %.9g (%a), not %.9g (%a)",
                         c->label, i, r, col, op_get(&a, r, col), op_get(&a, r, col),
                         op_get(&b, r, col), op_get(&b, r, col));
        }
    }
    if (memcmp(&got->sum, &want->sum, sizeof(got->sum)) != 0)
        fail_msg("%s: sum %.17g, not %.17g", c->label, weft_i_sum_value(&got->sum),
                 weft_i_sum_value(&want->sum));
    assert_int_equal(got->index, want->index);
}

void op_check_near(
    const op_case *c, const op_result *got, const op_result *want, double rel, double abs)
{
    int n = 0;
    const op_view *v = op_views(c->op, &n);
    op_args args = c->args;
    for (int i = 0; i < n; i++) {
        if (!v[i].is_output || got->data[i] == NULL)
            continue;
        weft_view a = *op_view_at(&args, v[i].offset);
        weft_view b = a;
        a.data = got->data[i];
        b.data = want->data[i];
        const double ulp = a.dtype == WEFT_DTYPE_BF16 ? 0x1p-7 : 0.0;
        for (int64_t e = 0; e < a.rows * a.cols; e++) {
            const int64_t r = e / a.cols;
            const int64_t col = e % a.cols;
            const double x = op_get(&a, r, col);
            const double y = op_get(&b, r, col);
            const double bound = (rel + ulp) * fabs(y) + abs;
            const bool is_same = x == y || (isnan(x) && isnan(y));
            if (!is_same && !(fabs(x - y) <= bound))
                fail_msg("%s: view %d [%" PRId64 ", %" PRId64
                         "] is %.9g, not %.9g: differ by %g, at most %g",
                         c->label, i, r, col, x, y, fabs(x - y), bound);
        }
    }
}
