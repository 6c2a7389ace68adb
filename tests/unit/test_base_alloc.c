/* The counting allocator: counts, limits, alignment, zeroing, dry addresses, mistakes of the caller. */
#include "check.h"

#include "base/alloc.h"
#include "base/env.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static weft_alloc *new_alloc(bool is_dry, size_t limit_bytes)
{
    weft_alloc *a = NULL;
    CHECK_OK(weft_i_alloc_create(&a, is_dry, limit_bytes));
    return a;
}

static void
check_counts(const weft_alloc *a, weft_mem kind, size_t now, size_t peak, uint64_t calls)
{
    weft_alloc_count c;
    weft_i_alloc_counts(a, kind, &c);
    if (c.now_bytes != now || c.peak_bytes != peak || c.n_calls != calls)
        fail_msg("%s: now %zu peak %zu calls %llu, expected %zu %zu %llu", weft_i_mem_name(kind),
                 c.now_bytes, c.peak_bytes, (unsigned long long)c.n_calls, now, peak,
                 (unsigned long long)calls);
}

static void test_base_alloc__counts_each_kind_and_the_device_total(void **state)
{
    (void)state;
    for (int is_dry = 0; is_dry < 2; is_dry++) {
        weft_alloc *const a = new_alloc(is_dry != 0, 0);
        void *p = NULL, *g = NULL, *c = NULL;
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_PARAMETERS, 100, "p", &p));
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_GRADIENTS, 64, "g", &g));
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_CONTROL, 77, "c", &c));
        check_counts(a, WEFT_MEM_PARAMETERS, 128, 128, 1);
        check_counts(a, WEFT_MEM_GRADIENTS, 64, 64, 1);
        check_counts(a, WEFT_MEM_CONTROL, 77, 77, 1);
        check_counts(a, WEFT_MEM_CACHE, 0, 0, 0);
        weft_i_alloc_put(a, p);
        check_counts(a, WEFT_MEM_PARAMETERS, 0, 128, 1);
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_PARAMETERS, 1, "p", &p));
        check_counts(a, WEFT_MEM_PARAMETERS, 64, 128, 2);
        weft_alloc_count total;
        weft_i_alloc_total(a, &total);
        assert_int_equal(total.now_bytes, 128);
        assert_int_equal(total.peak_bytes, 192); /* the sum's own peak, without CONTROL */
        assert_int_equal(total.n_calls, 3);
        assert_int_equal(weft_i_alloc_is_dry(a), is_dry != 0);
        weft_i_alloc_put(a, p);
        weft_i_alloc_put(a, g);
        weft_i_alloc_put(a, c);
        weft_i_alloc_put(a, NULL);
        weft_i_alloc_destroy(a);
    }
}

static bool is_zero(const void *block, size_t n)
{
    const unsigned char *const bytes = block;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

static void test_base_alloc__hands_out_aligned_zeroed_memory(void **state)
{
    (void)state;
    static const size_t size[] = {1, 63, 64, 65, 4096, (1 << 20) - 1, 1 << 20, (3 << 20) + 5};
    weft_alloc *const a = new_alloc(false, 0);
    for (int kind = 0; kind < WEFT_MEM_COUNT; kind++) {
        for (size_t i = 0; i < WEFT_COUNT_OF(size); i++) {
            for (int again = 0; again < 2;
                 again++) { /* the second may get the first one's memory back */
                void *block = NULL;
                CHECK_OK(weft_i_alloc_get(a, (weft_mem)kind, size[i], "block", &block));
                if (kind != WEFT_MEM_CONTROL)
                    assert_int_equal((uintptr_t)block % WEFT_ALIGN_BYTES, 0);
                assert_true(is_zero(block, size[i]));
                memset(block, 0xA5, size[i]);
                weft_i_alloc_put(a, block);
            }
        }
    }
    weft_i_alloc_destroy(a);
}

static void test_base_alloc__makes_big_blocks_resident_and_gives_them_back(void **state)
{
    (void)state;
#ifdef WEFT_SANITIZED
    skip(); /* the sanitizer keeps freed memory */
#endif
    const size_t size = (size_t)48 << 20;
    weft_alloc *const a = new_alloc(false, 0);
    const uint64_t before = weft_i_env_resident_bytes();
    void *block = NULL;
    CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_PARAMETERS, size, "block", &block));
    const uint64_t during = weft_i_env_resident_bytes();
    weft_i_alloc_put(a, block);
    const uint64_t after = weft_i_env_resident_bytes();
    weft_i_alloc_destroy(a);
    assert_in_range(during - before, size - (1 << 20), size + (1 << 20));
    assert_true(after < before + (1 << 20));
}

static void test_base_alloc__refuses_what_goes_over_the_limit(void **state)
{
    (void)state;
    for (int is_dry = 0; is_dry < 2; is_dry++) {
        weft_alloc *const a = new_alloc(is_dry != 0, 1024);
        void *first = NULL, *second = NULL, *control = NULL;
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_GRADIENTS, 1000, "gradients", &first));
        CHECK_FAILS(weft_i_alloc_get(a, WEFT_MEM_CACHE, 1, "KV cache", &second), WEFT_STATUS_NOMEM,
                    "KV cache");
        assert_non_null(strstr(weft_last_error(), "1024 bytes")); /* in use, and the limit */
        assert_non_null(strstr(weft_last_error(), "limit"));
        assert_non_null(strstr(weft_last_error(), "kind cache"));
        assert_null(second);
        check_counts(a, WEFT_MEM_CACHE, 0, 0, 0);
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_CONTROL, 5000, "tables",
                                  &control)); /* not counted in it */
        weft_i_alloc_put(a, first);
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_CACHE, 1024, "KV cache", &second));
        weft_i_alloc_put(a, second);
        weft_i_alloc_put(a, control);
        weft_i_alloc_destroy(a);
    }
}

static void test_base_alloc__refuses_sizes_no_machine_has(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc(false, 0);
    void *block = NULL;
    CHECK_FAILS(weft_i_alloc_get(a, WEFT_MEM_CACHE, SIZE_MAX, "x", &block), WEFT_STATUS_NOMEM, "x");
    CHECK_FAILS(weft_i_alloc_get(a, WEFT_MEM_CACHE, SIZE_MAX - 64, "x", &block), WEFT_STATUS_NOMEM,
                "");
    CHECK_FAILS(weft_i_alloc_get(a, WEFT_MEM_CACHE, (size_t)1 << 50, "x", &block),
                WEFT_STATUS_NOMEM, "the machine has");
    CHECK_FAILS(weft_i_alloc_new(a, SIZE_MAX / 2, 3, &block), WEFT_STATUS_NOMEM, "");
    assert_null(block);
    weft_i_alloc_destroy(a);
}

static void test_base_alloc__counts_what_no_machine_has_in_a_dry_run(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc(true, 0);
    void *block[3] = {NULL};
    const size_t size = (size_t)1 << 43; /* 8 TiB */
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_PARAMETERS, size, "weights", &block[i]));
    check_counts(a, WEFT_MEM_PARAMETERS, 3 * size, 3 * size, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal((uintptr_t)block[i] % WEFT_ALIGN_BYTES, 0);
        for (int j = 0; j < i; j++)
            assert_true((uintptr_t)block[i] >= (uintptr_t)block[j] + size);
        weft_i_alloc_put(a, block[i]);
    }
    weft_i_alloc_destroy(a);
}

static void test_base_alloc__gives_distinct_blocks_for_zero_bytes(void **state)
{
    (void)state;
    for (int is_dry = 0; is_dry < 2; is_dry++) {
        weft_alloc *const a = new_alloc(is_dry != 0, 64);
        for (int kind = 0; kind < WEFT_MEM_COUNT; kind++) {
            void *x = NULL, *y = NULL;
            CHECK_OK(weft_i_alloc_get(a, (weft_mem)kind, 0, "nothing", &x));
            CHECK_OK(weft_i_alloc_get(a, (weft_mem)kind, 0, "nothing", &y));
            assert_non_null(x);
            assert_ptr_not_equal(x, y);
            check_counts(a, (weft_mem)kind, 0, 0, 2);
            weft_i_alloc_put(a, x);
            weft_i_alloc_put(a, y);
        }
        weft_i_alloc_destroy(a);
    }
}

/* Blocks put back in another order than taken, many at once: the table must find each, and only once. */
static void test_base_alloc__finds_thousands_of_blocks_in_any_order(void **state)
{
    (void)state;
    enum { N = 5000 };
    static unsigned char *block[N];
    weft_alloc *const a = new_alloc(false, 0);
    uint32_t random = 12345;
    size_t expected = 0;
    for (int i = 0; i < 100000; i++) {
        random = random * 1664525U + 1013904223U;
        const int at = (int)(random >> 16) % N;
        if (block[at] == NULL) {
            void *p = NULL;
            CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_CONTROL, (size_t)at + 1, "block", &p));
            block[at] = p;
            block[at][at] = 1;
            expected += (size_t)at + 1;
        } else {
            weft_i_alloc_put(a, block[at]);
            block[at] = NULL;
            expected -= (size_t)at + 1;
        }
    }
    weft_alloc_count c;
    weft_i_alloc_counts(a, WEFT_MEM_CONTROL, &c);
    assert_int_equal(c.now_bytes, expected);
    for (int i = 0; i < N; i++)
        weft_i_alloc_put(a, block[i]);
    weft_i_alloc_counts(a, WEFT_MEM_CONTROL, &c);
    assert_int_equal(c.now_bytes, 0);
    weft_i_alloc_destroy(a);
}

static void test_base_alloc__grows_arrays_keeping_what_they_hold(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc(false, 0);
    size_t capacity = 0;
    void *array = NULL;
    size_t least = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(weft_i_alloc_grow(a, (size_t)i + 1, sizeof(int), &capacity, &array));
        assert_true(capacity >= (size_t)i + 1);
        if (capacity != least)
            assert_true(capacity >= 2 * least); /* at least doubling */
        least = capacity;
        int *const numbers = array;
        assert_int_equal(numbers[capacity - 1], 0);
        numbers[i] = i + 1;
    }
    const int *const numbers = array;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i + 1);
    void *const before = array;
    CHECK_FAILS(weft_i_alloc_grow(a, SIZE_MAX / 2, sizeof(int), &capacity, &array),
                WEFT_STATUS_NOMEM, "");
    assert_ptr_equal(array, before);
    assert_int_equal(capacity, least);
    weft_i_alloc_put(a, array);
    weft_i_alloc_destroy(a);
}

static void test_base_alloc__sets_any_pointer_to_an_array(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc(false, 0);
    struct {
        int64_t *numbers;
    } holder = {NULL};
    CHECK_OK(weft_i_alloc_array(a, 1000, sizeof(*holder.numbers), &holder.numbers));
    for (int64_t i = 0; i < 1000; i++) {
        assert_int_equal(holder.numbers[i], 0);
        holder.numbers[i] = i;
    }
    int64_t *const before = holder.numbers;
    CHECK_FAILS(weft_i_alloc_array(a, INT64_MAX, sizeof(int64_t), &holder.numbers),
                WEFT_STATUS_NOMEM, "9223372036854775807 entries");
    assert_ptr_equal(holder.numbers, before);
    weft_i_alloc_put(a, holder.numbers);
    weft_i_alloc_destroy(a);
}

static void *take_and_give(void *argument)
{
    weft_alloc *const a = argument;
    for (int i = 0; i < 2000; i++) {
        void *x = NULL, *y = NULL;
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_CACHE, 200, "x", &x));
        CHECK_OK(weft_i_alloc_get(a, WEFT_MEM_CONTROL, 20, "y", &y));
        weft_i_alloc_put(a, x);
        weft_i_alloc_put(a, y);
    }
    return NULL;
}

static void test_base_alloc__serves_several_threads(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc(false, 0);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, a), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    weft_alloc_count c;
    weft_i_alloc_counts(a, WEFT_MEM_CACHE, &c);
    assert_int_equal(c.now_bytes, 0);
    assert_int_equal(c.n_calls, 8000);
    assert_in_range(c.peak_bytes, 256, 4 * 256);
    weft_i_alloc_destroy(a);
}

#ifdef WEFT_ASSERTS
/* What the function does in a process of its own must end by abort. */
static void check_aborts(void (*function)(void))
{
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        function();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void leak(void)
{
    weft_alloc *a = NULL;
    void *x = NULL;
    if (weft_i_alloc_create(&a, false, 0) == WEFT_OK && weft_i_alloc_new(a, 1, 1, &x) == WEFT_OK)
        weft_i_alloc_destroy(a);
}

static void put_twice(void)
{
    weft_alloc *a = NULL;
    void *x = NULL;
    if (weft_i_alloc_create(&a, false, 0) == WEFT_OK && weft_i_alloc_new(a, 1, 1, &x) == WEFT_OK) {
        weft_i_alloc_put(a, x);
        weft_i_alloc_put(a, x);
    }
}

static void test_base_alloc__reports_leaks_and_blocks_put_twice(void **state)
{
    (void)state;
    check_aborts(leak);
    check_aborts(put_twice);
}
#endif

static void test_base_alloc__bytes_of_any_size_in_megabytes(void **state)
{
    (void)state;
    assert_int_equal(weft_i_alloc_bytes_of_mb(0), 0);
    assert_int_equal(weft_i_alloc_bytes_of_mb(25), 25000000);
    assert_int_equal(weft_i_alloc_bytes_of_mb(0.0001), 100);
    assert_int_equal(weft_i_alloc_bytes_of_mb(1e-300), 1); /* 0 would mean no limit */
    assert_int_equal(weft_i_alloc_bytes_of_mb(1e12), 1000000000000000000);
    assert_int_equal(weft_i_alloc_bytes_of_mb(1e13), INT64_C(1) << 62);
    assert_int_equal(weft_i_alloc_bytes_of_mb(1e300), INT64_C(1) << 62);
}

static void test_base_alloc__names_kinds_and_rounds(void **state)
{
    (void)state;
    assert_string_equal(weft_i_mem_name(WEFT_MEM_PARAMETERS), "parameters");
    assert_string_equal(weft_i_mem_name(WEFT_MEM_OPTIMIZER), "optimizer");
    assert_string_equal(weft_i_mem_name(WEFT_MEM_CONTROL), "control");
    assert_int_equal(weft_i_alloc_rounded(0), 0);
    assert_int_equal(weft_i_alloc_rounded(1), 64);
    assert_int_equal(weft_i_alloc_rounded(64), 64);
    assert_int_equal(weft_i_alloc_rounded(65), 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_alloc__counts_each_kind_and_the_device_total),
        cmocka_unit_test(test_base_alloc__hands_out_aligned_zeroed_memory),
        cmocka_unit_test(test_base_alloc__makes_big_blocks_resident_and_gives_them_back),
        cmocka_unit_test(test_base_alloc__refuses_what_goes_over_the_limit),
        cmocka_unit_test(test_base_alloc__refuses_sizes_no_machine_has),
        cmocka_unit_test(test_base_alloc__counts_what_no_machine_has_in_a_dry_run),
        cmocka_unit_test(test_base_alloc__gives_distinct_blocks_for_zero_bytes),
        cmocka_unit_test(test_base_alloc__finds_thousands_of_blocks_in_any_order),
        cmocka_unit_test(test_base_alloc__grows_arrays_keeping_what_they_hold),
        cmocka_unit_test(test_base_alloc__sets_any_pointer_to_an_array),
        cmocka_unit_test(test_base_alloc__serves_several_threads),
#ifdef WEFT_ASSERTS
        cmocka_unit_test(test_base_alloc__reports_leaks_and_blocks_put_twice),
#endif
        cmocka_unit_test(test_base_alloc__bytes_of_any_size_in_megabytes),
        cmocka_unit_test(test_base_alloc__names_kinds_and_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
