/*
 * Checkpoints: every tensor and moment comes back, in one file or in shards, under the names that were read; the folder's
 * other files; and what a killed run leaves behind.
 */
#include "one_rank_session.h"

#include "train/out_lock.h"

#include <unistd.h>

static weft_checkpoint describe(const weft_train_session *s, uint64_t shard_bytes)
{
    weft_checkpoint c = weft_i_train_checkpoint(s);
    c.shard_bytes = shard_bytes;
    c.keep = 0;
    return c;
}

/* Weights and state of two trainers are the same bits. */
static void same_trainers(const weft_trainer *a, const weft_trainer *b)
{
    for (int64_t i = 0; i < weft_model_param_count(a->model); i++) {
        const weft_param *x = weft_model_param(a->model, i), *y = weft_model_param(b->model, i);
        const size_t n = (size_t)(x->rows * x->cols) * weft_dtype_bytes(x->value.dtype);
        if (memcmp(x->value.data, y->value.data, n) != 0)
            fail_msg("%s differs", x->name);
    }
    for (int k = 0; k < WEFT_STATE_COUNT; k++) {
        const weft_view x = a->optimizer->state[k], y = b->optimizer->state[k];
        assert_int_equal(x.data == NULL, y.data == NULL);
        if (x.data != NULL)
            assert_memory_equal(x.data, y.data, (size_t)x.cols * sizeof(float));
    }
}

/* Saved after two steps, read by another trainer: the same bits; `shard_bytes` small enough gives shards. */
static void round_trip(void **state, weft_family family, const char *dtype, uint64_t shard_bytes)
{
    train_case c;
    weft_train_session a, b;
    char path[WEFT_PATH_MAX];
    train_case_init(&c, *state, family, 0.0);
    c.options.layout.dtype = dtype;
    one_rank_session_open(&a, &c);
    CHECK_OK(weft_i_train_round(&a));
    CHECK_OK(weft_i_train_round(&a));
    const weft_checkpoint checkpoint = describe(&a, shard_bytes);
    CHECK_OK(weft_i_checkpoint_save(&checkpoint));
    const bool is_sharded = shard_bytes < 100000;
    CHECK_OK(weft_i_path_join(path, c.out, "checkpoint-2/model.safetensors.index.json"));
    assert_int_equal(weft_i_file_exists(path), is_sharded);
    CHECK_OK(weft_i_path_join(path, c.out, "checkpoint-2/optimizer.safetensors"));
    assert_int_equal(weft_i_file_exists(path), !is_sharded);
    weft_i_out_unlock(&a.lock);
    c.options.resume = "";
    one_rank_session_open(&b, &c);
    assert_int_equal(b.state.step, 2);
    assert_int_equal(b.state.next_sample, 8);
    assert_int_equal(b.state.total_tokens, 2 * 4 * 16);
    same_trainers(a.trainer, b.trainer);
    one_rank_session_close(&a);
    one_rank_session_close(&b);
    CHECK_OK(weft_i_dir_remove(c.out));
}

static void test_train_checkpoint__comes_back(void **state)
{
    round_trip(state, WEFT_FAMILY_LLAMA, "fp32", UINT64_MAX);
    round_trip(state, WEFT_FAMILY_LLAMA, "bf16", UINT64_MAX);
    round_trip(state, WEFT_FAMILY_GPT2, "fp32", 20000);
    round_trip(state, WEFT_FAMILY_GPT2, "bf16",
               3000); /* less than one tensor: each in a file of its own */
}

/* Names, shapes and types as the file's reader sees them; the tied head is one tensor. */
static void test_train_checkpoint__holds_what_it_says(void **state)
{
    train_case c;
    weft_train_session s;
    weft_st *file = NULL;
    char dir[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.layout.dtype = "bf16";
    one_rank_session_open(&s, &c);
    CHECK_OK(weft_i_train_round(&s));
    CHECK_OK(weft_i_train_save(&s));
    CHECK_OK(weft_i_path_join(dir, c.out, "latest"));
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, dir, "model"));
    const int64_t n = weft_model_param_count(s.trainer->model);
    assert_int_equal(weft_i_st_count(file), n);
    assert_null(weft_i_st_find(file, "lm_head.weight"));
    assert_string_equal(weft_i_st_meta_at(file, 0).value, "pt");
    for (int64_t i = 0; i < n; i++) {
        const weft_param *p = weft_model_param(s.trainer->model, i);
        const weft_st_tensor *t = weft_i_st_find(file, p->name);
        assert_non_null(t);
        assert_int_equal(t->dtype, WEFT_DTYPE_BF16);
        assert_int_equal(t->shape.n_dims, p->n_dims);
        assert_memory_equal(t->data, p->value.data, t->n_bytes);
    }
    weft_i_st_close(file);
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, dir, "optimizer"));
    assert_int_equal(weft_i_st_count(file), 3 * n); /* master and two moments */
    const weft_st_tensor *t = weft_i_st_find(file, "exp_avg_sq/transformer.h.1.mlp.c_fc.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, WEFT_DTYPE_F32);
    assert_int_equal(t->shape.dim[0], 32);
    assert_int_equal(t->shape.dim[1], 128);
    weft_i_st_close(file);
    one_rank_session_close(&s);
}

/* Fine-tuning: names as the folder spells them, tokenizer files along, also after the folder they came from is gone. */
static void test_train_checkpoint__keeps_names_and_files_of_the_folder(void **state)
{
    train_case c;
    weft_train_session s;
    char path[WEFT_PATH_MAX], folder[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.train_steps = 1;
    CHECK_OK(train_case_run(&c, NULL));
    /* A folder with the names that GPT-2 was published with, and files of a tokenizer. */
    CHECK_OK(weft_i_path_join(folder, c.out, "latest"));
    CHECK_OK(weft_i_path_join(path, folder, "tokenizer.json"));
    CHECK_OK(weft_i_file_write(path, "{\"a\": 1}", 8));
    CHECK_OK(weft_i_path_join(path, folder, "generation_config.json"));
    CHECK_OK(weft_i_file_write(path, "{\"eos_token_id\": 7}", 19));
    char model[WEFT_PATH_MAX];
    (void)snprintf(model, sizeof(model), "%s", folder);
    c.options.model = model;
    c.options.save_interval = 1;
    c.options.keep_checkpoints = 1;
    c.options.train_steps = 4;
    train_case_out(&c, "tuned");
    one_rank_session_open(&s, &c);
    s.source.names.has_no_prefix = true; /* as if the file had been spelled so */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_i_train_round(&s));
        CHECK_OK(weft_i_train_save(&s));
        if (i != 1)
            continue;
        /* Both the folder they came from and the checkpoint that has them are taken away. */
        CHECK_OK(weft_i_path_join(path, c.out, "latest/tokenizer.json"));
        assert_true(weft_i_file_exists(path));
        CHECK_OK(weft_i_path_join(path, c.out, "checkpoint-2"));
        CHECK_OK(weft_i_dir_remove(path));
        CHECK_OK(weft_i_path_join(path, model, "tokenizer.json"));
        assert_int_equal(unlink(path), 0);
    }
    one_rank_session_close(&s);
    CHECK_OK(weft_i_path_join(path, c.out, "checkpoint-3/tokenizer.json"));
    assert_true(weft_i_file_exists(path));
    weft_st *file = NULL;
    CHECK_OK(weft_i_path_join(folder, c.out, "latest"));
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, folder, "model"));
    assert_non_null(weft_i_st_find(file, "h.0.ln_1.weight"));
    assert_null(weft_i_st_find(file, "transformer.h.0.ln_1.weight"));
    weft_i_st_close(file);
    /* Resumed from a checkpoint that is removed on the way: the files still come along. */
    char first[WEFT_PATH_MAX], kept[WEFT_PATH_MAX];
    CHECK_OK(weft_i_path_join(first, c.out, "checkpoint-3"));
    c.options.resume = first;
    c.options.train_steps = 6;
    CHECK_OK(train_case_run(&c, NULL));
    assert_false(weft_i_dir_exists(first));
    CHECK_OK(weft_i_path_join(kept, c.out, "checkpoint-6/tokenizer.json"));
    CHECK_OK(weft_i_path_join(path, folder, "generation_config.json"));
    assert_true(weft_i_file_exists(kept));
    assert_true(weft_i_file_exists(path));
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, folder, "model"));
    assert_non_null(weft_i_st_find(file, "h.0.ln_1.weight"));
    weft_i_st_close(file);
}

static void make_dir(const char *out, const char *name)
{
    char dir[WEFT_PATH_MAX], path[WEFT_PATH_MAX];
    CHECK_OK(weft_i_path_join(dir, out, name));
    CHECK_OK(weft_i_dir_make(dir));
    CHECK_OK(weft_i_path_join(path, dir, "file"));
    CHECK_OK(weft_i_file_write(path, name, strlen(name)));
}

static bool has(const char *out, const char *name)
{
    char path[WEFT_PATH_MAX];
    CHECK_OK(weft_i_path_join(path, out, name));
    return weft_i_file_exists(path);
}

static void test_train_checkpoint__cleaning(void **state)
{
    scratch *s = *state;
    char out[WEFT_PATH_MAX], dir[WEFT_PATH_MAX];
    (void)snprintf(out, sizeof(out), "%s", scratch_path(s, "out"));
    CHECK_OK(weft_i_checkpoint_clean(s->alloc, out)); /* not there: fine */
    CHECK_OK(weft_i_checkpoint_latest(s->alloc, out, dir));
    assert_string_equal(dir, "");
    make_dir(out, "checkpoint-3");
    make_dir(out, "checkpoint-20");
    make_dir(out, "tmp-checkpoint-21");
    make_dir(out, "tmp-removed-1");
    make_dir(out, "replaced-checkpoint-3"); /* the new one is there */
    make_dir(out, "replaced-checkpoint-7"); /* the new one never came */
    make_dir(out, "tmp-checkpoint-mine");
    make_dir(out, "checkpoint-99-notes");
    CHECK_OK(weft_i_checkpoint_clean(s->alloc, out));
    assert_false(has(out, "tmp-checkpoint-21"));
    assert_false(has(out, "tmp-removed-1"));
    assert_false(has(out, "replaced-checkpoint-3"));
    assert_false(has(out, "replaced-checkpoint-7"));
    assert_true(has(out, "checkpoint-7/file"));
    assert_true(has(out, "tmp-checkpoint-mine") && has(out, "checkpoint-99-notes"));
    CHECK_OK(weft_i_checkpoint_latest(s->alloc, out, dir));
    assert_non_null(strstr(dir, "/checkpoint-20"));
    char link[WEFT_PATH_MAX];
    CHECK_OK(weft_i_path_join(link, out, "latest"));
    CHECK_OK(weft_i_link_replace("checkpoint-7", link));
    CHECK_OK(weft_i_checkpoint_latest(s->alloc, out, dir));
    assert_string_equal(dir, link);
}

static void test_train_checkpoint__one_of_the_same_step_is_replaced(void **state)
{
    train_case c;
    weft_train_session s;
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    one_rank_session_open(&s, &c);
    CHECK_OK(weft_i_train_round(&s));
    make_dir(c.out, "checkpoint-1");
    CHECK_OK(weft_i_train_save(&s));
    assert_false(has(c.out, "checkpoint-1/file"));
    assert_true(has(c.out, "checkpoint-1/model.safetensors"));
    assert_false(has(c.out, "replaced-checkpoint-1"));
    one_rank_session_close(&s);
}

/* Two runs into one folder: the second is told. */
static void test_train_checkpoint__one_run_at_a_time(void **state)
{
    train_case c;
    weft_train_session s;
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.train_steps = 1;
    one_rank_session_open(&s, &c);
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_IO, "another run is writing there");
    one_rank_session_close(&s);
    CHECK_OK(train_case_run(&c, NULL));
}

/* What is missing or of another shape is named. */
static void test_train_checkpoint__other_state_is_refused(void **state)
{
    train_case c;
    char path[WEFT_PATH_MAX];
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.optimizer = "sgd";
    c.options.train_steps = 1;
    CHECK_OK(train_case_run(&c, NULL));
    c.options.resume = "";
    c.options.train_steps = 2;
    c.options.sgd_momentum = 0.9;
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_MISMATCH,
                "no tensor momentum/transformer.wte.weight");
    CHECK_OK(weft_i_path_join(path, c.out, "checkpoint-1/trainer_state.json"));
    CHECK_OK(weft_i_file_write(path, "{\"format_version\": 2}", 21));
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_UNSUPPORTED, "format_version is 2");
    CHECK_OK(weft_i_file_write(path, "{\"format_version\": 1}", 21));
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_FORMAT, "\"step\" is missing");
    CHECK_OK(weft_i_file_write(path, "{\"format_ver", 12));
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_FORMAT, "trainer_state.json");
    assert_int_equal(unlink(path), 0);
    CHECK_FAILS(train_case_run(&c, NULL), WEFT_STATUS_IO, "trainer_state.json");
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_checkpoint__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(comes_back),
        TEST(holds_what_it_says),
        TEST(keeps_names_and_files_of_the_folder),
        TEST(cleaning),
        TEST(one_of_the_same_step_is_replaced),
        TEST(one_run_at_a_time),
        TEST(other_state_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
