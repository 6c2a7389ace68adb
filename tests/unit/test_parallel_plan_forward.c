/*
 * Sizes of passes from a dry run: what is predicted is enough and is what is taken, and a large vocabulary does not cost
 * its logits.
 */
#include "golden.h"
#include "one_rank.h"
#include "tiny.h"

#include <string.h>

#include "base/ctx.h"
#include "parallel/plan_forward.h"
#include "parallel/ranks.h"

/* Vocabulary 151,936, 2,048 tokens: fp32 logits of the batch would be 1.16 GiB. */
static void test_parallel_plan_forward__logits_of_the_batch_are_never_stored(void **state)
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
    weft_mesh *mesh = one_rank_mesh(ctx);
    expect_ok(weft_i_plan_passes(&forward, mesh, &source, &plan));
    plan.is_backward = true;
    plan.run.n_slots = 1;
    expect_ok(weft_i_plan_passes(&backward, mesh, &source, &plan));
    /* A chunk of 256 rows is 156 MB; weights and gradients are 4.9 MB each. */
    if (!(forward.total_bytes < 200000000u) || !(backward.total_bytes < 400000000u))
        fail_msg("%zu bytes forward, %zu with backward", forward.total_bytes, backward.total_bytes);
    weft_i_source_close(&source, ctx);
    weft_i_mesh_destroy(mesh);
    weft_ctx_destroy(ctx);
}

/* ---- planned is taken ---- */

/* oneDNN is not built for sanitizers, which then see races where there are none. */
#ifdef WEFT_SANITIZED
#define FAST "reference"
#else
#define FAST "cpu"
#endif

#define N_SEQS 3
#define N_TOKENS 17

typedef struct passing {
    const char *folder;
    bool is_backward;
} passing;

/* Takes what the plan was made for and runs every shape; 7 sequences leave ranks without some. */
static weft_status take_and_run(weft_replica *r,
                                weft_mesh *mesh,
                                const weft_source *source,
                                weft_pass_plan *plan,
                                const weft_pass_memory *memory)
{
    static const int32_t ids[7 * N_TOKENS] = {0};
    const weft_host_batch batch = {.n_seqs = 7, .n_tokens = N_TOKENS, .ids = ids, .targets = ids};
    const weft_parallel_pass pass = {.batch = &batch, .micro_batch = N_SEQS};
    weft_run *run = NULL;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_i_replica_create(r, mesh, source, plan->is_backward, 0));
    plan->run.workspace_bytes = memory->workspace_bytes;
    weft_i_parallel_run_options(r->parallel, &plan->run);
    WEFT_TRY(weft_run_create(&run, r->model, &plan->run));
    weft_run_exec(run)->is_loss_wanted = !plan->is_backward;
    if (plan->is_backward)
        st = weft_i_parallel_train_pass(r->parallel, run, &pass);
    else
        st = weft_i_parallel_forward_pass(r->parallel, run, &pass);
    if (st == WEFT_OK && mesh->world_rank == 0 &&
        weft_run_workspace_peak(run) != memory->workspace_bytes)
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "workspace: %zu used, %zu planned",
                              weft_run_workspace_peak(run), memory->workspace_bytes);
    weft_run_destroy(run);
    return st;
}

static weft_status plan_and_take(void *user, weft_mesh *mesh)
{
    const passing *const c = user;
    const weft_pass_shape shapes[] = {{N_SEQS, N_TOKENS, 0}, {1, N_TOKENS, 0}};
    weft_pass_plan plan = {
        .run = {.n_seqs = N_SEQS, .n_tokens = N_TOKENS, .n_slots = c->is_backward ? 1 : 0},
        .shapes = shapes,
        .n_shapes = 2,
        .is_loss_wanted = true,
        .is_backward = c->is_backward};
    weft_pass_memory memory;
    weft_alloc_count count;
    weft_source source;
    weft_replica replica = {.model = NULL};

    WEFT_TRY(weft_i_source_open(&source, mesh->ctx, c->folder, ""));
    weft_status st = weft_i_plan_passes(&memory, mesh, &source, &plan);
    if (st == WEFT_OK)
        st = take_and_run(&replica, mesh, &source, &plan, &memory);
    weft_i_alloc_total(mesh->ctx->alloc, &count);
    weft_i_replica_destroy(&replica);
    weft_i_source_close(&source, mesh->ctx);
    if (st == WEFT_OK && count.peak_bytes != memory.total_bytes)
        WEFT_FAIL(WEFT_STATUS_INTERNAL,
                  "dp %d, stage %d, backward %d: %zu bytes taken, %zu planned",
                  mesh->size[WEFT_AXIS_DP], mesh->layout.zero_stage, c->is_backward,
                  count.peak_bytes, memory.total_bytes);
    return st;
}

/* What the plan says is taken, to the byte, on every rank; its workspace suffices for every shape. */
static void test_parallel_plan_forward__is_what_a_run_takes(void **state)
{
    const tiny_folder f = {.config = tiny_llama};
    char folder[512];
    passing c = {.folder = tiny_write(*state, "m", &f, folder)};

    for (int i = 0; i < 2 * 5 * 3; i++) {
        weft_layout_options o = golden_layout(i % 4 < 2 ? FAST : "reference", "");
        weft_layout layout;
        o.dp = 1 + i % 3;
        o.zero_stage = i / 3 % 5 < 4 ? i / 3 % 5 : 0;
        o.strategy = i / 3 % 5 < 4 ? "" : "data-parallel";
        o.threads_per_rank = 1 + i % 2;
        c.is_backward = i / 15 == 1;
        expect_ok(weft_i_layout_make(&layout, &o));
        expect_ok(weft_i_ranks_run(&layout, &o, NULL, plan_and_take, &c));
    }
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_plan_forward__##test, scratch_setup,             \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(logits_of_the_batch_are_never_stored),
                                       RUN(is_what_a_run_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
