/* CRC-32: values that are published, joining, and parts added up in any order. */
#include "check.h"

#include "base/crc32.h"

#include <string.h>

static void test_base_crc32__published_values(void **state)
{
    (void)state;
    assert_int_equal(weft_i_crc32("", 0), 0);
    assert_int_equal(weft_i_crc32(NULL, 0), 0);
    assert_int_equal(weft_i_crc32("123456789", 9), 0xcbf43926); /* the catalogue's check value */
    assert_int_equal(weft_i_crc32("The quick brown fox jumps over the lazy dog", 43), 0x414fa339);
}

static void test_base_crc32__joins(void **state)
{
    (void)state;
    const char *text = "The quick brown fox jumps over the lazy dog";
    for (size_t n = 0; n <= 43; n++)
        assert_int_equal(
            weft_i_crc32_join(weft_i_crc32(text, n), weft_i_crc32(text + n, 43 - n), 43 - n),
            0x414fa339);
    /* A long run behind: a gigabyte of zeros, by the definition's shift register in steps of a byte doubled 30 times. */
    uint32_t whole = weft_i_crc32("x", 1), part = whole, zeros = weft_i_crc32("\0", 1);
    for (int i = 0; i < 30; i++) {
        whole = weft_i_crc32_join(whole, zeros, (uint64_t)1 << i);
        zeros = weft_i_crc32_join(zeros, zeros, (uint64_t)1 << i);
    }
    uint32_t once = weft_i_crc32("\0", 1), rest = 0;
    for (int i = 29; i >= 0; i--) { /* 2^30 - 1 zeros, from the long runs to the short ones */
        uint32_t run = once;
        for (int k = 0; k < i; k++)
            run = weft_i_crc32_join(run, run, (uint64_t)1 << k);
        rest = weft_i_crc32_join(rest, run, (uint64_t)1 << i);
    }
    assert_int_equal(weft_i_crc32_join(part, rest, ((uint64_t)1 << 30) - 1), whole);
}

static void test_base_crc32__parts_add_up_in_any_order(void **state)
{
    (void)state;
    unsigned char bytes[1000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7919 >> 3);
    const uint32_t whole = weft_i_crc32(bytes, sizeof(bytes));
    static const size_t cut[] = {0, 1, 2, 130, 131, 600, 1000};
    static const size_t order[] = {3, 0, 5, 2, 4, 1};
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        const size_t first = cut[order[i]], end = cut[order[i] + 1];
        sum ^= weft_i_crc32_moved(weft_i_crc32(bytes + first, end - first), sizeof(bytes) - end);
    }
    assert_int_equal(sum, whole);
    assert_int_not_equal(sum ^ weft_i_crc32_moved(1, 3), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_crc32__published_values),
        cmocka_unit_test(test_base_crc32__joins),
        cmocka_unit_test(test_base_crc32__parts_add_up_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
