/*
 * `weft layout`: what every rank of a layout has (contract: weft/placement.h).
 *
 * Nothing here is a formula: layers are stage_cut.c's, heads, columns and ids tensor_parallel.c's, parameters those of the
 * rank's own slices built on a dry context, bytes and messages those of the rank's dry run (train/plan.c). Ranks are looked at
 * one after another.
 * Communication: none.
 */
#include "weft/placement.h"

#include "base/ctx.h"
#include "base/env.h"
#include "comm/message.h"
#include "nn/layout_context.h"
#include "parallel/stage_cut.h"
#include "parallel/tensor_parallel.h"
#include "train/plan.h"
#include "weft/options.h"

#include <string.h>

/* All that one call holds. */
typedef struct placement {
    weft_layout layout;
    weft_ctx *ctx; /* dry */
    weft_source source;
    weft_train_settings settings;
    weft_stage_cut cut;
    weft_placement_rank *ranks;
    int64_t n_model_elems;
} placement;

/* ---- one rank ---- */

static weft_status describe_chunk(const placement *p, weft_placement_chunk *c, int stage)
{
    const int64_t first = p->cut.first[stage], end = p->cut.first[stage + 1];
    c->stage = stage;
    c->has_embedding = first == 0;
    c->has_head = end == p->cut.n_items;
    c->blocks.first = WEFT_MAX(first - 1, 0);
    c->blocks.n = WEFT_MIN(end, p->cut.n_items - 1) - 1 - c->blocks.first;
    weft_i_stage_cut_text(&p->cut, stage, c->text, sizeof(c->text));
    return WEFT_OK;
}

/* Elements of the parameters that the chunk's layers use. */
static weft_status
count_params(const placement *p, weft_placement_rank *r, const weft_model_slice *tensor, int stage)
{
    weft_model *m = NULL;
    weft_model_slice slice = *tensor;
    slice.first_item = p->cut.first[stage];
    slice.n_items = p->cut.first[stage + 1] - slice.first_item;
    WEFT_TRY(weft_i_model_from_slice(&m, p->ctx, &p->source.hf.config, p->source.dtype, &slice));
    for (int64_t i = 0; i < weft_model_param_count(m); i++)
        r->n_params += weft_model_param(m, i)->rows * weft_model_param(m, i)->cols;
    weft_model_destroy(m);
    return WEFT_OK;
}

static weft_status describe_part(const placement *p, weft_placement_rank *r)
{
    const weft_layout *l = &p->layout;
    const weft_config *c = &p->source.hf.config;
    const weft_model_slice s = weft_i_tensor_slice(c, l, (int)r->tp);
    r->heads = (weft_placement_range){s.first_head, s.n_heads};
    r->mlp_columns = (weft_placement_range){s.first_ffn, s.n_ffn};
    r->ids = (weft_placement_range){s.first_id, s.n_ids};
    weft_i_slice_kv(&s, c, &r->kv_heads.first, &r->kv_heads.n);
    r->n_chunks = p->cut.n / l->pp;
    WEFT_TRY(weft_i_alloc_array(p->ctx->alloc, r->n_chunks, sizeof(*r->chunks), &r->chunks));
    for (int i = 0; i < (int)r->n_chunks; i++) {
        const int stage = i * l->pp + (int)r->pp;
        WEFT_TRY(describe_chunk(p, &r->chunks[i], stage));
        WEFT_TRY(count_params(p, r, &s, stage));
    }
    return WEFT_OK;
}

static void copy_traffic(weft_placement_rank *r, const weft_train_plan *plan)
{
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        const weft_traffic *t = &plan->step_traffic[a];
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
            if (t->n_calls[op] == 0 || r->n_traffic == WEFT_PLACEMENT_TRAFFIC)
                continue;
            r->traffic[r->n_traffic++] = (weft_placement_traffic){
                weft_i_axis_name((weft_axis)a), weft_i_comm_op_name((weft_comm_op)op),
                (int64_t)t->n_calls[op], (int64_t)t->sent_bytes[op]};
            r->sent_bytes += (int64_t)t->sent_bytes[op];
        }
    }
}

static weft_status describe_rank(placement *p, int rank)
{
    weft_placement_rank *r = &p->ranks[rank];
    weft_train_plan plan;
    weft_mesh place;
    weft_i_mesh_stand_for(&place, p->ctx, &p->layout, rank);
    r->rank = rank;
    r->dp = place.coord[WEFT_AXIS_DP];
    r->tp = place.coord[WEFT_AXIS_TP];
    r->pp = place.coord[WEFT_AXIS_PP];
    WEFT_TRY(describe_part(p, r));
    WEFT_TRY(weft_i_train_plan_make(&plan, &place, &p->source, &p->settings, NULL));
    _Static_assert(WEFT_PLACEMENT_KINDS == WEFT_MEM_CONTROL,
                   "a place for every kind of the device");
    for (int k = 0; k < WEFT_PLACEMENT_KINDS; k++)
        r->bytes[k] = (int64_t)plan.bytes[k];
    r->total_bytes = (int64_t)plan.total_bytes;
    r->step_flops = plan.step_flops;
    r->n_held = plan.n_held_elems;
    p->n_model_elems = plan.n_elems;
    copy_traffic(r, &plan);
    return WEFT_OK;
}

/* ---- the call ---- */

static weft_status open_ctx(placement *p, const weft_placement_options *o)
{
    weft_ctx_options like;
    WEFT_TRY(weft_i_layout_ctx_options(&like, &o->layout, NULL));
    const weft_ctx_options dry = {
        .backend = WEFT_BACKEND_DRY,
        .dry_of = like.backend,
        .n_threads = like.n_threads > 0 ? like.n_threads
                                        : WEFT_MAX(weft_i_env_processors() / p->layout.n_ranks, 1),
        .log_level = WEFT_LOG_SILENT,
    };
    return weft_ctx_create(&p->ctx, &dry);
}

/* What `weft train` with these flags would be. */
static weft_status make_settings(placement *p, const weft_placement_options *o)
{
    weft_train_options t;
    weft_train_options_init(&t);
    t.layout = o->layout;
    t.model = o->model;
    t.seq_length = o->seq_length;
    t.optimizer = o->optimizer;
    t.sgd_momentum = o->sgd_momentum;
    WEFT_TRY(weft_i_train_settings_make(&p->settings, &t, &p->source.hf.config));
    return weft_i_layout_check_positions(p->ctx, &p->source.hf.config, "seq_length",
                                         p->settings.seq_length);
}

static weft_status open_model(placement *p, const weft_placement_options *o)
{
    const weft_layout *l = &p->layout;
    WEFT_TRY(weft_i_source_open(&p->source, p->ctx, o->model,
                                o->layout.dtype != NULL ? o->layout.dtype : ""));
    WEFT_TRY(weft_i_layout_check_model(l, &p->source.hf.config));
    WEFT_TRY(make_settings(p, o));
    return weft_i_stage_cut_make(&p->cut, p->ctx->alloc, &p->source.hf.config,
                                 WEFT_STAGE_CUT_TOKENS, l->pp * l->n_chunks, l->stage_layers);
}

static void
deliver(const placement *p, void (*done)(void *user, const weft_placement *p), void *user)
{
    const weft_layout *l = &p->layout;
    const weft_train_settings *s = &p->settings;
    weft_mesh place;
    weft_i_mesh_stand_for(&place, p->ctx, l, 0);
    weft_placement result = {
        .n_ranks = l->n_ranks,
        .dp = l->dp,
        .tp = l->tp,
        .pp = l->pp,
        .n_chunks = l->n_chunks,
        .zero_stage = l->zero_stage,
        .schedule = weft_i_schedule_name(l->schedule),
        .rank_order = l->rank_order,
        .strategy = l->is_data_parallel ? "data-parallel" : "",
        .n_strips = l->n_strips,
        .is_sequence_parallel = l->is_sequence_parallel,
        .is_reproducible = l->is_reproducible,
        .family = weft_family_name(p->source.hf.config.family),
        .dtype = p->source.dtype == WEFT_DTYPE_BF16 ? "bf16" : "fp32",
        .n_params = p->n_model_elems,
        .seq_length = s->seq_length,
        .micro_batch = s->micro_batch,
        .global_batch = s->global_batch,
        .n_micro_batches = weft_i_mesh_rounds(&place, s->global_batch, s->micro_batch),
        .ranks = p->ranks,
    };
    for (int k = 0; k < WEFT_PLACEMENT_KINDS; k++)
        result.kinds[k] = weft_i_mem_name((weft_mem)k);
    done(user, &result);
}

static void close_all(placement *p)
{
    if (p->ctx == NULL)
        return;
    for (int i = 0; p->ranks != NULL && i < p->layout.n_ranks; i++)
        weft_i_alloc_put(p->ctx->alloc, p->ranks[i].chunks);
    weft_i_alloc_put(p->ctx->alloc, p->ranks);
    weft_i_stage_cut_fini(&p->cut);
    weft_i_source_close(&p->source, p->ctx);
    weft_ctx_destroy(p->ctx);
}

weft_status weft_placement_run(const weft_placement_options *options,
                               void (*done)(void *user, const weft_placement *p),
                               void *user)
{
    placement p = {0};
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_options_check(WEFT_COMMAND_LAYOUT, options));
    WEFT_TRY(weft_i_layout_make(&p.layout, &options->layout));
    WEFT_TRY_GOTO(st, open_ctx(&p, options), out);
    WEFT_TRY_GOTO(st, open_model(&p, options), out);
    WEFT_TRY_GOTO(
        st, weft_i_alloc_array(p.ctx->alloc, p.layout.n_ranks, sizeof(*p.ranks), &p.ranks), out);
    for (int r = 0; r < p.layout.n_ranks; r++)
        WEFT_TRY_GOTO(st, describe_rank(&p, r), out);
    deliver(&p, done, user);
out:
    close_all(&p);
    return st;
}
