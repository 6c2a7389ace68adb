/*
 * `weft probe` on several ranks against one: every method, odd sizes, batches that do not divide, ranks without work. The
 * oracle is one rank, which the goldens hold to PyTorch.
 */
#include "golden.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Nothing divides: 5 layers, 6 heads on 3, width 36, vocabulary 257. */
static const char odd_llama[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 36, \"num_hidden_layers\": 5,\n"
    " \"num_attention_heads\": 6, \"num_key_value_heads\": 3, \"intermediate_size\": 50,\n"
    " \"vocab_size\": 257, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,\n"
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, \"eos_token_id\": null}\n";
static const char odd_gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 36, \"n_layer\": 5, \"n_head\": 6,\n"
    " \"n_positions\": 64, \"vocab_size\": 257, \"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0,\n"
    " \"resid_pdrop\": 0.0, \"eos_token_id\": null, \"bos_token_id\": null}\n";

static const char *const MODES[] = {"none", "selective", "full"};

/* DDP and ZeRO 1 to 3; the last of the methods is DataParallel. */
#define N_METHODS 5

static void choose_method(weft_layout_options *o, int64_t method)
{
    o->zero_stage = method < 4 ? method : 0;
    o->strategy = method < 4 ? "" : "data-parallel";
}

/* Sanitizers make ranks that are many slow. */
#ifdef WEFT_SANITIZED
#define N_SIZES 2
#define N_MICRO 1
#else
#define N_SIZES 4
#define N_MICRO 2
#endif

typedef struct setup {
    scratch *s;
    char folder[512];
    char batch[512];
    weft_probe_options options;
} setup;

/* A batch whose sequences count unlike, one not at all. */
static void make(setup *u, void **state, const char *config, int64_t vocab, int64_t n_seqs)
{
    const int64_t n_tokens = 9;
    const tiny_folder f = {.config = config};
    int64_t ids[16 * 9];
    int64_t labels[16 * 9];

    memset(u, 0, sizeof(*u));
    u->s = *state;
    assert_true(n_seqs <= 16);
    tiny_ids(ids, n_seqs * n_tokens, vocab);
    for (int64_t i = 0; i < n_seqs * n_tokens; i++)
        labels[i] = i / n_tokens == 2 || i % (i / n_tokens + 2) == 0 ? -100 : ids[i];
    u->options = (weft_probe_options){.layout = golden_layout("reference", ""), .grads = true};
    u->options.layout.threads_per_rank = 1;
    u->options.model = tiny_write(u->s, "m", &f, u->folder);
    u->options.batch = tiny_batch(u->s, ids, labels, n_seqs, n_tokens, u->batch);
}

/* A probe in some layout; close with weft_i_st_close. */
static weft_st *
probe(setup *u, const weft_layout_options *layout, const char *name, weft_probe_result *r)
{
    weft_st *file = NULL;
    char out[512];
    u->options.layout = *layout;
    (void)snprintf(out, sizeof(out), "%.400s/%s.safetensors", u->s->dir, name);
    u->options.out = out;
    expect_ok(weft_probe_run(r, &u->options, NULL));
    expect_ok(weft_i_st_open(&file, u->s->alloc, out));
    return file;
}

static double largest_in(const weft_st_tensor *t)
{
    double max = 0.0;
    for (int64_t i = 0; i < t->n_elems; i++)
        max = fmax(max, fabs(tensor_at(t, i)));
    return max;
}

/* bound < 0: the same bits; else gradients within bound of each tensor's largest. */
static void compare(const char *what, const weft_st *have, const weft_st *want, double bound)
{
    assert_int_equal(weft_i_st_count(have), weft_i_st_count(want));
    for (size_t k = 0; k < weft_i_st_count(want); k++) {
        const weft_st_tensor *b = weft_i_st_at(want, k);
        const weft_st_tensor *a = tensor_in(have, b->name);
        assert_int_equal(a->n_bytes, b->n_bytes);
        if (memcmp(a->data, b->data, a->n_bytes) == 0)
            continue;
        if (bound < 0.0 || strncmp(b->name, "grad/", 5) != 0)
            fail_msg("%s: %s has other bits than on one rank", what, b->name);
        expect_near(what, a, b, bound * largest_in(b));
    }
}

/* ---- stages ---- */

/* Forward alone over pp 2, 3, 4 x dp 1, 2: logits and losses are the same bits, micro-batches as they come. */
static void test_train_probe_ranks__stages_have_the_bits_of_one_rank(void **state)
{
    setup u;
    weft_probe_result r;
    weft_probe_result one_r;

    make(&u, state, odd_llama, 257, 7);
    u.options.grads = false;
    for (int64_t micro = 1; micro <= 2; micro++) {
        weft_layout_options o = u.options.layout;
        o.pp = o.dp = 1;
        o.pp_schedule = "1f1b";
        o.micro_batch_size = micro;
        weft_st *one = probe(&u, &o, "one", &one_r);
        for (int i = 0; i < 3 * 2 * 2; i++) {
            o.pp = 2 + i % 3;
            o.dp = 1 + i / 3 % 2;
            o.pp_schedule = i < 6 || o.pp == 4 ? "1f1b" : "interleaved";
            weft_st *many = probe(&u, &o, "many", &r);
            assert_true(r.loss == one_r.loss && r.n_targets == one_r.n_targets);
            compare("stages", many, one, -1.0);
            weft_i_st_close(many);
        }
        weft_i_st_close(one);
    }
}

/* Gradients too, in every schedule, from one micro-batch a rank on: fewer than a pipeline has stages. */
static void test_train_probe_ranks__stages_take_any_number_of_micro_batches(void **state)
{
    static const char *const schedules[] = {"naive",       "gpipe", "1f1b",
                                            "interleaved", "zb-h1", "zb-h2"};
    static const int64_t micro[] = {0, 7, 6, 2}; /* of 7 sequences: 1, 1, 2 and 4 micro-batches */
    setup u;
    weft_probe_result r;
    weft_probe_result one_r;

    make(&u, state, odd_llama, 257, 7);
    for (size_t i = 0; i < sizeof(micro) / sizeof(*micro); i++) {
        weft_layout_options o = u.options.layout;
        o.micro_batch_size = micro[i];
        weft_st *one = probe(&u, &o, "one", &one_r);
        for (size_t k = 0; k < sizeof(schedules) / sizeof(*schedules); k++) {
            o.pp = 2 + (int64_t)(i + k) % 2;
            o.pp_schedule = schedules[k];
            weft_st *many = probe(&u, &o, "many", &r);
            assert_true(r.loss == one_r.loss && r.n_targets == one_r.n_targets);
            compare(schedules[k], many, one, -1.0);
            weft_i_st_close(many);
        }
        weft_i_st_close(one);
    }
}

/* ---- every method ---- */

/* dp 2, 3, 4, 8 x all methods; recompute modes and micro-batches take turns. 7 sequences divide by nothing. */
static void
check_methods(void **state, const char *config, int64_t vocab, const char *dtype, double bound)
{
    static const int64_t sizes[] = {2, 3, 4, 8};
    setup u;
    weft_probe_result r;
    weft_probe_result one_r;
    int turn = 0;

    make(&u, state, config, vocab, 7);
    for (int64_t micro = 1; micro <= N_MICRO; micro++) {
        weft_layout_options o = u.options.layout;
        o.dtype = dtype;
        o.micro_batch_size = micro;
        weft_st *one = probe(&u, &o, "one", &one_r);
        for (size_t i = 0; i < N_SIZES; i++) {
            for (int64_t method = 0; method < N_METHODS; method++, turn++) {
                char what[96];
                o.dp = sizes[i];
                choose_method(&o, method);
                o.recompute = MODES[turn % 3];
                o.zero_prefetch = turn % 2 == 0;
                o.overlap_grad_reduce = turn % 4 < 2;
                o.bucket_size_mb = turn % 7 == 0 ? 25 : 0.02;
                (void)snprintf(what, sizeof(what), "dp %d method %d micro-batch %d %s", (int)o.dp,
                               (int)method, (int)micro, o.recompute);
                weft_st *many = probe(&u, &o, "many", &r);
                assert_true(r.loss == one_r.loss && r.n_targets == one_r.n_targets);
                compare(what, many, one, bound);
                weft_i_st_close(many);
            }
        }
        weft_i_st_close(one);
    }
}

static void test_train_probe_ranks__odd_llama_untied(void **state)
{
    check_methods(state, odd_llama, 257, "fp32", 3e-5);
}

static void test_train_probe_ranks__odd_llama_tied(void **state)
{
    check_methods(
        state,
        tiny_config(odd_llama, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"),
        257, "fp32", 3e-5);
}

static void test_train_probe_ranks__odd_gpt2_tied(void **state)
{
    check_methods(state, odd_gpt2, 257, "fp32", 3e-5);
}

/*
 * Micro-batches run in bf16 with the same bits as on one rank; their gradients are f32 and only the order of adding them
 * differs, so the bound is that of fp32.
 */
static void test_train_probe_ranks__bf16(void **state)
{
    check_methods(state, odd_llama, 257, "bf16", 3e-5);
    check_methods(state, tiny_gpt2, 53, "bf16", 3e-5);
}

/* The same bits as one rank, whatever the method, with any accumulation. */
static void test_train_probe_ranks__reproducible_has_the_bits_of_one_rank(void **state)
{
    setup u;
    weft_probe_result r;
    int turn = 0;

    make(&u, state, odd_gpt2, 257, 7);
    for (int64_t micro = 1; micro <= N_MICRO + 1; micro++) {
        weft_layout_options o = u.options.layout;
        o.micro_batch_size = micro;
        o.reproducible = true;
        weft_st *one = probe(&u, &o, "one", &r);
        for (int64_t dp = 2; dp <= N_SIZES; dp++) {
            for (int64_t method = 0; method < N_METHODS; method++, turn++) {
                char what[96];
                o.dp = dp;
                choose_method(&o, method);
                o.recompute = MODES[turn % 3];
                (void)snprintf(what, sizeof(what), "dp %d method %d micro-batch %d", (int)dp,
                               (int)method, (int)micro);
                weft_st *many = probe(&u, &o, "many", &r);
                compare(what, many, one, -1.0);
                weft_i_st_close(many);
            }
        }
        weft_i_st_close(one);
    }
}

/* ---- work that does not divide ---- */

/* Without a micro-batch size every rank has some; fewer sequences than ranks leave ranks idle; a forward alone too. */
static void test_train_probe_ranks__any_number_of_sequences(void **state)
{
    for (int64_t n_seqs = 1; n_seqs <= 5; n_seqs++) {
        setup u;
        weft_probe_result r;
        make(&u, state, tiny_llama, 53, n_seqs);
        for (int i = 0; i < 2 * N_METHODS; i++) {
            weft_layout_options o = golden_layout("reference", "");
            char what[96];
            o.threads_per_rank = 1;
            u.options.grads = i % 2 == 0;
            o.micro_batch_size = (n_seqs + 3) / 4;
            weft_st *one = probe(&u, &o, "one", &r);
            o.micro_batch_size = 0;
            o.dp = 4;
            choose_method(&o, i / 2);
            (void)snprintf(what, sizeof(what), "%d sequences, method %d", (int)n_seqs, i / 2);
            weft_st *many = probe(&u, &o, "many", &r);
            assert_int_equal(r.n_sequences, n_seqs);
            compare(what, many, one, 3e-5);
            weft_i_st_close(many);
            weft_i_st_close(one);
        }
    }
}

/* Tensors the model does not use, buffers, names of the file. */
static void test_train_probe_ranks__gradients_follow_the_file(void **state)
{
    const tiny_folder f = {
        .config = tiny_gpt2, .extra = "score.weight", .has_no_prefix = true, .has_buffers = true};
    setup u;
    weft_probe_result r;

    make(&u, state, tiny_gpt2, 53, 3);
    u.options.model = tiny_write(u.s, "extra", &f, u.folder);
    weft_layout_options o = u.options.layout;
    o.micro_batch_size = 1;
    weft_st *one = probe(&u, &o, "one", &r);
    o.dp = 3;
    o.zero_stage = 3;
    weft_st *many = probe(&u, &o, "many", &r);
    assert_int_equal(r.n_grads, 4 * 12 + 4 + 1);
    compare("extra", many, one, 3e-5);
    assert_true(largest_in(tensor_in(many, "grad/score.weight")) == 0.0);
    weft_i_st_close(many);
    weft_i_st_close(one);
}

/* From a config alone every rank draws its own part: the same weights in every layout. */
static void test_train_probe_ranks__fresh_weights_are_the_same(void **state)
{
    setup u;
    weft_probe_result r;

    make(&u, state, odd_llama, 257, 3);
    char config[512];
    (void)snprintf(config, sizeof(config), "%s",
                   scratch_file(u.s, "alone.json", odd_llama, sizeof(odd_llama) - 1));
    u.options.model = config;
    weft_layout_options o = u.options.layout;
    o.micro_batch_size = 1;
    o.seed = 7;
    weft_st *one = probe(&u, &o, "one", &r);
    for (int64_t method = 0; method < N_METHODS; method++) {
        o.dp = 3;
        choose_method(&o, method);
        weft_st *many = probe(&u, &o, "many", &r);
        compare("fresh", many, one, 3e-5);
        weft_i_st_close(many);
    }
    weft_i_st_close(one);
}

/* ---- refusals ---- */

/* What cannot be keeps its status and leaves no file, on any number of ranks. */
static void test_train_probe_ranks__refusals_keep_their_status(void **state)
{
    setup u;
    weft_probe_result r;
    char missing[600];
    char out[600];

    make(&u, state, tiny_llama, 53, 3);
    weft_probe_options o = u.options;
    (void)snprintf(missing, sizeof(missing), "%.400s/none", u.s->dir);
    (void)snprintf(out, sizeof(out), "%.400s/out.safetensors", u.s->dir);
    o.layout.dp = 4;
    o.out = out;
    o.model = missing;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_IO, "none", NULL);
    o.model = u.options.model;
    o.batch = missing;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_IO, "none", NULL);
    o.batch = u.options.batch;
    o.out = u.options.batch;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_ARG, "would be written", NULL);
    (void)snprintf(missing, sizeof(missing), "%.400s/none/out.safetensors", u.s->dir);
    o.out = missing;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_IO, "none", NULL);
    o.out = out;
    o.layout.recompute = "some";
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_ARG, "some", NULL);
    o.layout.recompute = "none";
    o.layout.tp = 7;
    expect_failure(weft_probe_run(&r, &o, NULL), WEFT_STATUS_LAYOUT, "--tp 7", NULL);
    assert_false(weft_i_file_exists(out));
    (void)snprintf(missing, sizeof(missing), "%.400s/out.safetensors.tmp", u.s->dir);
    assert_false(weft_i_file_exists(missing));
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_train_probe_ranks__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(stages_have_the_bits_of_one_rank),
        RUN(stages_take_any_number_of_micro_batches),
        RUN(odd_llama_untied),
        RUN(odd_llama_tied),
        RUN(odd_gpt2_tied),
        RUN(bf16),
        RUN(reproducible_has_the_bits_of_one_rank),
        RUN(any_number_of_sequences),
        RUN(gradients_follow_the_file),
        RUN(fresh_weights_are_the_same),
        RUN(refusals_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
