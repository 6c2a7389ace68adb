/*
 * Greedy generation against transformers': the ids of `weft generate`, and the logits each was chosen from, through the
 * cache, token by token.
 */
#include "generate_golden.h"
#include "one_rank.h"

#include <math.h>
#include <string.h>

#include "base/ctx.h"
#include "infer/kv_cache.h"
#include "parallel/plan_forward.h"

#define PROMPT 8

static void check_ids(golden *g, const char *backend)
{
    static generate_answer a;
    const weft_generate_options o = generate_golden_options(g, backend, 1);
    expect_ok(generate_case_run(&a, &o, false));
    generate_golden_same(&a, g, 1, backend);
}

static void check_model_ids(void **state, const char *model)
{
    golden g;
    golden_open(&g, *state, model, "golden.safetensors");
    check_ids(&g, "cpu");
    check_ids(&g, "reference");
    golden_close(&g);
}

#define TEST(model)                                                                                \
    static void test_golden_generate__##model(void **state)                                        \
    {                                                                                              \
        check_model_ids(state, #model);                                                            \
    }

GOLDEN_MODELS(TEST)

/* ---- logits ---- */

typedef struct loop {
    weft_ctx *ctx;
    weft_source source;
    weft_model *model;
    weft_run *run;
    weft_kv_cache cache;
    void *logits;
    float *host;
} loop;

static void open_loop(loop *l, const char *folder, weft_backend_kind backend, int64_t capacity)
{
    const weft_ctx_options options = {.backend = backend, .n_threads = 2};
    const weft_pass_shape shapes[] = {{1, PROMPT, 0}, {1, 1, 0}};
    weft_pass_plan plan = {.run = {.n_seqs = 1, .n_tokens = PROMPT, .n_positions = capacity},
                           .shapes = shapes,
                           .n_shapes = 2,
                           .logit_rows = PROMPT,
                           .cache_seqs = 1,
                           .cache_capacity = capacity};
    weft_pass_memory memory;
    void *block = NULL;

    memset(l, 0, sizeof(*l));
    expect_ok(weft_ctx_create(&l->ctx, &options));
    expect_ok(weft_i_source_open(&l->source, l->ctx, folder, ""));
    weft_mesh *mesh = one_rank_mesh(l->ctx);
    expect_ok(weft_i_plan_passes(&memory, mesh, &l->source, &plan));
    weft_i_mesh_destroy(mesh);
    expect_ok(weft_i_source_model(&l->model, &l->source, l->ctx, false, 0));
    plan.run.workspace_bytes = memory.workspace_bytes;
    expect_ok(weft_run_create(&l->run, l->model, &plan.run));
    expect_ok(weft_i_kv_cache_init(&l->cache, l->model, 1, capacity));
    const size_t n_bytes = (size_t)(PROMPT * l->source.hf.config.vocab_size) * sizeof(float);
    expect_ok(l->ctx->backend->ops->mem_get(l->ctx->backend, WEFT_MEM_ACTIVATIONS, n_bytes,
                                            "logits", &l->logits));
    expect_ok(weft_i_alloc_new(l->ctx->alloc, n_bytes, 1, &block));
    l->host = block;
}

static void close_loop(loop *l)
{
    weft_i_alloc_put(l->ctx->alloc, l->host);
    l->ctx->backend->ops->mem_put(l->ctx->backend, l->logits);
    weft_i_kv_cache_fini(&l->cache);
    weft_run_destroy(l->run);
    weft_model_destroy(l->model);
    weft_i_source_close(&l->source, l->ctx);
    weft_ctx_destroy(l->ctx);
}

/* Reads n tokens that follow `done` in the cache; the last one's logits are in host afterwards. */
static void read_tokens(loop *l, const int32_t *ids, int64_t n, int64_t done)
{
    const int64_t vocab = l->source.hf.config.vocab_size;
    const int64_t length = done + n;
    int32_t positions[PROMPT];
    for (int64_t i = 0; i < n; i++)
        positions[i] = (int32_t)(done + i);
    const weft_host_batch batch = {.n_seqs = 1,
                                   .n_tokens = n,
                                   .ids = ids,
                                   .positions = positions,
                                   .q_offset = &done,
                                   .kv_length = &length};
    weft_backend *b = l->ctx->backend;
    expect_ok(weft_run_load(l->run, 0, &batch));
    weft_run_exec(l->run)->logits = weft_view_make(l->logits, WEFT_DTYPE_F32, n, vocab);
    expect_ok(weft_run_forward_only(l->run, weft_i_kv_cache_from(&l->cache, 0)));
    expect_ok(b->ops->copy_to_host(b, l->host, (const float *)l->logits + (n - 1) * vocab,
                                   (size_t)vocab * sizeof(float)));
}

static void check_logits(void **state, const char *model, weft_backend_kind backend)
{
    golden g;
    loop l;
    char folder[512];
    int32_t ids[PROMPT];

    golden_open(&g, *state, model, "golden.safetensors");
    const weft_st_tensor *prompt = golden_tensor(&g, "gen.prompt");
    const weft_st_tensor *next = golden_tensor(&g, "gen.ids");
    const weft_st_tensor *want = golden_tensor(&g, "gen.logits.f32");
    assert_int_equal(prompt->n_elems, PROMPT);
    open_loop(&l, golden_folder(&g, GOLDEN_NEW, folder), backend, PROMPT + next->n_elems);
    for (int64_t i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)tensor_at(prompt, i);
    const int64_t vocab = l.source.hf.config.vocab_size;
    for (int64_t i = 0; i < next->n_elems; i++) {
        if (i == 0) {
            read_tokens(&l, ids, PROMPT, 0);
        } else {
            ids[0] = (int32_t)tensor_at(next, i - 1);
            read_tokens(&l, ids, 1, PROMPT + i - 1);
        }
        for (int64_t v = 0; v < vocab; v++) {
            const double d = fabs((double)l.host[v] - tensor_at(want, i * vocab + v));
            if (!(d <= 5e-5))
                fail_msg("%s: logit %lld of new token %lld is off by %.3g", model, (long long)v,
                         (long long)i, d);
        }
    }
    close_loop(&l);
    golden_close(&g);
}

static void test_golden_generate__logits_on_the_cache(void **state)
{
    check_logits(state, "gpt2", WEFT_BACKEND_CPU);
    check_logits(state, "gpt2", WEFT_BACKEND_REFERENCE);
    check_logits(state, "llama", WEFT_BACKEND_CPU);
    check_logits(state, "llama", WEFT_BACKEND_REFERENCE);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_golden_generate__##test, scratch_setup, scratch_teardown)
#define AND_RUN(model) , RUN(model)
    const struct CMUnitTest tests[] = {RUN(logits_on_the_cache) GOLDEN_MODELS(AND_RUN)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
