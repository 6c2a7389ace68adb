/*
 * Sizes the passes of probing, evaluation and generation by running them on a dry context (contract: plan_forward.h).
 *
 * The dry context has the threads of the real one, since the workspace of an operation may depend on them, and the dry mesh
 * its place, so that shards and rings are this rank's. Nothing is read from the weights and no element is computed, so this
 * takes milliseconds whatever the model.
 * Communication: none; the dry mesh only counts.
 */
#include "parallel/plan_forward.h"

#include "backend/backends.h"
#include "base/ctx.h"
#include "base/env.h"
#include "nn/models/slice.h"
#include "weft/ext/backend.h"

#include <string.h>

#define DRY_ROUNDS 2 /* the first micro-batch writes gradients, later ones add */

/* ---- one shape ---- */

typedef struct host_rows {
    int32_t *zeros;     /* ids, targets, positions */
    int64_t *sequences; /* q_offset, kv_length */
    int64_t *rows;      /* 0, 1, 2, ... for head_rows */
} host_rows;

static weft_status host_rows_init(host_rows *h, weft_alloc *alloc, int64_t n_seqs, int64_t n_tokens)
{
    const int64_t n = n_seqs * n_tokens;
    memset(h, 0, sizeof(*h));
    WEFT_TRY(weft_i_alloc_array(alloc, n, sizeof(int32_t), &h->zeros));
    WEFT_TRY(weft_i_alloc_array(alloc, 2 * n_seqs, sizeof(int64_t), &h->sequences));
    WEFT_TRY(weft_i_alloc_array(alloc, n, sizeof(int64_t), &h->rows));
    for (int64_t i = 0; i < n; i++)
        h->rows[i] = i;
    return WEFT_OK;
}

static void host_rows_fini(host_rows *h, weft_alloc *alloc)
{
    weft_i_alloc_put(alloc, h->zeros);
    weft_i_alloc_put(alloc, h->sequences);
    weft_i_alloc_put(alloc, h->rows);
}

static weft_status run_shape(weft_run *run,
                             const weft_pass_plan *plan,
                             const weft_pass_shape *shape,
                             weft_view logits,
                             weft_kv *kv,
                             host_rows *h)
{
    weft_exec *exec = weft_run_exec(run);
    const int64_t rows = shape->n_seqs * shape->n_tokens;
    const int64_t head_rows = shape->n_head_rows > 0 ? shape->n_head_rows : rows;
    weft_host_batch batch = {
        .n_seqs = shape->n_seqs, .n_tokens = shape->n_tokens, .ids = h->zeros, .targets = h->zeros};

    if (kv != NULL) {
        for (int64_t i = 0; i < shape->n_seqs; i++)
            h->sequences[shape->n_seqs + i] = shape->n_tokens;
        batch.q_offset = h->sequences;
        batch.kv_length = h->sequences + shape->n_seqs;
    }
    exec->is_training = false;
    exec->is_loss_wanted = plan->is_loss_wanted;
    exec->logits = weft_view_none();
    if (logits.rows > 0)
        exec->logits = weft_view_rows(logits, 0, head_rows);
    exec->head_rows = shape->n_head_rows > 0 ? h->rows : NULL;
    exec->n_head_rows = shape->n_head_rows;
    WEFT_TRY(weft_run_load(run, 0, &batch));
    return weft_run_forward_only(run, kv);
}

static weft_status
run_shapes(weft_run *run, const weft_pass_plan *plan, weft_view logits, weft_kv *kv)
{
    weft_alloc *alloc = weft_run_exec(run)->backend->ctx->alloc;
    int64_t n_seqs = 1;
    int64_t n_tokens = 1;
    host_rows h;
    weft_status st = WEFT_OK;

    for (size_t i = 0; i < plan->n_shapes; i++) {
        n_seqs = WEFT_MAX(n_seqs, plan->shapes[i].n_seqs);
        n_tokens = WEFT_MAX(n_tokens, plan->shapes[i].n_tokens);
    }
    WEFT_TRY_GOTO(st, host_rows_init(&h, alloc, n_seqs, n_tokens), out);
    for (size_t i = 0; i < plan->n_shapes; i++)
        WEFT_TRY_GOTO(st, run_shape(run, plan, &plan->shapes[i], logits, kv, &h), out);
out:
    host_rows_fini(&h, alloc);
    return st;
}

weft_status
weft_i_plan_run_shapes(weft_run *run, const weft_pass_plan *plan, weft_view logits, weft_kv *kv)
{
    weft_exec *exec = weft_run_exec(run);
    const weft_exec before = *exec;
    const weft_status st = run_shapes(run, plan, logits, kv);

    exec->is_training = before.is_training;
    exec->is_loss_wanted = before.is_loss_wanted;
    exec->logits = before.logits;
    exec->head_rows = before.head_rows;
    exec->n_head_rows = before.n_head_rows;
    return st;
}

weft_status weft_i_plan_forward_shapes(weft_parallel *p,
                                       weft_run *run,
                                       const weft_pass_plan *plan,
                                       weft_view logits)
{
    const weft_mesh *mesh = weft_i_parallel_mesh(p);
    weft_status st = WEFT_OK;
    for (size_t i = 0; i < plan->n_shapes && st == WEFT_OK; i++) {
        const weft_pass_shape *shape = &plan->shapes[i];
        weft_host_batch batch = {.n_seqs = mesh->size[WEFT_AXIS_DP] * shape->n_seqs,
                                 .n_tokens = shape->n_tokens};
        const weft_parallel_pass pass = {
            .batch = &batch, .micro_batch = shape->n_seqs, .logits = logits};
        int32_t *zeros = NULL;
        WEFT_TRY(weft_i_alloc_array(mesh->ctx->alloc, batch.n_seqs * batch.n_tokens,
                                    sizeof(int32_t), &zeros));
        batch.ids = zeros;
        batch.targets = zeros;
        st = weft_i_parallel_forward_pass(p, run, &pass);
        weft_i_alloc_put(mesh->ctx->alloc, zeros);
    }
    return st;
}

/* ---- the whole on a dry context ---- */

#define MAX_RUNS 2
#define MAX_PLACES 2

typedef struct dry_session {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_replica replica;
    weft_run *run[MAX_RUNS];
    int n_runs;
    void *logits;
    void *cache;
    void *place[MAX_PLACES];
    weft_kv *kv;
} dry_session;

static weft_status dry_take(const dry_session *s, weft_mem kind, size_t n_bytes, void **out)
{
    weft_backend *b = s->ctx->backend;
    return b->ops->mem_get(b, (int)kind, n_bytes, "a dry run's buffer", out);
}

/* The cache as infer/kv_cache.c takes it: keys and values of every block here in one piece of memory. */
static weft_status dry_cache(dry_session *s, const weft_pass_plan *plan)
{
    const weft_model *part = weft_i_parallel_part(s->replica.parallel);
    const weft_dtype dtype = weft_model_dtype(part);
    const int64_t n_layers = weft_model_layer_count(part);
    const int64_t rows = plan->cache_seqs * plan->cache_capacity;
    const int64_t cols = weft_i_model_kv_cols(part);
    const size_t n_bytes = weft_i_model_kv_bytes(part, rows);

    WEFT_TRY(weft_i_alloc_array(s->ctx->alloc, n_layers, sizeof(weft_kv), &s->kv));
    if (n_bytes == 0)
        return WEFT_OK;
    WEFT_TRY(dry_take(s, WEFT_MEM_CACHE, n_bytes, &s->cache));
    for (int64_t i = 0; i < n_layers; i++) {
        if (!weft_i_model_is_block(part, i))
            continue;
        s->kv[i].k = weft_view_make(s->cache, dtype, rows, cols);
        s->kv[i].v = s->kv[i].k;
        s->kv[i].capacity = plan->cache_capacity;
    }
    return WEFT_OK;
}

static weft_status dry_places(dry_session *s, const weft_pass_plan *plan)
{
    WEFT_ASSERT(plan->n_places <= MAX_PLACES);
    for (int i = 0; i < plan->n_places && plan->place_bytes > 0; i++)
        WEFT_TRY(dry_take(s, WEFT_MEM_COMMUNICATION, plan->place_bytes, &s->place[i]));
    return WEFT_OK;
}

/* Forward and backward of every shape as the micro-batches of a step, so many that every rank has some. */
static weft_status
train_shapes(dry_session *s, weft_run *run, const weft_pass_plan *plan, weft_view logits)
{
    /* no more rounds than the run was made for: a pipeline has no slots for them */
    const int64_t n_rounds = WEFT_MIN(DRY_ROUNDS, WEFT_MAX(plan->n_rounds, 1));
    const int64_t n_micro_batches = n_rounds * s->mesh->size[WEFT_AXIS_DP];
    weft_exec *exec = weft_run_exec(run);
    weft_status st = WEFT_OK;

    exec->is_training = false;
    exec->is_loss_wanted = false; /* backward computes them itself */
    for (size_t i = 0; i < plan->n_shapes && st == WEFT_OK; i++) {
        const weft_pass_shape *shape = &plan->shapes[i];
        weft_host_batch batch = {.n_seqs = n_micro_batches * shape->n_seqs,
                                 .n_tokens = shape->n_tokens};
        const weft_parallel_pass pass = {
            .batch = &batch, .micro_batch = shape->n_seqs, .logits = logits};
        int32_t *zeros = NULL;
        WEFT_TRY(weft_i_alloc_array(s->ctx->alloc, batch.n_seqs * batch.n_tokens, sizeof(int32_t),
                                    &zeros));
        batch.ids = zeros;
        batch.targets = zeros;
        st = weft_i_parallel_train_pass(s->replica.parallel, run, &pass);
        weft_i_alloc_put(s->ctx->alloc, zeros);
    }
    return st;
}

/* Generation has two runs of this rank's part and leads a pipeline's messages itself. */
static weft_status create_run(dry_session *s, weft_run **run, const weft_run_options *plan)
{
    weft_run_options options = *plan;
    weft_i_parallel_run_options(s->replica.parallel, &options);
    return weft_run_create(run, weft_i_parallel_part(s->replica.parallel), &options);
}

static weft_status
run_passes(dry_session *s, const weft_pass_plan *plan, weft_view logits, size_t *workspace_bytes)
{
    weft_parallel *p = s->replica.parallel;
    weft_run **run = &s->run[s->n_runs];
    const bool is_pipeline = s->mesh->layout.pp > 1 && s->kv == NULL;

    if (is_pipeline || plan->is_backward)
        WEFT_TRY(weft_i_parallel_run_create(run, p, &plan->run, plan->n_rounds));
    else
        WEFT_TRY(create_run(s, run, &plan->run));
    s->n_runs++;
    if (plan->is_backward) {
        WEFT_TRY(train_shapes(s, *run, plan, logits));
    } else if (is_pipeline) {
        weft_run_exec(*run)->is_loss_wanted = plan->is_loss_wanted;
        WEFT_TRY(weft_i_plan_forward_shapes(p, *run, plan, logits));
    } else {
        weft_i_parallel_bind(p, *run);
        WEFT_TRY(run_shapes(*run, plan, logits, s->kv));
    }
    *workspace_bytes = weft_run_workspace_peak(*run);
    return WEFT_OK;
}

static weft_status dry_run(weft_pass_memory *out,
                           dry_session *s,
                           const weft_source *source,
                           const weft_pass_plan *plan)
{
    const weft_config *c = &source->hf.config;
    weft_view logits = weft_view_none();
    weft_alloc_count count;

    WEFT_TRY(weft_i_replica_create(&s->replica, s->mesh, source, plan->is_backward, 0));
    if (plan->logit_rows > 0) {
        const size_t n_bytes = (size_t)plan->logit_rows * (size_t)c->vocab_size * sizeof(float);
        WEFT_TRY(dry_take(s, WEFT_MEM_ACTIVATIONS, n_bytes, &s->logits));
        logits = weft_view_make(s->logits, WEFT_DTYPE_F32, plan->logit_rows, c->vocab_size);
    }
    if (plan->cache_seqs > 0)
        WEFT_TRY(dry_cache(s, plan));
    WEFT_TRY(dry_places(s, plan));
    WEFT_TRY(run_passes(s, plan, logits, &out->workspace_bytes));
    if (plan->also != NULL)
        WEFT_TRY(run_passes(s, plan->also, logits, &out->also_workspace_bytes));
    weft_i_alloc_total(s->ctx->alloc, &count);
    out->total_bytes = count.peak_bytes + weft_i_alloc_rounded(out->workspace_bytes) +
                       weft_i_alloc_rounded(out->also_workspace_bytes);
    return WEFT_OK;
}

/* Ranks that are threads take theirs from the same machine. */
static weft_status check_available(const weft_pass_memory *m, const weft_mesh *mesh)
{
    char need[32];
    char have[32];
    char ranks[48] = "";
    const double available = (double)weft_i_env_memory_available_bytes();
    const int n_here = mesh->world != NULL ? mesh->world_size : 1;

    if ((double)m->total_bytes * n_here <= available)
        return WEFT_OK;
    if (n_here > 1)
        WEFT_TRY(weft_i_str_print(ranks, sizeof(ranks), " on each of %d ranks", n_here));
    WEFT_FAIL(WEFT_STATUS_NOMEM,
              "this takes %s%s and the machine has %s left: use a smaller micro-batch, a shorter "
              "sequence, or bf16",
              weft_i_str_bytes((double)m->total_bytes, need, sizeof(need)), ranks,
              weft_i_str_bytes(available, have, sizeof(have)));
}

static void end_dry(dry_session *s)
{
    for (int i = 0; i < s->n_runs; i++)
        weft_run_destroy(s->run[i]);
    if (s->ctx != NULL) {
        weft_i_alloc_put(s->ctx->alloc, s->kv);
        s->ctx->backend->ops->mem_put(s->ctx->backend, s->cache);
        for (int i = 0; i < MAX_PLACES; i++)
            s->ctx->backend->ops->mem_put(s->ctx->backend, s->place[i]);
        s->ctx->backend->ops->mem_put(s->ctx->backend, s->logits);
    }
    weft_i_replica_destroy(&s->replica);
    weft_i_mesh_destroy(s->mesh);
    weft_ctx_destroy(s->ctx);
}

weft_status weft_i_plan_passes(weft_pass_memory *out,
                               const weft_mesh *mesh,
                               const weft_source *source,
                               const weft_pass_plan *plan)
{
    const weft_ctx_options options = {.backend = WEFT_BACKEND_DRY,
                                      .dry_of = weft_i_backend_kind(mesh->ctx->backend),
                                      .n_threads = weft_i_pool_threads(mesh->ctx->pool)};
    dry_session s = {.ctx = NULL};
    weft_pass_memory memory = {.workspace_bytes = 0};
    weft_status st = WEFT_OK;

    WEFT_TRY_GOTO(st, weft_ctx_create(&s.ctx, &options), out);
    WEFT_TRY_GOTO(st, weft_i_mesh_create_dry(&s.mesh, s.ctx, mesh), out);
    WEFT_TRY_GOTO(st, dry_run(&memory, &s, source, plan), out);
    WEFT_TRY_GOTO(st, check_available(&memory, mesh), out);
    *out = memory;
out:
    end_dry(&s);
    return st;
}
