/* Elements of every type as doubles, from any byte of a file. */
#include "scratch.h"

#include "train/tensor_values.h"

#include <string.h>

/* The one element `bytes` hold, placed at an odd address. */
static double value_of(weft_dtype dtype, const void *bytes)
{
    char file[32] = {0};
    memcpy(file + 3, bytes, weft_dtype_bytes(dtype));
    const weft_st_tensor t = {
        .dtype = dtype, .n_elems = 1, .data = file + 3, .n_bytes = weft_dtype_bytes(dtype)};
    double out = -1;
    weft_i_tensor_values(&out, &t, 0, 1);
    return out;
}

static void test_train_tensor_values__every_type(void **state)
{
    (void)state;
    assert_true(value_of(WEFT_DTYPE_F32, &(float){-1.5F}) == -1.5);
    assert_true(value_of(WEFT_DTYPE_F64, &(double){0.1}) == 0.1);
    assert_true(value_of(WEFT_DTYPE_BF16, &(uint16_t){0xC020}) == -2.5);
    assert_true(value_of(WEFT_DTYPE_F16, &(uint16_t){0x0001}) == 5.9604644775390625e-08);
    assert_true(value_of(WEFT_DTYPE_I64, &(int64_t){-5}) == -5);
    assert_true(value_of(WEFT_DTYPE_I32, &(int32_t){-6}) == -6);
    assert_true(value_of(WEFT_DTYPE_I16, &(int16_t){-7}) == -7);
    assert_true(value_of(WEFT_DTYPE_I8, &(int8_t){-8}) == -8);
    assert_true(value_of(WEFT_DTYPE_U64, &(uint64_t){UINT64_C(1) << 63}) == 9223372036854775808.0);
    assert_true(value_of(WEFT_DTYPE_U32, &(uint32_t){4000000000U}) == 4e9);
    assert_true(value_of(WEFT_DTYPE_U16, &(uint16_t){65535}) == 65535);
    assert_true(value_of(WEFT_DTYPE_U8, &(uint8_t){255}) == 255);
    assert_true(value_of(WEFT_DTYPE_BOOL, &(uint8_t){1}) == 1);
    assert_false(weft_i_tensor_is_readable(WEFT_DTYPE_OTHER));
    assert_true(weft_i_tensor_is_readable(WEFT_DTYPE_BOOL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_train_tensor_values__every_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
