/*
 * What users of other programs ran into on data-parallel ranks, with the right value of each: losses that depend on how a
 * batch is split, ranks without a target, norms that depend on the stage, weights that depend on the layout, decay where it
 * does not belong, schedules that run once a rank, tensors that nobody updates, batches that do not divide.
 */
#include "ranks_compare.h"
#include "tiny.h"
#include "train_case.h"

#include <math.h>

static float *begin_of(const ranks_result *r, const char *name, int64_t *n)
{
    for (int i = 0; i < r->n_params; i++) {
        if (strcmp(r->param[i].name, name) == 0) {
            *n = r->param[i].n;
            return r->begin + r->param[i].first;
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

/* The ids and targets of a case are its own. */
static void mask(ranks_case *c, int step, int64_t seq, int64_t n_counted)
{
    int32_t *t = (int32_t *)(uintptr_t)c->batch[step].targets;
    for (int64_t i = 0; i < c->options.seq_length; i++)
        t[seq * c->options.seq_length + i] = i < n_counted ? (int32_t)(i * 11 % 53) : -100;
}

/* Relative to the tensor's own size of a weight, 1e-6. */
static void same_to_a_millionth(const ranks_result *a, const ranks_result *b)
{
    CHECK_NEAR(a->outcome[0].loss / b->outcome[0].loss, 1.0, 1e-6);
    CHECK_NEAR(a->outcome[0].grad_norm / b->outcome[0].grad_norm, 1.0, 1e-6);
    for (int64_t i = 0; i < a->n_elems; i++)
        CHECK_NEAR((double)a->weight[i], (double)b->weight[i],
                   1e-6 * fabs((double)b->weight[i]) + 1e-8);
}

/* Five counted tokens on one rank, one on the other: each token weighs the same, as in one micro-batch of both. */
static void test_parallel_kinds__uneven_ranks_weigh_by_their_tokens(void **state)
{
    for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
        ranks_case c;
        ranks_result one, two;
        ranks_case_init(&c, *state, &odd_small);
        c.options.optimizer = "sgd";
        c.options.lr = 0.1;
        ranks_case_batches(&c, odd_small.vocab, 2, 1, 1);
        mask(&c, 0, 0, 5);
        mask(&c, 0, 1, 1);
        c.options.layout.micro_batch_size = 2;
        ranks_case_layout(&c, 1, 0, false);
        ranks_case_run(&one, &c);
        c.options.layout.micro_batch_size = 1;
        ranks_case_layout(&c, 2, stage, false);
        ranks_case_run(&two, &c);
        assert_int_equal(two.outcome[0].n_targets, 6);
        same_to_a_millionth(&two, &one);
        ranks_result_fini(&one);
        ranks_result_fini(&two);
        ranks_case_fini(&c);
    }
}

static void clear_head(const char *name, float *values, int64_t n)
{
    if (strcmp(name, "lm_head.weight") == 0)
        memset(values, 0, (size_t)n * sizeof(float));
}

/* The same 8 sequences in every split: the same loss, ln 53 where the head is zeros, and the same norm. */
static void test_parallel_kinds__the_loss_does_not_depend_on_the_split(void **state)
{
    static const tiny_folder folder = {.config = tiny_llama, .edit = clear_head};
    static const struct {
        int dp, stage;
        int64_t micro_batch;
    } splits[] = {{1, 0, 8}, {1, 0, 1}, {2, 0, 4}, {2, 3, 1}, {4, 1, 2},
                  {4, 2, 1}, {3, 3, 2}, {8, 0, 1}, {8, 3, 1}, {8, 2, 2}};
    ranks_case c;
    double loss = 0, norm = 0;
    for (int is_zero = 0; is_zero < 2; is_zero++) {
        ranks_case_init(&c, *state, &odd_small);
        if (is_zero == 1)
            (void)tiny_write(*state, "zero_head", &folder, c.model);
        ranks_case_batches(&c, 53, 8, 1, 2);
        for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
            ranks_result r;
            c.options.layout.micro_batch_size = splits[i].micro_batch;
            ranks_case_layout(&c, splits[i].dp, splits[i].stage, false);
            ranks_case_run(&r, &c);
            if (is_zero == 1)
                CHECK_NEAR(r.outcome[0].loss, 3.970292, 1e-6);
            if (i > 0) {
                CHECK_NEAR(r.outcome[0].loss / loss, 1.0, 1e-6);
                CHECK_NEAR(r.outcome[0].grad_norm / norm, 1.0, 1e-6);
            }
            loss = r.outcome[0].loss;
            norm = r.outcome[0].grad_norm;
            ranks_result_fini(&r);
        }
        ranks_case_fini(&c);
    }
}

/* A rank whose sample is wholly masked adds nothing: the step is that of the other's sample alone. Both: no step. */
static void test_parallel_kinds__a_rank_without_targets_adds_nothing(void **state)
{
    for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
        for (int is_reproducible = 0; is_reproducible < 2; is_reproducible++) {
            ranks_case c;
            ranks_result alone, two;
            ranks_case_init(&c, *state, &odd_llama);
            c.options.weight_decay = 0.5;
            ranks_case_batches(&c, odd_llama.vocab, 1, 1, 3);
            mask(&c, 0, 0, 7);
            ranks_case_layout(&c, 1, 0, is_reproducible == 1);
            ranks_case_run(&alone, &c);
            ranks_case_batches(&c, odd_llama.vocab, 2, 1, 3); /* the first sequence is the same */
            mask(&c, 0, 0, 7);
            mask(&c, 0, 1, 0);
            ranks_case_layout(&c, 2, stage, is_reproducible == 1);
            ranks_case_run(&two, &c);
            assert_int_equal(two.outcome[0].n_targets, 7);
            CHECK_SAME_DOUBLE(two.outcome[0].loss, alone.outcome[0].loss);
            CHECK_SAME_DOUBLE(two.outcome[0].grad_norm, alone.outcome[0].grad_norm);
            assert_memory_equal(two.weight, alone.weight, (size_t)two.n_elems * sizeof(float));
            ranks_result_fini(&alone);
            ranks_result_fini(&two);

            mask(&c, 0, 0, 0);
            ranks_case_run(&two, &c);
            assert_int_equal(two.outcome[0].n_targets, 0);
            CHECK_SAME_DOUBLE(two.outcome[0].loss, 0.0);
            assert_int_equal(two.n_empty_warnings, 1);
            assert_memory_equal(two.weight, two.begin, (size_t)two.n_elems * sizeof(float));
            ranks_result_fini(&two);
            ranks_case_fini(&c);
        }
    }
}

/* Twenty steps on 4 ranks: the same norm and loss in every stage, overlapped or not, step by step. */
static void test_parallel_kinds__the_norm_does_not_depend_on_the_stage(void **state)
{
    ranks_case c;
    ranks_result one, r;
    ranks_case_init(&c, *state, &odd_llama);
    ranks_case_batches(&c, odd_llama.vocab, 8, 20, 4);
    ranks_case_layout(&c, 1, 0, false);
    ranks_case_run(&one, &c);
    for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
        for (int is_overlapped = 0; is_overlapped < 2; is_overlapped++) {
            ranks_case_layout(&c, 4, stage, false);
            c.options.layout.overlap_grad_reduce = is_overlapped == 1;
            ranks_case_run(&r, &c);
            for (int i = 0; i < 20; i++) {
                CHECK_NEAR(r.outcome[i].grad_norm / one.outcome[i].grad_norm, 1.0, 1e-5);
                CHECK_NEAR(r.outcome[i].loss / one.outcome[i].loss, 1.0, 1e-5);
            }
            ranks_result_fini(&r);
        }
    }
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* Fresh weights belong to seed and name; the first step moves every tensor. */
static void test_parallel_kinds__fresh_weights_do_not_depend_on_the_layout(void **state)
{
    static const odd_model *const models[] = {&odd_llama, &odd_gpt2, &odd_three};
    for (size_t m = 0; m < 3; m++) {
        ranks_case c;
        ranks_result one, r;
        char why[256];
        int64_t n = 0;
        ranks_case_init(&c, *state, models[m]);
        c.options.lr = 0.01;
        ranks_case_batches(&c, models[m]->vocab, 8, 1, 4);
        ranks_case_layout(&c, 1, 0, false);
        ranks_case_run(&one, &c);
        for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
            for (int dp = 2; dp <= 8; dp += 3) {
                ranks_case_layout(&c, dp, stage, false);
                ranks_case_run(&r, &c);
                assert_memory_equal(r.begin, one.begin, (size_t)r.n_elems * sizeof(float));
                if (!ranks_all_moved(&r, why))
                    fail_msg("%s, dp %d, stage %d: %s", models[m]->name, dp, stage, why);
                ranks_result_fini(&r);
            }
        }
        if (m == 0) {
            const float *a = begin_of(&one, "model.layers.0.self_attn.q_proj.weight", &n);
            const float *b = begin_of(&one, "model.layers.2.self_attn.q_proj.weight", &n);
            assert_memory_not_equal(a, b, (size_t)n * sizeof(float));
        }
        ranks_result_fini(&one);
        ranks_case_fini(&c);
    }
}

/* Decay moves matrices and leaves norms and biases alone, though a shard does not show its parameters' shapes. */
static void test_parallel_kinds__decay_is_for_matrices_in_every_stage(void **state)
{
    static const odd_model *const models[] = {&odd_gpt2, &odd_llama};
    for (int m = 0; m < 2; m++) {
        for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
            ranks_case c;
            ranks_result r[2];
            int n_vectors = 0;
            ranks_case_init(&c, *state, models[m]);
            ranks_case_batches(&c, models[m]->vocab, 3, 1, 6);
            ranks_case_layout(&c, 3, stage, false);
            for (int i = 0; i < 2; i++) {
                c.options.weight_decay = 0.5 * i;
                ranks_case_run(&r[i], &c);
            }
            for (int i = 0; i < r[0].n_params; i++) {
                const ranks_param *p = &r[0].param[i];
                const int is_other = memcmp(r[0].weight + p->first, r[1].weight + p->first,
                                            (size_t)p->n * sizeof(float)) != 0;
                if (is_other != (p->n_dims == 2))
                    fail_msg("stage %d: %s with %d dimensions: changed by decay: %d", stage,
                             p->name, p->n_dims, is_other);
                n_vectors += p->n_dims == 1;
            }
            assert_true(n_vectors > 0);
            ranks_result_fini(&r[0]);
            ranks_result_fini(&r[1]);
            ranks_case_fini(&c);
        }
    }
}

/* ---- whole runs ---- */

static void setup_run(train_case *c, scratch *s, weft_family family, int64_t dp, int64_t stage)
{
    train_case_init(c, s, family, 0.0);
    c->options.layout.dp = dp;
    c->options.layout.zero_stage = stage;
    c->options.layout.micro_batch_size = 1;
    c->options.layout.comm_timeout = 30;
    c->options.layout.backend = RANKS_BACKEND;
    c->options.eval_interval = 0;
}

static void run_once(train_case *c, train_record *r)
{
    memset(r, 0, sizeof(*r));
    CHECK_OK(train_case_run(c, r));
    CHECK_OK(weft_i_dir_remove(c->out));
}

/* A schedule counts optimizer steps: the same twenty rates on any number of ranks, with any accumulation. */
static void test_parallel_kinds__the_schedule_counts_steps(void **state)
{
    static train_record first, r;
    for (int64_t dp = 1; dp <= 4; dp *= 2) {
        for (int64_t accumulate = 1; accumulate <= 4; accumulate += 3) {
            train_case c;
            setup_run(&c, *state, WEFT_FAMILY_LLAMA, dp, dp == 2 ? 3 : 0);
            c.options.layout.global_batch_size = dp * accumulate;
            c.options.train_steps = 20;
            c.options.lr_warmup_steps = 4;
            c.options.lr_schedule = "cosine";
            run_once(&c, &r);
            assert_int_equal(r.n_steps, 20);
            if (dp == 1 && accumulate == 1)
                first = r;
            for (int i = 0; i < 20; i++)
                CHECK_SAME_DOUBLE(r.step[i].lr, first.step[i].lr);
        }
    }
    assert_true(first.step[0].lr < first.step[3].lr && first.step[19].lr < first.step[4].lr);
}

/* Five samples in micro-batches of two over two ranks, twice through; one sample on four ranks: nobody waits for ever. */
static void test_parallel_kinds__ranks_with_different_numbers_of_batches(void **state)
{
    static const struct {
        int64_t n_samples, micro_batch, dp;
    } cases[] = {{5, 2, 2}, {1, 1, 4}, {3, 1, 2}, {7, 2, 3}};
    static train_record one, r;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int stage = 0; stage < 4; stage += RANKS_STRIDE) {
            train_case c;
            for (int is_alone = 1; is_alone >= 0; is_alone--) {
                setup_run(&c, *state, WEFT_FAMILY_LLAMA, is_alone == 1 ? 1 : cases[i].dp, stage);
                train_case_tokens(c.data, cases[i].n_samples * 16 + 1, TRAIN_VOCAB, 5);
                c.options.layout.micro_batch_size = cases[i].micro_batch;
                c.options.layout.global_batch_size = cases[i].n_samples;
                c.options.train_steps = 2; /* epochs */
                run_once(&c, is_alone == 1 ? &one : &r);
            }
            assert_int_equal(r.n_steps, 2);
            for (int k = 0; k < 2; k++) {
                CHECK_NEAR(r.step[k].loss / one.step[k].loss, 1.0, 1e-5);
                assert_int_equal(r.step[k].batch_hash, one.step[k].batch_hash);
            }
        }
    }
}

/* A file with a head that a tied model does not use, a tensor of nobody's, and a frozen one: every reduction completes. */
static void test_parallel_kinds__unused_and_frozen_tensors(void **state)
{
    static const char *freeze[] = {"model.layers.2.self_attn.k_proj.weight"};
    static train_record one, r;
    tiny_folder folder = {.extra = "lm_head.weight"};
    char path[512], config[1024];
    (void)snprintf(
        config, sizeof(config), "%s",
        tiny_config(tiny_llama, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"));
    folder.config = config;
    for (int is_tied = 1; is_tied >= 0; is_tied--) {
        if (is_tied == 0)
            folder = (tiny_folder){.config = tiny_llama, .extra = "model.unused"};
        (void)tiny_write(*state, is_tied == 1 ? "tied" : "untied", &folder, path);
        for (int stage = -1; stage < 4; stage += RANKS_STRIDE) {
            train_case c;
            setup_run(&c, *state, WEFT_FAMILY_LLAMA, stage < 0 ? 1 : 2, stage < 0 ? 0 : stage);
            c.options.model = path;
            c.options.freeze = freeze;
            c.options.n_freeze = 1;
            c.options.layout.global_batch_size = 4;
            c.options.train_steps = 3;
            run_once(&c, stage < 0 ? &one : &r);
            for (int k = 0; k < 3 && stage >= 0; k++)
                CHECK_NEAR(r.step[k].loss / one.step[k].loss, 1.0, 1e-5);
        }
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_kinds__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(uneven_ranks_weigh_by_their_tokens),
        TEST(the_loss_does_not_depend_on_the_split),
        TEST(a_rank_without_targets_adds_nothing),
        TEST(the_norm_does_not_depend_on_the_stage),
        TEST(fresh_weights_do_not_depend_on_the_layout),
        TEST(decay_is_for_matrices_in_every_stage),
        TEST(the_schedule_counts_steps),
        TEST(ranks_with_different_numbers_of_batches),
        TEST(unused_and_frozen_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
