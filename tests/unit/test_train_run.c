/*
 * Whole training runs on tiny models: what resuming, accumulation, threads and recompute must not change, and what a run
 * refuses.
 */
#include "train_case.h"

#include <math.h>
#include <unistd.h>

static const weft_family families[] = {WEFT_FAMILY_LLAMA, WEFT_FAMILY_GPT2};

/* The lines two runs must share; times and memory aside. */
static void same_step(const weft_train_step *a, const weft_train_step *b)
{
    assert_int_equal(a->step, b->step);
    CHECK_SAME_DOUBLE(a->loss, b->loss);
    CHECK_SAME_DOUBLE(a->lr, b->lr);
    CHECK_SAME_DOUBLE(a->grad_norm, b->grad_norm);
    assert_int_equal(a->batch_hash, b->batch_hash);
    assert_int_equal(a->total_tokens, b->total_tokens);
}

static void out_path(char *path, const train_case *c, const char *name)
{
    CHECK_OK(weft_i_path_join(path, c->out, name));
}

static void test_train_run__the_loss_falls_and_a_checkpoint_stays(void **state)
{
    train_case c;
    train_record r = {0};
    char path[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    c.options.train_steps = 40;
    c.options.layout.threads_per_rank = 2;
    c.options.shuffle = false;
    c.options.layout.global_batch_size = 6;        /* micro-batches of 4 and 2 */
    train_case_tokens(c.data, 97, TRAIN_VOCAB, 5); /* six windows: it can learn them by heart */
    CHECK_OK(train_case_run(&c, &r));
    assert_int_equal(r.n_steps, 40);
    CHECK_NEAR(r.step[0].loss, log(53.0), 0.1);
    assert_true(r.step[39].loss < 0.5 * r.step[0].loss);
    assert_int_equal(r.step[39].total_tokens, 40 * 6 * 16);
    assert_true(r.step[0].gflops > 0.0 && r.step[0].memory_bytes > 0.0);
    out_path(path, &c, "checkpoint-40/model.safetensors");
    assert_true(weft_i_file_exists(path));
    out_path(path, &c, "latest/trainer_state.json");
    assert_true(weft_i_file_exists(path));
}

/* 10 steps = 5 + resume + 5, bit for bit, with dropout. */
static void resume_is_exact(void **state, weft_family family, const char *dtype, bool is_sgd)
{
    train_case c;
    train_record straight = {0}, first = {.stop_after = 5}, second = {0};
    char a[WEFT_PATH_MAX], b[WEFT_PATH_MAX], metrics[2][WEFT_PATH_MAX];
    train_case_init(&c, *state, family, 0.1);
    c.options.layout.dtype = dtype;
    c.options.layout.global_batch_size = 8;
    c.options.dropout = 0.1;
    c.options.lr_warmup_steps = 3;
    if (is_sgd) {
        c.options.optimizer = "sgd";
        c.options.sgd_momentum = 0.9;
    }
    train_case_out(&c, "straight");
    CHECK_OK(train_case_run(&c, &straight));
    out_path(a, &c, "checkpoint-10");
    out_path(metrics[0], &c, "metrics.jsonl");
    train_case_out(&c, "parts");
    CHECK_OK(train_case_run(&c, &first));
    assert_int_equal(first.n_steps, 5);
    c.options.resume = "";
    CHECK_OK(train_case_run(&c, &second));
    assert_int_equal(second.n_steps, 5);
    out_path(b, &c, "checkpoint-10");
    train_case_same_checkpoint(a, b);
    for (int i = 0; i < 5; i++) {
        same_step(&straight.step[i], &first.step[i]);
        same_step(&straight.step[5 + i], &second.step[i]);
    }
    CHECK_OK(weft_i_dir_remove(a));
    CHECK_OK(weft_i_dir_remove(b));
    CHECK_OK(weft_i_dir_remove(c.out));
    CHECK_OK(weft_i_dir_remove(scratch_path(c.s, "straight")));
}

static void test_train_run__resume_is_exact(void **state)
{
    for (int f = 0; f < 2; f++) {
        resume_is_exact(state, families[f], "fp32", false);
        resume_is_exact(state, families[f], "bf16", false);
        resume_is_exact(state, families[f], "bf16", true);
    }
}

/* Weights saved in another type than they are trained in lose nothing on resume. */
static void test_train_run__resume_is_exact_with_files_of_another_type(void **state)
{
    static const char *const types[2][2] = {{"fp32", "bf16"}, {"bf16", "fp32"}};
    for (int k = 0; k < 2; k++) {
        train_case c;
        train_record straight = {0}, first = {.stop_after = 3}, second = {0};
        char name[32], a[WEFT_PATH_MAX], b[WEFT_PATH_MAX];
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        c.options.layout.dtype = types[k][0];
        c.options.save_dtype = types[k][1];
        c.options.train_steps = 6;
        (void)snprintf(name, sizeof(name), "straight-%d", k);
        train_case_out(&c, name);
        CHECK_OK(train_case_run(&c, &straight));
        out_path(a, &c, "checkpoint-6");
        (void)snprintf(name, sizeof(name), "parts-%d", k);
        train_case_out(&c, name);
        CHECK_OK(train_case_run(&c, &first));
        c.options.resume = "";
        c.options.layout.dtype = ""; /* the run's, not that of its files */
        CHECK_OK(train_case_run(&c, &second));
        out_path(b, &c, "checkpoint-6");
        for (int i = 0; i < 3; i++)
            same_step(&straight.step[3 + i], &second.step[i]);
        train_case_same_checkpoint(a, b);
    }
}

/* The rate of the first step after a resume is that of the straight run. */
static void test_train_run__the_schedule_goes_on(void **state)
{
    const int64_t places[] = {2, 3, 10, 19};
    train_case c;
    train_record straight = {0};
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.train_steps = 20;
    c.options.lr_warmup_steps = 3;
    train_case_out(&c, "straight");
    CHECK_OK(train_case_run(&c, &straight));
    for (size_t i = 0; i < 4; i++) {
        train_record first = {.stop_after = places[i]}, second = {0};
        char name[32];
        (void)snprintf(name, sizeof(name), "parts-%d", (int)i);
        train_case_out(&c, name);
        c.options.resume = NULL;
        CHECK_OK(train_case_run(&c, &first));
        c.options.resume = "";
        CHECK_OK(train_case_run(&c, &second));
        for (int64_t k = places[i]; k < 20; k++)
            same_step(&straight.step[k], &second.step[k - places[i]]);
    }
}

/* The schedule counts optimizer steps, not micro-batches. The printed numbers do not depend on the split. */
static void test_train_run__accumulation_changes_no_rate_and_no_loss(void **state)
{
    const int64_t micro[] = {8, 4, 2, 1};
    train_case c;
    train_record whole = {0};
    for (int i = 0; i < 4; i++) {
        train_record r = {0};
        char name[32];
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        c.options.train_steps = 20;
        c.options.lr_warmup_steps = 4;
        c.options.layout.global_batch_size = 8;
        c.options.layout.micro_batch_size = micro[i];
        (void)snprintf(name, sizeof(name), "out-%d", i);
        train_case_out(&c, name);
        CHECK_OK(train_case_run(&c, &r));
        for (int k = 0; k < 20; k++) {
            const int t = k + 1;
            const double lr =
                t <= 4 ? 0.25 * t : 0.5 * (1.0 + cos(3.14159265358979323846 * (t - 4) / 16));
            CHECK_NEAR(r.step[k].lr, 1e-2 * lr, 1e-16);
        }
        if (i == 0)
            whole = r;
        CHECK_NEAR(r.step[0].loss / whole.step[0].loss, 1.0, 1e-6);
        CHECK_NEAR(r.step[0].grad_norm / whole.step[0].grad_norm, 1.0, 1e-6);
        assert_int_equal(r.step[7].batch_hash, whole.step[7].batch_hash);
        /* Nothing grows with the number of micro-batches. */
        if (i > 0)
            assert_true(r.step[19].memory_bytes <= whole.step[0].memory_bytes);
    }
}

static void test_train_run__threads_and_recompute_change_no_bit(void **state)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    const int64_t threads[] = {1, 2, 5};
    for (int f = 0; f < 2; f++) {
        for (int d = 0; d < 2; d++) {
            train_case c;
            char first[WEFT_PATH_MAX], other[WEFT_PATH_MAX];
            train_case_init(&c, *state, families[f], 0.1);
            c.options.layout.dtype = d == 0 ? "fp32" : "bf16";
            c.options.train_steps = 4;
            for (int i = 0; i < 5; i++) {
                char name[64];
                (void)snprintf(name, sizeof(name), "out-%d-%d-%d", f, d, i);
                train_case_out(&c, name);
                c.options.layout.threads_per_rank = i < 3 ? threads[i] : 2;
                c.options.layout.recompute = i < 3 ? recompute[0] : recompute[i - 2];
                CHECK_OK(train_case_run(&c, NULL));
                out_path(other, &c, "checkpoint-4");
                if (i == 0)
                    memcpy(first, other, sizeof(first));
                else
                    train_case_same_checkpoint(first, other);
            }
        }
    }
}

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0, c;
    assert_non_null(f);
    while ((c = fgetc(f)) != EOF)
        n += c == '\n';
    (void)fclose(f);
    return n;
}

static void test_train_run__evaluation_and_metrics(void **state)
{
    train_case c;
    train_record r = {.stop_after = 7}, again = {0};
    char metrics[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.1);
    c.options.eval_interval = 3;
    c.options.eval_fraction = 0.1;
    c.options.save_interval = 5;
    c.options.keep_checkpoints = 0;
    CHECK_OK(train_case_run(&c, &r));
    out_path(metrics, &c, "metrics.jsonl");
    assert_int_equal(count_lines(metrics), 7);
    for (int i = 0; i < r.n_steps; i++) {
        const bool is_due = (i + 1) % 3 == 0;
        assert_int_equal(isnan(r.step[i].eval_loss), !is_due);
        assert_int_equal(r.step[i].eval_tokens, is_due ? 199 : 0);
    }
    CHECK_NEAR(r.step[2].eval_loss, log(53.0), 0.5);
    /* From the older checkpoint: lines 6 and 7 are dropped and written again. */
    char older[WEFT_PATH_MAX];
    out_path(older, &c, "checkpoint-5");
    c.options.resume = older;
    CHECK_OK(train_case_run(&c, &again));
    assert_int_equal(again.n_steps, 5);
    same_step(&r.step[5], &again.step[0]);
    CHECK_SAME_DOUBLE(r.step[5].eval_loss, again.step[0].eval_loss);
    assert_int_equal(count_lines(metrics), 10);
}

/* Counts how often it was asked; yes from the fourth time on. */
typedef struct impatient {
    int n_polls;
    int n_steps;
    weft_train_step last;
} impatient;

static bool stop_fourth(void *user)
{
    return ++((impatient *)user)->n_polls >= 4;
}

static void keep_last(void *user, const weft_train_step *step)
{
    impatient *i = user;
    i->n_steps++;
    i->last = *step;
}

/* Polls 1 and 2 follow steps; 3 and 4 are inside the evaluation after step 3, which would take four batches. */
static void test_train_run__a_stop_does_not_wait_for_an_evaluation(void **state)
{
    train_case c;
    impatient i = {0};
    char path[WEFT_PATH_MAX];
    const weft_train_callbacks callbacks = {
        .user = &i, .step = keep_last, .should_stop = stop_fourth};
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.1);
    c.options.eval_interval = 3;
    c.options.eval_fraction = 0.1;
    CHECK_OK(weft_train_run(&c.options, NULL, &callbacks));
    assert_int_equal(i.n_polls, 5); /* twice in the evaluation, once after it */
    assert_int_equal(i.n_steps, 3);
    assert_true(isnan(i.last.eval_loss)); /* half an evaluation is none */
    assert_int_equal(i.last.eval_tokens, 0);
    out_path(path, &c, "checkpoint-3");
    assert_true(weft_i_dir_exists(path));
}

static void test_train_run__old_checkpoints_go(void **state)
{
    train_case c;
    char path[WEFT_PATH_MAX], target[64] = "";
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.save_interval = 2;
    c.options.keep_checkpoints = 2;
    c.options.train_steps = 7;
    CHECK_OK(train_case_run(&c, NULL));
    for (int step = 1; step <= 7; step++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "checkpoint-%d", step);
        out_path(path, &c, name);
        assert_int_equal(weft_i_dir_exists(path), step == 6 || step == 7);
    }
    out_path(path, &c, "latest");
    assert_true(readlink(path, target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "checkpoint-7");
}

static void test_train_run__frozen_parameters_stay(void **state)
{
    static const char *freeze[] = {"model.embed_tokens.weight", "model.layers.0.*"};
    static const char *none[] = {"nothing.*"};
    static const char *all[] = {"*"};
    train_case c;
    train_record r = {0}, free_run = {0};
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    train_case_out(&c, "free");
    CHECK_OK(train_case_run(&c, &free_run));
    train_case_out(&c, "frozen");
    c.options.freeze = freeze;
    c.options.n_freeze = 2;
    CHECK_OK(train_case_run(&c, &r));
    assert_true(r.step[9].loss != free_run.step[9].loss);
    assert_true(r.step[9].memory_bytes < free_run.step[9].memory_bytes);
    CHECK_SAME_DOUBLE(r.step[0].loss, free_run.step[0].loss);
    train_case_out(&c, "bad");
    c.options.freeze = none;
    c.options.n_freeze = 1;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_ARG, "nothing.*");
    c.options.freeze = all;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_ARG, "every parameter is frozen");
}

static void test_train_run__a_plan_over_the_limit_is_refused(void **state)
{
    train_case c;
    train_record r = {0}, refused = {0};
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.train_steps = 3;
    CHECK_OK(train_case_run(&c, &r));
    for (int i = 1; i < 3; i++) /* the peak of the first step is that of all */
        CHECK_SAME_DOUBLE(r.step[i].memory_bytes, r.step[0].memory_bytes);
    train_case_out(&c, "refused");
    c.options.memory_limit_mb = 0.95 * r.step[0].memory_bytes / 1e6;
    CHECK_FAILS(train_case_run(&c, &refused), WEFT_STATUS_NOMEM, "--memory-limit-mb allows");
    assert_non_null(strstr(weft_last_error(), "optimizer"));
    assert_int_equal(refused.n_steps, 0);
    assert_false(weft_i_dir_exists(c.out));
    c.options.memory_limit_mb = 1e-300; /* a limit, not "no limit" */
    CHECK_FAILS(train_case_run(&c, &refused), WEFT_STATUS_NOMEM, "--memory-limit-mb allows");
    c.options.memory_limit_mb = r.step[0].memory_bytes / 1e6;
    CHECK_OK(train_case_run(&c, NULL));
}

static void test_train_run__another_run_is_not_resumed(void **state)
{
    train_case c;
    train_record r = {0};
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    c.options.train_steps = 2;
    c.options.resume = "";
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_IO, "holds no checkpoint to resume");
    c.options.resume = NULL;
    CHECK_OK(train_case_run(&c, NULL));
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_ARG, "--resume");
    c.options.resume = "/nowhere/checkpoint-3";
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_IO, "/nowhere/checkpoint-3");
    c.options.resume = "";
    c.options.train_steps = 1;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "step 2, beyond train_steps 1");
    c.options.train_steps = 4;
    c.options.seq_length = 8;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "seq_length 16, this run has 8");
    c.options.seq_length = 16;
    c.options.layout.seed = 3;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "seed 1234, this run has 3");
    c.options.layout.seed = 1234;
    c.options.layout.dtype = "bf16";
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH,
                "dtype \"fp32\", this run has \"bf16\"");
    c.options.layout.dtype = "";
    c.options.optimizer = "sgd";
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "optimizer \"adamw\"");
    c.options.optimizer = "adamw";
    c.options.layout.global_batch_size = 8;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH,
                "global_batch_size 4, this run has 8");
    c.options.layout.global_batch_size = 4;
    train_case_tokens(c.data, 2000, TRAIN_VOCAB, 6); /* as many tokens, other ones */
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "other data: the hash");
    train_case_tokens(c.data, 1999, TRAIN_VOCAB, 5);
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "other data: file 1 was");
    train_case_tokens(c.data, 2000, TRAIN_VOCAB, 5);
    const char *gpt2 = train_case_config(WEFT_FAMILY_GPT2, 0.0);
    scratch_file(c.s, "config.json", gpt2, strlen(gpt2));
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH, "another model");
    const char *llama = train_case_config(WEFT_FAMILY_LLAMA, 0.0);
    scratch_file(c.s, "config.json", llama, strlen(llama));
    /* What may change: said, and the run goes on. */
    c.options.lr = 2e-2;
    c.options.layout.micro_batch_size = 2;
    CHECK_OK(train_case_run(&c, &r));
    assert_int_equal(r.n_steps, 2);
    assert_true(train_record_says(&r, "resume: lr was 0.01, is now 0.02"));
    assert_true(train_record_says(&r, "resume: train_steps was 2, is now 4"));
    /* The run is over. */
    train_record over = {0};
    CHECK_OK(train_case_run(&c, &over));
    assert_int_equal(over.n_steps, 0);
    assert_true(train_record_says(&over, "nothing to do"));
    assert_true(train_record_says(&over, "no step is left"));
}

static void test_train_run__the_clock_stops_it_with_a_checkpoint(void **state)
{
    train_case c;
    train_record r = {0};
    char path[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.max_minutes = 1e-3; /* less than a save is thought to take */
    CHECK_OK(train_case_run(&c, &r));
    assert_int_equal(r.n_steps, 1);
    out_path(path, &c, "checkpoint-1");
    assert_true(weft_i_dir_exists(path));
    assert_true(train_record_says(&r, "--max-minutes"));
}

static void test_train_run__a_loss_that_is_not_finite_stops_it(void **state)
{
    train_case c;
    train_record r = {0};
    char path[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    c.options.optimizer = "sgd";
    c.options.lr = 1e30;
    c.options.clip_grad = 0.0;
    c.options.weight_decay = 0.0;
    c.options.lr_schedule = "constant";
    CHECK_FAILS(train_case_run(&c, &r), WEFT_STATUS_NUMERIC, "step 2: ");
    assert_non_null(strstr(weft_last_error(), "not finite"));
    assert_non_null(strstr(weft_last_error(), ".weight at ["));
    assert_int_equal(r.n_steps, 1);
    out_path(path, &c, "latest");
    assert_false(weft_i_file_exists(path));
}

/* The files are of the type asked for, and the config says so. */
static void test_train_run__saved_types(void **state)
{
    static const struct {
        const char *dtype, *save, *name;
        int bytes;
    } cases[] = {{"bf16", "model", "bfloat16", 2},
                 {"bf16", "fp32", "float32", 4},
                 {"fp32", "model", "float32", 4},
                 {"fp32", "bf16", "bfloat16", 2}};
    uint64_t size[4];
    for (int i = 0; i < 4; i++) {
        train_case c;
        char path[WEFT_PATH_MAX], *text = NULL;
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        (void)snprintf(path, sizeof(path), "out-%d", i);
        train_case_out(&c, path);
        c.options.layout.dtype = cases[i].dtype;
        c.options.save_dtype = cases[i].save;
        c.options.train_steps = 1;
        CHECK_OK(train_case_run(&c, NULL));
        out_path(path, &c, "checkpoint-1/config.json");
        CHECK_OK(weft_i_file_read(c.s->alloc, path, 100000, &text, NULL));
        assert_non_null(strstr(text, cases[i].name));
        weft_i_alloc_put(c.s->alloc, text);
        out_path(path, &c, "checkpoint-1/model.safetensors");
        CHECK_OK(weft_i_file_size(path, &size[i]));
    }
    assert_int_equal(size[0] / 1000, size[3] / 1000);
    assert_int_equal(size[1] / 1000, size[2] / 1000);
    assert_true(size[1] > size[0] * 3 / 2);
}

/*
 * Ranks that use oneDNN at once, two threads each: within rounding of one rank, which comes last, since what one rank has
 * compiled the others find. For the thread sanitizer too, whose other tests of ranks are on the reference backend
 * (ranks_case.h).
 */
static void test_train_run__ranks_share_the_cpu_backend(void **state)
{
    static const struct {
        int64_t dp, tp, pp, stage;
    } layouts[] = {{2, 1, 1, 3}, {1, 2, 1, 0}, {1, 1, 2, 0}, {2, 1, 1, 0}, {1, 1, 1, 0}};
    enum { N = WEFT_COUNT_OF(layouts) };
    for (size_t f = 0; f < WEFT_COUNT_OF(families); f++) {
        static train_record r[N];
        memset(r, 0, sizeof(r));
        for (size_t i = 0; i < N; i++) {
            train_case c;
            char name[32];
            train_case_init(&c, *state, families[f], 0.0);
            (void)snprintf(name, sizeof(name), "cpu-%d-%d", (int)f, (int)i);
            train_case_out(&c, name);
            weft_layout_options *const l = &c.options.layout;
            l->backend = "cpu";
            l->threads_per_rank = 2;
            l->dp = layouts[i].dp;
            l->tp = layouts[i].tp;
            l->pp = layouts[i].pp;
            l->zero_stage = layouts[i].stage;
            l->micro_batch_size = 2;
            l->global_batch_size = 4;
            c.options.train_steps = 3;
            CHECK_OK(train_case_run(&c, &r[i]));
            assert_int_equal(r[i].n_steps, 3);
        }
        for (size_t i = 0; i + 1 < N; i++) {
            for (int k = 0; k < 3; k++)
                CHECK_NEAR(r[i].step[k].loss, r[N - 1].step[k].loss, 1e-4);
        }
    }
}

#define RUN(name)                                                                                  \
    cmocka_unit_test_setup_teardown(test_train_run__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(ranks_share_the_cpu_backend), /* first: nothing is compiled yet */
        RUN(the_loss_falls_and_a_checkpoint_stays),
        RUN(resume_is_exact),
        RUN(resume_is_exact_with_files_of_another_type),
        RUN(the_schedule_goes_on),
        RUN(accumulation_changes_no_rate_and_no_loss),
        RUN(threads_and_recompute_change_no_bit),
        RUN(evaluation_and_metrics),
        RUN(a_stop_does_not_wait_for_an_evaluation),
        RUN(old_checkpoints_go),
        RUN(frozen_parameters_stay),
        RUN(a_plan_over_the_limit_is_refused),
        RUN(another_run_is_not_resumed),
        RUN(the_clock_stops_it_with_a_checkpoint),
        RUN(a_loss_that_is_not_finite_stops_it),
        RUN(saved_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
