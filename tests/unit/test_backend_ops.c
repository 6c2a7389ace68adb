/*
 * The cpu backend against the reference set, operation by operation, over odd sizes, strides, types and operands that
 * lie on each other; and the cpu backend against itself with other numbers of threads, where every bit must agree.
 *
 * The bounds are the one table below. `make` in tests/support/op_cases_*.c says what the cases are. Under ctest this
 * runs again with WEFT_MAX_ISA=0 and 3 and with WEFT_NO_BF16=1.
 */
#include "op_case.h"

#define EPS 0x1p-24 /* half a unit in the last place of 1.0f */

/*
 * |cpu - reference| <= rel * EPS * |reference| + terms * EPS * n_terms + fixed * EPS, n_terms being the length of the
 * sums behind one element; a bf16 result may differ by one unit in its last place more (op_check_near).
 *
 * The reference sums in double, so the bound is the error of fp32 alone. The inputs are of the order of one. A sum of n
 * products of such numbers, in fp32 in any order, is off by at most n EPS times the sum of their magnitudes, of the order
 * of n: n^2 EPS. Errors of either sign make it about n EPS sqrt(log) in practice; the table allows a few times n EPS,
 * which a kernel that dropped to a narrower type, or lost a term, exceeds by orders of magnitude.
 */
typedef struct bound {
    double rel, terms, fixed;
} bound;

static const bound bounds[WEFT_OP_COUNT] = {
    /* one rounding of the same fp32 value: the same bits */
    [WEFT_OP_FILL] = {0},
    [WEFT_OP_COPY] = {0},
    [WEFT_OP_ADD] = {0},
    [WEFT_OP_SCALE] = {0},
    [WEFT_OP_INIT_NORMAL] = {0},
    [WEFT_OP_GATHER_ROWS] = {0},
    [WEFT_OP_SUM] = {0},
    [WEFT_OP_SUM_SQUARES] = {0},
    [WEFT_OP_FIND_NONFINITE] = {0},
    [WEFT_OP_EMBEDDING_FORWARD] = {0},
    [WEFT_OP_EMBEDDING_BACKWARD] = {0},
    [WEFT_OP_DROPOUT] = {0},
    /* sums of n_terms products */
    [WEFT_OP_GEMM] = {4, 4, 4},
    [WEFT_OP_COLUMN_SUM] = {4, 2, 0},
    [WEFT_OP_NORM_BACKWARD_WEIGHT] = {4, 4, 8},
    /* mean and variance of n_terms numbers around 3, then three roundings */
    [WEFT_OP_NORM_FORWARD] = {16, 1, 32},
    [WEFT_OP_NORM_BACKWARD_INPUT] = {16, 1, 64},
    /* vector exp and erfc within 4 units; 1 - sigmoid cancels: a slope is off by some 30 EPS, times dy * up up to 9 */
    [WEFT_OP_ACTIVATION_FORWARD] = {16, 0, 8},
    [WEFT_OP_ACTIVATION_BACKWARD] = {16, 0, 256},
    /* two additions, a product */
    [WEFT_OP_RESIDUAL] = {2, 0, 8},
    [WEFT_OP_ROPE] = {2, 0, 8},
    /* scores up to about 50 in exp: their own rounding is 50 EPS relative to a probability */
    [WEFT_OP_ATTENTION_FORWARD] = {64, 1, 64},
    [WEFT_OP_ATTENTION_BACKWARD] = {64, 4, 256},
    /* a sum of exponentials, all positive; max and target are exact */
    [WEFT_OP_XENT_STATS] = {16, 0.25, 0}, /* n / 4 additions in each of four lanes */
    [WEFT_OP_XENT_RESCALE] =
        {32, 0, 0}, /* the difference of the maxima, up to 16, is rounded in the exponent */
    [WEFT_OP_XENT_LOSS] = {8, 0, 8},
    [WEFT_OP_XENT_GRAD] = {16, 0, 4},
    /* the same fp32 operations, fused or not */
    [WEFT_OP_ADAMW] = {4, 0, 4},
    [WEFT_OP_SGD] = {4, 0, 4},
};

static void test_backend_ops__cpu_agrees_with_reference(void **state)
{
    const weft_op op = *(const weft_op *)*state;
    const bound b = bounds[op];
    const bool is_exact = b.rel == 0 && b.terms == 0 && b.fixed == 0;
    op_rig cpu;
    op_rig reference;
    op_bag bag = {0};
    op_rig_open(&cpu, WEFT_BACKEND_CPU, 2);
    op_rig_open(&reference, WEFT_BACKEND_REFERENCE, 1);
    assert_true(op_case_count(op) > 0);
    for (int i = 0; i < op_case_count(op); i++) {
        op_case c;
        op_result got;
        op_result want;
        op_case_make(op, i, &bag, &c);
        CHECK_OK(op_case_run(&cpu, &c, &got));
        CHECK_OK(op_case_run(&reference, &c, &want));
        op_check_untouched(&c, &got);
        op_check_untouched(&c, &want);
        if (is_exact)
            op_check_same_bits(&c, &got, &want);
        else
            op_check_near(&c, &got, &want, b.rel * EPS,
                          (b.terms * (double)c.n_terms + b.fixed) * EPS);
        op_result_free(&got);
        op_result_free(&want);
        op_bag_empty(&bag);
    }
    op_rig_close(&reference);
    op_rig_close(&cpu);
}

static void test_backend_ops__threads_change_no_bit(void **state)
{
    static const int n_threads[3] = {2, 3, 5};
    const weft_op op = *(const weft_op *)*state;
    op_rig one;
    op_rig many[3];
    op_bag bag = {0};
    op_rig_open(&one, WEFT_BACKEND_CPU, 1);
    for (int t = 0; t < 3; t++)
        op_rig_open(&many[t], WEFT_BACKEND_CPU, n_threads[t]);
    for (int i = 0; i < op_case_count(op); i++) {
        op_case c;
        op_result want;
        op_case_make(op, i, &bag, &c);
        CHECK_OK(op_case_run(&one, &c, &want));
        for (int t = 0; t < 3; t++) {
            op_result got;
            CHECK_OK(op_case_run(&many[t], &c, &got));
            op_check_same_bits(&c, &got, &want);
            op_result_free(&got);
        }
        op_result_free(&want);
        op_bag_empty(&bag);
    }
    for (int t = 0; t < 3; t++)
        op_rig_close(&many[t]);
    op_rig_close(&one);
}

int main(void)
{
    static weft_op ops[WEFT_OP_COUNT];
    static char names[2 * WEFT_OP_COUNT][80];
    struct CMUnitTest tests[2 * WEFT_OP_COUNT];
    memset(tests, 0, sizeof(tests));
    for (int i = 0; i < 2 * WEFT_OP_COUNT; i++) {
        const weft_op op = (weft_op)(i / 2);
        ops[op] = op;
        (void)snprintf(names[i], sizeof(names[i]), "test_backend_ops__%s_%s", weft_op_name(op),
                       i % 2 == 0 ? "cpu_agrees_with_reference" : "threads_change_no_bit");
        tests[i].name = names[i];
        tests[i].test_func = i % 2 == 0 ? test_backend_ops__cpu_agrees_with_reference
                                        : test_backend_ops__threads_change_no_bit;
        tests[i].initial_state = &ops[op];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
