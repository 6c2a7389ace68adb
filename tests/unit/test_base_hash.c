/* The hash of bytes, against the published values of 64-bit FNV-1a. */
#include "check.h"

#include "base/hash.h"

static void test_base_hash__has_the_published_values(void **state)
{
    (void)state;
    assert_true(weft_i_hash_bytes("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(weft_i_hash_bytes("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(weft_i_hash_bytes("foobar", 6) == UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_hash__has_the_published_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
