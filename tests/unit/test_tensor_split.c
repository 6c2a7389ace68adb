/* Slices in blocks: every item in one slice, in rank order, the first ranks one block more. */
#include "check.h"

#include "tensor/split.h"

static void check_split(int64_t n, int64_t block, int size)
{
    int64_t at = 0;
    int64_t before = INT64_MAX;
    const int64_t n_blocks = (n + block - 1) / block;
    for (int r = 0; r < size; r++) {
        const int64_t count = weft_i_split_count(n, block, size, r);
        const int64_t blocks = (count + block - 1) / block;
        assert_int_equal(weft_i_split_first(n, block, size, r), at);
        assert_true(count >= 0 && (at % block == 0 || count == 0));
        assert_int_equal(blocks, n_blocks / size + (r < n_blocks % size ? 1 : 0));
        assert_true(blocks <= before);
        before = blocks;
        at += count;
    }
    assert_int_equal(at, n);
    assert_int_equal(weft_i_split_first(n, block, size, size), n);
}

static void test_tensor_split__slices_cover_everything_once(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 140; n++) {
        for (int64_t block = 1; block < 40; block += 3) {
            for (int size = 1; size < 10; size++)
                check_split(n, block, size);
        }
    }
    check_split((int64_t)1 << 50, 32, 16384);
}

/* An empty tensor between two others adds nothing: 8 + 0 + 24 over two ranks. */
static void test_tensor_split__known_cuts(void **state)
{
    (void)state;
    assert_int_equal(weft_i_split_first(8 + 0 + 24, 1, 2, 1), 16);
    assert_int_equal(weft_i_split_count(8 + 0 + 24, 1, 2, 1), 16);
    assert_int_equal(weft_i_split_count(28, 1, 8, 3), 4);
    assert_int_equal(weft_i_split_count(28, 1, 8, 4), 3);
    assert_int_equal(weft_i_split_count(32, 32, 8, 0), 32);
    assert_int_equal(weft_i_split_count(32, 32, 8, 1), 0);
    assert_int_equal(weft_i_split_first(32, 32, 8, 7), 32);
    assert_int_equal(weft_i_split_count(70, 32, 2, 1), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_split__slices_cover_everything_once),
        cmocka_unit_test(test_tensor_split__known_cuts),
    };
    return cmocka_run_group_tests_name("tensor_split", tests, NULL, NULL);
}
