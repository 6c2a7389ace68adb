/* Cases of the operations on memory, the matrix product, column sums, embeddings, optimizers. */
#include "op_case.h"

#include <inttypes.h>
#include <math.h>

#define F32 WEFT_DTYPE_F32
#define BF16 WEFT_DTYPE_BF16
#define F16 WEFT_DTYPE_F16

typedef struct size2 {
    int64_t rows, cols, pad;
} size2;

static const size2 sizes[] = {
    {1, 1, 0},    {3, 17, 0},   {17, 3, 5},   {0, 5, 0},
    {257, 64, 0}, {33, 257, 7}, {1, 3000, 0}, {130, 96, 32},
};
#define N_SIZES ((int)WEFT_COUNT_OF(sizes))

static weft_dtype float_type(int i)
{
    return i % 2 == 0 ? F32 : BF16;
}

static void make_fill(int index, op_bag *bag, op_case *out)
{
    static const weft_dtype types[3] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16, WEFT_DTYPE_I32};
    const size2 s = sizes[index % N_SIZES];
    weft_fill_args *a = &out->args.fill;
    a->x = op_matrix(bag, types[index / N_SIZES], s.rows, s.cols, s.pad);
    a->value = a->x.dtype == WEFT_DTYPE_I32 ? -100.0f : 0.1f;
}

static void make_copy(int index, op_bag *bag, op_case *out)
{
    static const weft_dtype types[11][2] = {
        {F32, F32},
        {F32, BF16},
        {F32, F16},
        {BF16, F32},
        {BF16, BF16},
        {BF16, F16},
        {F16, F32},
        {F16, BF16},
        {F16, F16},
        {WEFT_DTYPE_I32, WEFT_DTYPE_I32},
        {WEFT_DTYPE_I64, WEFT_DTYPE_I64},
    };
    const size2 s = sizes[index % N_SIZES];
    const weft_dtype *t = types[index / N_SIZES];
    weft_copy_args *a = &out->args.copy;
    a->dst = op_matrix(bag, t[0], s.rows, s.cols, s.pad);
    a->src = op_random(bag, t[1], s.rows, s.cols, 2 * s.pad, 100.0, 0.0);
}

static void make_add(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const int t = index / N_SIZES; /* 8 triples of types, then dst on a, dst on b */
    weft_add_args *a = &out->args.add;
    a->a = op_random(bag, float_type(t), s.rows, s.cols, 0, 1.0, 0.0);
    a->b = op_random(bag, float_type(t / 2), s.rows, s.cols, s.pad, 1.0, 0.0);
    a->dst = t < 8 ? op_matrix(bag, float_type(t / 4), s.rows, s.cols, 2 * s.pad)
                   : (t == 8 ? a->a : a->b);
}

static void make_scale(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    weft_scale_args *a = &out->args.scale;
    a->x = op_random(bag, float_type(index / N_SIZES), s.rows, s.cols, s.pad, 1.0, 0.0);
    a->factor = 0.3f;
}

static void make_init_normal(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    weft_init_normal_args *a = &out->args.init_normal;
    a->x = op_matrix(bag, float_type(index / N_SIZES), s.rows, s.cols, s.pad);
    a->key[0] = 0x12345678u;
    a->key[1] = 0x9abcdef0u;
    a->first = index % 3 == 0 ? 0 : ((uint64_t)1 << 40) + 7;
    a->row_step = (uint64_t)s.cols + 3;
    a->std = 0.02;
}

static void make_gather_rows(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const weft_dtype t = float_type(index / N_SIZES);
    weft_gather_rows_args *a = &out->args.gather_rows;
    int64_t *row = op_bag_get(bag, (size_t)s.rows * sizeof(*row));
    a->dst = op_matrix(bag, t, s.rows, s.cols, s.pad);
    a->src = op_random(bag, t, 13, s.cols, 2 * s.pad, 1.0, 0.0);
    a->row = row;
    for (int64_t r = 0; r < s.rows; r++)
        row[r] = op_below(bag, 13);
}

/* Numbers over a wide range, so that a sum in any fixed precision would show its order. */
static void make_sum(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    weft_sum_args *a = &out->args.sum;
    a->x = op_matrix(bag, F32, s.rows, s.cols, s.pad);
    for (int64_t e = 0; e < s.rows * s.cols; e++)
        op_set(&a->x, e / s.cols, e % s.cols,
               ldexp(op_normal(bag), index < N_SIZES ? 0 : (int)op_below(bag, 200) - 100));
}

static void make_find_nonfinite(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const int where = index / N_SIZES; /* 0, 1: nowhere; then NaN, infinity, both */
    weft_find_nonfinite_args *a = &out->args.find_nonfinite;
    a->x = op_random(bag, float_type(where), s.rows, s.cols, s.pad, 1e30, 0.0);
    if (where < 2 || s.rows == 0)
        return;
    if (where != 3)
        op_set(&a->x, s.rows - 1, s.cols - 1, (double)NAN);
    if (where != 2)
        op_set(&a->x, s.rows / 2, s.cols / 2, -HUGE_VAL);
}

static void make_gemm(int index, op_bag *bag, op_case *out)
{
    static const int64_t mnk[][3] = {
        {1, 1, 1},      {3, 5, 7},     {17, 257, 33},  {64, 64, 64},   {0, 4, 3},
        {4, 0, 3},      {4, 5, 0},     {130, 70, 257}, {1, 257, 129},  {257, 1, 64},
        {300, 520, 33}, {33, 31, 600}, {65, 40, 1},    {20, 24, 1200}, {600, 150, 20},
    };
    static const weft_dtype types[4][2] = {{F32, F32}, {BF16, BF16}, {F32, BF16}, {BF16, F32}};
    const int n_sizes = (int)WEFT_COUNT_OF(mnk);
    const int64_t *s = mnk[index % n_sizes];
    const int kind = index / n_sizes; /* 4 transpositions, 4 types */
    const weft_dtype *t = types[kind / 4];
    weft_gemm_args *a = &out->args.gemm;
    const bool ta = kind % 2 != 0;
    const bool tb = kind / 2 % 2 != 0;
    const int64_t pad = index % 5 == 0 ? 3 : (index % 5 == 1 ? 16 : 0);
    a->is_a_transposed = ta;
    a->is_b_transposed = tb;
    a->is_added = (index / 3) % 2 != 0;
    a->c = op_random(bag, t[0], s[0], s[1], pad, 1.0, 0.0);
    a->a = op_random(bag, t[1], ta ? s[2] : s[0], ta ? s[0] : s[2], pad, 1.0, 0.0);
    a->b = op_random(bag, t[1], tb ? s[1] : s[2], tb ? s[2] : s[1], 2 * pad, 1.0, 0.0);
    if ((index / 2) % 2 != 0)
        a->bias = op_random(bag, index % 3 == 0 ? F32 : t[1], 1, s[1], 0, 1.0, 0.0);
    out->n_terms = s[2] + 2;
}

static void make_column_sum(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const int t = index / N_SIZES;
    weft_column_sum_args *a = &out->args.column_sum;
    a->x = op_random(bag, float_type(t), s.rows, s.cols, s.pad, 1.0, 0.0);
    a->out = op_random(bag, F32, 1, s.cols, 0, 1.0, 0.0);
    a->is_added = t >= 2;
    out->n_terms = s.rows + 1;
}

static void make_embedding_forward(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const int t = index / N_SIZES;
    weft_embedding_forward_args *a = &out->args.embedding_forward;
    a->is_added = t >= 2;
    a->first_id = 5;
    a->y = op_random(bag, float_type(t), s.rows, s.cols, s.pad, 1.0, 0.0);
    a->table = op_random(bag, float_type(t), 11, s.cols, 0, 1.0, 0.0);
    a->ids = op_ids(bag, WEFT_DTYPE_I32, s.rows, 0, 20);
}

static void make_embedding_backward(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const int t = index / N_SIZES;
    weft_embedding_backward_args *a = &out->args.embedding_backward;
    a->is_added = t >= 2;
    a->first_id = 5;
    a->dtable = op_random(bag, F32, 11, s.cols, s.pad, 1.0, 0.0);
    a->dy = op_random(bag, float_type(t), s.rows, s.cols, 2 * s.pad, 1.0, 0.0);
    a->ids = op_ids(bag, WEFT_DTYPE_I32, s.rows, 0, 20);
}

static const int64_t lengths[] = {1, 3, 17, 257, 5000, 100003};
#define N_LENGTHS ((int)WEFT_COUNT_OF(lengths))

/* Three ways to hold weights: fp32; bf16 with an fp32 master; fp32 with a master. */
static void make_weights(int way, op_bag *bag, int64_t n, weft_view *x, weft_view *master)
{
    *x = op_random(bag, way == 1 ? BF16 : F32, 1, n, 0, 1.0, 0.0);
    if (way != 0)
        *master = op_random(bag, F32, 1, n, 0, 1.0, 0.0);
}

static void make_adamw(int index, op_bag *bag, op_case *out)
{
    const int64_t n = lengths[index % N_LENGTHS];
    weft_adamw_args *a = &out->args.adamw;
    make_weights(index / N_LENGTHS, bag, n, &a->x, &a->master);
    a->grad = op_random(bag, F32, 1, n, 0, 1.0, 0.0);
    a->m = op_random(bag, F32, 1, n, 0, 0.1, 0.0);
    a->v = op_random(bag, F32, 1, n, 0, 0.1, 0.0);
    for (int64_t i = 0; i < n; i++)
        op_set(&a->v, 0, i, fabs(op_get(&a->v, 0, i)));
    a->lr = 0.01;
    a->beta1 = 0.9;
    a->beta2 = 0.999;
    a->eps = 1e-8;
    a->decay = 0.1;
    a->bias1 = 1.0 - pow(0.9, 5);
    a->bias2 = 1.0 - pow(0.999, 5);
    a->grad_scale = 0.7f;
}

static void make_sgd(int index, op_bag *bag, op_case *out)
{
    const int64_t n = lengths[index % N_LENGTHS];
    const int way = index / N_LENGTHS;
    weft_sgd_args *a = &out->args.sgd;
    make_weights(way % 3, bag, n, &a->x, &a->master);
    a->grad = op_random(bag, F32, 1, n, 0, 1.0, 0.0);
    a->lr = 0.01f;
    a->momentum = way >= 3 ? 0.9f : 0.0f;
    a->decay = way % 2 != 0 ? 0.1f : 0.0f;
    a->grad_scale = 0.7f;
    if (way >= 3)
        a->m = op_random(bag, F32, 1, n, 0, 1.0, 0.0);
}

#define LABELLED(name)                                                                             \
    static void labelled_##name(int index, op_bag *bag, op_case *out)                              \
    {                                                                                              \
        make_##name(index, bag, out);                                                              \
        const weft_view *v = (const weft_view *)(const void *)&out->args;                          \
        (void)snprintf(out->label, sizeof(out->label),                                             \
                       #name " case %d: [%" PRId64 ", %" PRId64 "] ld %" PRId64 " %s", index,      \
                       v->rows, v->cols, v->ld, weft_dtype_name(v->dtype));                        \
    }
LABELLED(fill)
LABELLED(copy)
LABELLED(add)
LABELLED(scale)
LABELLED(init_normal)
LABELLED(gather_rows)
LABELLED(sum)
LABELLED(find_nonfinite)
LABELLED(gemm)
LABELLED(column_sum)
LABELLED(embedding_forward)
LABELLED(embedding_backward)
LABELLED(adamw)
LABELLED(sgd)

const op_maker op_makers_memory[WEFT_OP_COUNT] = {
    [WEFT_OP_FILL] = {3 * N_SIZES, labelled_fill},
    [WEFT_OP_COPY] = {11 * N_SIZES, labelled_copy},
    [WEFT_OP_ADD] = {10 * N_SIZES, labelled_add},
    [WEFT_OP_SCALE] = {2 * N_SIZES, labelled_scale},
    [WEFT_OP_INIT_NORMAL] = {2 * N_SIZES, labelled_init_normal},
    [WEFT_OP_GATHER_ROWS] = {2 * N_SIZES, labelled_gather_rows},
    [WEFT_OP_SUM] = {2 * N_SIZES, labelled_sum},
    [WEFT_OP_SUM_SQUARES] = {2 * N_SIZES, labelled_sum},
    [WEFT_OP_FIND_NONFINITE] = {5 * N_SIZES, labelled_find_nonfinite},
    [WEFT_OP_GEMM] = {15 * 16, labelled_gemm},
    [WEFT_OP_COLUMN_SUM] = {4 * N_SIZES, labelled_column_sum},
    [WEFT_OP_EMBEDDING_FORWARD] = {4 * N_SIZES, labelled_embedding_forward},
    [WEFT_OP_EMBEDDING_BACKWARD] = {4 * N_SIZES, labelled_embedding_backward},
    [WEFT_OP_ADAMW] = {3 * N_LENGTHS, labelled_adamw},
    [WEFT_OP_SGD] = {6 * N_LENGTHS, labelled_sgd},
};
