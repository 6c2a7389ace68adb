/*
 * The loop of generation (contract: decode.h).
 *
 *   prefill  every prompt alone, as one pass of its own length, into its rows of the cache; the head works on its last row
 *   decode   all sequences that are not done together, one token each
 *
 * So a sequence is computed from its own tokens alone: no padding, no mask, and the others matter at most to the rounding
 * of a matrix product with another number of rows. One that ends leaves the batch: the last takes its place.
 *
 * Rotary positions that scale with the length (`dynamic`): a row of the table is made for the length at which it is first
 * used, and cached keys keep theirs, as in transformers.
 *
 * Communication (world): before every pass 1 all_reduce that tells whether any rank has something left, and whether rank 0
 * was told to stop.
 * Invariant: all ranks run the same passes in the same order, one that has nothing left idle ones, so what a method gathers
 * in a pass (ZeRO-3's weights) finds every rank there.
 */
#include "infer/decode.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "parallel/ranks.h"

#include <string.h>

/* What a rank says before a pass; the largest holds. */
enum { WORD_DONE, WORD_BUSY, WORD_STOP };

struct weft_decoder {
    weft_mesh *mesh;
    weft_ctx *ctx; /* the mesh's */
    weft_decoder_options options;
    weft_config config;
    weft_replica replica;
    weft_run *prefill; /* 1 x longest prompt */
    weft_run *decode;  /* n_seqs x 1 */
    weft_pass_memory memory;
    weft_kv_cache cache;
    void *logits;       /* f32 [n_seqs, vocabulary] */
    float *host_logits; /* the same on the host */
    weft_candidate *scratch;
    weft_sequence **active; /* [n_seqs]: slot of the cache -> sequence */
    int64_t n_active;
    int32_t *last_id;   /* [n_seqs] */
    int32_t *position;  /* [n_seqs] */
    int64_t *q_offset;  /* [n_seqs] */
    int64_t *kv_length; /* [n_seqs] */
    double prompt_seconds, new_seconds;
    int64_t n_new;
    int64_t n_forwards;
};

/* ---- memory ---- */

/* One shape for every length of a prompt. */
static size_t prefill_shapes(weft_pass_shape *shapes, const weft_prompts *p)
{
    size_t n = 0;

    for (int64_t i = 0; i < p->n; i++) {
        bool is_known = false;
        for (size_t k = 0; k < n && !is_known; k++)
            is_known = shapes[k].n_tokens == p->sequence[i].n_prompt;
        if (!is_known)
            shapes[n++] = (weft_pass_shape){
                .n_seqs = 1, .n_tokens = p->sequence[i].n_prompt, .n_head_rows = 1};
    }
    return n;
}

/* Both runs; for decoding one shape for every number of sequences that may be left. */
static weft_status plan_passes(weft_decoder *d,
                               const weft_source *source,
                               const weft_prompts *p,
                               weft_run_options *prefill,
                               weft_run_options *decode)
{
    const int64_t n_seqs = d->options.n_seqs;
    weft_pass_shape *shapes = NULL;

    WEFT_TRY(weft_i_alloc_array(d->ctx->alloc, p->n + n_seqs, sizeof(*shapes), &shapes));
    for (int64_t i = 0; i < n_seqs; i++)
        shapes[p->n + i] = (weft_pass_shape){.n_seqs = i + 1, .n_tokens = 1};
    const weft_pass_plan decoding = {
        .run = *decode, .shapes = shapes + p->n, .n_shapes = (size_t)n_seqs};
    const weft_pass_plan plan = {.run = *prefill,
                                 .shapes = shapes,
                                 .n_shapes = prefill_shapes(shapes, p),
                                 .logit_rows = n_seqs,
                                 .cache_seqs = n_seqs,
                                 .cache_capacity = p->capacity,
                                 .also = &decoding};
    const weft_status st = weft_i_plan_passes(&d->memory, d->mesh, source, &plan);
    weft_i_alloc_put(d->ctx->alloc, shapes);
    prefill->workspace_bytes = d->memory.workspace_bytes;
    decode->workspace_bytes = d->memory.also_workspace_bytes;
    return st;
}

static weft_status take_host(weft_decoder *d)
{
    const int64_t n = d->options.n_seqs;
    const int64_t v = d->config.vocab_size;
    weft_alloc *a = d->ctx->alloc;

    WEFT_TRY(weft_i_alloc_array(a, n * v, sizeof(float), &d->host_logits));
    WEFT_TRY(weft_i_alloc_array(a, v, sizeof(weft_candidate), &d->scratch));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(weft_sequence *), &d->active));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(int32_t), &d->last_id));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(int32_t), &d->position));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(int64_t), &d->q_offset));
    return weft_i_alloc_array(a, n, sizeof(int64_t), &d->kv_length);
}

static weft_status
take_all(weft_decoder *d, weft_source *source, const weft_prompts *p, uint64_t seed)
{
    weft_backend *b = d->ctx->backend;
    const size_t logits_bytes =
        (size_t)d->options.n_seqs * (size_t)d->config.vocab_size * sizeof(float);
    weft_run_options prefill = {.n_seqs = 1, .n_tokens = p->longest, .n_positions = p->capacity};
    weft_run_options decode = {
        .n_seqs = d->options.n_seqs, .n_tokens = 1, .n_positions = p->capacity};

    if (d->mesh->layout.pp > 1)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                  "generation over the %d stages of a pipeline is not in this version; use --pp 1 "
                  "(the other ranks can share the prompts: --dp)",
                  d->mesh->layout.pp);
    WEFT_TRY(weft_i_mesh_agree(d->mesh, plan_passes(d, source, p, &prefill, &decode)));
    WEFT_TRY(take_host(d));
    WEFT_TRY(weft_i_replica_create(&d->replica, d->mesh, source, false, seed));
    weft_i_source_unmap(source);
    weft_model *m = d->replica.model;
    weft_i_parallel_run_options(d->replica.parallel, &prefill);
    weft_i_parallel_run_options(d->replica.parallel, &decode);
    WEFT_TRY(weft_i_kv_cache_init(&d->cache, m, &d->config, d->options.n_seqs, p->capacity));
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_ACTIVATIONS, logits_bytes, "logits", &d->logits));
    WEFT_TRY(weft_run_create(&d->prefill, m, &prefill));
    return weft_run_create(&d->decode, m, &decode);
}

weft_status weft_i_decoder_create(weft_decoder **out,
                                  weft_mesh *mesh,
                                  weft_source *source,
                                  const weft_prompts *prompts,
                                  const weft_decoder_options *options,
                                  uint64_t seed)
{
    void *block = NULL;

    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_decoder), &block));
    weft_decoder *d = block;
    d->mesh = mesh;
    d->ctx = mesh->ctx;
    d->options = *options;
    d->config = source->hf.config;
    const weft_status st = take_all(d, source, prompts, seed);
    if (st == WEFT_OK)
        *out = d;
    else
        weft_i_decoder_destroy(d);
    return st;
}

void weft_i_decoder_destroy(weft_decoder *d)
{
    if (d == NULL)
        return;
    weft_alloc *alloc = d->ctx->alloc;
    void *const block[] = {d->host_logits, d->scratch,  d->active,   d->last_id,
                           d->position,    d->q_offset, d->kv_length};
    weft_run_destroy(d->decode);
    weft_run_destroy(d->prefill);
    d->ctx->backend->ops->mem_put(d->ctx->backend, d->logits);
    weft_i_kv_cache_fini(&d->cache);
    weft_i_replica_destroy(&d->replica);
    for (size_t i = 0; i < WEFT_COUNT_OF(block); i++)
        weft_i_alloc_put(alloc, block[i]);
    weft_i_alloc_put(alloc, d);
}

/* ---- passes ---- */

static weft_view logits_view(const weft_decoder *d, int64_t rows)
{
    return weft_view_make(d->logits, WEFT_DTYPE_F32, rows, d->config.vocab_size);
}

static weft_status fetch_logits(weft_decoder *d, int64_t rows)
{
    weft_backend *b = d->ctx->backend;
    const size_t n_bytes = (size_t)(rows * d->config.vocab_size) * sizeof(float);
    return b->ops->copy_to_host(b, d->host_logits, d->logits, n_bytes);
}

/* A pass without a sequence, while other ranks have some. */
static weft_status run_idle(weft_decoder *d, weft_run *run)
{
    d->n_forwards++;
    weft_run_exec(run)->logits = logits_view(d, 1); /* what a pass reads follows from it */
    return weft_run_idle(run, WEFT_PASS_FORWARD);
}

/* Reads a prompt into slot `slot` of the cache; its last row's logits are on the host afterwards. */
static weft_status read_prompt(weft_decoder *d, const weft_sequence *s, int64_t slot)
{
    const int64_t q_offset = 0;
    const int64_t last = s->n_prompt - 1;
    weft_exec *exec = weft_run_exec(d->prefill);
    const weft_host_batch batch = {.n_seqs = 1,
                                   .n_tokens = s->n_prompt,
                                   .ids = s->ids,
                                   .q_offset = &q_offset,
                                   .kv_length = &s->n_prompt};

    d->n_forwards++;
    if (d->config.rope.kind == WEFT_ROPE_DYNAMIC)
        WEFT_TRY(weft_run_fill_rope(d->prefill, 0, s->n_prompt, s->n_prompt));
    WEFT_TRY(weft_run_load(d->prefill, 0, &batch));
    exec->logits = logits_view(d, 1);
    exec->head_rows = &last;
    exec->n_head_rows = 1;
    const weft_status st = weft_run_forward_only(d->prefill, weft_i_kv_cache_from(&d->cache, slot));
    exec->head_rows = NULL;
    exec->n_head_rows = 0;
    return st != WEFT_OK ? st : fetch_logits(d, 1);
}

/* One token further in every active sequence. */
static weft_status read_last(weft_decoder *d)
{
    const int64_t n = d->n_active;
    const weft_host_batch batch = {.n_seqs = n,
                                   .n_tokens = 1,
                                   .ids = d->last_id,
                                   .positions = d->position,
                                   .q_offset = d->q_offset,
                                   .kv_length = d->kv_length};

    d->n_forwards++;
    for (int64_t i = 0; i < n; i++) {
        const weft_sequence *s = d->active[i];
        d->last_id[i] = s->ids[s->n_ids - 1];
        d->position[i] = (int32_t)(s->n_ids - 1);
        d->q_offset[i] = s->n_ids - 1;
        d->kv_length[i] = s->n_ids;
        if (d->config.rope.kind == WEFT_ROPE_DYNAMIC)
            WEFT_TRY(weft_run_fill_rope(d->decode, s->n_ids - 1, 1, s->n_ids));
    }
    WEFT_TRY(weft_run_load(d->decode, 0, &batch));
    weft_run_exec(d->decode)->logits = logits_view(d, n);
    WEFT_TRY(weft_run_forward_only(d->decode, weft_i_kv_cache_from(&d->cache, 0)));
    return fetch_logits(d, n);
}

/* ---- sequences ---- */

static bool is_stop_id(const weft_decoder *d, int32_t id)
{
    for (int i = 0; i < d->options.n_stop; i++) {
        if (d->options.stop[i] == id)
            return true;
    }
    return false;
}

/* Chooses the next id of s from row `row` of the logits. */
static weft_status add_id(weft_decoder *d, weft_sequence *s, int64_t row, weft_delivery *delivery)
{
    int32_t id = 0;

    WEFT_TRY(weft_i_sampling_pick(&id, &d->options.sampling,
                                  d->host_logits + row * d->config.vocab_size, d->options.n_ids,
                                  d->scratch, s->number, s->n_ids));
    s->ids[s->n_ids++] = id;
    d->n_new++;
    WEFT_TRY(weft_i_delivery_add(delivery, s, id));
    if (is_stop_id(d, id))
        return weft_i_delivery_end(delivery, s, WEFT_FINISH_EOS);
    if (s->n_ids >= s->n_limit)
        return weft_i_delivery_end(delivery, s, s->at_limit);
    return WEFT_OK;
}

/* Sequences that are done leave; the last active one takes the place. */
static weft_status leave(weft_decoder *d)
{
    for (int64_t i = d->n_active - 1; i >= 0; i--) {
        if (!d->active[i]->is_done)
            continue;
        const int64_t last = --d->n_active;
        if (i == last)
            continue;
        WEFT_TRY(weft_i_kv_cache_move(&d->cache, i, last, d->active[last]->n_ids - 1));
        d->active[i] = d->active[last];
    }
    return WEFT_OK;
}

static bool is_stop_wanted(const weft_decoder *d)
{
    const weft_generate_callbacks *c = d->options.callbacks;
    return c != NULL && c->should_stop != NULL && c->should_stop(c->user);
}

/* Before a pass: whether any rank has something left, and whether rank 0 was told to stop. */
static weft_status agree(weft_decoder *d, bool is_busy, bool *is_any_busy, bool *is_stopped)
{
    int64_t word = is_busy ? WORD_BUSY : WORD_DONE;

    if ((is_busy || d->mesh->world_size > 1) && is_stop_wanted(d))
        word = WORD_STOP;
    WEFT_TRY(weft_i_parallel_largest(d->replica.parallel, &word));
    *is_any_busy = word == WORD_BUSY;
    *is_stopped = word == WORD_STOP;
    return WEFT_OK;
}

/* Sequences that may not grow end at once. Returns the first from *at on that may; n when there is none. */
static weft_status skip_full(int64_t *at, weft_sequence *first, int64_t n, weft_delivery *delivery)
{
    while (*at < n && first[*at].n_ids >= first[*at].n_limit) {
        WEFT_TRY(weft_i_delivery_end(delivery, &first[*at], first[*at].at_limit));
        (*at)++;
    }
    return WEFT_OK;
}

static weft_status read_prompts(
    bool *is_stopped, weft_decoder *d, weft_sequence *first, int64_t n, weft_delivery *delivery)
{
    int64_t next = 0;

    d->n_active = 0;
    weft_i_parallel_bind(d->replica.parallel, d->prefill);
    for (;;) {
        bool is_any_busy = false;
        WEFT_TRY(skip_full(&next, first, n, delivery));
        WEFT_TRY(agree(d, next < n, &is_any_busy, is_stopped));
        if (!is_any_busy)
            return WEFT_OK;
        if (next == n) {
            WEFT_TRY(run_idle(d, d->prefill));
            continue;
        }
        weft_sequence *s = &first[next++];
        WEFT_TRY(read_prompt(d, s, d->n_active));
        WEFT_TRY(add_id(d, s, 0, delivery));
        if (!s->is_done)
            d->active[d->n_active++] = s;
    }
}

static weft_status add_tokens(bool *is_stopped, weft_decoder *d, weft_delivery *delivery)
{
    weft_i_parallel_bind(d->replica.parallel, d->decode);
    for (;;) {
        bool is_any_busy = false;
        WEFT_TRY(agree(d, d->n_active > 0, &is_any_busy, is_stopped));
        if (!is_any_busy)
            return WEFT_OK;
        if (d->n_active == 0) {
            WEFT_TRY(run_idle(d, d->decode));
            continue;
        }
        WEFT_TRY(read_last(d));
        for (int64_t i = 0; i < d->n_active; i++)
            WEFT_TRY(add_id(d, d->active[i], i, delivery));
        WEFT_TRY(leave(d));
    }
}

weft_status weft_i_decoder_run(
    bool *is_stopped, weft_decoder *d, weft_sequence *first, int64_t n, weft_delivery *delivery)
{
    const double start = weft_i_clock_seconds();

    *is_stopped = false;
    WEFT_TRY(read_prompts(is_stopped, d, first, n, delivery));
    const double middle = weft_i_clock_seconds();
    if (!*is_stopped)
        WEFT_TRY(add_tokens(is_stopped, d, delivery));
    for (int64_t i = 0; i < n; i++) {
        if (!first[i].is_done)
            WEFT_TRY(weft_i_delivery_end(delivery, &first[i], WEFT_FINISH_STOPPED));
    }
    d->prompt_seconds += middle - start;
    d->new_seconds += weft_i_clock_seconds() - middle;
    return WEFT_OK;
}

void weft_i_decoder_times(const weft_decoder *d, weft_generate_result *out)
{
    out->n_new_tokens = d->n_new;
    out->n_forwards = d->n_forwards;
    out->prompt_seconds = d->prompt_seconds;
    out->new_seconds = d->new_seconds;
}

const weft_pass_memory *weft_i_decoder_memory(const weft_decoder *d)
{
    return &d->memory;
}
