/* The workspace stack: alignment, mark and reset, the end, and arenas that only count. */
#include "check.h"

#include "base/arena.h"

static _Alignas(64) char memory[1024];

static void test_base_arena__stacks_aligned_blocks(void **state)
{
    (void)state;
    weft_arena a;
    weft_i_arena_init(&a, memory, sizeof(memory));
    void *x = NULL, *y = NULL, *z = NULL;
    CHECK_OK(weft_i_arena_get(&a, 1, &x));
    CHECK_OK(weft_i_arena_get(&a, 64, &y));
    CHECK_OK(weft_i_arena_get(&a, 65, &z));
    assert_ptr_equal(x, memory);
    assert_ptr_equal(y, memory + 64);
    assert_ptr_equal(z, memory + 128);
    assert_int_equal(a.used_bytes, 256);
}

static void test_base_arena__reuses_what_is_above_a_mark(void **state)
{
    (void)state;
    weft_arena a;
    weft_i_arena_init(&a, memory, sizeof(memory));
    void *x = NULL, *y = NULL, *again = NULL;
    CHECK_OK(weft_i_arena_get(&a, 100, &x));
    const size_t mark = weft_i_arena_mark(&a);
    CHECK_OK(weft_i_arena_get(&a, 640, &y));
    weft_i_arena_reset(&a, mark);
    CHECK_OK(weft_i_arena_get(&a, 64, &again));
    assert_ptr_equal(again, y);
    assert_int_equal(a.peak_bytes, 128 + 640);
    assert_int_equal(a.used_bytes, 128 + 64);
}

static void test_base_arena__fails_past_the_predicted_size(void **state)
{
    (void)state;
    weft_arena a;
    weft_i_arena_init(&a, memory, sizeof(memory));
    void *x = NULL, *y = NULL;
    CHECK_OK(weft_i_arena_get(&a, 1024, &x));
    CHECK_OK(weft_i_arena_get(&a, 0, &y)); /* nothing more is still there */
    y = NULL;
    CHECK_FAILS(weft_i_arena_get(&a, 1, &y), WEFT_STATUS_INTERNAL, "1024");
    assert_null(y);
    weft_i_arena_reset(&a, 0);
    CHECK_FAILS(weft_i_arena_get(&a, 1025, &y), WEFT_STATUS_INTERNAL, "1025");
    CHECK_FAILS(weft_i_arena_get(&a, SIZE_MAX, &y), WEFT_STATUS_INTERNAL, "");
    assert_int_equal(a.used_bytes, 0);
}

static void test_base_arena__counts_without_end_in_a_dry_run(void **state)
{
    (void)state;
    weft_alloc *alloc = NULL;
    CHECK_OK(weft_i_alloc_create(&alloc, true, 0));
    void *base = NULL;
    CHECK_OK(weft_i_alloc_get(alloc, WEFT_MEM_WORKSPACE, 0, "workspace", &base));
    weft_arena a;
    weft_i_arena_init(&a, base, SIZE_MAX);
    void *x = NULL, *y = NULL;
    CHECK_OK(weft_i_arena_get(&a, (size_t)1 << 40, &x));
    CHECK_OK(weft_i_arena_get(&a, 1, &y));
    assert_int_equal((uintptr_t)y - (uintptr_t)x, (size_t)1 << 40);
    assert_int_equal(a.peak_bytes, ((size_t)1 << 40) + 64);
    weft_i_alloc_put(alloc, base);
    weft_i_alloc_destroy(alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_arena__stacks_aligned_blocks),
        cmocka_unit_test(test_base_arena__reuses_what_is_above_a_mark),
        cmocka_unit_test(test_base_arena__fails_past_the_predicted_size),
        cmocka_unit_test(test_base_arena__counts_without_end_in_a_dry_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
