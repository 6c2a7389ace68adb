/*
 * What users of other programs ran into with tensor parallelism, with the right value of each: a softmax over a cut
 * vocabulary that is off by ln(tp), padding that can be drawn, ranks that draw different tokens, norms that count copies,
 * files of padded or copied tensors. And the programs' goldens on tensor ranks.
 */
#include "generate_case.h"
#include "ranks_golden.h"
#include "tiny.h"
#include "train_case.h"

#include <math.h>

#include "weft/eval.h"
#include "weft/inspect.h"
#include "weft/options.h"
#include "weft/probe.h"

static void clear_head(const char *name, float *values, int64_t n)
{
    if (strcmp(name, "lm_head.weight") == 0)
        memset(values, 0, (size_t)n * sizeof(float));
}

static void raise_head(const char *name, float *values, int64_t n)
{
    for (int64_t i = 0; i < n && strcmp(name, "lm_head.weight") == 0; i++)
        values[i] *= 200.0f;
}

static void raise_norms(const char *name, float *values, int64_t n)
{
    for (int64_t i = 0; i < n && strstr(name, "norm") != NULL; i++)
        values[i] = 5.0f;
}

/* Loss and norm of the first step of the tiny llama (vocabulary 53, 4 heads on 2) with `edit`ed weights. */
static weft_train_outcome first_step(scratch *s, const tiny_folder *f, const ranks_layout *l)
{
    ranks_case c;
    ranks_result r;
    ranks_case_init(&c, s, &odd_small);
    (void)tiny_write(s, "edited", f, c.model);
    ranks_case_batches(&c, 53, 4, 1, 2);
    ranks_case_apply(&c, l);
    ranks_case_run(&r, &c);
    const weft_train_outcome out = r.outcome[0];
    ranks_result_fini(&r);
    ranks_case_fini(&c);
    return out;
}

static const ranks_layout layouts[] = {
    {.tp = 1}, {.tp = 2}, {.tp = 4}, {.tp = 3, .is_sequence_parallel = true}, {.dp = 2, .tp = 2}};

/* A head of zeros: ln 53 however the vocabulary is cut; not ln 53 + ln tp, not ln 56. */
static void test_parallel_tensor_kinds__the_loss_of_a_cut_vocabulary(void **state)
{
    static const tiny_folder zero = {.config = tiny_llama, .edit = clear_head};
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++)
        CHECK_NEAR(first_step(*state, &zero, &layouts[i]).loss, 3.970292, 1e-6);
}

/* Logits in the thousands: the largest is taken over all ranks. */
static void test_parallel_tensor_kinds__large_logits(void **state)
{
    static const tiny_folder large = {.config = tiny_llama, .edit = raise_head};
    const weft_train_outcome one = first_step(*state, &large, &layouts[0]);
    for (size_t i = 1; i < WEFT_COUNT_OF(layouts); i++) {
        const weft_train_outcome out = first_step(*state, &large, &layouts[i]);
        assert_true(isfinite(out.loss) && isfinite(out.grad_norm));
        CHECK_NEAR(out.loss / one.loss, 1.0, 1e-5);
        CHECK_NEAR(out.grad_norm / one.grad_norm, 1.0, 1e-5);
    }
}

/* Norm gains dominate the gradient: what every rank has counts once. */
static void test_parallel_tensor_kinds__the_norm_counts_once(void **state)
{
    static const tiny_folder f = {.config = tiny_llama, .edit = raise_norms};
    const weft_train_outcome one = first_step(*state, &f, &layouts[0]);
    for (size_t i = 1; i < WEFT_COUNT_OF(layouts); i++)
        CHECK_NEAR(first_step(*state, &f, &layouts[i]).grad_norm / one.grad_norm, 1.0, 1e-5);
}

/* ---- against PyTorch ---- */

static void test_parallel_tensor_kinds__goldens(void **state)
{
    static const struct {
        const char *name;
        ranks_layout layout;
    } cases[] = {
        {"gpt2", {.tp = 2}},
        {"gpt2", {.tp = 3, .is_sequence_parallel = true}},
        {"llama", {.tp = 4}},
        {"llama", {.dp = 2, .tp = 2, .stage = 3, .is_sequence_parallel = true}},
        {"gpt2_odd", {.tp = 2, .is_sequence_parallel = true}},
        {"llama_odd", {.tp = 3}},
        {"gpt2_other", {.tp = 2}},
        {"llama_bias", {.tp = 4, .is_sequence_parallel = true}},
        {"llama3_rope", {.tp = 2}},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        golden g;
        ranks_case c;
        ranks_result r;
        char text[128], why[256];
        ranks_golden_init(&c, &g, *state, cases[i].name, "input_ids");
        ranks_case_apply(&c, &cases[i].layout);
        ranks_case_run(&r, &c);
        if (!ranks_golden_gradients(&g, &r, why))
            fail_msg("%s, %s: %s", g.name, ranks_layout_text(&cases[i].layout, text), why);
        ranks_result_fini(&r);
        ranks_case_fini(&c);
        golden_close(&g);
    }
}

/* ---- generation ---- */

/* 2 x 400 ids at temperature 5 from a vocabulary that no tp divides: none that does not exist, the same for every tp. */
static void test_parallel_tensor_kinds__every_rank_draws_the_same(void **state)
{
    static const char *prompts[] = {"5,6,7", "50,49,48,47,46"};
    static generate_answer one, other;
    for (size_t m = 0; m < 2; m++) {
        weft_generate_options o = generate_case_options(*state, m == 0 ? tiny_llama : tiny_gpt2, 0);
        o.layout.backend = "cpu";
        o.layout.dtype = "fp32";
        o.ids = prompts;
        o.n_ids = 2;
        o.max_new_tokens = m == 0 ? 400 : 50; /* gpt2: 64 positions */
        o.temperature = 5.0;
        for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
            char text[128];
            o.layout.tp = layouts[i].tp;
            o.layout.dp = WEFT_MAX(layouts[i].dp, 1);
            o.layout.sequence_parallel = layouts[i].is_sequence_parallel;
            CHECK_OK(generate_case_run(&other, &o, false));
            if (i == 0)
                one = other;
            generate_case_same(&other, &one, ranks_layout_text(&layouts[i], text));
            assert_int_equal(other.n_prompts, 2);
            for (int p = 0; p < 2; p++) {
                assert_int_equal(other.n_ids[p], o.max_new_tokens);
                for (int64_t k = 0; k < other.n_ids[p]; k++)
                    assert_in_range(other.ids[p][k], 0, 52);
            }
        }
    }
}

/* ---- probing, files ---- */

/* Of a folder's model on a fixed batch, in a layout; into OUT. */
static void probe(scratch *s, const char *model, const ranks_layout *l, const char *out)
{
    char batch[512];
    int64_t ids[3 * 9];
    weft_probe_options o;
    weft_probe_result result;
    weft_options_init(WEFT_COMMAND_PROBE, &o);
    tiny_ids(ids, 3 * 9, 53);
    o.layout.threads_per_rank = 1;
    o.layout.dtype = "fp32";
    o.layout.dp = WEFT_MAX(l->dp, 1);
    o.layout.tp = l->tp;
    o.layout.zero_stage = l->stage;
    o.layout.sequence_parallel = l->is_sequence_parallel;
    o.model = model;
    o.batch = tiny_batch(s, ids, NULL, 3, 9, batch);
    o.out = out;
    o.grads = true;
    CHECK_OK(weft_probe_run(&result, &o, NULL));
}

/* Tensors that differ by more than 3e-5 of their largest. */
static size_t count_far(const char *a, const char *b)
{
    weft_st *x = NULL, *y = NULL;
    size_t n_far = 0;
    weft_alloc *alloc = NULL;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    CHECK_OK(weft_i_st_open(&x, alloc, a));
    CHECK_OK(weft_i_st_open(&y, alloc, b));
    assert_int_equal(weft_i_st_count(x), weft_i_st_count(y));
    for (size_t i = 0; i < weft_i_st_count(x); i++) {
        const weft_st_tensor *t = weft_i_st_at(x, i), *u = tensor_in(y, t->name);
        double largest = 0.0, far = 0.0;
        assert_int_equal(t->n_elems, u->n_elems);
        for (int64_t k = 0; k < t->n_elems; k++) {
            largest = fmax(largest, fabs(tensor_at(t, k)));
            far = fmax(far, fabs(tensor_at(t, k) - tensor_at(u, k)));
        }
        n_far += far > 3e-5 * largest && !(largest < 1e-6) ? 1 : 0;
    }
    weft_i_st_close(x);
    weft_i_st_close(y);
    weft_i_alloc_destroy(alloc);
    return n_far;
}

/* Logits, losses and gradients of every layout are one rank's. */
static void test_parallel_tensor_kinds__probes_agree(void **state)
{
    static const tiny_folder folders[] = {{.config = tiny_llama}, {.config = tiny_gpt2}};
    scratch *s = *state;
    char folder[512], one[600], other[600];
    (void)snprintf(one, sizeof(one), "%.500s/one.safetensors", s->dir);
    (void)snprintf(other, sizeof(other), "%.500s/other.safetensors", s->dir);
    for (size_t m = 0; m < 2; m++) {
        (void)tiny_write(s, "probed", &folders[m], folder);
        probe(s, folder, &layouts[0], one);
        for (size_t i = 1; i < WEFT_COUNT_OF(layouts); i++) {
            probe(s, folder, &layouts[i], other);
            assert_int_equal(count_far(one, other), 0);
        }
    }
}

/* Windows that do not divide, the last one short: every target counts once, the mean is one rank's. */
static void test_parallel_tensor_kinds__evaluations_agree(void **state)
{
    static const tiny_folder folders[] = {{.config = tiny_llama}, {.config = tiny_gpt2}};
    scratch *s = *state;
    char folder[512], data[600];
    const char *list[1] = {data};
    (void)snprintf(data, sizeof(data), "%.500s/eval.tokens", s->dir);
    train_case_tokens(data, 214, 53, 5);
    for (size_t m = 0; m < 2; m++) {
        weft_eval_options o;
        weft_eval_result one, other;
        weft_options_init(WEFT_COMMAND_EVAL, &o);
        o.model = tiny_write(s, "evaluated", &folders[m], folder);
        o.data = list;
        o.n_data = 1;
        o.seq_length = 25;
        o.layout.threads_per_rank = 1;
        o.layout.micro_batch_size = 3;
        CHECK_OK(weft_eval_run(&one, &o, NULL, NULL));
        assert_int_equal(one.n_targets, 213);
        for (size_t i = 1; i < WEFT_COUNT_OF(layouts); i++) {
            o.layout.dp = WEFT_MAX(layouts[i].dp, 1);
            o.layout.tp = layouts[i].tp;
            o.layout.sequence_parallel = layouts[i].is_sequence_parallel;
            CHECK_OK(weft_eval_run(&other, &o, NULL, NULL));
            assert_int_equal(other.n_targets, 213);
            CHECK_NEAR(other.loss / one.loss, 1.0, 1e-6);
        }
    }
}

/* Trained and saved on 4 ranks, which copy both kv heads and cut 53 ids: the files have 2 kv heads and 53 rows. */
static void test_parallel_tensor_kinds__files_hold_the_true_sizes(void **state)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
    } wanted[] = {{"model.embed_tokens.weight", 53, 32},
                  {"lm_head.weight", 53, 32},
                  {"model.layers.0.self_attn.k_proj.weight", 16, 32},
                  {"model.layers.3.self_attn.v_proj.weight", 16, 32}};
    scratch *s = *state;
    train_case c;
    weft_st *file = NULL;
    char folder[1100], one[600], other[600];
    train_case_init(&c, s, WEFT_FAMILY_LLAMA, 0.0);
    c.options.eval_interval = 0;
    c.options.train_steps = 3;
    c.options.layout.tp = 4;
    train_case_out(&c, "saved");
    CHECK_OK(train_case_run(&c, NULL));
    (void)snprintf(folder, sizeof(folder), "%.1000s/checkpoint-3", c.out);
    CHECK_OK(weft_i_st_open_folder(&file, s->alloc, folder, "model"));
    for (size_t i = 0; i < WEFT_COUNT_OF(wanted); i++) {
        const weft_st_tensor *t = weft_i_st_find(file, wanted[i].name);
        assert_non_null(t);
        assert_int_equal(t->shape.dim[0], wanted[i].rows);
        assert_int_equal(t->shape.dim[1], wanted[i].cols);
    }
    weft_i_st_close(file);
    (void)snprintf(one, sizeof(one), "%.500s/one.safetensors", s->dir);
    (void)snprintf(other, sizeof(other), "%.500s/other.safetensors", s->dir);
    probe(s, folder, &layouts[0], one);
    for (size_t i = 1; i < WEFT_COUNT_OF(layouts); i++) {
        probe(s, folder, &layouts[i], other);
        assert_int_equal(count_far(one, other), 0);
    }
    CHECK_OK(weft_i_dir_remove(c.out));
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_tensor_kinds__##test, scratch_setup,             \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(the_loss_of_a_cut_vocabulary),
        RUN(large_logits),
        RUN(the_norm_counts_once),
        RUN(goldens),
        RUN(every_rank_draws_the_same),
        RUN(probes_agree),
        RUN(evaluations_agree),
        RUN(files_hold_the_true_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
