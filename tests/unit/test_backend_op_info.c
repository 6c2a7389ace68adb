/* Names, argument sizes and FLOPs of operations. */
#include "op_case.h"

static void test_backend_op_info__every_operation_is_named_once(void **state)
{
    (void)state;
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        assert_non_null(weft_op_name((weft_op)i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(weft_op_name((weft_op)i), weft_op_name((weft_op)j));
        assert_true(weft_op_args_bytes((weft_op)i) >= sizeof(weft_view));
        assert_true(weft_op_args_bytes((weft_op)i) <= sizeof(op_args));
    }
    assert_string_equal(weft_op_name(WEFT_OP_GEMM), "gemm");
    assert_string_equal(weft_op_name(WEFT_OP_COUNT), "unknown");
    assert_int_equal(weft_op_args_bytes(WEFT_OP_GEMM), sizeof(weft_gemm_args));
    assert_int_equal(weft_op_args_bytes(WEFT_OP_COUNT), 0);
}

static void test_backend_op_info__a_product_is_two_m_n_k(void **state)
{
    (void)state;
    weft_gemm_args a = {0};
    a.c = weft_view_make(NULL, WEFT_DTYPE_F32, 3, 5);
    a.a = weft_view_make(NULL, WEFT_DTYPE_F32, 3, 7);
    CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_GEMM, &a), 210.0);
    a.is_a_transposed = true;
    a.a = weft_view_make(NULL, WEFT_DTYPE_F32, 7, 3);
    CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_GEMM, &a), 210.0);
}

/* Counted pair by pair. */
static double pairs_by_hand(int64_t q_tokens, int64_t offset, int64_t length)
{
    double n = 0.0;
    for (int64_t i = 0; i < q_tokens; i++) {
        for (int64_t j = 0; j < length; j++)
            n += j <= offset + i ? 1.0 : 0.0;
    }
    return n;
}

static void test_backend_op_info__attention_counts_the_keys_a_query_sees(void **state)
{
    (void)state;
    for (int64_t q = 0; q <= 5; q++) {
        for (int64_t offset = -7; offset <= 7; offset++) {
            for (int64_t length = 0; length <= 9; length++) {
                const int64_t offsets[2] = {offset, 0};
                const int64_t lengths[2] = {length, 9};
                weft_attention_forward_args f = {.shape = {.n_seqs = 2,
                                                           .q_tokens = q,
                                                           .kv_tokens = 9,
                                                           .n_heads = 3,
                                                           .head_dim = 10,
                                                           .q_offset = offsets,
                                                           .kv_length = lengths}};
                const double want =
                    3.0 * (pairs_by_hand(q, offset, length) + pairs_by_hand(q, 0, 9));
                CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_ATTENTION_FORWARD, &f), 40.0 * want + 0.0);
                const weft_attention_backward_args b = {.shape = f.shape};
                CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_ATTENTION_BACKWARD, &b),
                                  100.0 * want + 0.0);
            }
        }
    }
}

static void test_backend_op_info__other_operations_count_their_elements(void **state)
{
    (void)state;
    weft_add_args add = {0};
    add.dst = weft_view_make(NULL, WEFT_DTYPE_F32, 4, 6);
    CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_ADD, &add), 24.0);
    weft_copy_args copy = {0};
    copy.dst = add.dst;
    CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_COPY, &copy), 0.0);
    weft_norm_backward_weight_args norm = {0};
    norm.x = add.dst;
    CHECK_SAME_DOUBLE(weft_op_flops(WEFT_OP_NORM_BACKWARD_WEIGHT, &norm), 120.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_op_info__every_operation_is_named_once),
        cmocka_unit_test(test_backend_op_info__a_product_is_two_m_n_k),
        cmocka_unit_test(test_backend_op_info__attention_counts_the_keys_a_query_sees),
        cmocka_unit_test(test_backend_op_info__other_operations_count_their_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
