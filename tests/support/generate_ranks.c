/* A decoder on every rank (generate_ranks.h). */
#include "generate_ranks.h"

#include "alloc_calls.h"

#include "base/ctx.h"
#include "infer/decode.h"
#include "parallel/ranks.h"

static void note(generate_rank *k, const weft_mesh *mesh, const weft_decoder *d)
{
    weft_generate_result result;
    weft_alloc_count count;
    weft_i_decoder_times(d, &result);
    weft_i_alloc_total(mesh->ctx->alloc, &count);
    for (int axis = 0; axis < WEFT_AXIS_COUNT; axis++)
        weft_i_mesh_traffic(mesh, (weft_axis)axis, &k->traffic[axis]);
    k->n_blocks = alloc_calls(mesh->ctx->alloc) - k->n_blocks;
    k->n_forwards = result.n_forwards;
    k->planned = weft_i_decoder_memory(d)->total_bytes;
    k->taken = count.peak_bytes;
}

static weft_status decode(generate_ranks *c, weft_mesh *mesh, weft_source *source, weft_prompts *p)
{
    const weft_config *config = &source->hf.config;
    generate_rank *k = &c->rank[mesh->world_rank];
    weft_sequence *first = &p->sequence[c->is_dealt ? mesh->world_rank : 0];
    weft_decoder_options options = {.sampling = {.temperature = c->options.temperature,
                                                 .top_p = 1.0,
                                                 .seed = (uint64_t)c->options.layout.seed},
                                    .n_ids = config->vocab_size,
                                    .n_seqs = c->is_dealt ? 1 : p->n};
    weft_decoder *d = NULL;
    weft_delivery delivery;
    weft_alloc_count cache;
    bool is_stopped = false;

    for (int i = 0; i < config->n_eos; i++)
        options.stop[options.n_stop++] = (int32_t)config->eos_ids[i];
    weft_i_delivery_init(&delivery, p, NULL, NULL);
    weft_status st = weft_i_decoder_create(&d, mesh, source, p, &options, 0);
    if (st == WEFT_OK) {
        weft_i_alloc_counts(mesh->ctx->alloc, WEFT_MEM_CACHE, &cache);
        k->cache_bytes = cache.now_bytes;
        weft_i_mesh_traffic_reset(mesh);
        k->n_blocks = alloc_calls(mesh->ctx->alloc);
        st = weft_i_decoder_run(&is_stopped, d, first, options.n_seqs, &delivery);
    }
    if (st == WEFT_OK) {
        note(k, mesh, d);
        k->n_ids = first->n_ids - first->n_prompt;
        st = weft_i_mesh_end_step(mesh);
    }
    st = weft_i_mesh_fail(mesh, st);
    weft_i_decoder_destroy(d);
    weft_i_delivery_fini(&delivery);
    return st;
}

static weft_status run_rank(void *user, weft_mesh *mesh)
{
    generate_ranks *c = user;
    weft_source source;
    weft_prompts prompts;

    WEFT_TRY(weft_i_source_open(&source, mesh->ctx, c->options.model, ""));
    weft_status st = weft_i_prompts_init(&prompts, mesh->ctx, &c->options, &source.hf.config, NULL);
    if (st == WEFT_OK)
        st = decode(c, mesh, &source, &prompts);
    weft_i_prompts_fini(&prompts);
    weft_i_source_close(&source, mesh->ctx);
    return st;
}

void generate_ranks_run(generate_ranks *c)
{
    weft_layout layout;
    expect_ok(weft_i_layout_make(&layout, &c->options.layout));
    assert_in_range(layout.n_ranks, 1, GENERATE_RANKS_MOST);
    assert_true(!c->is_dealt || c->options.n_ids == (size_t)layout.n_ranks);
    expect_ok(weft_i_ranks_run(&layout, &c->options.layout, NULL, run_rank, c));
}
