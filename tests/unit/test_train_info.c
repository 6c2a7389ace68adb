/* What weft info sees: counts equal to what the model's own code makes, files held against the config. */
#include "scratch.h"

#include "formats/safetensors.h"
#include "weft/inspect.h"
#include "weft/model.h"

#include <stdio.h>
#include <string.h>

#define GOLDEN WEFT_SOURCE_DIR "/tests/golden/"

static weft_info *info_of(const char *path)
{
    const weft_info_options o = {.model = path};
    weft_info *i = NULL;
    expect_ok(weft_info_create(&i, &o));
    return i;
}

static void test_train_info__counts_are_those_of_the_model(void **state)
{
    (void)state;
    const char *const models[] = {"gpt2",        "gpt2_odd",   "llama",
                                  "llama3_rope", "llama_bias", "llama_odd"};
    for (size_t k = 0; k < WEFT_COUNT_OF(models); k++) {
        char path[WEFT_PATH_MAX];
        (void)snprintf(path, sizeof(path), GOLDEN "%s/model", models[k]);
        weft_info *i = info_of(path);
        assert_true(i->is_readable && i->has_weights);
        assert_string_equal(i->unsupported, "");
        assert_string_equal(i->weights_fault, "");
        assert_int_equal(i->n_missing + i->n_extra + i->n_misshapen, 0);
        assert_int_equal(i->n_files, 1);
        assert_string_equal(i->dtypes, "F32");

        const weft_ctx_options dry = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
        weft_ctx *ctx = NULL;
        weft_model *m = NULL;
        expect_ok(weft_ctx_create(&ctx, &dry));
        expect_ok(weft_model_from_config(&m, ctx, &i->config, WEFT_DTYPE_F32));
        assert_int_equal(i->params.total, weft_model_element_count(m));
        assert_int_equal(i->params.total, i->n_file_elems);
        assert_int_equal(i->n_bytes, 4 * i->n_file_elems);
        weft_model_destroy(m);
        weft_ctx_destroy(ctx);
        weft_info_destroy(i);
    }
}

static void copy_file(scratch *s, const char *from, const char *to)
{
    expect_ok(weft_i_file_copy(from, scratch_path(s, to)));
}

static void test_train_info__a_config_alone_has_no_weights(void **state)
{
    scratch *s = *state;
    copy_file(s, GOLDEN "llama/model/config.json", "any-name.json");
    weft_info *i = info_of(scratch_path(s, "any-name.json"));
    assert_true(i->is_readable);
    assert_false(i->has_weights);
    assert_int_equal(i->params.total, 31904);
    assert_string_equal(i->model_type, "llama");
    weft_info_destroy(i);
}

static void test_train_info__what_weft_lacks_is_said(void **state)
{
    scratch *s = *state;
    static const char config[] = "{\"model_type\": \"mixtral\", \"hidden_size\": 8}";
    weft_info *i = info_of(scratch_file(s, "c.json", config, sizeof(config) - 1));
    assert_false(i->is_readable);
    assert_string_equal(i->model_type, "mixtral");
    assert_non_null(strstr(i->unsupported, "mixtral"));
    weft_info_destroy(i);
}

/* A folder with the llama's config and the tensors of its file, but for one left out, one added, one turned. */
static void make_other_folder(scratch *s)
{
    copy_file(s, GOLDEN "llama/model/config.json", "config.json");
    weft_st *file = NULL;
    expect_ok(weft_i_st_open(&file, s->alloc, GOLDEN "llama/model/model.safetensors"));
    weft_st_plan plan[64] = {{0}};
    size_t n = 0;
    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const weft_st_tensor *t = weft_i_st_at(file, i);
        if (strcmp(t->name, "model.norm.weight") == 0)
            continue;
        plan[n] = (weft_st_plan){t->name, t->dtype, t->shape};
        if (strcmp(t->name, "lm_head.weight") == 0)
            plan[n].shape = weft_i_shape_2d(32, 256);
        n++;
    }
    plan[n++] = (weft_st_plan){"model.layers.9.stray", WEFT_DTYPE_BF16, weft_i_shape_1d(2)};
    plan[n++] = (weft_st_plan){"model.layers.0.self_attn.rotary_emb.inv_freq", WEFT_DTYPE_F32,
                               weft_i_shape_1d(4)};
    weft_st_writer *w = NULL;
    expect_ok(
        weft_i_st_create(&w, s->alloc, scratch_path(s, "model.safetensors"), plan, n, NULL, 0));
    static const char zeros[65536];
    for (size_t i = 0; i < n; i++) {
        int64_t n_elems = 0;
        expect_ok(weft_i_shape_count(&plan[i].shape, &n_elems));
        expect_ok(weft_i_st_append(w, zeros, (size_t)n_elems * weft_dtype_bytes(plan[i].dtype)));
    }
    expect_ok(weft_i_st_finish(w));
    weft_i_st_close(file);
}

static void test_train_info__files_are_held_against_the_config(void **state)
{
    scratch *s = *state;
    make_other_folder(s);
    weft_info *i = info_of(s->dir);
    assert_string_equal(i->weights_fault, "");
    assert_int_equal(i->n_missing, 1);
    assert_string_equal(i->missing[0], "model.norm.weight");
    assert_int_equal(i->n_extra, 1); /* a stale table is not one */
    assert_string_equal(i->extra[0], "model.layers.9.stray");
    assert_int_equal(i->n_misshapen, 1);
    assert_string_equal(i->misshapen[0],
                        "lm_head.weight is [32, 256], the config makes it [256, 32]");
    assert_string_equal(i->dtypes, "F32, BF16");
    weft_info_destroy(i);
}

static void test_train_info__broken_weights_are_part_of_the_answer(void **state)
{
    scratch *s = *state;
    copy_file(s, GOLDEN "gpt2/model/config.json", "config.json");
    (void)scratch_file(s, "model.safetensors", "\1", 1);
    weft_info *i = info_of(s->dir);
    assert_true(i->has_weights && i->is_readable);
    assert_non_null(strstr(i->weights_fault, "model.safetensors"));
    assert_int_equal(i->params.total, 35712);
    weft_info_destroy(i);
}

static void test_train_info__no_config_is_an_error(void **state)
{
    scratch *s = *state;
    weft_info *i = NULL;
    weft_info_options o = {.model = s->dir};
    expect_failure(weft_info_create(&i, &o), WEFT_STATUS_IO, "config.json", NULL);
    o.model = scratch_file(s, "c.json", "{", 1);
    expect_failure(weft_info_create(&i, &o), WEFT_STATUS_FORMAT, o.model, NULL);
    o.model = "";
    expect_failure(weft_info_create(&i, &o), WEFT_STATUS_ARG, "model", NULL);
    assert_null(i);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_info__counts_are_those_of_the_model),
        WITH_SCRATCH(test_train_info__a_config_alone_has_no_weights),
        WITH_SCRATCH(test_train_info__what_weft_lacks_is_said),
        WITH_SCRATCH(test_train_info__files_are_held_against_the_config),
        WITH_SCRATCH(test_train_info__broken_weights_are_part_of_the_answer),
        WITH_SCRATCH(test_train_info__no_config_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
