/* The step itself, on batches made by hand: masks, accumulation, decay, what is not finite, what is known in advance. */
#include "one_rank.h"
#include "train_case.h"

#include "base/ctx.h"
#include "train/plan.h"

#include <math.h>

#define T 6

typedef struct fixture {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_source source;
    weft_train_settings settings;
    weft_trainer *trainer;
    char warning[512];
    int n_warnings;
} fixture;

static void on_log(void *user, weft_log_level level, const char *line)
{
    fixture *f = user;
    if (level == WEFT_LOG_WARN) {
        f->n_warnings++;
        (void)snprintf(f->warning, sizeof(f->warning), "%s", line);
    }
}

/* A trainer of the case's options, with the plan's workspace. */
static void open_fixture_of(fixture *f, train_case *c, int64_t seq_length)
{
    weft_train_plan plan;
    memset(f, 0, sizeof(*f));
    const weft_ctx_options o = {
        .n_threads = 1, .log = on_log, .log_user = f, .log_level = WEFT_LOG_WARN};
    c->options.seq_length = seq_length;
    CHECK_OK(weft_ctx_create(&f->ctx, &o));
    f->mesh = one_rank_mesh(f->ctx);
    CHECK_OK(weft_i_source_open(&f->source, f->ctx, c->config, c->options.layout.dtype));
    CHECK_OK(weft_i_train_settings_make(&f->settings, &c->options, &f->source.hf.config));
    CHECK_OK(weft_i_train_plan_make(&plan, f->mesh, &f->source, &f->settings, NULL));
    CHECK_OK(weft_i_trainer_create(&f->trainer, f->mesh, &f->source, &f->settings,
                                   plan.workspace_bytes));
}

static void open_fixture(fixture *f, train_case *c)
{
    open_fixture_of(f, c, T);
}

static void close_fixture(fixture *f)
{
    weft_i_trainer_destroy(f->trainer);
    weft_i_source_close(&f->source, f->ctx);
    weft_i_mesh_destroy(f->mesh);
    weft_ctx_destroy(f->ctx);
}

/* All weights, one after another, in the host's memory; cpu memory is host memory. */
static int64_t read_weights(const fixture *f, float *out, int64_t room)
{
    int64_t n = 0;
    for (int64_t i = 0; i < weft_model_param_count(f->trainer->model); i++) {
        const weft_param *p = weft_model_param(f->trainer->model, i);
        assert_true(n + p->rows * p->cols <= room);
        memcpy(out + n, p->value.data, (size_t)(p->rows * p->cols) * sizeof(float));
        n += p->rows * p->cols;
    }
    return n;
}

/* Ids that differ; targets are counted in the first n_counted[i] places of sequence i. */
static void make_batch(weft_train_batch *b, int64_t n_seqs, const int *n_counted)
{
    static int32_t ids[16 * T], targets[16 * T];
    for (int64_t i = 0; i < n_seqs * T; i++) {
        ids[i] = (int32_t)((i * 7 + 3) % TRAIN_VOCAB);
        targets[i] = i % T < n_counted[i / T] ? (int32_t)((i * 11 + 5) % TRAIN_VOCAB) : -100;
    }
    *b = (weft_train_batch){.n_seqs = n_seqs, .n_tokens = T, .ids = ids, .targets = targets};
}

#define ROOM 65536

/* Five counted tokens and one, in one micro-batch or in two. */
static void test_train_trainer__uneven_sequences_weigh_by_their_tokens(void **state)
{
    static float weights[2][ROOM];
    const int counted[] = {5, 1};
    weft_train_outcome out[2], alone[2];
    weft_train_batch batch;
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        train_case c;
        fixture f;
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        c.options.optimizer = "sgd";
        c.options.lr = 0.1;
        c.options.lr_schedule = "constant";
        c.options.layout.micro_batch_size = i == 0 ? 2 : 1;
        c.options.layout.global_batch_size = 2;
        open_fixture(&f, &c);
        make_batch(&batch, 2, counted);
        CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out[i]));
        assert_int_equal(out[i].n_targets, 6);
        n = read_weights(&f, weights[i], ROOM);
        close_fixture(&f);
        /* The mean of each sequence by itself, from fresh weights. */
        open_fixture(&f, &c);
        weft_train_batch one = batch;
        one.n_seqs = 1;
        one.ids += i * T;
        one.targets += i * T;
        CHECK_OK(weft_i_trainer_step(f.trainer, 1, &one, &alone[i]));
        close_fixture(&f);
    }
    CHECK_NEAR(out[0].loss / out[1].loss, 1.0, 1e-6);
    CHECK_NEAR(out[0].grad_norm / out[1].grad_norm, 1.0, 1e-6);
    CHECK_NEAR(out[0].loss, (5.0 * alone[0].loss + alone[1].loss) / 6.0, 1e-6);
    assert_true(fabs(out[0].loss - 0.5 * (alone[0].loss + alone[1].loss)) > 1e-3);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR((double)weights[0][i], (double)weights[1][i],
                   1e-6 * fabs((double)weights[1][i]) + 1e-8);
}

/* A micro-batch without targets adds nothing; a step without any changes nothing and is said once. */
static void test_train_trainer__no_targets_no_update(void **state)
{
    static float weights[3][ROOM];
    const int both[] = {5, 0}, none[] = {0, 0};
    weft_train_outcome out[2];
    weft_train_batch batch;
    train_case c;
    fixture f;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    c.options.layout.micro_batch_size = 1;
    c.options.layout.global_batch_size = 2;
    open_fixture(&f, &c);
    make_batch(&batch, 2, both);
    CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out[0]));
    const int64_t n = read_weights(&f, weights[0], ROOM);
    make_batch(&batch, 2, none);
    for (int step = 2; step <= 3; step++) {
        CHECK_OK(weft_i_trainer_step(f.trainer, step, &batch, &out[1]));
        CHECK_SAME_DOUBLE(out[1].loss, 0.0);
        assert_int_equal(out[1].n_targets, 0);
    }
    (void)read_weights(&f, weights[1], ROOM);
    assert_memory_equal(weights[0], weights[1], (size_t)n * sizeof(float));
    assert_int_equal(f.n_warnings, 1);
    assert_non_null(strstr(f.warning, "step 2 has no counted target"));
    close_fixture(&f);
    /* The masked sequence might as well not be there. */
    open_fixture(&f, &c);
    make_batch(&batch, 1, both);
    CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out[1]));
    (void)read_weights(&f, weights[2], ROOM);
    assert_memory_equal(weights[0], weights[2], (size_t)n * sizeof(float));
    CHECK_SAME_DOUBLE(out[0].loss, out[1].loss);
    CHECK_SAME_DOUBLE(out[0].grad_norm, out[1].grad_norm);
    close_fixture(&f);
}

/* With a head of zeros every logit is equal: the loss is ln 53 in every split and type. */
static void test_train_trainer__equal_logits_give_ln_vocab(void **state)
{
    const int counted[] = {6, 6, 2, 6, 1, 6, 6, 3};
    for (int d = 0; d < 2; d++) {
        for (int64_t micro = 1; micro <= 8; micro *= 2) {
            train_case c;
            fixture f;
            weft_train_batch batch;
            weft_train_outcome out;
            train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
            c.options.layout.dtype = d == 0 ? "fp32" : "bf16";
            c.options.layout.micro_batch_size = micro;
            c.options.layout.global_batch_size = 8;
            open_fixture(&f, &c);
            weft_param *head = weft_model_find_param(f.trainer->model, "lm_head.weight");
            memset(head->value.data, 0, (size_t)(head->rows * head->cols) * (d == 0 ? 4 : 2));
            make_batch(&batch, 8, counted);
            CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out));
            CHECK_NEAR(out.loss, 3.970292, 1e-6);
            close_fixture(&f);
        }
    }
}

/* Decay moves matrices and leaves norms and biases alone, bit for bit. */
static void test_train_trainer__decay_is_for_matrices(void **state)
{
    static float weights[2][ROOM];
    const int counted[] = {6, 6};
    for (int f_number = 0; f_number < 2; f_number++) {
        const weft_family family = f_number == 0 ? WEFT_FAMILY_GPT2 : WEFT_FAMILY_LLAMA;
        fixture f;
        for (int i = 0; i < 2; i++) {
            train_case c;
            weft_train_batch batch;
            weft_train_outcome out;
            train_case_init(&c, *state, family, 0.0);
            c.options.weight_decay = i == 0 ? 0.0 : 0.5;
            c.options.lr_schedule = "constant";
            c.options.layout.micro_batch_size = 2;
            open_fixture(&f, &c);
            make_batch(&batch, 2, counted);
            CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out));
            (void)read_weights(&f, weights[i], ROOM);
            if (i == 0)
                close_fixture(&f);
        }
        int64_t at = 0;
        int n_vectors = 0;
        for (int64_t i = 0; i < weft_model_param_count(f.trainer->model); i++) {
            const weft_param *p = weft_model_param(f.trainer->model, i);
            const int64_t n = p->rows * p->cols;
            const int is_other =
                memcmp(weights[0] + at, weights[1] + at, (size_t)n * sizeof(float)) != 0;
            if (is_other != (p->n_dims == 2))
                fail_msg("%s with %d dimensions: changed by decay: %d", p->name, p->n_dims,
                         is_other);
            n_vectors += p->n_dims == 1;
            at += n;
        }
        assert_true(n_vectors > 0);
        close_fixture(&f);
    }
}

static void test_train_trainer__what_is_not_finite_is_named(void **state)
{
    const int counted[] = {6, 6};
    train_case c;
    fixture f;
    weft_train_batch batch;
    weft_train_outcome out;
    static float before[ROOM], after[ROOM];
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    c.options.layout.micro_batch_size = 2;
    open_fixture(&f, &c);
    make_batch(&batch, 2, counted);
    weft_param *p = weft_model_find_param(f.trainer->model, "model.layers.2.mlp.up_proj.weight");
    assert_non_null(p);
    ((float *)p->value.data)[5 * p->cols + 7] = INFINITY;
    const int64_t n = read_weights(&f, before, ROOM);
    CHECK_FAILS(weft_i_trainer_step(f.trainer, 9, &batch, &out), WEFT_STATUS_NUMERIC,
                "weight model.layers.2.mlp.up_proj.weight at [5, 7]");
    assert_non_null(strstr(weft_last_error(), "step 9"));
    (void)read_weights(&f, after, ROOM);
    assert_memory_equal(before, after, (size_t)n * sizeof(float));
    close_fixture(&f);
}

/* Dropout masks belong to step and sample: the same step twice is the same, another step is not. */
static void test_train_trainer__dropout_follows_step_and_sample(void **state)
{
    const int counted[] = {6, 6};
    double loss[4];
    for (int i = 0; i < 4; i++) {
        train_case c;
        fixture f;
        weft_train_batch batch;
        weft_train_outcome out;
        train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.5);
        c.options.layout.micro_batch_size = 1;
        c.options.layout.global_batch_size = 2;
        open_fixture(&f, &c);
        make_batch(&batch, 2, counted);
        batch.first_sample = i == 3 ? 2 : 0;
        CHECK_OK(weft_i_trainer_step(f.trainer, i == 2 ? 2 : 1, &batch, &out));
        loss[i] = out.loss;
        close_fixture(&f);
    }
    CHECK_SAME_DOUBLE(loss[0], loss[1]);
    assert_true(loss[0] != loss[2]);
    assert_true(loss[0] != loss[3]);
}

/* In bf16 the loss is still fp32: near 36 two batches that differ by little print different numbers. */
static void test_train_trainer__the_loss_of_bf16_is_no_staircase(void **state)
{
    const int counted[] = {1, 6, 3};
    double loss[3];
    train_case c;
    fixture f;
    weft_train_batch batch;
    weft_train_outcome out;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    c.options.layout.dtype = "bf16";
    c.options.lr = 0.0;
    c.options.layout.micro_batch_size = 1;
    open_fixture(&f, &c);
    const weft_param *head = weft_model_find_param(f.trainer->model, "lm_head.weight");
    const size_t n = (size_t)(head->rows * head->cols);
    uint16_t *w = head->value.data;
    static uint16_t larger[ROOM];
    for (size_t i = 0; i < n; i++) {
        const int exponent = (w[i] >> 7) & 0xff;
        larger[i] = exponent == 0 ? w[i] : (uint16_t)((w[i] & 0x807f) | ((exponent + 7) << 7));
    }
    for (int i = 0; i < 3; i++) {
        memcpy(w, larger,
               n * sizeof(*w)); /* times 128; the step writes the master's weights back */
        make_batch(&batch, 1, &counted[i]);
        CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out));
        loss[i] = out.loss;
        assert_true(loss[i] > 16.0); /* where bf16 has steps of 0.125 or more */
        assert_true(fabs(loss[i] * 8.0 - round(loss[i] * 8.0)) > 1e-3);
    }
    close_fixture(&f);
}

/* A large vocabulary: fp32 logits of the batch would be 1.16 GiB; memory stays far below, the loss is right. */
static void test_train_trainer__logits_are_never_stored_whole(void **state)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 151936, \"hidden_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
        "\"intermediate_size\": 16, \"max_position_embeddings\": 2048}";
    enum { TOKENS = 2048 };
    static int32_t ids[TOKENS], targets[TOKENS];
    train_case c;
    fixture f;
    weft_train_outcome out;
    weft_alloc_count memory;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    (void)scratch_file(c.s, "config.json", config, strlen(config));
    c.options.layout.micro_batch_size = 1;
    open_fixture_of(&f, &c, TOKENS);
    weft_i_alloc_total(f.ctx->alloc, &memory);
    assert_true(memory.peak_bytes < (size_t)400 << 20);
    weft_param *head = weft_model_find_param(f.trainer->model, "lm_head.weight");
    memset(head->value.data, 0, (size_t)(head->rows * head->cols) * sizeof(float));
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 7919) % 151936;
        targets[i] = (i * 104729 + 11) % 151936;
    }
    const weft_train_batch batch = {
        .n_seqs = 1, .n_tokens = TOKENS, .ids = ids, .targets = targets};
    CHECK_OK(weft_i_trainer_step(f.trainer, 1, &batch, &out));
    CHECK_NEAR(out.loss, log(151936.0), 1e-5);
    close_fixture(&f);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_trainer__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(uneven_sequences_weigh_by_their_tokens),
        TEST(no_targets_no_update),
        TEST(equal_logits_give_ln_vocab),
        TEST(decay_is_for_matrices),
        TEST(what_is_not_finite_is_named),
        TEST(dropout_follows_step_and_sample),
        TEST(the_loss_of_bf16_is_no_staircase),
        TEST(logits_are_never_stored_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
