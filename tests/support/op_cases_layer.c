/* Cases of norms, activations, dropout, rotary positions and attention. */
#include "op_case.h"

#include <inttypes.h>
#include <math.h>

#include "backend/reference/ref_ops.h"

#define F32 WEFT_DTYPE_F32
#define BF16 WEFT_DTYPE_BF16

typedef struct size2 {
    int64_t rows, cols, pad;
} size2;

static const size2 sizes[] = {
    {1, 1, 0},    {3, 17, 0},   {17, 3, 5},   {0, 5, 0},
    {257, 64, 0}, {33, 257, 7}, {2, 3000, 0}, {130, 96, 32},
};
#define N_SIZES ((int)WEFT_COUNT_OF(sizes))

static weft_dtype float_type(int i)
{
    return i % 2 == 0 ? F32 : BF16;
}

static const char *type_name(weft_dtype t)
{
    return weft_dtype_name(t);
}

/* ---- norms -------------------------------------------------------------------------------------------------- */

/* One case each of 8 sizes, 2 types, 2 kinds, and 2 (forward) or 3 (backward) ways. */
typedef struct norm_case {
    size2 s;
    weft_dtype t;
    weft_norm_kind kind;
    int way;
} norm_case;

static norm_case norm_of(int index, op_case *out, const char *name)
{
    const norm_case n = {sizes[index % N_SIZES], float_type(index / N_SIZES),
                         index / N_SIZES / 2 % 2 == 0 ? WEFT_NORM_LAYER : WEFT_NORM_RMS,
                         index / N_SIZES / 4};
    (void)snprintf(out->label, sizeof(out->label),
                   "%s case %d: [%" PRId64 ", %" PRId64 "] pad %" PRId64 " %s %s way %d", name,
                   index, n.s.rows, n.s.cols, n.s.pad, type_name(n.t),
                   n.kind == WEFT_NORM_LAYER ? "layer" : "rms", n.way);
    out->n_terms = n.s.cols;
    return n;
}

static weft_view norm_input(op_bag *bag, const norm_case *n)
{
    return op_random(bag, n->t, n->s.rows, n->s.cols, n->s.pad, 2.0, n->s.cols > 1 ? 3.0 : 0.5);
}

/* Statistics as a forward pass leaves them. */
static void
norm_stats(op_bag *bag, const norm_case *n, const weft_view *x, weft_view *mean, weft_view *rstd)
{
    const double cols = (double)n->s.cols;
    *rstd = op_matrix(bag, F32, n->s.rows, 1, 0);
    if (n->kind == WEFT_NORM_LAYER)
        *mean = op_matrix(bag, F32, n->s.rows, 1, 0);
    for (int64_t r = 0; r < n->s.rows; r++) {
        double sum = 0.0;
        double square = 0.0;
        for (int64_t c = 0; c < n->s.cols; c++)
            sum += op_get(x, r, c);
        const double centre = n->kind == WEFT_NORM_LAYER ? sum / cols : 0.0;
        for (int64_t c = 0; c < n->s.cols; c++)
            square += pow(op_get(x, r, c) - centre, 2.0);
        op_set(rstd, r, 0, 1.0 / sqrt(square / cols + 1e-2));
        if (n->kind == WEFT_NORM_LAYER)
            op_set(mean, r, 0, centre);
    }
}

static void make_norm_forward(int index, op_bag *bag, op_case *out)
{
    const norm_case n = norm_of(index, out, "norm_forward");
    weft_norm_forward_args *a = &out->args.norm_forward;
    a->kind = n.kind;
    a->eps = 1e-5f;
    a->x = norm_input(bag, &n);
    a->y = op_matrix(bag, n.t, n.s.rows, n.s.cols, 2 * n.s.pad);
    a->gain = op_random(bag, n.t, 1, n.s.cols, 0, 1.0, 0.0);
    a->rstd = op_matrix(bag, F32, n.s.rows, 1, 0);
    if (n.kind == WEFT_NORM_LAYER)
        a->mean = op_matrix(bag, F32, n.s.rows, 1, 0);
    if (n.kind == WEFT_NORM_LAYER && n.way == 0)
        a->bias = op_random(bag, n.t, 1, n.s.cols, 0, 1.0, 0.0);
}

static void make_norm_backward_input(int index, op_bag *bag, op_case *out)
{
    const norm_case n = norm_of(index, out, "norm_backward_input");
    weft_norm_backward_input_args *a = &out->args.norm_backward_input;
    a->kind = n.kind;
    a->x = norm_input(bag, &n);
    a->dy = op_random(bag, n.t, n.s.rows, n.s.cols, n.s.pad, 1.0, 0.0);
    a->gain = op_random(bag, n.t, 1, n.s.cols, 0, 1.0, 0.0);
    norm_stats(bag, &n, &a->x, &a->mean, &a->rstd);
    if (n.way != 0)
        a->residual = op_random(bag, n.t, n.s.rows, n.s.cols, n.s.pad, 1.0, 0.0);
    if (n.way == 0)
        a->dx = a->dy;
    else
        a->dx = n.way == 1 ? a->residual : op_matrix(bag, n.t, n.s.rows, n.s.cols, 2 * n.s.pad);
}

static void make_norm_backward_weight(int index, op_bag *bag, op_case *out)
{
    const norm_case n = norm_of(index, out, "norm_backward_weight");
    weft_norm_backward_weight_args *a = &out->args.norm_backward_weight;
    a->kind = n.kind;
    a->is_added = n.way != 0;
    a->x = norm_input(bag, &n);
    a->dy = op_random(bag, n.t, n.s.rows, n.s.cols, n.s.pad, 1.0, 0.0);
    norm_stats(bag, &n, &a->x, &a->mean, &a->rstd);
    a->dgain = op_random(bag, F32, 1, n.s.cols, 0, 1.0, 0.0);
    if (n.kind == WEFT_NORM_LAYER && n.way != 2)
        a->dbias = op_random(bag, F32, 1, n.s.cols, 0, 1.0, 0.0);
    out->n_terms = n.s.rows + 1;
}

/* ---- activations and dropout -------------------------------------------------------------------------------- */

static weft_view activation_input(op_bag *bag, weft_dtype t, size2 s)
{
    static const double special[] = {0.0,  -0.0, 1e-30, -1e-30, 5.0,
                                     -5.0, 20.0, -20.0, 200.0,  -200.0};
    const weft_view x = op_random(bag, t, s.rows, s.cols, s.pad, 3.0, 0.0);
    for (int64_t c = 0; s.rows > 0 && c < s.cols && c < (int64_t)WEFT_COUNT_OF(special); c++)
        op_set(&x, s.rows - 1, c, special[c]);
    return x;
}

static void label_activation(int index, op_case *out, const char *name, size2 s, weft_dtype t)
{
    (void)snprintf(out->label, sizeof(out->label),
                   "%s case %d: [%" PRId64 ", %" PRId64 "] pad %" PRId64 " %s kind %d", name, index,
                   s.rows, s.cols, s.pad, type_name(t), index / N_SIZES / 2 % 4);
}

/* 8 sizes, 2 types, 4 kinds, 2 ways: plain in place, gated. */
static void make_activation_forward(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const weft_dtype t = float_type(index / N_SIZES);
    weft_activation_forward_args *a = &out->args.activation_forward;
    label_activation(index, out, "activation_forward", s, t);
    a->kind = (weft_activation)(index / N_SIZES / 2 % 4);
    a->x = activation_input(bag, t, s);
    a->y = a->x;
    if (index / N_SIZES / 8 != 0) {
        a->up = op_random(bag, t, s.rows, s.cols, 2 * s.pad, 1.0, 0.0);
        a->y = op_matrix(bag, t, s.rows, s.cols, 3 * s.pad);
    }
}

/* 8 sizes, 2 types, 4 kinds, 4 ways: plain on dy, plain apart, gated with dx on dy, gated with dup on dy. */
static void make_activation_backward(int index, op_bag *bag, op_case *out)
{
    const size2 s = sizes[index % N_SIZES];
    const weft_dtype t = float_type(index / N_SIZES);
    const int way = index / N_SIZES / 8;
    weft_activation_backward_args *a = &out->args.activation_backward;
    label_activation(index, out, "activation_backward", s, t);
    a->kind = (weft_activation)(index / N_SIZES / 2 % 4);
    a->x = activation_input(bag, t, s);
    a->dy = op_random(bag, t, s.rows, s.cols, s.pad, 1.0, 0.0);
    const weft_view other = op_matrix(bag, t, s.rows, s.cols, 2 * s.pad);
    a->dx = way == 0 || way == 2 ? a->dy : other;
    if (way >= 2) {
        a->up = op_random(bag, t, s.rows, s.cols, 3 * s.pad, 1.0, 0.0);
        a->dup = way == 2 ? other : a->dy;
    }
}

static weft_dropout make_mask(op_bag *bag, float p, int64_t rows, int64_t first_elem)
{
    weft_dropout d = {
        .p = p, .key = {0xdeadbeefu, 0x01020304u}, .site = 77, .first_elem = first_elem};
    if (p > 0.0f) {
        d.position = op_ids(bag, WEFT_DTYPE_I32, rows, 0, 4096);
        d.sample = op_ids(bag, WEFT_DTYPE_I64, rows, 0, (int64_t)1 << 40);
    }
    return d;
}

/* 8 sizes, 2 types, 6 ways: with and without dropout, bias, residual; y apart, on x, on the residual. */
static void make_residual(int index, op_bag *bag, op_case *out)
{
    static const float p[6] = {0.0f, 0.1f, 0.5f, 0.0f, 0.25f, 0.0f};
    const size2 s = sizes[index % N_SIZES];
    const weft_dtype t = float_type(index / N_SIZES);
    const int way = index / N_SIZES / 2;
    weft_residual_args *a = &out->args.residual;
    (void)snprintf(out->label, sizeof(out->label),
                   "residual case %d: [%" PRId64 ", %" PRId64 "] %s way %d", index, s.rows, s.cols,
                   type_name(t), way);
    a->x = op_random(bag, t, s.rows, s.cols, s.pad, 1.0, 0.0);
    if (way % 2 == 0)
        a->bias = op_random(bag, t, 1, s.cols, 0, 1.0, 0.0);
    if (way != 2)
        a->residual = op_random(bag, t, s.rows, s.cols, 2 * s.pad, 1.0, 0.0);
    a->y = op_matrix(bag, t, s.rows, s.cols, s.pad);
    if (way == 2 || way == 3)
        a->y = a->x;
    if (way == 4 || way == 5)
        a->y = a->residual;
    a->dropout = make_mask(bag, p[way], s.rows, index % 3 == 0 ? 0 : 1001 + index);
}

static void make_dropout(int index, op_bag *bag, op_case *out)
{
    static const float p[3] = {0.0f, 0.1f, 0.9f};
    const size2 s = sizes[index % N_SIZES];
    const weft_dtype t = float_type(index / N_SIZES);
    const int way = index / N_SIZES / 2;
    weft_dropout_args *a = &out->args.dropout;
    (void)snprintf(out->label, sizeof(out->label),
                   "dropout case %d: [%" PRId64 ", %" PRId64 "] %s p %g", index, s.rows, s.cols,
                   type_name(t), (double)p[way]);
    a->x = op_random(bag, t, s.rows, s.cols, s.pad, 1.0, 0.0);
    a->y = way == 1 ? a->x : op_matrix(bag, t, s.rows, s.cols, 2 * s.pad);
    a->dropout = make_mask(bag, p[way], s.rows, index % 3 == 0 ? 0 : (((int64_t)1 << 33) + index));
}

/* ---- rope --------------------------------------------------------------------------------------------------- */

static void make_rope(int index, op_bag *bag, op_case *out)
{
    static const int64_t heads[6][3] = {{1, 1, 2},   {5, 3, 6},   {0, 2, 8},
                                        {33, 4, 64}, {17, 3, 80}, {257, 2, 16}};
    const int64_t *s = heads[index % 6]; /* rows, heads, head_dim */
    const weft_dtype t = float_type(index / 6);
    weft_rope_args *a = &out->args.rope;
    (void)snprintf(out->label, sizeof(out->label),
                   "rope case %d: %" PRId64 " rows, %" PRId64 " heads of %" PRId64 " %s", index,
                   s[0], s[1], s[2], type_name(t));
    a->x = op_random(bag, t, s[0], s[1] * s[2], index % 2 == 0 ? 0 : 5, 1.0, 0.0);
    a->head_dim = s[2];
    a->positions = op_ids(bag, WEFT_DTYPE_I32, s[0], 0, 50);
    a->cos = op_matrix(bag, F32, 50, s[2] / 2, 1);
    a->sin = op_matrix(bag, F32, 50, s[2] / 2, 2);
    a->is_inverse = index >= 12;
    for (int64_t e = 0; e < 50 * (s[2] / 2); e++) {
        const int64_t position = e / (s[2] / 2);
        const int64_t i = e % (s[2] / 2);
        const double angle = (double)position * pow(10000.0, -2.0 * (double)i / (double)s[2]);
        op_set(&a->cos, position, i, cos(angle));
        op_set(&a->sin, position, i, sin(angle));
    }
}

/* ---- attention ---------------------------------------------------------------------------------------------- */

typedef struct heads_case {
    int64_t n_seqs, q_tokens, kv_tokens, n_heads, n_kv_heads, head_dim;
    int ways; /* 1: offsets and lengths (forward only), 2: dropout, 4: no lse, 8: heads crossed over,
                 16: scores around a thousand, whose exponentials overflow (forward only) */
} heads_case;

static const heads_case forwards[] = {
    {1, 1, 1, 1, 1, 1, 0},       {2, 3, 3, 2, 1, 4, 0},         {1, 17, 17, 4, 2, 16, 2},
    {3, 33, 33, 3, 3, 20, 4},    {1, 257, 257, 2, 1, 64, 0},    {2, 130, 130, 6, 2, 32, 2},
    {0, 4, 4, 2, 2, 8, 0},       {1, 65, 65, 3, 2, 80, 8},      {1, 1, 50, 4, 2, 64, 1},
    {3, 5, 64, 4, 4, 16, 1},     {2, 70, 200, 4, 2, 24, 1},     {4, 1, 129, 6, 3, 32, 1 + 4},
    {2, 9, 40, 2, 2, 8, 1 + 2},  {1, 130, 130, 2, 1, 128, 0},   {2, 40, 40, 5, 2, 7, 8 + 2},
    {3, 40, 100, 2, 2, 16, 1},   {1, 200, 90, 2, 1, 32, 1},     {2, 100, 300, 2, 2, 16, 1},
    {1, 150, 150, 2, 1, 16, 16}, {1, 3, 150, 2, 1, 16, 1 + 16}, {1, 20, 20, 2, 2, 1, 2},
};
#define N_FORWARDS ((int)WEFT_COUNT_OF(forwards))

static const heads_case backwards[] = {
    {1, 1, 1, 1, 1, 1, 0},     {2, 3, 3, 2, 1, 4, 0},       {1, 17, 17, 4, 2, 16, 2},
    {3, 33, 33, 3, 3, 20, 0},  {1, 200, 200, 2, 1, 64, 0},  {2, 70, 70, 6, 2, 32, 2},
    {0, 4, 4, 2, 2, 8, 0},     {1, 65, 65, 3, 2, 80, 8},    {1, 20, 30, 2, 2, 16, 0},
    {1, 66, 66, 2, 1, 128, 0}, {2, 40, 40, 5, 2, 7, 8 + 2},
};
#define N_BACKWARDS ((int)WEFT_COUNT_OF(backwards))

static void make_heads(op_bag *bag, const heads_case *h, int index, weft_attention_shape *s)
{
    int *kv_of_head = op_bag_get(bag, (size_t)h->n_heads * sizeof(*kv_of_head));
    for (int64_t i = 0; i < h->n_heads; i++)
        kv_of_head[i] = (int)((h->ways & 8) != 0 ? (h->n_heads - i) % h->n_kv_heads
                                                 : i * h->n_kv_heads / h->n_heads);
    s->n_seqs = h->n_seqs;
    s->q_tokens = h->q_tokens;
    s->kv_tokens = h->kv_tokens;
    s->n_heads = h->n_heads;
    s->n_kv_heads = h->n_kv_heads;
    s->head_dim = h->head_dim;
    s->kv_of_head = kv_of_head;
    s->scale = (float)(1.0 / sqrt((double)h->head_dim));
    if ((h->ways & 1) != 0) {
        int64_t *offset = op_bag_get(bag, (size_t)h->n_seqs * sizeof(*offset));
        int64_t *length = op_bag_get(bag, (size_t)h->n_seqs * sizeof(*length));
        for (int64_t i = 0; i < h->n_seqs; i++) {
            offset[i] = h->kv_tokens - h->q_tokens - 7 * i;
            length[i] = i == 2 ? 0 : h->kv_tokens - 5 * i; /* the third has no key */
        }
        if (index % 4 == 1 || h->n_seqs == 3)
            offset[0] = -2; /* the first queries see no key */
        s->q_offset = offset;
        s->kv_length = length;
    }
    s->dropout = make_mask(bag, (h->ways & 2) != 0 ? 0.2f : 0.0f, h->n_seqs * h->q_tokens, 3);
}

static void
label_heads(op_case *out, const char *name, int index, const heads_case *h, weft_dtype t)
{
    (void)snprintf(out->label, sizeof(out->label),
                   "%s case %d: %" PRId64 " seqs of %" PRId64 " on %" PRId64 ", %" PRId64
                   "/%" PRId64 " heads of %" PRId64 " %s ways %d",
                   name, index, h->n_seqs, h->q_tokens, h->kv_tokens, h->n_heads, h->n_kv_heads,
                   h->head_dim, type_name(t), h->ways);
    out->n_terms = h->kv_tokens + h->head_dim;
}

static void make_attention_forward(int index, op_bag *bag, op_case *out)
{
    const heads_case *h = &forwards[index % N_FORWARDS];
    const weft_dtype t = float_type(index / N_FORWARDS);
    const int64_t pad = index % 3 == 0 ? 0 : 8;
    weft_attention_forward_args *a = &out->args.attention_forward;
    label_heads(out, "attention_forward", index, h, t);
    make_heads(bag, h, index, &a->shape);
    const int64_t q_rows = h->n_seqs * h->q_tokens;
    const int64_t kv_rows = h->n_seqs * h->kv_tokens;
    const double shift = (h->ways & 16) != 0 ? 16.0 : 0.0;
    a->q = op_random(bag, t, q_rows, h->n_heads * h->head_dim, pad, shift > 0.0 ? 0.1 : 1.5, shift);
    a->k = op_random(bag, t, kv_rows, h->n_kv_heads * h->head_dim, 2 * pad, shift > 0.0 ? 0.1 : 1.5,
                     shift);
    a->v = op_random(bag, t, kv_rows, h->n_kv_heads * h->head_dim, 3 * pad, 1.0, 0.0);
    if (shift > 0.0)
        out->n_terms += 4096; /* a score's own rounding, in the exponent */
    a->out = op_matrix(bag, t, q_rows, h->n_heads * h->head_dim, pad);
    if ((h->ways & 4) == 0)
        a->lse = op_matrix(bag, F32, h->n_seqs * h->n_heads, h->q_tokens, 0);
}

static void make_attention_backward(int index, op_bag *bag, op_case *out)
{
    const heads_case *h = &backwards[index % N_BACKWARDS];
    const weft_dtype t = float_type(index / N_BACKWARDS);
    const int64_t pad = index % 3 == 0 ? 0 : 8;
    weft_attention_backward_args *a = &out->args.attention_backward;
    label_heads(out, "attention_backward", index, h, t);
    make_heads(bag, h, index, &a->shape);
    const int64_t q_rows = h->n_seqs * h->q_tokens;
    const int64_t kv_rows = h->n_seqs * h->kv_tokens;
    const int64_t q_cols = h->n_heads * h->head_dim;
    const int64_t kv_cols = h->n_kv_heads * h->head_dim;
    a->q = op_random(bag, t, q_rows, q_cols, pad, 1.5, 0.0);
    a->k = op_random(bag, t, kv_rows, kv_cols, 2 * pad, 1.5, 0.0);
    a->v = op_random(bag, t, kv_rows, kv_cols, 3 * pad, 1.0, 0.0);
    a->dout = op_random(bag, t, q_rows, q_cols, pad, 1.0, 0.0);
    a->out = op_matrix(bag, t, q_rows, q_cols, 2 * pad);
    a->lse = op_matrix(bag, F32, h->n_seqs * h->n_heads, h->q_tokens, 0);
    a->dq = op_matrix(bag, t, q_rows, q_cols, 3 * pad);
    a->dk = op_matrix(bag, t, kv_rows, kv_cols, pad);
    a->dv = op_matrix(bag, t, kv_rows, kv_cols, 2 * pad);
    const weft_attention_forward_args forward = {a->shape, a->out, a->lse, a->q, a->k, a->v};
    void *sums = op_bag_get(bag, weft_i_ref_attention_forward_bytes(&a->shape));
    CHECK_OK(weft_i_ref_attention_forward(NULL, &forward, sums));
}

const op_maker op_makers_layer[WEFT_OP_COUNT] = {
    [WEFT_OP_NORM_FORWARD] = {N_SIZES * 8, make_norm_forward},
    [WEFT_OP_NORM_BACKWARD_INPUT] = {N_SIZES * 12, make_norm_backward_input},
    [WEFT_OP_NORM_BACKWARD_WEIGHT] = {N_SIZES * 12, make_norm_backward_weight},
    [WEFT_OP_ACTIVATION_FORWARD] = {N_SIZES * 16, make_activation_forward},
    [WEFT_OP_ACTIVATION_BACKWARD] = {N_SIZES * 32, make_activation_backward},
    [WEFT_OP_RESIDUAL] = {N_SIZES * 12, make_residual},
    [WEFT_OP_DROPOUT] = {N_SIZES * 6, make_dropout},
    [WEFT_OP_ROPE] = {24, make_rope},
    [WEFT_OP_ATTENTION_FORWARD] = {2 * N_FORWARDS, make_attention_forward},
    [WEFT_OP_ATTENTION_BACKWARD] = {2 * N_BACKWARDS, make_attention_backward},
};
