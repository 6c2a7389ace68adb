/*
 * Choosing ids: ties, the borders of top-k and top-p, that a draw is a function of (seed, prompt, position), and that
 * frequencies are the probabilities.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "infer/sampling.h"

#define MAX_IDS 300

static int32_t
pick(const weft_sampling *s, const float *logits, int64_t n, int64_t prompt, int64_t at)
{
    static weft_candidate scratch[MAX_IDS];
    int32_t id = -1;
    CHECK_OK(weft_i_sampling_pick(&id, s, logits, n, scratch, prompt, at));
    return id;
}

static void test_infer_sampling__greedy_takes_the_lowest_of_equals(void **state)
{
    const weft_sampling s = {.temperature = 0.0, .top_p = 1.0};
    const float logits[] = {1.0f, 3.0f, 3.0f, -7.0f, 3.0f};
    (void)state;
    assert_int_equal(pick(&s, logits, 5, 0, 0), 1);
    assert_int_equal(pick(&s, logits, 1, 0, 0), 0);
}

/* Draws until every id that may come has come; which[i] counts. */
static void
count_draws(const weft_sampling *s, const float *logits, int64_t n, int64_t draws, int64_t *which)
{
    memset(which, 0, (size_t)n * sizeof(*which));
    for (int64_t i = 0; i < draws; i++)
        which[pick(s, logits, n, i % 7, i / 7)]++;
}

static void test_infer_sampling__top_k_keeps_ties_with_the_kth(void **state)
{
    const weft_sampling s = {.temperature = 5.0, .top_k = 2, .top_p = 1.0, .seed = 3};
    const float logits[] = {0.5f, 2.0f, 1.0f, 1.0f, 0.9f, 1.0f};
    int64_t n[6];
    (void)state;
    count_draws(&s, logits, 6, 2000, n);
    assert_true(n[1] > 0 && n[2] > 0 && n[3] > 0 && n[5] > 0);
    assert_int_equal(n[0] + n[4], 0);
}

static void test_infer_sampling__top_k_of_one_is_greedy(void **state)
{
    const weft_sampling s = {.temperature = 3.0, .top_k = 1, .top_p = 1.0, .seed = 3};
    const float logits[] = {0.5f, 2.0f, 1.9f};
    int64_t n[3];
    (void)state;
    count_draws(&s, logits, 3, 500, n);
    assert_int_equal(n[1], 500);
}

/* Probabilities 0.5, 0.3, 0.15, 0.05 in mixed order. */
static void test_infer_sampling__top_p_removes_while_the_tail_is_within(void **state)
{
    const float logits[] = {logf(0.15f), logf(0.5f), logf(0.05f), logf(0.3f)};
    /* top_p and who stays: removed is what sums, from the least, to at most 1 - top_p. */
    static const struct {
        double top_p;
        bool stays[4];
    } cases[] = {{0.99, {true, true, true, true}},     {0.94, {true, true, false, true}},
                 {0.81, {true, true, false, true}},    {0.79, {false, true, false, true}},
                 {0.51, {false, true, false, true}},   {0.49, {false, true, false, false}},
                 {0.0001, {false, true, false, false}}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const weft_sampling s = {.temperature = 1.0, .top_p = cases[i].top_p, .seed = 9};
        int64_t n[4];
        count_draws(&s, logits, 4, 3000, n);
        for (int k = 0; k < 4; k++) {
            if ((n[k] > 0) != cases[i].stays[k])
                fail_msg("top_p %g: id %d came %lld times", cases[i].top_p, k, (long long)n[k]);
        }
    }
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The same set as a plain sort gives, for rows of random logits with ties. */
static void test_infer_sampling__top_p_agrees_with_a_plain_sort(void **state)
{
    const weft_rng_key key = weft_i_rng_key(4, "sampling");
    (void)state;
    for (uint64_t row = 0; row < 40; row++) {
        const int64_t n = 20 + (int64_t)row * 7;
        const double top_p = 0.05 + 0.9 * weft_i_rng_uniform(key, 100000 + row);
        const double temperature = 0.5 + weft_i_rng_uniform(key, 200000 + row);
        float logits[MAX_IDS];
        double p[MAX_IDS];
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) { /* quarters: many ties */
            logits[i] =
                (float)floor(8.0 * weft_i_rng_normal(key, row * MAX_IDS + (uint64_t)i)) * 0.25f;
            p[i] = exp((double)logits[i] / temperature);
            sum += p[i];
        }
        qsort(p, (size_t)n, sizeof(*p), descending);
        double removed = 0.0;
        int64_t n_left = n;
        while (n_left > 1 && removed + p[n_left - 1] <= (1.0 - top_p) * sum)
            removed += p[--n_left];
        const double least = p[n_left - 1]; /* the least probable that stays */
        const weft_sampling s = {.temperature = temperature, .top_p = top_p, .seed = row};
        int64_t counts[MAX_IDS];
        count_draws(&s, logits, n, 4000, counts);
        for (int64_t i = 0; i < n; i++) {
            const double mine = exp((double)logits[i] / temperature);
            if (counts[i] > 0 && mine < least * (1.0 - 1e-9))
                fail_msg("row %d: id %d was drawn and should be cut", (int)row, (int)i);
        }
        int64_t n_drawn = 0;
        for (int64_t i = 0; i < n; i++)
            n_drawn += counts[i] > 0;
        assert_true(n_drawn <= n_left);
        assert_true(n_left > 30 || n_drawn == n_left || 4000.0 * least / (sum - removed) < 15.0);
    }
}

/* Chi-squared with 7 degrees of freedom; 24.3 is exceeded once in 1000. The draws are fixed, so this never flickers. */
static void test_infer_sampling__frequencies_are_probabilities(void **state)
{
    const weft_sampling s = {.temperature = 2.0, .top_p = 1.0, .seed = 11};
    const float logits[8] = {0.0f, 1.0f, 2.0f, -1.0f, 3.0f, 0.5f, -2.0f, 1.5f};
    const int64_t draws = 40000;
    int64_t n[8];
    double sum = 0.0;
    double chi2 = 0.0;
    (void)state;
    for (int i = 0; i < 8; i++)
        sum += exp((double)logits[i] / 2.0);
    count_draws(&s, logits, 8, draws, n);
    for (int i = 0; i < 8; i++) {
        const double want = (double)draws * exp((double)logits[i] / 2.0) / sum;
        chi2 += ((double)n[i] - want) * ((double)n[i] - want) / want;
    }
    if (!(chi2 < 24.3))
        fail_msg("chi squared is %g", chi2);
}

static void test_infer_sampling__a_draw_is_a_function_of_its_place(void **state)
{
    const weft_sampling a = {.temperature = 1.0, .top_p = 1.0, .seed = 1};
    const weft_sampling b = {.temperature = 1.0, .top_p = 1.0, .seed = 2};
    float logits[64] = {0};
    int n_seed = 0;
    int n_prompt = 0;
    int n_position = 0;
    (void)state;
    for (int64_t i = 0; i < 100; i++) {
        const int32_t id = pick(&a, logits, 64, 3, i);
        assert_int_equal(id, pick(&a, logits, 64, 3, i));
        n_seed += id != pick(&b, logits, 64, 3, i);
        n_prompt += id != pick(&a, logits, 64, 4, i);
        n_position += id != pick(&a, logits, 64, 3, i + 1);
    }
    assert_true(n_seed > 80 && n_prompt > 80 && n_position > 80);
}

/* 10,000 ids at temperature 5: none beyond those that may be chosen. */
static void test_infer_sampling__surplus_rows_never_come(void **state)
{
    const weft_sampling s = {.temperature = 5.0, .top_p = 1.0, .seed = 5};
    float logits[64];
    int64_t n[64];
    (void)state;
    for (int i = 0; i < 64; i++) /* what lies beyond is tempting */
        logits[i] = i < 53 ? 0.0f : 50.0f;
    memset(n, 0, sizeof(n));
    for (int64_t i = 0; i < 10000; i++)
        n[pick(&s, logits, 53, 0, i)]++;
    for (int i = 0; i < 64; i++)
        assert_true(i < 53 ? n[i] > 0 : n[i] == 0);
    const weft_sampling greedy = {.temperature = 0.0, .top_p = 1.0};
    assert_int_equal(pick(&greedy, logits, 53, 0, 0), 0);
}

static void test_infer_sampling__refuses_what_is_not_finite(void **state)
{
    const weft_sampling s = {.temperature = 1.0, .top_p = 1.0};
    const float logits[3] = {0.0f, NAN, 1.0f};
    weft_candidate scratch[3];
    int32_t id = 0;
    (void)state;
    CHECK_FAILS(weft_i_sampling_pick(&id, &s, logits, 3, scratch, 2, 17), WEFT_STATUS_NUMERIC,
                "prompt 2: the logit of id 1 for position 17");
}

static void test_infer_sampling__refuses_options_out_of_range(void **state)
{
    static const weft_sampling bad[] = {{.temperature = -1.0, .top_p = 1.0},
                                        {.temperature = (double)NAN, .top_p = 1.0},
                                        {.temperature = (double)INFINITY, .top_p = 1.0},
                                        {.top_k = -1, .top_p = 1.0},
                                        {.top_p = 0.0},
                                        {.top_p = 1.5},
                                        {.top_p = (double)NAN}};
    const weft_sampling good = {.top_p = 1.0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(weft_i_sampling_check(&bad[i]), WEFT_STATUS_ARG);
    CHECK_OK(weft_i_sampling_check(&good));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_infer_sampling__greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_infer_sampling__top_k_keeps_ties_with_the_kth),
        cmocka_unit_test(test_infer_sampling__top_k_of_one_is_greedy),
        cmocka_unit_test(test_infer_sampling__top_p_removes_while_the_tail_is_within),
        cmocka_unit_test(test_infer_sampling__top_p_agrees_with_a_plain_sort),
        cmocka_unit_test(test_infer_sampling__frequencies_are_probabilities),
        cmocka_unit_test(test_infer_sampling__a_draw_is_a_function_of_its_place),
        cmocka_unit_test(test_infer_sampling__surplus_rows_never_come),
        cmocka_unit_test(test_infer_sampling__refuses_what_is_not_finite),
        cmocka_unit_test(test_infer_sampling__refuses_options_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
