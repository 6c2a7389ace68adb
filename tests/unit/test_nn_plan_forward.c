/*
 * Sizes of passes from a dry run: what is predicted is enough and is what is taken, and a large vocabulary does not cost
 * its logits.
 */
#include "golden.h"
#include "tiny.h"

#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "nn/plan_forward.h"

/* Vocabulary 151,936, 2,048 tokens: fp32 logits of the batch would be 1.16 GiB. */
static void test_nn_plan_forward__logits_of_the_batch_are_never_stored(void **state)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1,\n"
        " \"num_attention_heads\": 2, \"intermediate_size\": 16, \"vocab_size\": 151936,\n"
        " \"max_position_embeddings\": 2048, \"tie_word_embeddings\": true}\n";
    scratch *s = *state;
    const weft_ctx_options options = {.n_threads = 2};
    const weft_pass_shape shape = {.n_seqs = 1, .n_tokens = 2048};
    weft_pass_plan plan = {.run = {.n_seqs = 1, .n_tokens = 2048},
                           .shapes = &shape,
                           .n_shapes = 1,
                           .is_loss_wanted = true};
    weft_pass_memory forward;
    weft_pass_memory backward;
    weft_source source;
    weft_ctx *ctx = NULL;

    expect_ok(weft_ctx_create(&ctx, &options));
    expect_ok(weft_i_source_open(&source, ctx,
                                 scratch_file(s, "config.json", config, sizeof(config) - 1), ""));
    expect_ok(weft_i_plan_passes(&forward, ctx, &source, &plan));
    plan.is_backward = true;
    plan.run.n_slots = 1;
    expect_ok(weft_i_plan_passes(&backward, ctx, &source, &plan));
    /* A chunk of 256 rows is 156 MB; weights and gradients are 4.9 MB each. */
    if (!(forward.total_bytes < 200000000u) || !(backward.total_bytes < 400000000u))
        fail_msg("%zu bytes forward, %zu with backward", forward.total_bytes, backward.total_bytes);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
}

/* What the plan says is taken, to the byte, and the workspace suffices for every shape. */
static void test_nn_plan_forward__is_what_a_run_takes(void **state)
{
    scratch *s = *state;
    const tiny_folder f = {.config = tiny_llama};
    const weft_pass_shape shapes[] = {{3, 17, 0}, {2, 17, 0}, {1, 5, 0}};
    char folder[512];
    int32_t ids[3 * 17] = {0};

    tiny_write(s, "m", &f, folder);
    for (int threads = 1; threads <= 2; threads++) {
        const weft_ctx_options options = {.n_threads = threads};
        weft_pass_plan plan = {.run = {.n_seqs = 3, .n_tokens = 17, .n_slots = 1},
                               .shapes = shapes,
                               .n_shapes = 3,
                               .is_backward = true};
        weft_pass_memory memory;
        weft_alloc_count count;
        weft_source source;
        weft_model *m = NULL;
        weft_run *run = NULL;
        weft_ctx *ctx = NULL;

        expect_ok(weft_ctx_create(&ctx, &options));
        expect_ok(weft_i_source_open(&source, ctx, folder, ""));
        expect_ok(weft_i_plan_passes(&memory, ctx, &source, &plan));
        expect_ok(weft_i_source_model(&m, &source, ctx, true, 0));
        plan.run.workspace_bytes = memory.workspace_bytes;
        expect_ok(weft_run_create(&run, m, &plan.run));
        for (size_t i = 0; i < 3; i++) {
            const weft_host_batch batch = {.n_seqs = shapes[i].n_seqs,
                                           .n_tokens = shapes[i].n_tokens,
                                           .ids = ids,
                                           .targets = ids};
            weft_model_begin_step(m);
            expect_ok(weft_run_load(run, 0, &batch));
            expect_ok(weft_run_forward(run, 0));
            expect_ok(weft_run_backward(run, 0, WEFT_BACKWARD_BOTH));
        }
        assert_int_equal(weft_run_workspace_peak(run), memory.workspace_bytes);
        weft_i_alloc_total(ctx->alloc, &count);
        assert_int_equal(count.peak_bytes, memory.total_bytes);
        weft_run_destroy(run);
        weft_model_destroy(m);
        weft_i_source_close(&source, ctx);
        weft_ctx_destroy(ctx);
    }
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_nn_plan_forward__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(logits_of_the_batch_are_never_stored),
                                       RUN(is_what_a_run_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
