/* Arguments that break the contract are refused with the operation, the operand and its shape; good ones pass. */
#include "op_case.h"

#include "backend/check_args.h"

#include <math.h>

static void test_backend_check_args__every_case_passes(void **state)
{
    op_bag bag = {0};
    (void)state;
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        for (int i = 0; i < op_case_count((weft_op)op); i++) {
            op_case c;
            weft_sum sum;
            int64_t index = 0;
            op_case_make((weft_op)op, i, &bag, &c);
            if (op == WEFT_OP_SUM || op == WEFT_OP_SUM_SQUARES)
                c.args.sum.sum = &sum;
            if (op == WEFT_OP_FIND_NONFINITE)
                c.args.find_nonfinite.index = &index;
            CHECK_OK(weft_i_op_check(c.op, &c.args));
            op_bag_empty(&bag);
        }
    }
}

/* A case of the operation with data in all its views: the first with rows and without zeros. */
static void good_case(weft_op op, op_bag *bag, op_case *c)
{
    static weft_sum sum;
    static int64_t index;
    const int which[WEFT_OP_COUNT] = {
        [WEFT_OP_ATTENTION_FORWARD] = 2, [WEFT_OP_ATTENTION_BACKWARD] = 2};
    op_case_make(
        op, op == WEFT_OP_ATTENTION_FORWARD || op == WEFT_OP_ATTENTION_BACKWARD ? which[op] : 1,
        bag, c);
    if (op == WEFT_OP_SUM || op == WEFT_OP_SUM_SQUARES)
        c->args.sum.sum = &sum;
    if (op == WEFT_OP_FIND_NONFINITE)
        c->args.find_nonfinite.index = &index;
}

/* What each view is changed to; all of them are wrong for every operand of every operation. */
static void spoil(weft_view *v, int how)
{
    if (how == 0)
        v->dtype = WEFT_DTYPE_F64;
    else if (how == 1)
        v->ld = v->cols - 1;
    else if (how == 2)
        v->rows = -1;
    else if (how == 3)
        v->cols = -3;
    else
        v->rows = INT64_MAX / 4;
}

static void test_backend_check_args__every_operand_is_checked(void **state)
{
    op_bag bag = {0};
    (void)state;
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        int n = 0;
        const op_view *v = op_views((weft_op)op, &n);
        for (int i = 0; i < n; i++) {
            for (int how = 0; how < 5; how++) {
                op_case c;
                good_case((weft_op)op, &bag, &c);
                weft_view *view = op_view_at(&c.args, v[i].offset);
                if (view->data != NULL) {
                    CHECK_OK(weft_i_op_check(c.op, &c.args));
                    spoil(view, how);
                    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG,
                                weft_op_name((weft_op)op));
                }
                op_bag_empty(&bag);
            }
        }
    }
}

/* One more row or column than the other operands; where a dimension stands alone, or two operands share it and nothing
 * else, it is free. */
static bool is_free(weft_op op, size_t offset, bool is_cols)
{
    if (op == WEFT_OP_FILL || op == WEFT_OP_SCALE || op == WEFT_OP_INIT_NORMAL ||
        op == WEFT_OP_SUM || op == WEFT_OP_SUM_SQUARES || op == WEFT_OP_FIND_NONFINITE)
        return true;
    if (is_cols)
        return op == WEFT_OP_XENT_STATS && offset == offsetof(weft_xent_stats_args, logits);
    return (op == WEFT_OP_GATHER_ROWS && offset == offsetof(weft_gather_rows_args, src)) ||
           (op == WEFT_OP_EMBEDDING_FORWARD &&
            offset == offsetof(weft_embedding_forward_args, table)) ||
           (op == WEFT_OP_EMBEDDING_BACKWARD &&
            offset == offsetof(weft_embedding_backward_args, dtable)) ||
           (op == WEFT_OP_COLUMN_SUM && offset == offsetof(weft_column_sum_args, x));
}

static void test_backend_check_args__shapes_must_agree(void **state)
{
    op_bag bag = {0};
    (void)state;
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        int n = 0;
        const op_view *v = op_views((weft_op)op, &n);
        for (int i = 0; i < 2 * n; i++) {
            op_case c;
            good_case((weft_op)op, &bag, &c);
            weft_view *view = op_view_at(&c.args, v[i / 2].offset);
            if (view->data != NULL && !is_free((weft_op)op, v[i / 2].offset, i % 2 != 0)) {
                view->rows += i % 2 == 0 ? 1 : 0;
                view->cols += i % 2 != 0 ? 1 : 0;
                view->ld += 1;
                const bool is_first_row = op == WEFT_OP_GATHER_ROWS && i == 0;
                /* one more row of the result needs one more number of a row */
                if (!is_first_row && weft_i_op_check(c.op, &c.args) != WEFT_STATUS_ARG)
                    fail_msg("%s passed with one more %s of view %d", c.label,
                             i % 2 == 0 ? "row" : "column", i / 2);
            }
            op_bag_empty(&bag);
        }
    }
}

static void test_backend_check_args__messages_say_what_was_wanted(void **state)
{
    op_bag bag = {0};
    op_case c;
    (void)state;
    good_case(WEFT_OP_GEMM, &bag, &c);
    weft_gemm_args *g = &c.args.gemm; /* [3, 5] = [3, 7] [7, 5] */
    g->b.rows = 8;
    CHECK_FAILS(weft_i_op_check(WEFT_OP_GEMM, g), WEFT_STATUS_ARG,
                "gemm: b was [8, 5]; wanted [7, 5]");
    g->b.rows = 7;
    g->b.dtype = WEFT_DTYPE_BF16;
    CHECK_FAILS(weft_i_op_check(WEFT_OP_GEMM, g), WEFT_STATUS_ARG,
                "gemm: b [7, 5] was BF16; wanted F32 or BF16, one for all");
    g->b.dtype = WEFT_DTYPE_F32;
    g->is_a_transposed = true;
    CHECK_FAILS(weft_i_op_check(WEFT_OP_GEMM, g), WEFT_STATUS_ARG, "a (transposed) was [3, 7]");
    g->is_a_transposed = false;
    g->a.data = NULL;
    CHECK_FAILS(weft_i_op_check(WEFT_OP_GEMM, g), WEFT_STATUS_ARG, "a [3, 7] was not given");
    CHECK_FAILS(weft_i_op_check((weft_op)99, g), WEFT_STATUS_ARG, "operation 99");
    op_bag_empty(&bag);
}

static void test_backend_check_args__numbers_and_host_arrays(void **state)
{
    op_bag bag = {0};
    op_case c;
    (void)state;

    good_case(WEFT_OP_GATHER_ROWS, &bag, &c);
    const int64_t rows[3] = {0, 12, 13};
    c.args.gather_rows.row = rows;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "row[2] was 13; src has 13 rows");
    c.args.gather_rows.row = NULL;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "not given");

    good_case(WEFT_OP_SUM, &bag, &c);
    c.args.sum.sum = NULL;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "no sum");
    good_case(WEFT_OP_FIND_NONFINITE, &bag, &c);
    c.args.find_nonfinite.index = NULL;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "no index");

    good_case(WEFT_OP_COPY, &bag, &c);
    c.args.copy.src.dtype = WEFT_DTYPE_I32;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "src was I32 and dst F32");

    good_case(WEFT_OP_NORM_FORWARD, &bag, &c);
    c.args.norm_forward.eps = NAN;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "eps");
    c.args.norm_forward.eps = 0.1f;
    c.args.norm_forward.kind = WEFT_NORM_RMS;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "RMS norm was given a bias");
    c.args.norm_forward.kind = WEFT_NORM_LAYER;
    c.args.norm_forward.mean.data = NULL;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "mean [3, 1] was not given");

    good_case(WEFT_OP_ACTIVATION_BACKWARD, &bag, &c);
    c.args.activation_backward.up = c.args.activation_backward.x;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "only one was given");

    good_case(WEFT_OP_ROPE, &bag, &c);
    c.args.rope.head_dim = 9;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "head_dim was 9");
    c.args.rope.head_dim = 4;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "head_dim was 4");
    op_bag_empty(&bag);
}

static void test_backend_check_args__dropout(void **state)
{
    op_bag bag = {0};
    op_case c;
    (void)state;
    good_case(WEFT_OP_DROPOUT, &bag, &c);
    weft_dropout *d = &c.args.dropout.dropout; /* p = 0: nothing else is looked at */
    d->site = UINT32_MAX;
    CHECK_OK(weft_i_op_check(c.op, &c.args));
    d->p = 1.0f;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "p was 1");
    d->p = NAN;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "p was");
    d->p = 0.5f;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "site");
    d->site = 1;
    d->position = weft_view_make(NULL, WEFT_DTYPE_I32, 3, 1);
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "position [3, 1] was not given");
    d->position = op_ids(&bag, WEFT_DTYPE_I32, 4, 0, 9);
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG,
                "position was [4, 1]; wanted [3, 1]");
    d->position = op_ids(&bag, WEFT_DTYPE_I32, 3, 0, 9);
    d->sample = op_ids(&bag, WEFT_DTYPE_I32, 3, 0, 9);
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG,
                "sample [3, 1] was I32; wanted I64");
    d->sample = op_ids(&bag, WEFT_DTYPE_I64, 3, 0, 9);
    CHECK_OK(weft_i_op_check(c.op, &c.args));
    d->first_elem = ((int64_t)1 << 34) - 16;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "2^34");
    op_bag_empty(&bag);
}

static void test_backend_check_args__attention(void **state)
{
    static const int heads[4] = {0, 0, 1, 2};
    static const int64_t lengths[1] = {18};
    static const int64_t offsets[1] = {1};
    op_bag bag = {0};
    op_case c;
    (void)state;
    good_case(WEFT_OP_ATTENTION_FORWARD, &bag,
              &c); /* 1 sequence of 17, 4 heads on 2 of 16, dropout */
    weft_attention_shape *s = &c.args.attention_forward.shape;
    s->kv_of_head = heads;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG,
                "kv_of_head[3] was 2; there are 2 kv heads");
    s->kv_of_head = NULL;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "was not given");
    good_case(WEFT_OP_ATTENTION_FORWARD, &bag, &c);
    s->kv_length = lengths;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "kv_length[0] was 18 of 17");
    s->kv_length = NULL;
    s->head_dim = 0;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "head_dim 0");
    s->head_dim = 8;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "q was [17, 64]; wanted [17, 32]");
    s->head_dim = 16;
    s->kv_tokens = 65537;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_UNSUPPORTED, "65,536 keys");
    s->dropout.p = 0.0f;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "wanted [65537, 32]");
    op_bag_empty(&bag);

    good_case(WEFT_OP_ATTENTION_BACKWARD, &bag, &c);
    s = &c.args.attention_backward.shape;
    s->q_offset = offsets;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "q_offset 1");
    op_bag_empty(&bag);
}

static void test_backend_check_args__optimizers(void **state)
{
    op_bag bag = {0};
    op_case c;
    (void)state;
    good_case(WEFT_OP_ADAMW, &bag, &c);
    c.args.adamw.bias2 = 0.0;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "bias2 0");
    c.args.adamw.bias2 = 0.5;
    c.args.adamw.x.dtype = WEFT_DTYPE_BF16;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "no F32 master");
    good_case(WEFT_OP_SGD, &bag, &c);
    c.args.sgd.momentum = 0.9f;
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "m was not given");
    c.args.sgd.momentum = 0.0f;
    c.args.sgd.grad = op_matrix(&bag, WEFT_DTYPE_F32, 3, 1, 1);
    c.args.sgd.x = op_matrix(&bag, WEFT_DTYPE_F32, 3, 1, 0);
    CHECK_FAILS(weft_i_op_check(c.op, &c.args), WEFT_STATUS_ARG, "grad was [3, 1] with ld 2");
    op_bag_empty(&bag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_check_args__every_case_passes),
        cmocka_unit_test(test_backend_check_args__every_operand_is_checked),
        cmocka_unit_test(test_backend_check_args__shapes_must_agree),
        cmocka_unit_test(test_backend_check_args__messages_say_what_was_wanted),
        cmocka_unit_test(test_backend_check_args__numbers_and_host_arrays),
        cmocka_unit_test(test_backend_check_args__dropout),
        cmocka_unit_test(test_backend_check_args__attention),
        cmocka_unit_test(test_backend_check_args__optimizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
