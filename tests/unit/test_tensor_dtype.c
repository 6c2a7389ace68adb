/* Element types: sizes and safetensors' names. */
#include "check.h"

#include "weft/dtype.h"

static void test_tensor_dtype__names_and_sizes(void **state)
{
    static const struct {
        const char *name;
        size_t n_bytes;
    } wanted[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8},
                  {"I32", 4}, {"I16", 2},  {"I8", 1},  {"U64", 8}, {"U32", 4},
                  {"U16", 2}, {"U8", 1},   {"BOOL", 1}};
    (void)state;
    assert_int_equal(sizeof(wanted) / sizeof(wanted[0]), WEFT_DTYPE_OTHER);
    for (int i = 0; i < (int)WEFT_DTYPE_OTHER; i++) {
        assert_string_equal(weft_dtype_name((weft_dtype)i), wanted[i].name);
        assert_int_equal(weft_dtype_bytes((weft_dtype)i), wanted[i].n_bytes);
        assert_int_equal(weft_dtype_from_name(wanted[i].name), i);
    }
}

static void test_tensor_dtype__unknown_names_are_other(void **state)
{
    (void)state;
    static const char *const names[] = {"", "f32", "F8_E4M3", "Q4", "F32 ", "OTHER", "float32"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(weft_dtype_from_name(names[i]), WEFT_DTYPE_OTHER);
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_OTHER), 0);
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_COUNT), 0);
    assert_string_equal(weft_dtype_name(WEFT_DTYPE_OTHER), "OTHER");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_dtype__names_and_sizes),
        cmocka_unit_test(test_tensor_dtype__unknown_names_are_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
