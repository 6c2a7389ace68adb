/* Steps on ranks as threads (ranks_case.h). */
#include "ranks_case.h"

#include "alloc_calls.h"

#include <pthread.h>

#include "base/ctx.h"
#include "base/rng.h"
#include "parallel/ranks.h"
#include "tensor/convert.h"
#include "train/plan.h"

/* ---- the case ---- */

void ranks_case_init(ranks_case *c, scratch *s, const odd_model *m)
{
    memset(c, 0, sizeof(*c));
    if (m != NULL)
        (void)odd_write(m, s, c->model);
    weft_train_options *o = &c->options;
    weft_train_options_init(o);
    o->layout.threads_per_rank = 1;
    o->layout.dtype = "fp32";
    o->layout.backend = RANKS_BACKEND;
    o->layout.seed = 7;
    o->layout.micro_batch_size = 1;
    o->seq_length = 12;
    o->lr = 1e-3;
    o->lr_schedule = "constant";
    o->train_steps = RANKS_STEPS;
    o->eval_interval = 0;
    for (int i = 0; m != NULL && i < 2; i++)
        o->n_freeze += m->freeze[i] != NULL ? 1 : 0;
    if (o->n_freeze > 0)
        o->freeze = (const char **)(uintptr_t)m->freeze; /* read only */
}

void ranks_case_batches(ranks_case *c, int64_t vocab, int64_t n_seqs, int n_steps, uint64_t seed)
{
    const int64_t n_tokens = c->options.seq_length;
    const int64_t n = n_seqs * n_tokens;
    const weft_rng_key key = weft_i_rng_key(seed, "test/ranks");
    ranks_case_fini(c);
    CHECK_OK(weft_i_alloc_create(&c->alloc, false, 0));
    assert_true(n_steps <= RANKS_STEPS);
    c->n_steps = n_steps;
    c->options.layout.global_batch_size = n_seqs;
    for (int k = 0; k < n_steps; k++) {
        int32_t *ids = NULL, *targets = NULL;
        CHECK_OK(weft_i_alloc_array(c->alloc, n, sizeof(*ids), &ids));
        CHECK_OK(weft_i_alloc_array(c->alloc, n, sizeof(*targets), &targets));
        for (int64_t i = 0; i < n; i++) {
            const uint64_t at = (uint64_t)(k * n + i) * 3;
            ids[i] = (int32_t)weft_i_rng_below(key, at, (uint64_t)vocab);
            targets[i] = (int32_t)weft_i_rng_below(key, at + 1, (uint64_t)vocab);
            if (weft_i_rng_below(key, at + 2, 7) == 0)
                targets[i] = -100;
        }
        c->batch[k] = (weft_train_batch){.n_seqs = n_seqs,
                                         .n_tokens = n_tokens,
                                         .ids = ids,
                                         .targets = targets,
                                         .first_sample = k * n_seqs};
    }
}

void ranks_case_fini(ranks_case *c)
{
    for (int k = 0; k < c->n_steps; k++) {
        weft_i_alloc_put(c->alloc, (void *)(uintptr_t)c->batch[k].ids);
        weft_i_alloc_put(c->alloc, (void *)(uintptr_t)c->batch[k].targets);
    }
    if (c->alloc != NULL)
        weft_i_alloc_destroy(c->alloc);
    c->alloc = NULL;
    c->n_steps = 0;
}

void ranks_case_layout(ranks_case *c, int64_t dp, int64_t stage, bool is_reproducible)
{
    c->options.layout.dp = dp;
    c->options.layout.zero_stage = stage;
    c->options.layout.reproducible = is_reproducible;
}

void ranks_layout_apply(weft_layout_options *o, const ranks_layout *l)
{
    o->dp = WEFT_MAX(l->dp, 1);
    o->zero_stage = l->stage;
    o->reproducible = l->is_reproducible;
    o->tp = WEFT_MAX(l->tp, 1);
    o->pp = WEFT_MAX(l->pp, 1);
    o->pp_chunks = WEFT_MAX(l->chunks, 1);
    o->pp_schedule = l->schedule != NULL ? l->schedule : "1f1b";
    o->stage_layers = l->stage_layers != NULL ? l->stage_layers : "";
    o->sequence_parallel = l->is_sequence_parallel;
    o->tp_strips = l->strips;
    o->zero_prefetch = !l->has_no_prefetch;
    o->overlap_grad_reduce = !l->is_not_overlapped;
    o->bucket_size_mb = l->bucket_mb > 0 ? l->bucket_mb : 25.0;
    o->threads_per_rank = l->n_threads > 0 ? l->n_threads : 1;
    o->recompute = l->recompute != NULL ? l->recompute : "none";
}

void ranks_case_apply(ranks_case *c, const ranks_layout *l)
{
    ranks_layout_apply(&c->options.layout, l);
}

const char *ranks_layout_text(const ranks_layout *l, char out[128])
{
    char bucket[32] = "", threads[32] = "", tensor[48] = "", stages[64] = "";
    if (l->pp > 1)
        (void)snprintf(stages, sizeof(stages), ", pp %d %.12s x%d %.16s", l->pp,
                       l->schedule != NULL ? l->schedule : "1f1b", WEFT_MAX(l->chunks, 1),
                       l->stage_layers != NULL ? l->stage_layers : "");
    if (l->tp > 1 || l->strips > 0)
        (void)snprintf(tensor, sizeof(tensor), "%s %d strips %d",
                       l->is_sequence_parallel ? ", tp sp" : ", tp", l->tp, l->strips);
    if (l->bucket_mb > 0)
        (void)snprintf(bucket, sizeof(bucket), ", buckets of %g MB", l->bucket_mb);
    if (l->n_threads > 1)
        (void)snprintf(threads, sizeof(threads), ", %d threads", l->n_threads);
    (void)snprintf(
        out, 128, "dp %d, stage %d%s%s%s%s%s%s%s%s%s", l->dp, l->stage, stages, tensor,
        l->is_reproducible ? ", reproducible" : "", l->has_no_prefetch ? ", no prefetch" : "",
        l->is_not_overlapped ? ", no overlap" : "", bucket, threads,
        l->recompute != NULL ? ", recompute " : "", l->recompute != NULL ? l->recompute : "");
    return out;
}

zero_case ranks_case_formula(const ranks_case *c, const odd_model *m)
{
    const weft_layout_options *l = &c->options.layout;
    const int64_t n_micro = (l->global_batch_size + l->micro_batch_size - 1) / l->micro_batch_size;
    const bool is_adamw = strcmp(c->options.optimizer, "adamw") == 0;
    return (zero_case){
        .model = m,
        .dp = (int)l->dp,
        .stage = (int)l->zero_stage,
        .is_reproducible = l->reproducible,
        .has_prefetch = l->zero_prefetch,
        .is_overlapped = l->overlap_grad_reduce,
        .bucket_mb = l->bucket_size_mb,
        .is_bf16 = strcmp(l->dtype, "bf16") == 0,
        .n_moments = is_adamw ? 2 : (c->options.sgd_momentum > 0 ? 1 : 0),
        .n_rounds = (n_micro + l->dp - 1) / l->dp,
    };
}

/* ---- the arrays ---- */

static weft_status list_params(ranks_result *r, const ranks_case *c)
{
    const weft_ctx_options dry = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_source source;
    int64_t n_matched = 0;
    WEFT_TRY(weft_ctx_create(&ctx, &dry));
    weft_status st = weft_i_source_open(&source, ctx, c->model, c->options.layout.dtype);
    if (st == WEFT_OK) {
        st = weft_model_from_config(&m, ctx, &source.hf.config, source.dtype);
        weft_i_source_close(&source, ctx);
    }
    for (size_t i = 0; i < c->options.n_freeze && st == WEFT_OK; i++)
        st = weft_model_freeze(m, c->options.freeze[i], &n_matched);
    for (int64_t i = 0; st == WEFT_OK && i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        ranks_param *q = &r->param[r->n_params++];
        assert_true(r->n_params <= RANKS_PARAMS);
        (void)snprintf(q->name, sizeof(q->name), "%s", p->name);
        q->first = r->n_elems;
        q->n = p->rows * p->cols;
        q->n_dims = p->n_dims;
        q->is_frozen = p->is_frozen;
        r->n_elems += q->n;
    }
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
    return st;
}

static weft_status take_arrays(ranks_result *r)
{
    WEFT_TRY(weft_i_alloc_create(&r->alloc, false, 0));
    float **const all[] = {&r->begin, &r->grad, &r->weight};
    for (size_t i = 0; i < 3; i++)
        WEFT_TRY(weft_i_alloc_array(r->alloc, r->n_elems, sizeof(float), all[i]));
    for (int i = 0; i < (int)WEFT_STATE_COUNT; i++)
        WEFT_TRY(weft_i_alloc_array(r->alloc, r->n_elems, sizeof(float), &r->state[i]));
    return WEFT_OK;
}

void ranks_result_fini(ranks_result *r)
{
    if (r->alloc == NULL)
        return;
    weft_i_alloc_put(r->alloc, r->begin);
    weft_i_alloc_put(r->alloc, r->grad);
    weft_i_alloc_put(r->alloc, r->weight);
    for (int i = 0; i < (int)WEFT_STATE_COUNT; i++)
        weft_i_alloc_put(r->alloc, r->state[i]);
    weft_i_alloc_destroy(r->alloc);
    memset(r, 0, sizeof(*r));
}

/* ---- what a rank does ---- */

typedef struct shared {
    const ranks_case *c;
    ranks_result *r;
    pthread_mutex_t lock; /* of outcome */
    int n_outcomes;
} shared;

typedef struct rank {
    shared *all;
    weft_mesh *mesh;
    weft_source source;
    weft_train_settings settings;
    weft_trainer *trainer;
    uint64_t n_allocs; /* after the first step */
} rank;

/* cpu memory is host memory. */
static void widen(float *out, weft_view v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = v.dtype == WEFT_DTYPE_BF16 ? weft_i_bf16_to_f32(((const uint16_t *)v.data)[i])
                                            : ((const float *)v.data)[i];
}

static weft_status meet(const rank *k)
{
    weft_comm *comm = k->mesh->comm[WEFT_AXIS_WORLD];
    const weft_message m = {.op = WEFT_COMM_BARRIER, .tensor = "test"};
    return comm->size == 1 ? WEFT_OK : weft_comm_call(comm, &m);
}

/* The elements of a part that this rank owns, from v [1, p->n], to where the full tensors have them. */
static void put_owned(const rank *k, float *out, const weft_part *p, weft_view v)
{
    float *const full = out + k->all->r->param[p->number].first;
    weft_stretch_walk walk = weft_i_stretch_begin(p->param, p->first, p->n);
    weft_stretch s;
    while (weft_i_stretch_next(&walk, &s)) {
        if (s.is_owned)
            widen(full + s.full, weft_view_cols(v, s.local - p->first, s.n), s.n);
    }
}

static void gather_values(const rank *k, float *out)
{
    const weft_parts *owned = weft_i_parallel_owned(k->trainer->parallel);
    for (int64_t i = 0; i < owned->n; i++)
        put_owned(k, out, &owned->part[i], owned->part[i].value);
}

static void gather_grads(const rank *k)
{
    const weft_parts *owned = weft_i_parallel_owned(k->trainer->parallel);
    for (int64_t i = 0; i < owned->n; i++) {
        const weft_part *p = &owned->part[i];
        if (p->grad.data != NULL)
            put_owned(k, k->all->r->grad, p, p->grad);
    }
}

static void gather_states(const rank *k)
{
    const weft_parts *owned = weft_i_parallel_owned(k->trainer->parallel);
    for (int s = 0; s < (int)WEFT_STATE_COUNT; s++) {
        for (int64_t i = 0; i < owned->n; i++) {
            const weft_part *p = &owned->part[i];
            if (p->state_first < 0)
                continue;
            const weft_view v =
                weft_i_optimizer_state(k->trainer->optimizer, (weft_state)s, p->state_first, p->n);
            if (v.data != NULL)
                put_owned(k, k->all->r->state[s], p, v);
        }
    }
}

/* n elements from v on are what `want` has from element `first` of the full tensor on. */
static weft_status check_stretch(
    const rank *k, const weft_part *p, weft_view v, const float *want, int64_t first, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        float x = 0;
        widen(&x, weft_view_cols(v, j, 1), 1);
        if (memcmp(&x, &want[j], sizeof(x)) != 0)
            WEFT_FAIL(WEFT_STATUS_MISMATCH,
                      "rank %d has %.9g as element %lld of %s, its owner has %.9g",
                      k->mesh->world_rank, (double)x, (long long)(first + j), p->param->name,
                      (double)want[j]);
    }
    return WEFT_OK;
}

/* Every weight that lies here is what its owner has. After all have gathered theirs in `all`. */
static weft_status check_replica(const rank *k, const float *all)
{
    const weft_parts *here = weft_i_parallel_values(k->trainer->parallel);
    for (int64_t i = 0; i < here->n; i++) {
        const weft_part *p = &here->part[i];
        const float *full = all + k->all->r->param[p->number].first;
        weft_stretch_walk walk = weft_i_stretch_begin(p->param, p->first, p->n);
        weft_stretch s;
        while (weft_i_stretch_next(&walk, &s))
            WEFT_TRY(check_stretch(k, p, weft_view_cols(p->value, s.local - p->first, s.n),
                                   full + s.full, s.full, s.n));
    }
    return WEFT_OK;
}

/* Zeros from the end of one view to the begin of the next, where no more than a parameter's padding lies between. */
static weft_status check_gap(const rank *k, const weft_part *p, weft_view a, weft_view b)
{
    const size_t size = weft_dtype_bytes(a.dtype);
    const char *const end = (const char *)a.data + (size_t)p->n * size;
    static const char zeros[32 * sizeof(float)];
    if (a.data == NULL || b.data == NULL || (const char *)b.data <= end)
        return WEFT_OK;
    const size_t n_bytes = (size_t)((const char *)b.data - end);
    /* What lies further on is another chunk's memory. */
    const size_t n_padding = (size_t)((32 - (p->first + p->n) % 32) % 32) * size;
    if (n_bytes == n_padding && memcmp(end, zeros, n_bytes) != 0)
        WEFT_FAIL(WEFT_STATUS_MISMATCH, "rank %d has something in the padding behind %s",
                  k->mesh->world_rank, p->param->name);
    return WEFT_OK;
}

/* Padding is zeros after any number of steps, in weights, gradients and state. */
static weft_status check_padding(const rank *k)
{
    const weft_parts *parts = weft_i_parallel_states(k->trainer->parallel);
    const weft_optimizer *o = k->trainer->optimizer;
    for (int64_t i = 0; i + 1 < parts->n; i++) {
        const weft_part *p = &parts->part[i], *q = &parts->part[i + 1];
        WEFT_TRY(check_gap(k, p, p->value, q->value));
        WEFT_TRY(check_gap(k, p, p->grad, q->grad));
        for (int s = 0; s < (int)WEFT_STATE_COUNT; s++)
            WEFT_TRY(check_gap(k, p, weft_i_optimizer_state(o, (weft_state)s, p->state_first, p->n),
                               weft_i_optimizer_state(o, (weft_state)s, q->state_first, q->n)));
    }
    return WEFT_OK;
}

/* All ranks' weights into `out`, and replicas compared. */
static weft_status collect_values(const rank *k, float *out)
{
    gather_values(k, out);
    WEFT_TRY(meet(k));
    WEFT_TRY(check_replica(k, out));
    return meet(k);
}

static weft_status note_outcome(rank *k, int step, const weft_train_outcome *out)
{
    shared *all = k->all;
    weft_train_outcome *first = &all->r->outcome[step];
    bool is_same = true;
    (void)pthread_mutex_lock(&all->lock);
    if (all->n_outcomes == step) {
        *first = *out;
        all->n_outcomes++;
    } else {
        is_same = memcmp(&first->loss, &out->loss, sizeof(double)) == 0 &&
                  memcmp(&first->grad_norm, &out->grad_norm, sizeof(double)) == 0 &&
                  memcmp(&first->lr, &out->lr, sizeof(double)) == 0 &&
                  first->n_targets == out->n_targets;
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (!is_same)
        WEFT_FAIL(WEFT_STATUS_MISMATCH, "rank %d has loss %.17g and norm %.17g in step %d",
                  k->mesh->world_rank, out->loss, out->grad_norm, step + 1);
    return WEFT_OK;
}

static weft_status note_traffic(const rank *k, int step)
{
    weft_traffic *kept = k->all->r->traffic[k->mesh->world_rank];
    for (int axis = 0; axis < (int)WEFT_AXIS_COUNT; axis++) {
        weft_traffic t;
        weft_i_mesh_traffic(k->mesh, (weft_axis)axis, &t);
        if (step > 0 && memcmp(&t, &kept[axis], sizeof(t)) != 0)
            WEFT_FAIL(WEFT_STATUS_MISMATCH, "step %d sends other bytes over %s than the one before",
                      step + 1, weft_i_axis_name((weft_axis)axis));
        kept[axis] = t;
    }
    return WEFT_OK;
}

static weft_status run_step(rank *k, int step)
{
    const ranks_case *c = k->all->c;
    const int me = k->mesh->world_rank;
    weft_train_outcome out;
    weft_alloc_count total;
    int64_t word = 0;
    if (c->has_lr)
        k->trainer->settings.schedule.lr = c->lr[step];
    weft_i_mesh_traffic_reset(k->mesh);
    WEFT_TRY(weft_i_trainer_step(k->trainer, step + 1, &c->batch[step], &out));
    if (c->is_asking)
        WEFT_TRY(weft_i_parallel_from_rank0(k->trainer->parallel, &word));
    WEFT_TRY(note_traffic(k, step));
    WEFT_TRY(note_outcome(k, step, &out));
    if (step == 0) {
        gather_grads(k);
        k->n_allocs = alloc_calls(k->mesh->ctx->alloc);
        weft_i_alloc_total(k->mesh->ctx->alloc, &total);
        k->all->r->first_peak[me] = total.peak_bytes;
    }
    if (c->is_watching)
        WEFT_TRY(collect_values(k, k->all->r->weight));
    return meet(k); /* so that the next step's outcome comes after all of this one's */
}

static weft_status run_rank(rank *k)
{
    const ranks_case *c = k->all->c;
    ranks_result *r = k->all->r;
    const int me = k->mesh->world_rank;
    weft_train_plan plan;
    WEFT_TRY(weft_i_train_settings_make(&k->settings, &c->options, &k->source.hf.config));
    WEFT_TRY(weft_i_train_plan_make(&plan, k->mesh, &k->source, &k->settings, NULL));
    memcpy(r->planned[me], plan.bytes, sizeof(plan.bytes));
    memcpy(r->planned_traffic[me], plan.step_traffic, sizeof(plan.step_traffic));
    if (c->n_steps == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_trainer_create(&k->trainer, k->mesh, &k->source, &k->settings,
                                   plan.workspace_bytes));
    WEFT_TRY(collect_values(k, r->begin));
    for (int i = 0; i < c->n_steps; i++)
        WEFT_TRY(run_step(k, i));
    r->n_allocs_late[me] = alloc_calls(k->mesh->ctx->alloc) - k->n_allocs;
    for (int i = 0; i < (int)WEFT_MEM_COUNT; i++) {
        weft_alloc_count count;
        weft_i_alloc_counts(k->mesh->ctx->alloc, (weft_mem)i, &count);
        r->taken[me][i] = count.peak_bytes;
    }
    gather_states(k);
    WEFT_TRY(check_padding(k));
    return collect_values(k, r->weight);
}

static weft_status start_rank(void *user, weft_mesh *mesh)
{
    rank k = {.all = user, .mesh = mesh};
    const ranks_case *c = k.all->c;
    WEFT_TRY(weft_i_source_open(&k.source, mesh->ctx, c->model, c->options.layout.dtype));
    const weft_status st = run_rank(&k);
    weft_i_trainer_destroy(k.trainer);
    weft_i_source_close(&k.source, mesh->ctx);
    return st;
}

static void on_log(void *user, weft_log_level level, const char *line)
{
    ranks_result *r = user;
    if (level == WEFT_LOG_WARN && strstr(line, "no counted target") != NULL)
        r->n_empty_warnings++;
}

weft_status ranks_case_try(ranks_result *r, const ranks_case *c)
{
    weft_layout layout;
    shared all = {.c = c, .r = r};
    const weft_ctx_options like = {.log = on_log, .log_user = r, .log_level = WEFT_LOG_WARN};
    memset(r, 0, sizeof(*r));
    r->n_steps = c->n_steps;
    r->is_bf16 = strcmp(c->options.layout.dtype, "bf16") == 0;
    WEFT_TRY(weft_i_layout_make(&layout, &c->options.layout));
    r->n_ranks = layout.n_ranks;
    assert_true(layout.n_ranks <= RANKS_MOST);
    weft_status st = list_params(r, c);
    if (st == WEFT_OK)
        st = take_arrays(r);
    (void)pthread_mutex_init(&all.lock, NULL);
    if (st == WEFT_OK)
        st = weft_i_ranks_run(&layout, &c->options.layout, &like, start_rank, &all);
    (void)pthread_mutex_destroy(&all.lock);
    if (st != WEFT_OK)
        ranks_result_fini(r);
    return st;
}

void ranks_case_run(ranks_result *r, const ranks_case *c)
{
    const weft_layout_options *l = &c->options.layout;
    const weft_status st = ranks_case_try(r, c);
    if (st != WEFT_OK)
        fail_msg("%s, dp %d, tp %d, pp %d %s, stage %d%s: %s: %s", c->model, (int)l->dp, (int)l->tp,
                 (int)l->pp, l->pp_schedule, (int)l->zero_stage,
                 l->reproducible ? ", reproducible" : "", weft_status_name(st), weft_last_error());
}
