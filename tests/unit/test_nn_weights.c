/*
 * Loading weights: published spellings, ties, missing and surplus tensors, mixed types, parts of tensors. What a model
 * computes from a folder is compared through `weft probe`, so that a wrong load cannot hide.
 */
#include "golden.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "nn/models/load.h"
#include "tensor/convert.h"

#define N_TOKENS 12

/* Opens a folder; the message is looked for by the caller. */
static weft_status try_open(const char *folder, tiny_log *log)
{
    weft_ctx_options o = tiny_logged(log);
    weft_ctx *ctx = NULL;
    weft_source source;
    weft_model *m = NULL;

    o.n_threads = 1;
    expect_ok(weft_ctx_create(&ctx, &o));
    weft_status st = weft_i_source_open(&source, ctx, folder, "");
    if (st == WEFT_OK)
        st = weft_i_source_model(&m, &source, ctx, false, 0);
    weft_model_destroy(m);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
    return st;
}

static void probe_logits(scratch *s, const char *folder, float *out, int64_t n, tiny_log *log)
{
    int64_t ids[N_TOKENS];
    char batch[512];
    weft_st *file = NULL;
    weft_probe_result r;
    const weft_ctx_options ctx_options = tiny_logged(log);
    weft_probe_options o = {.layout = golden_layout("cpu", "fp32"), .model = folder};

    tiny_ids(ids, N_TOKENS, 53);
    o.batch = tiny_batch(s, ids, NULL, 1, N_TOKENS, batch);
    o.out = scratch_path(s, "probe.safetensors");
    expect_ok(weft_probe_run(&r, &o, &ctx_options));
    expect_ok(weft_i_st_open(&file, s->alloc, o.out));
    const weft_st_tensor *t = tensor_in(file, "logits");
    assert_int_equal(t->n_elems, n);
    memcpy(out, t->data, (size_t)n * sizeof(float));
    weft_i_st_close(file);
}

/* With and without "transformer.", with and without mask buffers: the same bits. */
static void test_nn_weights__gpt2_four_ways(void **state)
{
    static float want[N_TOKENS * 53];
    static float have[N_TOKENS * 53];
    char folder[512];
    tiny_log log;

    for (int way = 0; way < 4; way++) {
        const tiny_folder f = {
            .config = tiny_gpt2, .has_no_prefix = (way & 1) != 0, .has_buffers = (way & 2) != 0};
        tiny_write(*state, "gpt2", &f, folder);
        probe_logits(*state, folder, way == 0 ? want : have, N_TOKENS * 53, &log);
        assert_string_equal(log.text, "");
        if (way > 0)
            assert_memory_equal(have, want, sizeof(want));
    }
}

static void transpose_square(const char *name, float *v, int64_t n)
{
    const int64_t width = 32;
    if (strstr(name, "attn.c_proj.weight") == NULL)
        return;
    assert_int_equal(n, width * width);
    for (int64_t i = 0; i < width; i++) {
        for (int64_t k = 0; k < i; k++) {
            const float t = v[i * width + k];
            v[i * width + k] = v[k * width + i];
            v[k * width + i] = t;
        }
    }
}

/* No shape tells a square matrix from its transpose. The goldens say which is right. */
static void test_nn_weights__a_transposed_square_matrix_is_another_model(void **state)
{
    static float a[N_TOKENS * 53];
    static float b[N_TOKENS * 53];
    char folder[512];
    tiny_log log;
    const tiny_folder plain = {.config = tiny_gpt2};
    const tiny_folder turned = {.config = tiny_gpt2, .edit = transpose_square};
    double worst = 0.0;

    probe_logits(*state, tiny_write(*state, "a", &plain, folder), a, N_TOKENS * 53, &log);
    probe_logits(*state, tiny_write(*state, "b", &turned, folder), b, N_TOKENS * 53, &log);
    for (int64_t i = 0; i < N_TOKENS * 53; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    assert_true(worst > 1e-2);
}

/* A tied model needs no lm_head; the key's default is true for GPT-2 and false for Llama. */
static void test_nn_weights__tied_models_need_no_head(void **state)
{
    char folder[512];
    tiny_log log;
    const tiny_folder gpt2 = {.config = tiny_gpt2}; /* the key is absent */
    expect_ok(try_open(tiny_write(*state, "gpt2", &gpt2, folder), &log));
    const tiny_folder llama = {.config = tiny_config(tiny_llama, "\"tie_word_embeddings\": false",
                                                     "\"tie_word_embeddings\": true")};
    expect_ok(try_open(tiny_write(*state, "llama", &llama, folder), &log));
    const tiny_folder untied = {.config =
                                    tiny_config(tiny_llama, "\"tie_word_embeddings\": false,", ""),
                                .skip = "lm_head.weight"};
    expect_failure(try_open(tiny_write(*state, "untied", &untied, folder), &log),
                   WEFT_STATUS_FORMAT, "lm_head.weight", "missing", NULL);
}

static void same_table(const char *name, float *v, int64_t n)
{
    if (strcmp(name, "lm_head.weight") != 0 && strcmp(name, "model.embed_tokens.weight") != 0)
        return;
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)sin((double)i) * 0.2f;
}

/* Puts a tied config over a file that has a head of its own. */
static void tie(const char *folder)
{
    char path[640];
    const char *config =
        tiny_config(tiny_llama, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    expect_ok(weft_i_file_write(path, config, strlen(config)));
}

/* A head beside a tied embedding: equal is fine, different is warned about and not used. */
static void test_nn_weights__a_tied_head_in_the_file_is_passed_over(void **state)
{
    static float want[N_TOKENS * 53];
    static float have[N_TOKENS * 53];
    scratch *s = *state;
    char folder[512];
    tiny_log log;
    const tiny_folder other = {.config = tiny_llama};
    tie(tiny_write(s, "other", &other, folder));
    probe_logits(s, folder, have, N_TOKENS * 53, &log);
    assert_non_null(strstr(log.text, "lm_head.weight differs from the embedding"));
    const tiny_folder clean = {.config = tiny_config(tiny_llama, "\"tie_word_embeddings\": false",
                                                     "\"tie_word_embeddings\": true")};
    probe_logits(s, tiny_write(s, "clean", &clean, folder), want, N_TOKENS * 53, &log);
    assert_string_equal(log.text, "");
    assert_memory_equal(have, want, sizeof(want));
    const tiny_folder equal = {.config = tiny_llama, .edit = same_table};
    tie(tiny_write(s, "equal", &equal, folder));
    probe_logits(s, folder, have, N_TOKENS * 53, &log);
    assert_string_equal(log.text, "");
}

/* Whatever is missing is named; a tensor too many is only a warning. */
static void test_nn_weights__missing_tensors_are_named(void **state)
{
    static const char *const missing[] = {"lm_head.weight", "model.layers.2.mlp.up_proj.weight",
                                          "model.norm.weight"};
    char folder[512];
    tiny_log log;

    for (size_t i = 0; i < 3; i++) {
        const tiny_folder f = {.config = tiny_llama, .skip = missing[i]};
        expect_failure(try_open(tiny_write(*state, "m", &f, folder), &log), WEFT_STATUS_FORMAT,
                       missing[i], "model.safetensors", "1 tensor", NULL);
    }
    const tiny_folder extra = {.config = tiny_llama, .extra = "model.layers.9.mystery"};
    expect_ok(try_open(tiny_write(*state, "extra", &extra, folder), &log));
    assert_non_null(strstr(log.text, "model.layers.9.mystery"));
    assert_null(strchr(strchr(log.text, '\n') + 1, '\n')); /* one line */
}

/* A config that wants other shapes than the file has: both are named. */
static void test_nn_weights__shapes_must_agree(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[640];
    tiny_log log;
    const tiny_folder f = {.config = tiny_llama};
    tiny_write(s, "shape", &f, folder);
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    const char *config = tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 54");
    expect_ok(weft_i_file_write(path, config, strlen(config)));
    expect_failure(try_open(folder, &log), WEFT_STATUS_FORMAT, "model.embed_tokens.weight",
                   "[53, 32]", "[54, 32]", NULL);
}

/* Names come from the index; a shard that is not there is named; never random weights. */
static void test_nn_weights__shards_come_from_the_index(void **state)
{
    static float want[N_TOKENS * 53];
    static float have[N_TOKENS * 53];
    scratch *s = *state;
    char folder[512];
    char path[640];
    tiny_log log;
    const tiny_folder one = {.config = tiny_llama};
    const tiny_folder two = {.config = tiny_llama,
                             .is_indexed = true,
                             .shard_names = {"weights_A.safetensors", "weights_B.safetensors"}};

    probe_logits(s, tiny_write(s, "one", &one, folder), want, N_TOKENS * 53, &log);
    probe_logits(s, tiny_write(s, "two", &two, folder), have, N_TOKENS * 53, &log);
    assert_memory_equal(have, want, sizeof(want));
    (void)snprintf(path, sizeof(path), "%s/weights_B.safetensors", folder);
    expect_ok(weft_i_dir_remove(path));
    const weft_status st = try_open(folder, &log);
    assert_int_not_equal(st, WEFT_OK);
    assert_non_null(strstr(weft_last_error(), "weights_B.safetensors"));
}

/* A folder without weights is refused, not filled with fresh ones. */
static void test_nn_weights__a_folder_without_weights_is_refused(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[640];
    tiny_log log;
    const tiny_folder f = {.config = tiny_llama};
    tiny_write(s, "none", &f, folder);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    expect_ok(weft_i_dir_remove(path));
    assert_int_not_equal(try_open(folder, &log), WEFT_OK);
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    expect_ok(try_open(path, &log)); /* the config alone asks for fresh weights */
}

/* ---- types ---- */

static weft_dtype mixed(const char *name)
{
    if (strstr(name, "norm") != NULL)
        return WEFT_DTYPE_F32;
    return strcmp(name, "model.layers.1.mlp.up_proj.weight") == 0 ? WEFT_DTYPE_F16
                                                                  : WEFT_DTYPE_BF16;
}

static weft_dtype all_bf16(const char *name)
{
    (void)name;
    return WEFT_DTYPE_BF16;
}

static weft_dtype bf16_matrices(const char *name)
{
    return strstr(name, "norm") != NULL ? WEFT_DTYPE_F32 : WEFT_DTYPE_BF16;
}

static weft_dtype all_f16(const char *name)
{
    (void)name;
    return WEFT_DTYPE_F16;
}

static void check_values(const char *folder, weft_dtype want, const char *dtype_name)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    weft_ctx *ctx = NULL;
    weft_source source;
    weft_model *m = NULL;
    static float file[64 * 64];
    static float here[64 * 64];
    static char rounded[64 * 64 * 4];

    expect_ok(weft_ctx_create(&ctx, &o));
    expect_ok(weft_i_source_open(&source, ctx, folder, dtype_name));
    assert_int_equal(source.dtype, want);
    expect_ok(weft_i_source_model(&m, &source, ctx, false, 0));
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        const weft_st_tensor *t = weft_i_st_find(source.weights, p->name);
        const int64_t n = p->rows * p->cols;
        assert_true(n <= 64 * 64);
        /* What the file's numbers are in the model's type, then both as float32. */
        expect_ok(weft_i_convert(rounded, want, t->data, t->dtype, n));
        expect_ok(weft_i_convert(file, WEFT_DTYPE_F32, rounded, want, n));
        expect_ok(weft_i_convert(here, WEFT_DTYPE_F32, p->value.data, want, n));
        assert_memory_equal(here, file, (size_t)n * sizeof(float));
    }
    weft_model_destroy(m);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
}

/* Any mix of F32, BF16 and F16 loads; the folder's own type follows its matrices. */
static void test_nn_weights__types_may_be_mixed(void **state)
{
    char folder[512];
    const tiny_folder a = {.config = tiny_llama, .dtype = mixed};
    check_values(tiny_write(*state, "mixed", &a, folder), WEFT_DTYPE_F32, "");
    check_values(folder, WEFT_DTYPE_BF16, "bf16");
    const tiny_folder b = {.config = tiny_llama, .dtype = all_bf16};
    check_values(tiny_write(*state, "bf16", &b, folder), WEFT_DTYPE_BF16, "");
    check_values(folder, WEFT_DTYPE_F32, "fp32");
    const tiny_folder c = {.config = tiny_llama, .dtype = bf16_matrices};
    check_values(tiny_write(*state, "matrices", &c, folder), WEFT_DTYPE_BF16, "");
    const tiny_folder d = {.config = tiny_llama, .dtype = all_f16};
    check_values(tiny_write(*state, "f16", &d, folder), WEFT_DTYPE_F32, "");
}

static void test_nn_weights__a_type_that_is_no_number_is_refused(void **state)
{
    scratch *s = *state;
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    const weft_st_plan plan = {
        .name = "w", .dtype = WEFT_DTYPE_I32, .shape = weft_i_shape_2d(2, 3)};
    const int32_t ids[6] = {0};
    const weft_weight_names names = {false};
    weft_st_writer *w = NULL;
    weft_st *file = NULL;
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_param *p = NULL;
    const char *path = scratch_path(s, "w.safetensors");

    expect_ok(weft_i_st_create(&w, s->alloc, path, &plan, 1, NULL, 0));
    expect_ok(weft_i_st_append(w, ids, sizeof(ids)));
    expect_ok(weft_i_st_finish(w));
    expect_ok(weft_i_st_open(&file, s->alloc, path));
    expect_ok(weft_ctx_create(&ctx, &o));
    expect_ok(weft_model_create(&m, ctx, WEFT_DTYPE_F32));
    expect_ok(weft_model_add_param(m, "w", 2, 2, 3, &p));
    expect_failure(weft_i_weights_check(m, file, &names), WEFT_STATUS_UNSUPPORTED, "I32", "w",
                   NULL);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
    weft_i_st_close(file);
}

/* ---- parts ---- */

/* A parameter that holds columns 1..2 of rows 0..1, then column 5 of both: what a split over ranks will ask for. */
static void test_nn_weights__pieces_are_taken_from_the_full_tensor(void **state)
{
    scratch *s = *state;
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    const weft_st_plan plan = {
        .name = "w", .dtype = WEFT_DTYPE_BF16, .shape = weft_i_shape_2d(3, 6)};
    const weft_weight_names names = {false};
    const float want[2][3] = {{11, 12, 15}, {21, 22, 25}};
    uint16_t bits[18];
    weft_st_writer *w = NULL;
    weft_st *file = NULL;
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_param *p = NULL;
    const char *path = scratch_path(s, "w.safetensors");

    for (int i = 0; i < 18; i++) /* exact in bf16 */
        bits[i] = weft_i_f32_to_bf16((float)(i / 6 * 10 + i % 6));
    expect_ok(weft_i_st_create(&w, s->alloc, path, &plan, 1, NULL, 0));
    expect_ok(weft_i_st_append(w, bits, sizeof(bits)));
    expect_ok(weft_i_st_finish(w));
    expect_ok(weft_i_st_open(&file, s->alloc, path));
    expect_ok(weft_ctx_create(&ctx, &o));
    expect_ok(weft_model_create(&m, ctx, WEFT_DTYPE_F32));
    expect_ok(weft_model_add_param(m, "w", 2, 3, 6, &p));
    p->rows = 2;
    p->cols = 3;
    p->n_pieces = 2;
    p->piece[0] =
        (weft_param_piece){.full_row = 1, .full_col = 1, .rows = 2, .cols = 2, .is_owned = true};
    p->piece[1] = (weft_param_piece){
        .full_row = 1, .full_col = 5, .col = 2, .rows = 2, .cols = 1, .is_owned = true};
    expect_ok(weft_model_allocate(m, false));
    expect_ok(weft_i_weights_load(m, file, &names));
    for (int r = 0; r < 2; r++)
        assert_memory_equal((const float *)p->value.data + r * p->value.ld, want[r],
                            sizeof(want[r]));
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
    weft_i_st_close(file);
}

/* ---- a model filled by parts ---- */

/* Parts of at most `step` elements of every parameter, in memory with poison around each; -> their number. */
static int64_t cut_model(weft_model *m, int64_t step, weft_part *parts, char *memory)
{
    const size_t size = weft_dtype_bytes(weft_model_dtype(m));
    int64_t n = 0;
    char *at = memory + 64;

    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        weft_param *p = weft_model_param(m, i);
        for (int64_t first = 0; first < p->rows * p->cols; first += step) {
            const int64_t k = WEFT_MIN(step, p->rows * p->cols - first);
            parts[n++] = (weft_part){.param = p,
                                     .number = i,
                                     .first = first,
                                     .n = k,
                                     .value = weft_view_make(at, weft_model_dtype(m), 1, k),
                                     .grad = weft_view_none(),
                                     .state_first = -1};
            at += (size_t)k * size + 64;
        }
    }
    return n;
}

#define MAX_PARTS 4096
#define MEMORY_BYTES ((size_t)1 << 20)

/* What source_fill puts into parts is what source_model has there, and nothing beside them is written. */
static void check_fill(const char *path, const char *dtype, int64_t step)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    static weft_part parts[MAX_PARTS];
    static char memory[MEMORY_BYTES];
    weft_ctx *ctx = NULL;
    weft_source source;
    weft_model *whole = NULL;
    weft_model *m = NULL;

    expect_ok(weft_ctx_create(&ctx, &o));
    expect_ok(weft_i_source_open(&source, ctx, path, dtype));
    expect_ok(weft_i_source_model(&whole, &source, ctx, false, 9));
    expect_ok(weft_model_from_config(&m, ctx, &source.hf.config, source.dtype));
    expect_ok(weft_model_lay_out(m, true));
    memset(memory, 0xA5, MEMORY_BYTES);
    const int64_t n = cut_model(m, step, parts, memory);
    expect_ok(weft_i_source_fill(&source, m, parts, n, 9));
    const size_t size = weft_dtype_bytes(source.dtype);
    for (int64_t i = 0; i < n; i++) {
        const weft_param *p = weft_model_find_param(whole, parts[i].param->name);
        const char *want = (const char *)p->value.data + (size_t)parts[i].first * size;
        const char *got = parts[i].value.data;
        assert_memory_equal(got, want, (size_t)parts[i].n * size);
        for (int k = 0; k < 64; k++)
            assert_true((unsigned char)got[k - 64] == 0xA5 &&
                        (unsigned char)got[(size_t)parts[i].n * size + (size_t)k] == 0xA5);
    }
    if (n > 2) { /* some parts, in any order */
        const weft_part two[2] = {parts[n - 1], parts[1]};
        memset(memory, 0, MEMORY_BYTES);
        expect_ok(weft_i_source_fill(&source, m, two, 2, 9));
        for (int i = 0; i < 2; i++) {
            const weft_param *p = weft_model_find_param(whole, two[i].param->name);
            assert_memory_equal(two[i].value.data,
                                (const char *)p->value.data + (size_t)two[i].first * size,
                                (size_t)two[i].n * size);
        }
    }
    parts[0].value.data = NULL;
    if (source.weights != NULL)
        expect_failure(weft_i_source_fill(&source, m, parts, 1, 9), WEFT_STATUS_INTERNAL,
                       parts[0].param->name, "no memory", NULL);
    expect_ok(weft_i_source_fill(&source, m, parts, 0, 9));
    weft_model_destroy(m);
    weft_model_destroy(whole);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
}

static void test_nn_weights__parts_are_filled_like_the_whole(void **state)
{
    char folder[512];
    char config[640];
    const tiny_folder a = {.config = tiny_llama, .dtype = mixed};
    tiny_write(*state, "mixed", &a, folder);
    for (int64_t step = 37; step < 20000; step *= 23) {
        check_fill(folder, "fp32", step);
        check_fill(folder, "bf16", step);
    }
    (void)snprintf(config, sizeof(config), "%s/config.json", folder);
    check_fill(config, "fp32", 37);
    check_fill(config, "bf16", 1000);
}

typedef struct signs {
    int n, n_max;
} signs;

static weft_status sign_of_life(void *user)
{
    signs *s = user;
    if (s->n++ < s->n_max)
        return WEFT_OK;
    WEFT_FAIL(WEFT_STATUS_REMOTE, "rank 1 failed");
}

/* Every block is a sign of life, and the world's failure ends a load. */
static void test_nn_weights__loading_shows_life_and_ends_with_the_world(void **state)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    char folder[512];
    weft_ctx *ctx = NULL;
    weft_source source;
    weft_model *m = NULL;
    const tiny_folder a = {.config = tiny_llama};
    signs s = {0, INT32_MAX};

    tiny_write(*state, "m", &a, folder);
    expect_ok(weft_ctx_create(&ctx, &o));
    expect_ok(weft_i_source_open(&source, ctx, folder, ""));
    expect_ok(weft_i_source_model(&m, &source, ctx, false, 0));
    ctx->alive = sign_of_life;
    ctx->alive_user = &s;
    expect_ok(weft_i_weights_load(m, source.weights, &source.names));
    assert_true(s.n >= weft_model_param_count(m));
    s = (signs){0, 3};
    expect_failure(weft_i_weights_load(m, source.weights, &source.names), WEFT_STATUS_REMOTE,
                   "rank 1 failed", NULL);
    weft_model_destroy(m);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_nn_weights__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(gpt2_four_ways),
                                       RUN(a_transposed_square_matrix_is_another_model),
                                       RUN(tied_models_need_no_head),
                                       RUN(a_tied_head_in_the_file_is_passed_over),
                                       RUN(missing_tensors_are_named),
                                       RUN(shapes_must_agree),
                                       RUN(shards_come_from_the_index),
                                       RUN(a_folder_without_weights_is_refused),
                                       RUN(types_may_be_mixed),
                                       RUN(a_type_that_is_no_number_is_refused),
                                       RUN(pieces_are_taken_from_the_full_tensor),
                                       RUN(parts_are_filled_like_the_whole),
                                       RUN(loading_shows_life_and_ends_with_the_world)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
