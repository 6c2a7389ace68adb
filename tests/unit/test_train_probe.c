/*
 * `weft probe` beyond the goldens: uniform logits, masks, micro-batches, sizes, and every batch file it must refuse.
 */
#include "golden.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LN_53 3.9702919135521220

static weft_st *
run_probe(scratch *s, const weft_probe_options *o, weft_probe_result *r, tiny_log *log)
{
    weft_probe_options with_out = *o;
    weft_st *file = NULL;
    const weft_ctx_options ctx_options = tiny_logged(log);
    with_out.out = scratch_path(s, "probe.safetensors");
    expect_ok(weft_probe_run(r, &with_out, &ctx_options));
    expect_ok(weft_i_st_open(&file, s->alloc, with_out.out));
    return file;
}

static void zero_head(const char *name, float *v, int64_t n)
{
    if (strcmp(name, "lm_head.weight") == 0)
        memset(v, 0, (size_t)n * sizeof(*v));
}

static void huge_head(const char *name, float *v, int64_t n)
{
    for (int64_t i = 0; strcmp(name, "lm_head.weight") == 0 && i < n; i++)
        v[i] *= 200.0f;
}

/* Every logit equal means a loss of ln 53, in every batch, type and backend. */
static void test_train_probe__uniform_logits_cost_ln_of_the_vocabulary(void **state)
{
    static const char *const backends[] = {"cpu", "reference"};
    static const char *const dtypes[] = {"fp32", "bf16"};
    const tiny_folder f = {.config = tiny_llama, .edit = zero_head};
    char folder[512];
    char batch[512];
    int64_t ids[5 * 11];
    tiny_log log;
    weft_probe_result r;

    tiny_ids(ids, 55, 53);
    tiny_write(*state, "m", &f, folder);
    tiny_batch(*state, ids, NULL, 5, 11, batch);
    for (int i = 0; i < 12; i++) {
        weft_probe_options o = {.layout = golden_layout(backends[i % 2], dtypes[i / 2 % 2]),
                                .model = folder,
                                .batch = batch};
        o.layout.micro_batch_size = i / 4; /* all, 1, 2 (5 is no multiple) */
        weft_st *file = run_probe(*state, &o, &r, &log);
        assert_int_equal(r.n_targets, 50);
        if (!(fabs(r.loss - LN_53) <= 1e-6))
            fail_msg("loss %.9f, should be %.9f (run %d)", r.loss, LN_53, i);
        weft_i_st_close(file);
    }
}

/* The maximum is taken over the whole row, so large logits overflow nothing. */
static void test_train_probe__large_logits_stay_finite(void **state)
{
    const tiny_folder f = {.config = tiny_llama, .edit = huge_head};
    char folder[512];
    char batch[512];
    int64_t ids[2 * 16];
    tiny_log log;
    weft_probe_result r;

    tiny_ids(ids, 32, 53);
    const weft_probe_options o = {.layout = golden_layout("cpu", ""),
                                  .model = tiny_write(*state, "m", &f, folder),
                                  .batch = tiny_batch(*state, ids, NULL, 2, 16, batch),
                                  .grads = true};
    weft_st *file = run_probe(*state, &o, &r, &log);
    assert_true(isfinite(r.loss) && r.loss > 50.0);
    for (size_t k = 0; k < weft_i_st_count(file); k++) {
        const weft_st_tensor *t = weft_i_st_at(file, k);
        for (int64_t i = 0; i < t->n_elems; i++)
            assert_true(isfinite(tensor_at(t, i)));
    }
    weft_i_st_close(file);
}

/* The mean over the batch does not depend on how it is cut: gradients add, one number scales them. */
static void test_train_probe__micro_batches_agree(void **state)
{
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    char batch[512];
    int64_t ids[5 * 9];
    int64_t labels[5 * 9];
    tiny_log log;
    weft_probe_result r;
    weft_probe_result part;

    tiny_ids(ids, 45, 53);
    for (int64_t i = 0; i < 45; i++) /* sequences count unlike: one not at all */
        labels[i] = i / 9 == 2 || i % (i / 9 + 2) == 0 ? -100 : ids[i];
    weft_probe_options o = {.layout = golden_layout("cpu", ""),
                            .model = tiny_write(*state, "m", &f, folder),
                            .batch = tiny_batch(*state, ids, labels, 5, 9, batch),
                            .grads = true};
    weft_st *whole = run_probe(*state, &o, &r, &log);
    for (int64_t micro = 1; micro <= 4; micro++) {
        scratch *s = *state;
        char out[512];
        const char *const recompute[] = {"none", "full", "selective", "none"};
        weft_st *cut = NULL;
        (void)snprintf(out, sizeof(out), "%.400s/cut.safetensors", s->dir);
        o.layout.micro_batch_size = micro;
        o.layout.recompute = recompute[micro - 1];
        o.out = out;
        expect_ok(weft_probe_run(&part, &o, NULL));
        expect_ok(weft_i_st_open(&cut, s->alloc, out));
        assert_int_equal(part.n_targets, r.n_targets);
        assert_true(fabs(part.loss - r.loss) <= 1e-6 * r.loss);
        assert_int_equal(weft_i_st_count(cut), weft_i_st_count(whole));
        for (size_t k = 0; k < weft_i_st_count(whole); k++) {
            const weft_st_tensor *a = weft_i_st_at(whole, k);
            double max = 0.0;
            for (int64_t i = 0; i < a->n_elems; i++)
                max = fmax(max, fabs(tensor_at(a, i)));
            expect_near("cut", tensor_in(cut, a->name), a, 1e-5 * max);
        }
        weft_i_st_close(cut);
    }
    weft_i_st_close(whole);
}

/* Nothing counted: loss 0, gradients 0, a warning, no NaN. */
static void test_train_probe__nothing_counted_is_zero(void **state)
{
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    char batch[512];
    int64_t ids[2 * 6];
    int64_t labels[2 * 6];
    tiny_log log;
    weft_probe_result r;

    tiny_ids(ids, 12, 53);
    for (int64_t i = 0; i < 12; i++)
        labels[i] = i % 6 == 0 ? ids[i] : -100; /* the first place of a sequence predicts nothing */
    const weft_probe_options o = {.layout = golden_layout("cpu", ""),
                                  .model = tiny_write(*state, "m", &f, folder),
                                  .batch = tiny_batch(*state, ids, labels, 2, 6, batch),
                                  .grads = true};
    weft_st *file = run_probe(*state, &o, &r, &log);
    assert_int_equal(r.n_targets, 0);
    assert_non_null(strstr(log.text, "no target is counted"));
    for (size_t k = 0; k < weft_i_st_count(file); k++) {
        const weft_st_tensor *t = weft_i_st_at(file, k);
        for (int64_t i = 0; i < t->n_elems; i++) {
            if (strcmp(t->name, "logits") == 0)
                assert_true(isfinite(tensor_at(t, i)));
            else
                assert_true(tensor_at(t, i) == 0.0);
        }
    }
    weft_i_st_close(file);
}

/* A sequence of one token predicts nothing; one batch of every odd size works. */
static void test_train_probe__any_length(void **state)
{
    static const int64_t lengths[] = {1, 2, 3, 5, 17, 33, 63, 64};
    const tiny_folder f = {.config = tiny_gpt2};
    char folder[512];
    char batch[512];
    int64_t ids[3 * 64];
    tiny_log log;
    weft_probe_result r;

    tiny_write(*state, "m", &f, folder);
    tiny_ids(ids, 192, 53);
    for (size_t i = 0; i < 8; i++) {
        const int64_t n = lengths[i];
        const weft_probe_options o = {.layout = golden_layout("cpu", ""),
                                      .model = folder,
                                      .batch = tiny_batch(*state, ids, NULL, 3, n, batch),
                                      .grads = true};
        weft_st *file = run_probe(*state, &o, &r, &log);
        const weft_st_tensor *losses = tensor_in(file, "token_loss");
        assert_int_equal(losses->shape.dim[0], 3);
        assert_int_equal(losses->shape.dim[1], n - 1);
        assert_int_equal(r.n_targets, 3 * (n - 1));
        /* Rows of the position table that no token had get a gradient of exactly 0. */
        const weft_st_tensor *wpe = tensor_in(file, "grad/transformer.wpe.weight");
        for (int64_t k = n * 32; k < wpe->n_elems; k++)
            assert_true(tensor_at(wpe, k) == 0.0);
        weft_i_st_close(file);
    }
    const weft_probe_options o = {.layout = golden_layout("cpu", ""),
                                  .model = folder,
                                  .batch = tiny_batch(*state, ids, NULL, 1, 65, batch),
                                  .out = scratch_path(*state, "o")};
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_MISMATCH, "65 tokens",
                   "positions for 64", NULL);
}

/* E09: a tensor the model does not use has a gradient too: zero. Buffers and names follow the file. */
static void test_train_probe__gradients_follow_the_file(void **state)
{
    const tiny_folder f = {
        .config = tiny_gpt2, .extra = "score.weight", .has_no_prefix = true, .has_buffers = true};
    char folder[512];
    char batch[512];
    int64_t ids[8];
    tiny_log log;
    weft_probe_result r;

    tiny_ids(ids, 8, 53);
    const weft_probe_options o = {.layout = golden_layout("cpu", ""),
                                  .model = tiny_write(*state, "m", &f, folder),
                                  .batch = tiny_batch(*state, ids, NULL, 1, 8, batch),
                                  .grads = true};
    weft_st *file = run_probe(*state, &o, &r, &log);
    const weft_st_tensor *extra = tensor_in(file, "grad/score.weight");
    assert_int_equal(extra->n_elems, 3);
    for (int64_t i = 0; i < 3; i++)
        assert_true(tensor_at(extra, i) == 0.0);
    assert_non_null(weft_i_st_find(file, "grad/h.3.mlp.c_proj.weight"));
    assert_null(weft_i_st_find(file, "grad/h.0.attn.bias"));
    assert_int_equal(r.n_grads, 4 * 12 + 4 + 1);
    weft_i_st_close(file);
}

/* The loss of a bf16 model is no bf16 number. Two batches that differ by some 0.05 print different losses. */
static void test_train_probe__loss_of_bf16_is_not_a_staircase(void **state)
{
    const tiny_folder f = {.config = tiny_llama, .edit = huge_head};
    char folder[512];
    char batch[512];
    int64_t ids[24];
    double loss[2];
    tiny_log log;
    weft_probe_result r;

    tiny_ids(ids, 24, 53);
    tiny_write(*state, "m", &f, folder);
    for (int64_t n = 0; n < 2; n++) {
        int64_t labels[24];
        for (int64_t i = 0; i < 24; i++) /* the second counts one target less */
            labels[i] = n == 1 && i == 7 ? -100 : ids[i];
        const weft_probe_options o = {.layout = golden_layout("cpu", "bf16"),
                                      .model = folder,
                                      .batch = tiny_batch(*state, ids, labels, 1, 24, batch)};
        weft_st *file = run_probe(*state, &o, &r, &log);
        loss[n] = r.loss;
        int64_t n_off_grid = 0;
        const weft_st_tensor *t = tensor_in(file, "token_loss");
        for (int64_t i = 0; i < t->n_elems; i++) /* bf16 near 64..128 has steps of 0.5 */
            n_off_grid += fabs(tensor_at(t, i) * 8.0 - round(tensor_at(t, i) * 8.0)) > 1e-3;
        assert_true(n_off_grid > 12);
        weft_i_st_close(file);
    }
    assert_true(loss[0] > 30.0);
    assert_true(loss[0] != loss[1]);
}

/* Threads and repetition change no bit. */
static void test_train_probe__threads_change_no_bit(void **state)
{
    scratch *s = *state;
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    char batch[512];
    int64_t ids[4 * 40];
    char *want = NULL;
    char *have = NULL;
    size_t n_want = 0;
    size_t n_have = 0;
    weft_probe_result r;

    tiny_ids(ids, 160, 53);
    weft_probe_options o = {.layout = golden_layout("cpu", ""),
                            .model = tiny_write(s, "m", &f, folder),
                            .batch = tiny_batch(s, ids, NULL, 4, 40, batch),
                            .grads = true};
    for (int64_t n = 1; n <= 4; n++) {
        o.layout.threads_per_rank = n;
        o.out = scratch_path(s, "o.safetensors");
        expect_ok(weft_probe_run(&r, &o, NULL));
        expect_ok(weft_i_file_read(s->alloc, o.out, (size_t)1 << 24, n == 1 ? &want : &have,
                                   n == 1 ? &n_want : &n_have));
        if (n == 1)
            continue;
        assert_int_equal(n_have, n_want);
        assert_memory_equal(have, want, n_want);
        weft_i_alloc_put(s->alloc, have);
    }
    weft_i_alloc_put(s->alloc, want);
}

/* ---- refusals ---- */

static void expect_refused(scratch *s,
                           const char *folder,
                           const weft_st_plan *plan,
                           size_t n_plan,
                           const void *bytes,
                           weft_status status,
                           const char *text)
{
    weft_st_writer *w = NULL;
    weft_probe_result r;
    char batch[512];
    char out[512];
    (void)snprintf(batch, sizeof(batch), "%.400s/b.safetensors", s->dir);
    (void)snprintf(out, sizeof(out), "%.400s/o.safetensors", s->dir);
    expect_ok(weft_i_st_create(&w, s->alloc, batch, plan, n_plan, NULL, 0));
    for (size_t i = 0; i < n_plan; i++) {
        int64_t n = 0;
        expect_ok(weft_i_shape_count(&plan[i].shape, &n));
        expect_ok(weft_i_st_append(w, bytes, (size_t)n * weft_dtype_bytes(plan[i].dtype)));
    }
    expect_ok(weft_i_st_finish(w));
    const weft_probe_options o = {
        .layout = golden_layout("cpu", ""), .model = folder, .batch = batch, .out = out};
    expect_failure(weft_probe_run(&r, &o, NULL), status, text, "b.safetensors", NULL);
    assert_false(weft_i_file_exists(out));
}

static void test_train_probe__refuses_bad_batches(void **state)
{
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    const int64_t good[6] = {1, 2, 3, 4, 5, 6};
    const int64_t beyond[6] = {1, 2, 3, 4, 53, 6};
    const int64_t negative[6] = {1, -1, 3, 4, 5, 6};
    const weft_shape two = weft_i_shape_2d(2, 3);
    const weft_st_plan ids = {.name = "input_ids", .dtype = WEFT_DTYPE_I64, .shape = two};
    const weft_st_plan floats = {.name = "input_ids", .dtype = WEFT_DTYPE_F32, .shape = two};
    const weft_st_plan flat = {
        .name = "input_ids", .dtype = WEFT_DTYPE_I64, .shape = weft_i_shape_1d(6)};
    const weft_st_plan empty = {
        .name = "input_ids", .dtype = WEFT_DTYPE_I64, .shape = weft_i_shape_2d(0, 3)};
    const weft_st_plan other = {.name = "ids", .dtype = WEFT_DTYPE_I64, .shape = two};
    const weft_st_plan turned[2] = {
        ids, {.name = "labels", .dtype = WEFT_DTYPE_I64, .shape = weft_i_shape_2d(3, 2)}};
    const weft_st_plan labelled[2] = {ids,
                                      {.name = "labels", .dtype = WEFT_DTYPE_I64, .shape = two}};
    const weft_status mismatch = WEFT_STATUS_MISMATCH;

    tiny_write(*state, "m", &f, folder);
    expect_refused(*state, folder, &ids, 1, beyond, mismatch, "input_ids[1, 1] is 53");
    expect_refused(*state, folder, &ids, 1, negative, mismatch, "input_ids[0, 1] is -1");
    expect_refused(*state, folder, &floats, 1, good, WEFT_STATUS_UNSUPPORTED, "F32");
    expect_refused(*state, folder, &flat, 1, good, WEFT_STATUS_FORMAT, "[6]");
    expect_refused(*state, folder, &empty, 1, good, WEFT_STATUS_FORMAT, "[0, 3]");
    expect_refused(*state, folder, &other, 1, good, WEFT_STATUS_FORMAT, "no tensor input_ids");
    expect_refused(*state, folder, turned, 2, good, WEFT_STATUS_FORMAT, "labels are [3, 2]");
    expect_refused(*state, folder, labelled, 2, negative, mismatch, "-1");
}

/* I32 ids are the same batch; what is neither ids nor labels is warned about. */
static void test_train_probe__accepts_i32_and_warns_of_the_rest(void **state)
{
    scratch *s = *state;
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    char batch[512];
    const int32_t narrow[8] = {1, 7, 3, 4, 52, 0, 9, 8};
    const int64_t wide[8] = {1, 7, 3, 4, 52, 0, 9, 8};
    const weft_shape shape = weft_i_shape_2d(2, 4);
    const weft_st_plan plan[2] = {
        {.name = "input_ids", .dtype = WEFT_DTYPE_I32, .shape = shape},
        {.name = "attention_mask", .dtype = WEFT_DTYPE_I32, .shape = shape}};
    weft_st_writer *w = NULL;
    tiny_log log;
    weft_probe_result a;
    weft_probe_result b;

    weft_probe_options o = {.layout = golden_layout("cpu", ""),
                            .model = tiny_write(s, "m", &f, folder),
                            .batch = tiny_batch(s, wide, NULL, 2, 4, batch)};
    weft_i_st_close(run_probe(s, &o, &a, &log));
    assert_string_equal(log.text, "");
    expect_ok(weft_i_st_create(&w, s->alloc, batch, plan, 2, NULL, 0));
    expect_ok(weft_i_st_append(w, narrow, sizeof(narrow)));
    expect_ok(weft_i_st_append(w, narrow, sizeof(narrow)));
    expect_ok(weft_i_st_finish(w));
    weft_i_st_close(run_probe(s, &o, &b, &log));
    assert_non_null(strstr(log.text, "attention_mask"));
    assert_true(a.loss == b.loss);
}

/* One key in sight: its weight is 1 whatever the scores, so nothing comes back to queries and keys, not even rounding. */
static void test_train_probe__a_lone_key_gives_queries_no_gradient(void **state)
{
    static const char *const backends[] = {"cpu", "reference"};
    static const char *const types[] = {"fp32", "bf16"};
    static const char *const names[] = {"grad/model.layers.0.self_attn.q_proj.weight",
                                        "grad/model.layers.2.self_attn.k_proj.weight"};
    scratch *s = *state;
    const tiny_folder f = {.config = tiny_llama};
    const int64_t ids[6] = {1, 7, 52, 0, 9, 33}; /* position 0 alone has a target */
    char folder[512];
    char batch[512];
    tiny_log log;
    weft_probe_result r;

    tiny_write(s, "m", &f, folder);
    tiny_batch(s, ids, NULL, 3, 2, batch);
    for (int i = 0; i < 4; i++) {
        const weft_probe_options o = {.layout = golden_layout(backends[i / 2], types[i % 2]),
                                      .model = folder,
                                      .batch = batch,
                                      .grads = true};
        weft_st *file = run_probe(s, &o, &r, &log);
        for (int k = 0; k < 2; k++) {
            const weft_st_tensor *t = tensor_in(file, names[k]);
            int64_t n = 0;
            expect_ok(weft_i_shape_count(&t->shape, &n));
            for (int64_t j = 0; j < n; j++)
                assert_true(tensor_at(t, j) == 0.0);
        }
        const weft_st_tensor *v = tensor_in(file, "grad/model.layers.0.self_attn.v_proj.weight");
        assert_true(tensor_at(v, 0) != 0.0);
        weft_i_st_close(file);
    }
}

/* The file appears whole or not at all, and never in place of what the probe reads. */
static void test_train_probe__writes_whole_files_and_over_no_input(void **state)
{
    scratch *s = *state;
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    char batch[512];
    char weights[WEFT_PATH_MAX];
    char out[WEFT_PATH_MAX];
    const int64_t ids[8] = {1, 7, 3, 4, 52, 0, 9, 8};
    weft_probe_result r;

    weft_probe_options o = {.layout = golden_layout("cpu", ""),
                            .model = tiny_write(s, "m", &f, folder),
                            .batch = tiny_batch(s, ids, NULL, 2, 4, batch)};
    expect_ok(weft_i_path_join(weights, folder, "model.safetensors"));
    o.out = weights;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_ARG, weights, "another name", NULL);
    o.out = batch;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_ARG, batch, "another name", NULL);
    expect_ok(weft_i_str_print(out, sizeof(out), "%s", scratch_file(s, "out", "before", 6)));
    o.out = out;
    expect_ok(weft_probe_run(&r, &o, NULL));
    weft_st *written = NULL;
    expect_ok(weft_i_st_open(&written, s->alloc, out));
    weft_i_st_close(written);
    expect_ok(weft_i_str_print(out, sizeof(out), "%s", scratch_path(s, "out.tmp")));
    assert_false(weft_i_file_exists(out));
    expect_ok(weft_i_dir_make(out)); /* in the way of the temporary name */
    expect_ok(weft_i_str_print(out, sizeof(out), "%s", scratch_file(s, "out", "before", 6)));
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_IO, "out.tmp", NULL);
    uint64_t n_bytes = 0;
    expect_ok(weft_i_file_size(out, &n_bytes));
    assert_int_equal(n_bytes, 6);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_train_probe__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(uniform_logits_cost_ln_of_the_vocabulary),
                                       RUN(large_logits_stay_finite),
                                       RUN(micro_batches_agree),
                                       RUN(nothing_counted_is_zero),
                                       RUN(any_length),
                                       RUN(gradients_follow_the_file),
                                       RUN(loss_of_bf16_is_not_a_staircase),
                                       RUN(threads_change_no_bit),
                                       RUN(refuses_bad_batches),
                                       RUN(accepts_i32_and_warns_of_the_rest),
                                       RUN(a_lone_key_gives_queries_no_gradient),
                                       RUN(writes_whole_files_and_over_no_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
