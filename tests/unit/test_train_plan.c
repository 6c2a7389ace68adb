/*
 * The plan is what the run takes: bytes by kind, exactly, for both families, types, recompute modes, with and without
 * evaluation; and a round takes nothing after that.
 */
#include "alloc_calls.h"
#include "one_rank_session.h"

#include "base/ctx.h"

static void check_kinds(const weft_train_session *s, const char *when)
{
    for (int i = 0; i < WEFT_MEM_COUNT; i++) {
        weft_alloc_count count;
        if (i == WEFT_MEM_CONTROL)
            continue;
        weft_i_alloc_counts(s->ctx->alloc, (weft_mem)i, &count);
        if (count.peak_bytes != s->plan.bytes[i])
            fail_msg("%s: %s: planned %zu, taken %zu", when, weft_i_mem_name((weft_mem)i),
                     s->plan.bytes[i], count.peak_bytes);
    }
    /* The run's stack was used up to the mark that the plan found, not one byte less or more. */
    assert_int_equal(weft_run_workspace_peak(s->trainer->run), s->plan.workspace_bytes);
}

static void run_case(train_case *c)
{
    weft_train_session s;
    one_rank_session_open(&s, c);
    const uint64_t n_calls = alloc_calls(s.ctx->alloc);
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_i_train_round(&s));
    assert_int_equal(alloc_calls(s.ctx->alloc), n_calls);
    assert_true(s.plan.bytes[WEFT_MEM_WORKSPACE] > 0);
    check_kinds(&s, "after three rounds");
    CHECK_OK(weft_i_train_save(&s));
    check_kinds(&s, "after a checkpoint"); /* control memory alone, and given back */
    weft_alloc_count control, again;
    weft_i_alloc_counts(s.ctx->alloc, WEFT_MEM_CONTROL, &control);
    CHECK_OK(weft_i_train_save(&s));
    weft_i_alloc_counts(s.ctx->alloc, WEFT_MEM_CONTROL, &again);
    assert_int_equal(control.now_bytes, again.now_bytes);
    one_rank_session_close(&s);
    CHECK_OK(weft_i_dir_remove(c->out));
}

static void check_family(void **state, weft_family family)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    size_t activations[3] = {0};
    for (int d = 0; d < 2; d++) {
        for (int k = 0; k < 3; k++) {
            for (int eval = 0; eval < 2; eval++) {
                train_case c;
                train_case_init(&c, *state, family, 0.1);
                c.options.layout.dtype = d == 0 ? "fp32" : "bf16";
                c.options.layout.recompute = recompute[k];
                c.options.layout.global_batch_size = 7; /* 4 and 3 */
                c.options.layout.threads_per_rank = 2;
                c.options.eval_interval = eval == 1 ? 2 : 0;
                run_case(&c);
                if (eval == 0 && d == 0) {
                    weft_train_session s;
                    one_rank_session_open(&s, &c);
                    activations[k] = s.plan.bytes[WEFT_MEM_ACTIVATIONS];
                    one_rank_session_close(&s);
                    CHECK_OK(weft_i_dir_remove(c.out));
                }
            }
        }
    }
    /* The test of the test: recompute modes take what they say, less each time. */
    assert_true(activations[0] > activations[1]);
    assert_true(activations[1] > activations[2]);
}

static void test_train_plan__is_what_llama_takes(void **state)
{
    check_family(state, WEFT_FAMILY_LLAMA);
}

static void test_train_plan__is_what_gpt2_takes(void **state)
{
    check_family(state, WEFT_FAMILY_GPT2);
}

static void test_train_plan__holds_for_sgd_and_frozen_parameters(void **state)
{
    static const char *freeze[] = {"*wte.weight", "*.h.1.*"};
    train_case c;
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    c.options.optimizer = "sgd";
    run_case(&c);
    c.options.sgd_momentum = 0.5;
    c.options.freeze = freeze;
    c.options.n_freeze = 2;
    run_case(&c);
}

/* The kinds a person can work out: 4 bytes a parameter and a gradient, 8 for AdamW, 4 more for a master; padding apart. */
static void test_train_plan__kinds_are_what_they_should_be(void **state)
{
    for (int d = 0; d < 2; d++) {
        train_case c;
        weft_train_session s;
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        c.options.layout.dtype = d == 0 ? "fp32" : "bf16";
        one_rank_session_open(&s, &c);
        const double n = (double)s.plan.n_elems;
        /* embedding and head 2 * 53 * 32; a block: q, o 32 * 32, k, v 16 * 32, three of 64 * 32, two norms; last norm */
        assert_int_equal(s.plan.n_elems,
                         2 * 53 * 32 + 4 * (2 * 1024 + 2 * 512 + 3 * 2048 + 64) + 32);
        CHECK_NEAR((double)s.plan.bytes[WEFT_MEM_PARAMETERS] / n, d == 0 ? 4.0 : 2.0, 0.02);
        CHECK_NEAR((double)s.plan.bytes[WEFT_MEM_GRADIENTS] / n, 4.0, 0.02);
        CHECK_NEAR((double)s.plan.bytes[WEFT_MEM_OPTIMIZER] / n, d == 0 ? 8.0 : 12.0, 0.05);
        /* Matrix products: 6 operations a parameter and token, without the embedding; attention and the rest above. */
        const double tokens = 4.0 * 16.0;
        const double least = 6.0 * tokens * (n - 53.0 * 32.0);
        assert_true(s.plan.step_flops > least && s.plan.step_flops < 1.6 * least);
        one_rank_session_close(&s);
        CHECK_OK(weft_i_dir_remove(c.out));
    }
}

#define PLAN(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_plan__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAN(is_what_llama_takes),
        PLAN(is_what_gpt2_takes),
        PLAN(holds_for_sgd_and_frozen_parameters),
        PLAN(kinds_are_what_they_should_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
