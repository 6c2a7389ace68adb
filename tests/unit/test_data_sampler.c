/* The order of samples: a permutation for every size, another one each epoch, a function of the seed alone. */
#include "scratch.h"

#include "data/dataset.h"

#include <string.h>

/* A sampler without data: only the order is asked. */
static weft_sampler of_windows(int64_t n_windows, uint64_t seed, bool is_shuffled)
{
    return (weft_sampler){
        .n_windows = n_windows, .seq_length = 1, .seed = seed, .is_shuffled = is_shuffled};
}

static void test_data_sampler__every_window_comes_once_an_epoch(void **state)
{
    (void)state;
    enum { MAX = 5000 };
    static unsigned char seen[MAX];
    const int64_t sizes[] = {1,    2,    3,  4,  5,   6,    7,    8,    9,   15,   16,
                             17,   31,   63, 64, 65,  100,  255,  256,  257, 1000, 1023,
                             1024, 1025, 97, 53, 999, 4095, 4096, 4097, MAX};
    for (size_t i = 0; i < WEFT_COUNT_OF(sizes); i++) {
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            for (uint64_t seed = 0; seed < 3; seed++) {
                const weft_sampler s = of_windows(sizes[i], seed, true);
                memset(seen, 0, sizeof(seen));
                for (int64_t k = 0; k < sizes[i]; k++) {
                    const int64_t w = weft_i_sampler_window(&s, epoch * sizes[i] + k);
                    assert_in_range(w, 0, sizes[i] - 1);
                    assert_int_equal(seen[w], 0);
                    seen[w] = 1;
                }
            }
        }
    }
}

static int64_t
n_equal(const weft_sampler *a, int64_t first_a, const weft_sampler *b, int64_t first_b)
{
    int64_t n = 0;
    for (int64_t k = 0; k < a->n_windows; k++)
        n += weft_i_sampler_window(a, first_a + k) == weft_i_sampler_window(b, first_b + k);
    return n;
}

static void test_data_sampler__epochs_and_seeds_have_orders_of_their_own(void **state)
{
    (void)state;
    /* Two independent permutations agree in one place on average; over 12 has probability below 1e-9. */
    const weft_sampler a = of_windows(1000, 7, true);
    const weft_sampler b = of_windows(1000, 8, true);
    const weft_sampler plain = of_windows(1000, 7, false);
    assert_int_equal(n_equal(&a, 0, &a, 0), 1000);
    assert_in_range(n_equal(&a, 0, &a, 1000), 0, 12);
    assert_in_range(n_equal(&a, 1000, &a, 2000), 0, 12);
    assert_in_range(n_equal(&a, 0, &b, 0), 0, 12);
    assert_in_range(n_equal(&a, 0, &plain, 0), 0, 12);
    for (int64_t k = 0; k < 1000; k++)
        assert_int_equal(weft_i_sampler_window(&plain, 3000 + k), k);
}

static void test_data_sampler__the_order_is_well_mixed(void **state)
{
    (void)state;
    /* Mean of the windows drawn in the first tenth of an epoch: 4999.5 +- 2887 / sqrt(1000) = 91. */
    const weft_sampler s = of_windows(10000, 3, true);
    double sum = 0;
    int64_t n_rising = 0;
    for (int64_t k = 0; k < 1000; k++) {
        sum += (double)weft_i_sampler_window(&s, k);
        n_rising += weft_i_sampler_window(&s, k + 1) > weft_i_sampler_window(&s, k);
    }
    assert_true(sum / 1000 > 4999.5 - 5 * 91 && sum / 1000 < 4999.5 + 5 * 91);
    assert_in_range(n_rising, 420, 580);
}

static void test_data_sampler__windows_beyond_32_bits(void **state)
{
    (void)state;
    const int64_t n = ((int64_t)1 << 34) + 12345;
    const weft_sampler s = of_windows(n, 1, true);
    bool is_high = false;
    for (int64_t k = n - 50; k < n + 50; k++) {
        const int64_t w = weft_i_sampler_window(&s, k);
        assert_true(w >= 0 && w < n);
        is_high = is_high || w > UINT32_MAX;
    }
    assert_true(is_high);
}

static void expect_too_short(scratch *s, size_t n_bytes, const char *count)
{
    static const char text[16] = "\nabcdefghijklmn";
    const char *path = scratch_file(s, "text", text, n_bytes);
    weft_tokenizer *t = NULL;
    weft_dataset *d = NULL;
    expect_ok(weft_i_tokenizer_open(&t, s->alloc, "byte"));
    expect_ok(weft_i_dataset_open(&d, s->alloc, &path, 1, t, 257));
    weft_sampler sampler;
    expect_failure(weft_i_sampler_init(&sampler, d, 0, weft_i_dataset_tokens(d), 8, 1, true),
                   WEFT_STATUS_FORMAT, path, count, "need at least 9", NULL);
    weft_i_dataset_close(d);
    weft_i_tokenizer_close(t);
}

static void test_data_sampler__too_little_data_is_refused(void **state)
{
    expect_too_short(*state, 0, "0 tokens");
    expect_too_short(*state, 1, "1 tokens");
    expect_too_short(*state, 8, "8 tokens"); /* seq_length */
}

static void test_data_sampler__windows_share_one_token(void **state)
{
    scratch *s = *state;
    const char *path = scratch_file(s, "text", "0123456789abcdefghij", 20);
    weft_tokenizer *t = NULL;
    weft_dataset *d = NULL;
    expect_ok(weft_i_tokenizer_open(&t, s->alloc, "byte"));
    expect_ok(weft_i_dataset_open(&d, s->alloc, &path, 1, t, 257));
    weft_sampler sampler;
    expect_ok(weft_i_sampler_init(&sampler, d, 0, 9, 8, 1, true)); /* seq_length + 1: one sample */
    assert_int_equal(sampler.n_windows, 1);
    expect_ok(weft_i_sampler_init(&sampler, d, 1, 18, 8, 1, false));
    assert_int_equal(sampler.n_windows, 2); /* 17 of 18 tokens */
    int32_t ids[9];
    expect_ok(weft_i_sampler_read(&sampler, 0, ids));
    for (int i = 0; i < 9; i++)
        assert_int_equal(ids[i], "123456789"[i]);
    expect_ok(weft_i_sampler_read(&sampler, 3, ids));
    for (int i = 0; i < 9; i++)
        assert_int_equal(ids[i], "9abcdefgh"[i]);
    expect_failure(weft_i_sampler_init(&sampler, d, 10, 11, 8, 1, true), WEFT_STATUS_ARG,
                   "10 to 20", NULL);
    expect_failure(weft_i_sampler_init(&sampler, d, 0, 20, 0, 1, true), WEFT_STATUS_ARG,
                   "length of 0", NULL);
    weft_i_dataset_close(d);
    weft_i_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_sampler__every_window_comes_once_an_epoch),
        cmocka_unit_test(test_data_sampler__epochs_and_seeds_have_orders_of_their_own),
        cmocka_unit_test(test_data_sampler__the_order_is_well_mixed),
        cmocka_unit_test(test_data_sampler__windows_beyond_32_bits),
        cmocka_unit_test_setup_teardown(test_data_sampler__too_little_data_is_refused,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_sampler__windows_share_one_token, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
