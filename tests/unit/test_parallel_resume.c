/*
 * Stopping and going on: in the same layout, bit for bit; in any other, the same curve, and the same bits where
 * --reproducible asks for them. Whole runs of weft_train_run, through the checkpoint on disk; folders compared as
 * `weft diff --exact` compares them.
 */
#include "ranks_case.h"
#include "train_case.h"

#include "weft/inspect.h"

#define MOST_LEGS 4

/* One call of `weft train`: until step `until`, in this layout. */
typedef struct leg {
    int64_t until;
    ranks_layout layout;
} leg;

typedef struct journey {
    const odd_model *model;
    const char *dtype;
    leg legs[MOST_LEGS]; /* until 0: no more */
} journey;

/* The curve of a whole journey, by step. */
typedef struct curve {
    double loss[TRAIN_CASE_STEPS];
    uint64_t hash[TRAIN_CASE_STEPS];
    int n;
} curve;

static void setup(train_case *c, scratch *s, const odd_model *m, const char *dtype)
{
    train_case_init(c, s, WEFT_FAMILY_LLAMA, 0.0);
    (void)odd_write(m, s, c->config);
    train_case_tokens(c->data, 40 * 12 + 1, m->vocab, 5);
    c->options.seq_length = 12;
    c->options.layout.dtype = dtype;
    c->options.layout.backend = RANKS_BACKEND;
    c->options.layout.micro_batch_size = 1;
    c->options.layout.global_batch_size = 7;
    c->options.eval_interval = 0;
    c->options.lr = 3e-3;
    c->options.lr_schedule = "cosine";
    c->options.lr_decay_steps = 20;
    c->options.lr_warmup_steps = 2;
    c->options.keep_checkpoints = 0;
    for (int i = 0; i < 2; i++)
        c->options.n_freeze += m->freeze[i] != NULL ? 1 : 0;
    c->options.freeze = (const char **)(uintptr_t)m->freeze; /* read only */
}

/* The rate must not depend on the leg's length, so the whole length is in the schedule alone (lr_decay_steps). */
static void run_legs(train_case *c, const leg *legs, curve *out)
{
    static train_record r;
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < MOST_LEGS && legs[i].until > 0; i++) {
        ranks_layout_apply(&c->options.layout, &legs[i].layout);
        c->options.train_steps = legs[i].until;
        c->options.resume = i > 0 ? "" : NULL;
        memset(&r, 0, sizeof(r));
        CHECK_OK(train_case_run(c, &r));
        for (int k = 0; k < r.n_steps; k++) {
            assert_int_equal(r.step[k].step, out->n + 1);
            out->loss[out->n] = r.step[k].loss;
            out->hash[out->n++] = r.step[k].batch_hash;
        }
        assert_int_equal(out->n, legs[i].until);
    }
}

/* What `weft diff` finds between OUT/checkpoint-STEP of two runs. */
static size_t
count_different(const char *a, const char *b, int64_t step, double tolerance, char why[256])
{
    char x[1200], y[1200];
    weft_diff *d = NULL;
    (void)snprintf(x, sizeof(x), "%s/checkpoint-%lld", a, (long long)step);
    (void)snprintf(y, sizeof(y), "%s/checkpoint-%lld", b, (long long)step);
    const weft_diff_options o = {
        .a = x, .b = y, .exact = tolerance == 0.0, .tolerance = tolerance, .top = 1};
    CHECK_OK(weft_diff_create(&d, &o));
    assert_true(d->n_compared > 10);
    const size_t n = d->n_different;
    if (n > 0)
        (void)snprintf(why, 256, "%zu tensors differ, %.100s by %.3g", n, d->tensors[0].name,
                       d->tensors[0].max_abs);
    weft_diff_destroy(d);
    return n;
}

/* The journey in one go, in the layout of its first leg, and leg by leg. */
static void check_journey(scratch *s, const journey *j, bool is_exact)
{
    train_case c;
    curve straight, cut;
    char first[1024], text[128], why[256] = "";
    int64_t last = 0;
    for (int i = 0; i < MOST_LEGS && j->legs[i].until > 0; i++)
        last = j->legs[i].until;
    const leg whole[MOST_LEGS] = {{.until = last, .layout = j->legs[0].layout}};
    setup(&c, s, j->model, j->dtype);
    train_case_out(&c, "straight");
    (void)snprintf(first, sizeof(first), "%s", c.out);
    run_legs(&c, whole, &straight);
    train_case_out(&c, "cut");
    run_legs(&c, j->legs, &cut);
    for (int i = 0; i < cut.n; i++) {
        if (is_exact)
            CHECK_SAME_DOUBLE(cut.loss[i], straight.loss[i]);
        CHECK_NEAR(cut.loss[i] / straight.loss[i], 1.0, 1e-5);
        assert_int_equal(cut.hash[i], straight.hash[i]);
        for (int k = 0; k < i && i < 5; k++) /* 35 of 40 samples: none twice */
            assert_int_not_equal(cut.hash[i], cut.hash[k]);
    }
    if (is_exact && count_different(first, c.out, last, 0.0, why) > 0)
        fail_msg("%s %s from (%s): %s", j->model->name, j->dtype,
                 ranks_layout_text(&j->legs[0].layout, text), why);
    CHECK_OK(weft_i_dir_remove(first));
    CHECK_OK(weft_i_dir_remove(c.out));
}

static void test_parallel_resume__in_the_same_layout_it_is_the_same_run(void **state)
{
#define TWICE(...)                                                                                 \
    {                                                                                              \
        {5, {__VA_ARGS__}},                                                                        \
        {                                                                                          \
            10,                                                                                    \
            {                                                                                      \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    }
    static const journey journeys[] = {
        {&odd_llama, "fp32", TWICE(.dp = 2)},
        {&odd_gpt2_dropout, "fp32", TWICE(.dp = 3, .stage = 1)},
        {&odd_tied, "bf16", TWICE(.dp = 2, .stage = 2)},
        {&odd_gpt2, "bf16", TWICE(.dp = 3, .stage = 3)},
        {&odd_llama_frozen, "fp32", TWICE(.dp = 8, .stage = 3)},
        {&odd_gpt2_frozen, "bf16", TWICE(.dp = 2, .stage = 1, .is_reproducible = true)},
        {&odd_llama, "fp32", TWICE(.tp = 4)},
        {&odd_tied, "bf16", TWICE(.dp = 2, .tp = 3, .stage = 2)},
        {&odd_gpt2_dropout, "fp32",
         TWICE(.dp = 2, .tp = 2, .stage = 3, .is_sequence_parallel = true)},
        {&odd_tied, "fp32", TWICE(.pp = 3, .schedule = "zb-h1")},
        {&odd_gpt2_dropout, "bf16",
         TWICE(.dp = 2, .pp = 2, .stage = 3, .schedule = "interleaved", .chunks = 2)},
        {&odd_tied, "fp32", TWICE(.dp = 2, .tp = 2, .pp = 2, .stage = 1)},
        /* what changes no bit may change on the way */
        {&odd_llama,
         "fp32",
         {{3, {.pp = 4}},
          {5, {.pp = 2, .schedule = "interleaved", .chunks = 3}},
          {7, {.dp = 1}},
          {10, {.pp = 3, .stage_layers = "1,5,1", .schedule = "zb-h2", .recompute = "full"}}}},
        {&odd_llama,
         "fp32",
         {{5, {.dp = 3, .stage = 3}},
          {7, {.dp = 3, .stage = 2, .is_not_overlapped = true}},
          {10, {.dp = 3, .stage = 3, .has_no_prefetch = true, .n_threads = 2}}}},
    };
#undef TWICE
    for (size_t i = 0; i < sizeof(journeys) / sizeof(journeys[0]); i += RANKS_STRIDE)
        check_journey(*state, &journeys[i], true);
}

/* dp 4 ZeRO-3, one rank, dp 3 ZeRO-1: the curve of a run that was never cut. */
static void test_parallel_resume__in_another_layout_the_curve_goes_on(void **state)
{
    static const journey journeys[] = {
        {&odd_llama,
         "fp32",
         {{4, {.dp = 4, .stage = 3}}, {8, {.dp = 1}}, {12, {.dp = 3, .stage = 1}}}},
        {&odd_gpt2_dropout,
         "fp32",
         {{3, {.dp = 4, .stage = 3}}, {6, {.dp = 1}}, {9, {.dp = 3, .stage = 1}}}},
        {&odd_tied, "fp32", {{4, {.dp = 4, .stage = 1}}, {8, {.dp = 2, .stage = 3}}}},
        {&odd_llama_frozen, "fp32", {{3, {.dp = 2, .stage = 2}}, {6, {.dp = 8}}}},
        /* copied kv heads, uneven cuts and the optimizer's state of both axes come and go */
        {&odd_llama,
         "fp32",
         {{3, {.tp = 4}}, {6, {.dp = 4, .stage = 3}}, {8, {.dp = 1}}, {11, {.dp = 2, .tp = 3}}}},
        {&odd_gpt2_dropout,
         "fp32",
         {{3, {.tp = 2}},
          {6, {.tp = 5, .is_sequence_parallel = true}},
          {9, {.dp = 3, .stage = 1}}}},
        {&odd_tied,
         "fp32",
         {{3, {.dp = 2, .tp = 2, .stage = 3}},
          {6, {.dp = 2, .tp = 4, .stage = 1}},
          {9, {.dp = 1}}}},
        /* tp 2 pp 2, dp 4 ZeRO-3, one rank, all three axes */
        {&odd_llama,
         "fp32",
         {{3, {.tp = 2, .pp = 2}},
          {6, {.dp = 4, .stage = 3}},
          {8, {.dp = 1}},
          {11, {.dp = 2, .tp = 2, .pp = 2, .stage = 1}}}},
        {&odd_tied,
         "fp32",
         {{3, {.tp = 2, .pp = 2, .schedule = "zb-h1", .is_sequence_parallel = true}},
          {6, {.dp = 4, .stage = 3}},
          {8, {.dp = 1}},
          {11, {.dp = 2, .tp = 2, .pp = 2, .stage = 3, .schedule = "interleaved", .chunks = 2}}}},
        {&odd_gpt2_dropout,
         "fp32",
         {{3, {.dp = 4, .stage = 1}},
          {6, {.tp = 2, .pp = 2}},
          {9, {.pp = 3, .dp = 2, .stage = 2}}}},
        {&odd_llama_frozen, "fp32", {{3, {.pp = 3, .dp = 2, .stage = 2}}, {6, {.pp = 2}}}},
    };
    for (size_t i = 0; i < sizeof(journeys) / sizeof(journeys[0]); i += RANKS_STRIDE)
        check_journey(*state, &journeys[i], false);
}

static void test_parallel_resume__reproducible_means_the_same_bits_in_any_layout(void **state)
{
#define R .is_reproducible = true
    static const journey journeys[] = {
        {&odd_llama,
         "fp32",
         {{4, {.dp = 4, .stage = 3, R}}, {8, {.dp = 1, R}}, {12, {.dp = 3, .stage = 1, R}}}},
        {&odd_gpt2_dropout,
         "bf16",
         {{3, {.dp = 1, R}}, {5, {.dp = 8, .stage = 2, R}}, {8, {.dp = 2, .stage = 3, R}}}},
        {&odd_tied, "bf16", {{3, {.dp = 5, R}}, {6, {.dp = 3, .stage = 3, R}}, {8, {.dp = 1, R}}}},
        {&odd_gpt2_frozen, "fp32", {{3, {.dp = 2, .stage = 3, R}}, {6, {.dp = 3, .stage = 2, R}}}},
        {&odd_tied,
         "fp32",
         {{3, {.dp = 2, .pp = 3, .stage = 3, R}},
          {6, {.dp = 1, R}},
          {9, {.pp = 4, .dp = 2, .schedule = "zb-h2", R}}}},
        {&odd_gpt2_dropout,
         "bf16",
         {{2, {.pp = 2, .schedule = "interleaved", .chunks = 3, R}},
          {5, {.dp = 4, .stage = 2, R}}}},
    };
#undef R
    for (size_t i = 0; i < sizeof(journeys) / sizeof(journeys[0]); i += RANKS_STRIDE)
        check_journey(*state, &journeys[i], true);
}

/* Frozen layers in every stage: saved, restored bit for bit, without optimizer state. */
static void test_parallel_resume__frozen_weights_come_through(void **state)
{
    static const char *freeze[] = {"model.layers.0.*", "model.layers.1.*"};
    for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
        train_case c;
        curve curves[2];
        weft_st *before = NULL, *after = NULL, *moments = NULL;
        char input[1040], path[1200], why[256] = "";
        int n_frozen = 0;
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        c.options.eval_interval = 0;
        c.options.layout.backend = RANKS_BACKEND;
        c.options.lr_schedule = "constant";
        c.options.train_steps = 1; /* a folder to start from */
        train_case_out(&c, "input");
        CHECK_OK(train_case_run(&c, NULL));
        (void)snprintf(input, sizeof(input), "%s/checkpoint-1", c.out);
        c.options.model = input;
        c.options.freeze = freeze;
        c.options.n_freeze = 2;
        c.options.layout.global_batch_size = 8;
        c.options.keep_checkpoints = 0;
        const ranks_layout l = {.dp = 2, .stage = stage};
        const leg whole[MOST_LEGS] = {{6, l}}, cut[MOST_LEGS] = {{3, l}, {6, l}};
        train_case_out(&c, "whole");
        char first[1024];
        (void)snprintf(first, sizeof(first), "%s", c.out);
        run_legs(&c, whole, &curves[0]);
        train_case_out(&c, "cut");
        run_legs(&c, cut, &curves[1]);
        for (int i = 0; i < 6; i++)
            CHECK_SAME_DOUBLE(curves[0].loss[i], curves[1].loss[i]);
        if (count_different(first, c.out, 6, 0.0, why) > 0)
            fail_msg("stage %d: %s", stage, why);
        CHECK_OK(weft_i_st_open_folder(&before, c.s->alloc, input, "model"));
        (void)snprintf(path, sizeof(path), "%s/checkpoint-6", c.out);
        CHECK_OK(weft_i_st_open_folder(&after, c.s->alloc, path, "model"));
        CHECK_OK(weft_i_st_open_folder(&moments, c.s->alloc, path, "optimizer"));
        for (size_t i = 0; i < weft_i_st_count(before); i++) {
            const weft_st_tensor *x = weft_i_st_at(before, i);
            const weft_st_tensor *y = weft_i_st_find(after, x->name);
            const bool is_frozen = strncmp(x->name, "model.layers.0.", 15) == 0 ||
                                   strncmp(x->name, "model.layers.1.", 15) == 0;
            assert_non_null(y);
            const bool is_same = memcmp(x->data, y->data, x->n_bytes) == 0;
            if (is_same != is_frozen)
                fail_msg("stage %d: %s is the same: %d, frozen: %d", stage, x->name, is_same,
                         is_frozen);
            (void)snprintf(path, sizeof(path), "exp_avg/%s", x->name);
            assert_int_equal(weft_i_st_find(moments, path) == NULL, is_frozen);
            n_frozen += is_frozen ? 1 : 0;
        }
        assert_int_equal(n_frozen, 18);
        weft_i_st_close(before);
        weft_i_st_close(after);
        weft_i_st_close(moments);
        CHECK_OK(weft_i_dir_remove(first));
        CHECK_OK(weft_i_dir_remove(c.out));
        train_case_out(&c, "input");
        CHECK_OK(weft_i_dir_remove(c.out));
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_resume__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(in_the_same_layout_it_is_the_same_run),
        TEST(in_another_layout_the_curve_goes_on),
        TEST(reproducible_means_the_same_bits_in_any_layout),
        TEST(frozen_weights_come_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
