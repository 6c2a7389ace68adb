/*
 * Arguments of operations, checked by a table: one row an operand, with the types it may have and its shape in letters.
 *
 * A letter is a dimension: it is bound by the first operand that has it, and every later one must agree; '1' is one.
 * What the letters cannot say (flags, numbers, host arrays, shapes that follow from numbers) is in a function an
 * operation, which runs first and may bind letters itself.
 *
 * Invariants
 *  1. Nothing is read through the data of a view, so a dry run checks what a real run checks.
 *  2. After WEFT_OK every rows * ld * 8 and every dimension product of the call fits int64_t.
 */
#include "backend/check_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_OPERANDS 11
#define MAX_ELEMS ((int64_t)1 << 58)         /* of one view: 2^61 bytes at most */
#define MAX_DROPOUT_ELEMS ((int64_t)1 << 34) /* of one row: the word's number has 32 bits */
#define MAX_DROPOUT_KEYS ((int64_t)1 << 16)

typedef enum operand_type {
    TYPE_F32,
    TYPE_ANY,      /* F32 or BF16, all TYPE_ANY of the call alike */
    TYPE_FREE,     /* F32 or BF16, for itself */
    TYPE_F32_ANY,  /* F32, or as the TYPE_ANY of the call */
    TYPE_FILLABLE, /* F32, BF16, I32 */
    TYPE_COPYABLE, /* F32, BF16, F16, I32, I64 */
    TYPE_I32,
    TYPE_I64
} operand_type;

typedef struct operand {
    const char *name; /* NULL ends the list */
    size_t offset;    /* of the view in the argument struct */
    operand_type type;
    char rows, cols; /* '1', or a letter */
    bool is_optional;
} operand;

typedef struct checker {
    weft_op op;
    int64_t dim[26];     /* of letters 'A'..'Z'; -1: not bound yet */
    weft_dtype any_type; /* WEFT_DTYPE_COUNT: not bound yet */
} checker;

typedef struct op_rule {
    weft_status (*first)(checker *c, const void *args); /* may be NULL */
    operand operands[MAX_OPERANDS + 1];
} op_rule;

static const char *wanted_types(operand_type type)
{
    switch (type) {
    case TYPE_F32:
        return "F32";
    case TYPE_ANY:
        return "F32 or BF16, one for all";
    case TYPE_FREE:
        return "F32 or BF16";
    case TYPE_F32_ANY:
        return "F32 or the type of the others";
    case TYPE_FILLABLE:
        return "F32, BF16 or I32";
    case TYPE_COPYABLE:
        return "F32, BF16, F16, I32 or I64";
    case TYPE_I32:
        return "I32";
    case TYPE_I64:
        return "I64";
    }
    return "?";
}

static bool type_fits(checker *c, operand_type type, weft_dtype dtype)
{
    const bool is_computed = dtype == WEFT_DTYPE_F32 || dtype == WEFT_DTYPE_BF16;
    switch (type) {
    case TYPE_F32:
        return dtype == WEFT_DTYPE_F32;
    case TYPE_ANY:
        if (c->any_type == WEFT_DTYPE_COUNT)
            c->any_type = dtype;
        return is_computed && dtype == c->any_type;
    case TYPE_FREE:
        return is_computed;
    case TYPE_F32_ANY:
        return dtype == WEFT_DTYPE_F32 || (is_computed && dtype == c->any_type);
    case TYPE_FILLABLE:
        return is_computed || dtype == WEFT_DTYPE_I32;
    case TYPE_COPYABLE:
        return is_computed || dtype == WEFT_DTYPE_F16 || dtype == WEFT_DTYPE_I32 ||
               dtype == WEFT_DTYPE_I64;
    case TYPE_I32:
        return dtype == WEFT_DTYPE_I32;
    case TYPE_I64:
        return dtype == WEFT_DTYPE_I64;
    }
    return false;
}

/* Binds the letter to n, or tells whether n is what it is bound to. */
static bool dim_fits(checker *c, char letter, int64_t n)
{
    if (letter == '1')
        return n == 1;
    int64_t *dim = &c->dim[letter - 'A'];
    if (*dim < 0)
        *dim = n;
    return *dim == n;
}

/* "257", or "any" for a dimension nothing is known of. */
static const char *dim_text(const checker *c, char letter, char *out, size_t size)
{
    const int64_t n = letter == '1' ? 1 : c->dim[letter - 'A'];
    if (n < 0)
        return "any";
    (void)snprintf(out, size, "%" PRId64, n);
    return out;
}

static weft_status check_view(checker *c, const operand *o, const weft_view *v)
{
    const char *op = weft_op_name(c->op);
    char rows[24];
    char cols[24];
    if (v->data == NULL && o->is_optional)
        return WEFT_OK;
    if (v->rows < 0 || v->cols < 0 || v->ld < v->cols ||
        (v->rows > 0 && v->ld > MAX_ELEMS / v->rows))
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: %s was [%" PRId64 ", %" PRId64 "] with ld %" PRId64
                  "; dimensions must not be negative and ld must be at least cols",
                  op, o->name, v->rows, v->cols, v->ld);
    if (!type_fits(c, o->type, v->dtype))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: %s [%" PRId64 ", %" PRId64 "] was %s; wanted %s", op,
                  o->name, v->rows, v->cols, weft_dtype_name(v->dtype), wanted_types(o->type));
    /* Both are asked, so that both letters are bound for the message. */
    const bool is_rows_right = dim_fits(c, o->rows, v->rows);
    const bool is_cols_right = dim_fits(c, o->cols, v->cols);
    if (!is_rows_right || !is_cols_right)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: %s was [%" PRId64 ", %" PRId64 "]; wanted [%s, %s]", op,
                  o->name, v->rows, v->cols, dim_text(c, o->rows, rows, sizeof(rows)),
                  dim_text(c, o->cols, cols, sizeof(cols)));
    if (v->data == NULL && v->rows > 0 && v->cols > 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: %s [%" PRId64 ", %" PRId64 "] was not given", op, o->name,
                  v->rows, v->cols);
    return WEFT_OK;
}

static weft_status check_dropout(checker *c, const weft_dropout *d, int64_t rows, int64_t elems)
{
    static const operand position = {"dropout position", 0, TYPE_I32, 'Z', '1', false};
    static const operand sample = {"dropout sample", 0, TYPE_I64, 'Z', '1', false};
    const char *op = weft_op_name(c->op);
    if (!(d->p >= 0.0f && d->p < 1.0f))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: dropout p was %g; wanted 0 <= p < 1", op, (double)d->p);
    if (d->p <= 0.0f)
        return WEFT_OK;
    if (d->site >= (1u << 24))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: dropout site was %u; wanted less than 2^24", op,
                  (unsigned)d->site);
    if (d->first_elem < 0 || elems < 0 || d->first_elem > MAX_DROPOUT_ELEMS - elems)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: dropout elements %" PRId64 " and %" PRId64 " more were not below 2^34", op,
                  d->first_elem, elems);
    c->dim['Z' - 'A'] = rows;
    WEFT_TRY(check_view(c, &position, &d->position));
    return check_view(c, &sample, &d->sample);
}

/* ---- what the table cannot say, by operation ---------------------------------------------------------------- */

static weft_status first_copy(checker *c, const void *args)
{
    const weft_copy_args *a = args;
    const weft_dtype from = a->src.dtype;
    const weft_dtype to = a->dst.dtype;
    const bool is_id = from == WEFT_DTYPE_I32 || from == WEFT_DTYPE_I64 || to == WEFT_DTYPE_I32 ||
                       to == WEFT_DTYPE_I64;
    if (is_id && from != to)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: src was %s and dst %s; ids are copied to their own type only",
                  weft_op_name(c->op), weft_dtype_name(from), weft_dtype_name(to));
    return WEFT_OK;
}

static weft_status first_gather_rows(checker *c, const void *args)
{
    static const operand result = {"dst", 0, TYPE_ANY, 'R', 'C', false};
    const weft_gather_rows_args *a = args;
    const char *op = weft_op_name(c->op);
    WEFT_TRY(check_view(c, &result, &a->dst)); /* before its rows tell how long the array is */
    if (a->row == NULL && a->dst.rows > 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: the %" PRId64 " row numbers were not given", op,
                  a->dst.rows);
    for (int64_t i = 0; i < a->dst.rows; i++) {
        if (a->row[i] < 0 || a->row[i] >= a->src.rows)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "%s: row[%" PRId64 "] was %" PRId64 "; src has %" PRId64 " rows", op, i,
                      a->row[i], a->src.rows);
    }
    return WEFT_OK;
}

static weft_status first_sum(checker *c, const void *args)
{
    const weft_sum_args *a = args;
    if (a->sum == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: there was no sum to add to", weft_op_name(c->op));
    return WEFT_OK;
}

static weft_status first_find_nonfinite(checker *c, const void *args)
{
    const weft_find_nonfinite_args *a = args;
    if (a->index == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: there was no index to write to", weft_op_name(c->op));
    return WEFT_OK;
}

static weft_status first_gemm(checker *c, const void *args)
{
    static const operand plain[2] = {{"a", 0, TYPE_ANY, 'M', 'K', false},
                                     {"b", 0, TYPE_ANY, 'K', 'N', false}};
    static const operand transposed[2] = {{"a (transposed)", 0, TYPE_ANY, 'K', 'M', false},
                                          {"b (transposed)", 0, TYPE_ANY, 'N', 'K', false}};
    static const operand result = {"c", 0, TYPE_FREE, 'M', 'N', false};
    const weft_gemm_args *a = args;
    WEFT_TRY(check_view(c, &result, &a->c));
    WEFT_TRY(check_view(c, a->is_a_transposed ? &transposed[0] : &plain[0], &a->a));
    return check_view(c, a->is_b_transposed ? &transposed[1] : &plain[1], &a->b);
}

static weft_status check_norm(checker *c, weft_norm_kind kind, const weft_view *bias)
{
    if (kind != WEFT_NORM_LAYER && kind != WEFT_NORM_RMS)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: kind was %d", weft_op_name(c->op), (int)kind);
    if (kind == WEFT_NORM_RMS && bias->data != NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: an RMS norm was given a bias", weft_op_name(c->op));
    return WEFT_OK;
}

/* Only LayerNorm has means. */
static weft_status check_mean(checker *c, weft_norm_kind kind, const weft_view *mean, int64_t rows)
{
    static const operand wanted = {"mean", 0, TYPE_F32, 'R', '1', false};
    if (kind != WEFT_NORM_LAYER)
        return WEFT_OK;
    c->dim['R' - 'A'] = rows;
    return check_view(c, &wanted, mean);
}

static weft_status first_norm_forward(checker *c, const void *args)
{
    const weft_norm_forward_args *a = args;
    WEFT_TRY(check_norm(c, a->kind, &a->bias));
    if (!(a->eps >= 0.0f))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: eps was %g", weft_op_name(c->op), (double)a->eps);
    return check_mean(c, a->kind, &a->mean, a->x.rows);
}

static weft_status first_norm_backward_input(checker *c, const void *args)
{
    const weft_norm_backward_input_args *a = args;
    const weft_view none = weft_view_none();
    WEFT_TRY(check_norm(c, a->kind, &none));
    return check_mean(c, a->kind, &a->mean, a->x.rows);
}

static weft_status first_norm_backward_weight(checker *c, const void *args)
{
    const weft_norm_backward_weight_args *a = args;
    WEFT_TRY(check_norm(c, a->kind, &a->dbias));
    return check_mean(c, a->kind, &a->mean, a->x.rows);
}

static weft_status check_activation(checker *c, weft_activation kind)
{
    if (kind > WEFT_ACTIVATION_SILU)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: kind was %d", weft_op_name(c->op), (int)kind);
    return WEFT_OK;
}

static weft_status first_activation_forward(checker *c, const void *args)
{
    const weft_activation_forward_args *a = args;
    return check_activation(c, a->kind);
}

static weft_status first_activation_backward(checker *c, const void *args)
{
    const weft_activation_backward_args *a = args;
    if ((a->up.data == NULL) != (a->dup.data == NULL))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: of up and dup only one was given", weft_op_name(c->op));
    return check_activation(c, a->kind);
}

static weft_status first_residual(checker *c, const void *args)
{
    const weft_residual_args *a = args;
    return check_dropout(c, &a->dropout, a->y.rows, a->y.cols);
}

static weft_status first_dropout(checker *c, const void *args)
{
    const weft_dropout_args *a = args;
    return check_dropout(c, &a->dropout, a->y.rows, a->y.cols);
}

static weft_status first_rope(checker *c, const void *args)
{
    const weft_rope_args *a = args;
    if (a->head_dim < 2 || a->head_dim % 2 != 0 || a->x.cols % a->head_dim != 0)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: head_dim was %" PRId64 " for x [%" PRId64 ", %" PRId64
                  "]; wanted an even number that divides cols",
                  weft_op_name(c->op), a->head_dim, a->x.rows, a->x.cols);
    c->dim['H' - 'A'] = a->head_dim / 2;
    return WEFT_OK;
}

static weft_status check_heads(const checker *c, const weft_attention_shape *s)
{
    const char *op = weft_op_name(c->op);
    if (s->n_heads > 0 && s->kv_of_head == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: kv_of_head of %" PRId64 " heads was not given", op,
                  s->n_heads);
    for (int64_t h = 0; h < s->n_heads; h++) {
        if (s->kv_of_head[h] < 0 || s->kv_of_head[h] >= s->n_kv_heads)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "%s: kv_of_head[%" PRId64 "] was %d; there are %" PRId64 " kv heads", op, h,
                      s->kv_of_head[h], s->n_kv_heads);
    }
    for (int64_t i = 0; s->kv_length != NULL && i < s->n_seqs; i++) {
        if (s->kv_length[i] < 0 || s->kv_length[i] > s->kv_tokens)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "%s: kv_length[%" PRId64 "] was %" PRId64 " of %" PRId64 " kv_tokens", op, i,
                      s->kv_length[i], s->kv_tokens);
    }
    return WEFT_OK;
}

/* Binds Q rows of q, H its columns, K rows of k and v, G their columns, L rows of lse, T its columns. */
static weft_status check_attention(checker *c, const weft_attention_shape *s)
{
    const int64_t limit = (int64_t)1 << 29; /* a product of two is below MAX_ELEMS */
    const int64_t number[6] = {s->n_seqs,  s->q_tokens,   s->kv_tokens,
                               s->n_heads, s->n_kv_heads, s->head_dim};
    for (int i = 0; i < 6; i++) {
        if (number[i] < 0 || number[i] > limit || s->head_dim < 1)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "%s: shape was n_seqs %" PRId64 ", q_tokens %" PRId64 ", kv_tokens %" PRId64
                      ", n_heads %" PRId64 ", n_kv_heads %" PRId64 ", head_dim %" PRId64
                      "; wanted 0 to 2^29 each, head_dim at least 1",
                      weft_op_name(c->op), s->n_seqs, s->q_tokens, s->kv_tokens, s->n_heads,
                      s->n_kv_heads, s->head_dim);
    }
    WEFT_TRY(check_heads(c, s));
    if (s->dropout.p > 0.0f && s->kv_tokens > MAX_DROPOUT_KEYS)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                  "%s: dropout of attention reaches 65,536 keys; there were %" PRId64,
                  weft_op_name(c->op), s->kv_tokens);
    if (s->dropout.p > 0.0f && (s->dropout.first_elem < 0 || s->dropout.first_elem > limit))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: dropout's first head was %" PRId64, weft_op_name(c->op),
                  s->dropout.first_elem);
    weft_dropout d = s->dropout; /* an element's number is the head times 2^16, and the key */
    d.first_elem = d.p > 0.0f ? d.first_elem * MAX_DROPOUT_KEYS : 0;
    WEFT_TRY(check_dropout(c, &d, s->n_seqs * s->q_tokens, s->n_heads * MAX_DROPOUT_KEYS));
    c->dim['Q' - 'A'] = s->n_seqs * s->q_tokens;
    c->dim['H' - 'A'] = s->n_heads * s->head_dim;
    c->dim['K' - 'A'] = s->n_seqs * s->kv_tokens;
    c->dim['G' - 'A'] = s->n_kv_heads * s->head_dim;
    c->dim['L' - 'A'] = s->n_seqs * s->n_heads;
    c->dim['T' - 'A'] = s->q_tokens;
    return WEFT_OK;
}

static weft_status first_attention_forward(checker *c, const void *args)
{
    const weft_attention_forward_args *a = args;
    return check_attention(c, &a->shape);
}

static weft_status first_attention_backward(checker *c, const void *args)
{
    const weft_attention_backward_args *a = args;
    const weft_attention_shape *s = &a->shape;
    WEFT_TRY(check_attention(c, s));
    for (int64_t i = 0; i < s->n_seqs; i++) {
        const int64_t offset = s->q_offset != NULL ? s->q_offset[i] : 0;
        const int64_t length = s->kv_length != NULL ? s->kv_length[i] : s->kv_tokens;
        if (offset != 0 || length != s->kv_tokens)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "%s: sequence %" PRId64 " had q_offset %" PRId64 " and kv_length %" PRId64
                      "; wanted 0 and all %" PRId64,
                      weft_op_name(c->op), i, offset, length, s->kv_tokens);
    }
    return WEFT_OK;
}

static weft_status check_dense(const checker *c, const char *name, const weft_view *v)
{
    if (v->data != NULL && v->rows > 1 && v->ld != v->cols)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: %s was [%" PRId64 ", %" PRId64 "] with ld %" PRId64 "; wanted it dense",
                  weft_op_name(c->op), name, v->rows, v->cols, v->ld);
    return WEFT_OK;
}

static weft_status check_master(const checker *c, const weft_view *x, const weft_view *master)
{
    if (master->data == NULL && x->dtype != WEFT_DTYPE_F32)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: x was %s and no F32 master was given", weft_op_name(c->op),
                  weft_dtype_name(x->dtype));
    WEFT_TRY(check_dense(c, "x", x));
    return check_dense(c, "master", master);
}

static weft_status first_adamw(checker *c, const void *args)
{
    const weft_adamw_args *a = args;
    if (!(a->bias1 > 0.0) || !(a->bias2 > 0.0))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: bias1 was %g and bias2 %g; both are 1 - beta^t, above 0",
                  weft_op_name(c->op), a->bias1, a->bias2);
    WEFT_TRY(check_dense(c, "grad", &a->grad));
    WEFT_TRY(check_dense(c, "m", &a->m));
    WEFT_TRY(check_dense(c, "v", &a->v));
    return check_master(c, &a->x, &a->master);
}

static weft_status first_sgd(checker *c, const void *args)
{
    const weft_sgd_args *a = args;
    if (a->momentum > 0.0f && a->m.data == NULL && a->x.rows > 0 && a->x.cols > 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: momentum was %g and m was not given", weft_op_name(c->op),
                  (double)a->momentum);
    WEFT_TRY(check_dense(c, "grad", &a->grad));
    WEFT_TRY(check_dense(c, "m", &a->m));
    return check_master(c, &a->x, &a->master);
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

#define VIEW(type, field, view_type, rows, cols)                                                   \
    {                                                                                              \
#field, offsetof(weft_##type##_args, field), view_type, rows, cols, false                  \
    }
#define MAYBE(type, field, view_type, rows, cols)                                                  \
    {                                                                                              \
#field, offsetof(weft_##type##_args, field), view_type, rows, cols, true                   \
    }

static const op_rule rules[WEFT_OP_COUNT] = {
    [WEFT_OP_FILL] = {NULL, {VIEW(fill, x, TYPE_FILLABLE, 'R', 'C')}},
    [WEFT_OP_COPY] = {first_copy,
                      {VIEW(copy, dst, TYPE_COPYABLE, 'R', 'C'),
                       VIEW(copy, src, TYPE_COPYABLE, 'R', 'C')}},
    [WEFT_OP_ADD] = {NULL,
                     {VIEW(add, dst, TYPE_FREE, 'R', 'C'), VIEW(add, a, TYPE_FREE, 'R', 'C'),
                      VIEW(add, b, TYPE_FREE, 'R', 'C')}},
    [WEFT_OP_SCALE] = {NULL, {VIEW(scale, x, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_INIT_NORMAL] = {NULL, {VIEW(init_normal, x, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_GATHER_ROWS] = {first_gather_rows, {VIEW(gather_rows, src, TYPE_ANY, 'S', 'C')}},
    [WEFT_OP_SUM] = {first_sum, {VIEW(sum, x, TYPE_F32, 'R', 'C')}},
    [WEFT_OP_SUM_SQUARES] = {first_sum, {VIEW(sum, x, TYPE_F32, 'R', 'C')}},
    [WEFT_OP_FIND_NONFINITE] = {first_find_nonfinite,
                                {VIEW(find_nonfinite, x, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_GEMM] = {first_gemm, {MAYBE(gemm, bias, TYPE_F32_ANY, '1', 'N')}},
    [WEFT_OP_COLUMN_SUM] = {NULL,
                            {VIEW(column_sum, x, TYPE_ANY, 'R', 'C'),
                             VIEW(column_sum, out, TYPE_F32, '1', 'C')}},
    [WEFT_OP_EMBEDDING_FORWARD] = {NULL,
                                   {VIEW(embedding_forward, y, TYPE_ANY, 'R', 'C'),
                                    VIEW(embedding_forward, table, TYPE_ANY, 'V', 'C'),
                                    VIEW(embedding_forward, ids, TYPE_I32, 'R', '1')}},
    [WEFT_OP_EMBEDDING_BACKWARD] = {NULL,
                                    {VIEW(embedding_backward, dy, TYPE_ANY, 'R', 'C'),
                                     VIEW(embedding_backward, dtable, TYPE_F32, 'V', 'C'),
                                     VIEW(embedding_backward, ids, TYPE_I32, 'R', '1')}},
    [WEFT_OP_NORM_FORWARD] = {first_norm_forward,
                              {VIEW(norm_forward, x, TYPE_ANY, 'R', 'C'),
                               VIEW(norm_forward, y, TYPE_ANY, 'R', 'C'),
                               VIEW(norm_forward, rstd, TYPE_F32, 'R', '1'),
                               VIEW(norm_forward, gain, TYPE_ANY, '1', 'C'),
                               MAYBE(norm_forward, bias, TYPE_ANY, '1', 'C')}},
    [WEFT_OP_NORM_BACKWARD_INPUT] = {first_norm_backward_input,
                                     {VIEW(norm_backward_input, x, TYPE_ANY, 'R', 'C'),
                                      VIEW(norm_backward_input, dx, TYPE_ANY, 'R', 'C'),
                                      VIEW(norm_backward_input, dy, TYPE_ANY, 'R', 'C'),
                                      MAYBE(norm_backward_input, residual, TYPE_ANY, 'R', 'C'),
                                      VIEW(norm_backward_input, gain, TYPE_ANY, '1', 'C'),
                                      VIEW(norm_backward_input, rstd, TYPE_F32, 'R', '1')}},
    [WEFT_OP_NORM_BACKWARD_WEIGHT] = {first_norm_backward_weight,
                                      {VIEW(norm_backward_weight, x, TYPE_ANY, 'R', 'C'),
                                       VIEW(norm_backward_weight, dy, TYPE_ANY, 'R', 'C'),
                                       VIEW(norm_backward_weight, dgain, TYPE_F32, '1', 'C'),
                                       MAYBE(norm_backward_weight, dbias, TYPE_F32, '1', 'C'),
                                       VIEW(norm_backward_weight, rstd, TYPE_F32, 'R', '1')}},
    [WEFT_OP_ACTIVATION_FORWARD] = {first_activation_forward,
                                    {VIEW(activation_forward, x, TYPE_ANY, 'R', 'C'),
                                     VIEW(activation_forward, y, TYPE_ANY, 'R', 'C'),
                                     MAYBE(activation_forward, up, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_ACTIVATION_BACKWARD] = {first_activation_backward,
                                     {VIEW(activation_backward, x, TYPE_ANY, 'R', 'C'),
                                      VIEW(activation_backward, dx, TYPE_ANY, 'R', 'C'),
                                      VIEW(activation_backward, dy, TYPE_ANY, 'R', 'C'),
                                      MAYBE(activation_backward, up, TYPE_ANY, 'R', 'C'),
                                      MAYBE(activation_backward, dup, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_RESIDUAL] = {first_residual,
                          {VIEW(residual, y, TYPE_ANY, 'R', 'C'),
                           VIEW(residual, x, TYPE_ANY, 'R', 'C'),
                           MAYBE(residual, bias, TYPE_ANY, '1', 'C'),
                           MAYBE(residual, residual, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_DROPOUT] = {first_dropout,
                         {VIEW(dropout, y, TYPE_ANY, 'R', 'C'),
                          VIEW(dropout, x, TYPE_ANY, 'R', 'C')}},
    [WEFT_OP_ROPE] = {first_rope,
                      {VIEW(rope, x, TYPE_ANY, 'R', 'C'), VIEW(rope, positions, TYPE_I32, 'R', '1'),
                       VIEW(rope, cos, TYPE_F32, 'P', 'H'), VIEW(rope, sin, TYPE_F32, 'P', 'H')}},
    [WEFT_OP_ATTENTION_FORWARD] = {first_attention_forward,
                                   {VIEW(attention_forward, q, TYPE_ANY, 'Q', 'H'),
                                    VIEW(attention_forward, k, TYPE_ANY, 'K', 'G'),
                                    VIEW(attention_forward, v, TYPE_ANY, 'K', 'G'),
                                    VIEW(attention_forward, out, TYPE_ANY, 'Q', 'H'),
                                    MAYBE(attention_forward, lse, TYPE_F32, 'L', 'T')}},
    [WEFT_OP_ATTENTION_BACKWARD] = {first_attention_backward,
                                    {VIEW(attention_backward, q, TYPE_ANY, 'Q', 'H'),
                                     VIEW(attention_backward, k, TYPE_ANY, 'K', 'G'),
                                     VIEW(attention_backward, v, TYPE_ANY, 'K', 'G'),
                                     VIEW(attention_backward, out, TYPE_ANY, 'Q', 'H'),
                                     VIEW(attention_backward, dout, TYPE_ANY, 'Q', 'H'),
                                     VIEW(attention_backward, dq, TYPE_ANY, 'Q', 'H'),
                                     VIEW(attention_backward, dk, TYPE_ANY, 'K', 'G'),
                                     VIEW(attention_backward, dv, TYPE_ANY, 'K', 'G'),
                                     VIEW(attention_backward, lse, TYPE_F32, 'L', 'T')}},
    [WEFT_OP_XENT_STATS] = {NULL,
                            {VIEW(xent_stats, logits, TYPE_F32, 'R', 'V'),
                             VIEW(xent_stats, targets, TYPE_I32, 'R', '1'),
                             VIEW(xent_stats, max, TYPE_F32, 'R', '1'),
                             VIEW(xent_stats, sum, TYPE_F32, 'R', '1'),
                             VIEW(xent_stats, target, TYPE_F32, 'R', '1')}},
    [WEFT_OP_XENT_RESCALE] = {NULL,
                              {VIEW(xent_rescale, sum, TYPE_F32, 'R', '1'),
                               VIEW(xent_rescale, local_max, TYPE_F32, 'R', '1'),
                               VIEW(xent_rescale, max, TYPE_F32, 'R', '1')}},
    [WEFT_OP_XENT_LOSS] = {NULL,
                           {VIEW(xent_loss, loss, TYPE_F32, 'R', '1'),
                            VIEW(xent_loss, max, TYPE_F32, 'R', '1'),
                            VIEW(xent_loss, sum, TYPE_F32, 'R', '1'),
                            VIEW(xent_loss, target, TYPE_F32, 'R', '1'),
                            VIEW(xent_loss, targets, TYPE_I32, 'R', '1')}},
    [WEFT_OP_XENT_GRAD] = {NULL,
                           {VIEW(xent_grad, logits, TYPE_F32, 'R', 'V'),
                            VIEW(xent_grad, dlogits, TYPE_FREE, 'R', 'V'),
                            VIEW(xent_grad, max, TYPE_F32, 'R', '1'),
                            VIEW(xent_grad, sum, TYPE_F32, 'R', '1'),
                            VIEW(xent_grad, targets, TYPE_I32, 'R', '1')}},
    [WEFT_OP_ADAMW] = {first_adamw,
                       {VIEW(adamw, x, TYPE_FREE, 'R', 'C'),
                        MAYBE(adamw, master, TYPE_F32, 'R', 'C'),
                        VIEW(adamw, grad, TYPE_F32, 'R', 'C'), VIEW(adamw, m, TYPE_F32, 'R', 'C'),
                        VIEW(adamw, v, TYPE_F32, 'R', 'C')}},
    [WEFT_OP_SGD] = {first_sgd,
                     {VIEW(sgd, x, TYPE_FREE, 'R', 'C'), MAYBE(sgd, master, TYPE_F32, 'R', 'C'),
                      VIEW(sgd, grad, TYPE_F32, 'R', 'C'), MAYBE(sgd, m, TYPE_F32, 'R', 'C')}},
};

weft_status weft_i_op_check(weft_op op, const void *args)
{
    if ((unsigned)op >= WEFT_OP_COUNT)
        WEFT_FAIL(WEFT_STATUS_ARG, "operation %d is none of weft_op", (int)op);
    const op_rule *rule = &rules[op];
    checker c = {.op = op, .any_type = WEFT_DTYPE_COUNT};
    memset(c.dim, 0xff, sizeof(c.dim));
    if (rule->first != NULL)
        WEFT_TRY(rule->first(&c, args));
    for (const operand *o = rule->operands; o->name != NULL; o++) {
        const weft_view *v = (const void *)((const char *)args + o->offset);
        WEFT_TRY(check_view(&c, o, v));
    }
    return WEFT_OK;
}
