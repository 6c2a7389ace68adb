/*
 * Faults that users of other programs met with pipelines: micro-batches without targets, losses weighed by micro-batch,
 * weight decay and learning rates that know of ranks, the memory that is reported.
 */
#include "ranks_parity.h"
#include "train_case.h"

#include <ctype.h>

static const ranks_layout layouts[] = {
    {.pp = 2},
    {.pp = 3, .schedule = "gpipe"},
    {.pp = 2, .schedule = "interleaved", .chunks = 2},
    {.pp = 2, .schedule = "zb-h1"},
    {.pp = 2, .dp = 2, .stage = 3, .schedule = "zb-h2"},
    {.pp = 2, .tp = 2, .is_sequence_parallel = true},
};

/* Sequence `seq` keeps its first n targets. */
static void mask(ranks_case *c, int step, int64_t seq, int n)
{
    int32_t *t = (int32_t *)(uintptr_t)c->batch[step].targets +
                 seq * c->options.seq_length; /* the case's own */
    for (int i = 0; i < c->options.seq_length; i++)
        t[i] = i < n ? (i * 11 + (int)seq) % 53 : -100;
}

static void run(ranks_result *r, ranks_case *c, const ranks_layout *l)
{
    ranks_case_apply(c, l);
    ranks_case_run(r, c);
}

/* Micro-batches of 5, 0, 1 and 12 targets: the mean over tokens, of one rank with the batch in one piece. */
static void test_parallel_pipeline_kinds__micro_batches_weigh_by_their_targets(void **state)
{
    static const int n_targets[] = {5, 0, 1, 12};
    const ranks_layout alone = {.dp = 1};
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        ranks_case c;
        ranks_result one, r;
        char why[256], text[128];
        ranks_parity_init(&c, *state, &odd_tied, true);
        ranks_case_batches(&c, odd_tied.vocab, 4, 2, 3);
        for (int k = 0; k < 2 * 4; k++)
            mask(&c, k / 4, k % 4, n_targets[k % 4]);
        c.options.layout.micro_batch_size = 4;
        run(&one, &c, &alone);
        c.options.layout.micro_batch_size = 1;
        run(&r, &c, &layouts[i]);
        assert_int_equal(r.outcome[0].n_targets, 18);
        ranks_layout_text(&layouts[i], text);
        if (!ranks_near_gradients(&one, &r, RANKS_GRADIENT_BOUND, why) ||
            !ranks_near_sgd(&one, &r, why))
            fail_msg("%s: %s", text, why);
        CHECK_NEAR(r.outcome[0].loss / one.outcome[0].loss, 1.0, 1e-6);
        ranks_result_fini(&one);
        ranks_result_fini(&r);
        ranks_case_fini(&c);
    }
}

/* No target in the whole step: no number that is not one, no weight moved, decay or not, and one warning. */
static void test_parallel_pipeline_kinds__a_step_without_targets_changes_nothing(void **state)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        ranks_case c;
        ranks_result r;
        ranks_parity_init(&c, *state, &odd_tied, false);
        c.options.weight_decay = 0.5;
        ranks_case_batches(&c, odd_tied.vocab, 3, 1, 3);
        for (int k = 0; k < 3; k++)
            mask(&c, 0, k, 0);
        run(&r, &c, &layouts[i]);
        assert_int_equal(r.outcome[0].n_targets, 0);
        CHECK_SAME_DOUBLE(r.outcome[0].loss, 0.0);
        assert_int_equal(r.n_empty_warnings, 1);
        assert_memory_equal(r.weight, r.begin, (size_t)r.n_elems * sizeof(float));
        ranks_result_fini(&r);
        ranks_case_fini(&c);
    }
}

/* Decay touches no tensor of one dimension, on any stage. */
static void test_parallel_pipeline_kinds__decay_is_for_matrices(void **state)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        ranks_case c;
        ranks_result r[2];
        ranks_parity_init(&c, *state, &odd_gpt2, false);
        ranks_case_batches(&c, odd_gpt2.vocab, 3, 1, 5);
        for (int k = 0; k < 2; k++) {
            c.options.weight_decay = 0.5 * k;
            run(&r[k], &c, &layouts[i]);
        }
        for (int k = 0; k < r[0].n_params; k++) {
            const ranks_param *p = &r[0].param[k];
            const bool is_same = memcmp(r[0].weight + p->first, r[1].weight + p->first,
                                        (size_t)p->n * sizeof(float)) == 0;
            if (is_same != (p->n_dims == 1))
                fail_msg("%s: decay %s it", p->name, is_same ? "leaves" : "moves");
        }
        ranks_result_fini(&r[0]);
        ranks_result_fini(&r[1]);
        ranks_case_fini(&c);
    }
}

/* 20 rates of warm-up and cosine, the same for any number of stages and micro-batches. */
static void test_parallel_pipeline_kinds__rates_count_steps(void **state)
{
    const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one, r;
    ranks_parity_init(&c, *state, &odd_small, false);
    c.options.lr_schedule = "cosine";
    c.options.lr_warmup_steps = 4;
    ranks_case_batches(&c, odd_small.vocab, 4, RANKS_STEPS, 5);
    run(&one, &c, &alone);
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        run(&r, &c, &layouts[i]);
        for (int k = 0; k < RANKS_STEPS; k++)
            CHECK_SAME_DOUBLE(r.outcome[k].lr, one.outcome[k].lr);
        ranks_result_fini(&r);
    }
    assert_true(one.outcome[0].lr < one.outcome[3].lr && one.outcome[19].lr < one.outcome[10].lr);
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* The numbers of a line of the report, without the commas in them. */
static int read_numbers(const char *line, int64_t out[RANKS_MOST])
{
    int n = 0;
    for (const char *p = line; *p != '\0' && n < RANKS_MOST; p++) {
        if (isdigit((unsigned char)*p) == 0)
            continue;
        out[n] = 0;
        for (; isdigit((unsigned char)*p) != 0 || *p == ','; p++)
            out[n] = *p == ',' ? out[n] : out[n] * 10 + (*p - '0');
        n++;
        if (*p == '\0')
            break;
    }
    return n;
}

/* The memory that is reported is the largest of all ranks, with the rank that has it: the last stage, here. */
static void test_parallel_pipeline_kinds__the_largest_rank_is_reported(void **state)
{
    static train_record r;
    train_case c;
    int64_t sum[RANKS_MOST], most[RANKS_MOST];
    int n = 0, n_most = 0;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    (void)odd_write(&odd_llama, *state, c.config);
    train_case_out(&c, "most");
    c.options.layout.pp = 3;
    c.options.layout.stage_layers = "1,1,5";
    c.options.layout.micro_batch_size = 1;
    c.options.train_steps = 3;
    c.options.eval_interval = 0;
    CHECK_OK(train_case_run(&c, &r));
    for (int i = 0; i < r.n_notes; i++) {
        if (strncmp(r.note[i], "sum ", 4) == 0)
            n = read_numbers(r.note[i], sum);
        if (strncmp(r.note[i], "most memory: ", 13) == 0)
            n_most = read_numbers(r.note[i], most);
    }
    assert_int_equal(n, 3);
    assert_true(n_most >= 2);
    assert_true(sum[2] > sum[0] && sum[2] > sum[1]);
    assert_int_equal(most[0], 2);
    assert_int_equal(most[1], sum[2]);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_pipeline_kinds__##test, scratch_setup,           \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(micro_batches_weigh_by_their_targets),
        RUN(a_step_without_targets_changes_nothing),
        RUN(decay_is_for_matrices),
        RUN(rates_count_steps),
        RUN(the_largest_rank_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
