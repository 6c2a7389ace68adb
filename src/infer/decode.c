/*
 * The loop of generation (contract: decode.h).
 *
 *   prefill  every prompt alone, as one pass of its own length, into its rows of the cache; the head works on its last row
 *   decode   all sequences of a group that are not done together, one token each
 *
 * So a sequence is computed from its own tokens alone: no padding, no mask, and the others matter at most to the rounding
 * of a matrix product with another number of rows. One that ends leaves the batch: the last takes its place.
 *
 * Over the stages of a pipeline there are as many groups as stages (if there are as many sequences), and they take turns:
 * while the first stage has turn k, the next one has turn k - 1, and so on. The last stage chooses the ids of a turn; the
 * first has them when the group's turn comes again, and sends them on with the word of that turn (stage_link.h). Prompts are
 * dealt out to the groups one after another in the same way. Without a pipeline there is one group.
 *
 * Rotary positions that scale with the length (`dynamic`): a row of the table is made for the length at which it is first
 * used, and cached keys keep theirs, as in transformers.
 *
 * Communication: before every pass 1 all_reduce that tells whether any rank has something left, and whether rank 0 was told
 * to stop: over the world, with a pipeline over the first stage's ranks; stage_link.c.
 * Invariants
 *  1. All ranks of a stage run the same passes in the same order, one that has nothing left idle ones, so what a method
 *     gathers in a pass (ZeRO-3's weights) finds every rank there.
 *  2. In turn k a rank knows the ids of turns 0 .. k - groups and of no later one, on every stage: what it does follows from
 *     them and the word.
 */
#include "infer/decode.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "infer/groups.h"
#include "infer/stage_link.h"
#include "parallel/ranks.h"

#include <string.h>

/* What a rank says before a pass; the largest holds. SKIP: nothing in this group, but in others. */
enum { WORD_DONE, WORD_SKIP, WORD_BUSY, WORD_STOP };

struct weft_decoder {
    weft_mesh *mesh;
    weft_ctx *ctx; /* the mesh's */
    weft_decoder_options options;
    weft_config config;
    weft_replica replica;
    weft_run *prefill; /* 1 x longest prompt */
    weft_run *decode;  /* sequences of a group x 1 */
    weft_pass_memory memory;
    weft_kv_cache cache;
    weft_groups groups;
    weft_stage_link link;
    int64_t turn; /* of group turn mod groups */
    void *logits; /* f32 [sequences of a group, vocabulary]; on the last stage, as the next two */
    float *host_logits; /* the same on the host */
    weft_candidate *scratch;
    int32_t *last_id; /* [sequences of a group], as all below */
    int32_t *position;
    int64_t *q_offset;
    int64_t *kv_length;
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

static bool is_last_stage(const weft_decoder *d)
{
    return d->mesh->coord[WEFT_AXIS_PP] == d->mesh->size[WEFT_AXIS_PP] - 1;
}

/* Rows that a pass sends to the next stage, at most. */
static int64_t most_rows(const weft_decoder *d, const weft_prompts *p)
{
    return WEFT_MAX(p->longest, d->groups.capacity);
}

/* Both runs; for decoding one shape for every number of sequences that may be left. */
static weft_status plan_passes(weft_decoder *d,
                               const weft_source *source,
                               const weft_prompts *p,
                               weft_run_options *prefill,
                               weft_run_options *decode)
{
    const int64_t n = d->groups.capacity;
    weft_pass_shape *shapes = NULL;

    WEFT_TRY(weft_i_alloc_array(d->ctx->alloc, p->n + n, sizeof(*shapes), &shapes));
    for (int64_t i = 0; i < n; i++)
        shapes[p->n + i] = (weft_pass_shape){.n_seqs = i + 1, .n_tokens = 1};
    const weft_pass_plan decoding = {
        .run = *decode, .shapes = shapes + p->n, .n_shapes = (size_t)n};
    const weft_pass_plan plan = {
        .run = *prefill,
        .shapes = shapes,
        .n_shapes = prefill_shapes(shapes, p),
        .logit_rows = is_last_stage(d) ? n : 0,
        .cache_seqs = d->options.n_seqs,
        .cache_capacity = p->capacity,
        .n_places = WEFT_STAGE_LINK_PLACES,
        .place_bytes = weft_i_stage_link_place_bytes(d->mesh, most_rows(d, p),
                                                     d->config.hidden_size, source->dtype),
        .also = &decoding};
    const weft_status st = weft_i_plan_passes(&d->memory, d->mesh, source, &plan);
    weft_i_alloc_put(d->ctx->alloc, shapes);
    prefill->workspace_bytes = d->memory.workspace_bytes;
    decode->workspace_bytes = d->memory.also_workspace_bytes;
    return st;
}

static weft_status take_host(weft_decoder *d)
{
    const int64_t n = d->groups.capacity;
    const int64_t v = is_last_stage(d) ? d->config.vocab_size : 1;
    weft_alloc *a = d->ctx->alloc;

    WEFT_TRY(weft_i_alloc_array(a, n * v, sizeof(float), &d->host_logits));
    WEFT_TRY(weft_i_alloc_array(a, v, sizeof(weft_candidate), &d->scratch));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(int32_t), &d->last_id));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(int32_t), &d->position));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(int64_t), &d->q_offset));
    return weft_i_alloc_array(a, n, sizeof(int64_t), &d->kv_length);
}

static weft_status take_device(weft_decoder *d,
                               const weft_prompts *p,
                               const weft_run_options *prefill,
                               const weft_run_options *decode)
{
    weft_backend *b = d->ctx->backend;
    weft_model *part = weft_i_parallel_part(d->replica.parallel);
    const size_t logits_bytes =
        (size_t)d->groups.capacity * (size_t)d->config.vocab_size * sizeof(float);

    WEFT_TRY(weft_i_stage_link_init(&d->link, d->mesh, part, d->groups.n, d->groups.capacity,
                                    most_rows(d, p)));
    WEFT_TRY(weft_i_kv_cache_init(&d->cache, part, d->options.n_seqs, p->capacity));
    if (is_last_stage(d))
        WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_ACTIVATIONS, logits_bytes, "logits", &d->logits));
    WEFT_TRY(weft_run_create(&d->prefill, part, prefill));
    return weft_run_create(&d->decode, part, decode);
}

static weft_status
take_all(weft_decoder *d, weft_source *source, const weft_prompts *p, uint64_t seed)
{
    const int n_groups = (int)WEFT_MIN((int64_t)d->mesh->layout.pp, d->options.n_seqs);
    weft_run_options prefill = {.n_seqs = 1, .n_tokens = p->longest, .n_positions = p->capacity};
    weft_run_options decode = {.n_tokens = 1, .n_positions = p->capacity};

    weft_status st = weft_i_groups_init(&d->groups, d->ctx->alloc, d->options.n_seqs, n_groups);
    decode.n_seqs = d->groups.capacity;
    if (st == WEFT_OK)
        st = plan_passes(d, source, p, &prefill, &decode);
    WEFT_TRY(weft_i_mesh_agree(d->mesh, st));
    WEFT_TRY(take_host(d));
    WEFT_TRY(weft_i_replica_create(&d->replica, d->mesh, source, false, seed));
    weft_i_source_unmap(source);
    weft_i_parallel_run_options(d->replica.parallel, &prefill);
    weft_i_parallel_run_options(d->replica.parallel, &decode);
    return take_device(d, p, &prefill, &decode);
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
    void *const block[] = {d->host_logits, d->scratch,  d->last_id,
                           d->position,    d->q_offset, d->kv_length};
    weft_run_destroy(d->decode);
    weft_run_destroy(d->prefill);
    d->ctx->backend->ops->mem_put(d->ctx->backend, d->logits);
    weft_i_kv_cache_fini(&d->cache);
    weft_i_stage_link_fini(&d->link);
    weft_i_groups_fini(&d->groups);
    weft_i_replica_destroy(&d->replica);
    for (size_t i = 0; i < WEFT_COUNT_OF(block); i++)
        weft_i_alloc_put(alloc, block[i]);
    weft_i_alloc_put(alloc, d);
}

/* ---- passes ---- */

static int flight_of(const weft_decoder *d)
{
    return (int)(d->turn % d->groups.n);
}

static weft_view logits_view(const weft_decoder *d, int64_t rows)
{
    if (!is_last_stage(d))
        return weft_view_none();
    return weft_view_make(d->logits, WEFT_DTYPE_F32, rows, d->config.vocab_size);
}

/* A pass without a sequence, while other ranks have some. */
static weft_status run_idle(weft_decoder *d, weft_run *run)
{
    d->n_forwards++;
    weft_run_exec(run)->logits = logits_view(d, 1); /* what a pass reads follows from it */
    return weft_run_idle(run, WEFT_PASS_FORWARD);
}

/* The last stage chooses the next id of every waiting sequence from the logits, a row each. */
static weft_status choose_ids(weft_decoder *d, const weft_group *g)
{
    weft_backend *b = d->ctx->backend;
    const size_t n_bytes = (size_t)(g->n_waiting * d->config.vocab_size) * sizeof(float);
    int32_t *ids = NULL;

    WEFT_TRY(b->ops->copy_to_host(b, d->host_logits, d->logits, n_bytes));
    WEFT_TRY(weft_i_stage_link_answer_of(&d->link, flight_of(d), &ids));
    for (int64_t i = 0; i < g->n_waiting; i++) {
        const weft_sequence *s = g->active[g->from + i];
        WEFT_TRY(weft_i_sampling_pick(&ids[i], &d->options.sampling,
                                      d->host_logits + i * d->config.vocab_size, d->options.n_ids,
                                      d->scratch, s->number, s->n_ids));
    }
    return weft_i_stage_link_send_answer(&d->link, flight_of(d), g->n_waiting);
}

/* This stage's part of a pass of the group's waiting sequences, from slot `slot` of the cache on. */
static weft_status
run_pass(weft_decoder *d, const weft_group *g, weft_run *run, const weft_host_batch *batch)
{
    d->n_forwards++;
    WEFT_TRY(weft_run_load(run, 0, batch));
    WEFT_TRY(weft_i_stage_link_receive(&d->link, run));
    weft_run_exec(run)->logits = logits_view(d, g->n_waiting);
    WEFT_TRY(weft_run_forward_only(run, weft_i_kv_cache_from(&d->cache, g->first + g->from)));
    return is_last_stage(d) ? choose_ids(d, g) : weft_i_stage_link_send(&d->link, run);
}

/* Reads a prompt into the group's next place. */
static weft_status read_prompt(weft_decoder *d, weft_group *g, weft_sequence *s)
{
    const int64_t q_offset = 0;
    const int64_t last = s->n_prompt - 1;
    weft_exec *exec = weft_run_exec(d->prefill);
    const weft_host_batch batch = {.n_seqs = 1,
                                   .n_tokens = s->n_prompt,
                                   .ids = s->ids,
                                   .q_offset = &q_offset,
                                   .kv_length = &s->n_prompt};

    g->from = g->n_active;
    g->n_waiting = 1;
    g->active[g->n_active++] = s;
    if (d->config.rope.kind == WEFT_ROPE_DYNAMIC)
        WEFT_TRY(weft_run_fill_rope(d->prefill, 0, s->n_prompt, s->n_prompt));
    exec->head_rows = &last;
    exec->n_head_rows = 1;
    const weft_status st = run_pass(d, g, d->prefill, &batch);
    exec->head_rows = NULL;
    exec->n_head_rows = 0;
    return st;
}

/* One token further in every sequence of the group. */
static weft_status read_last(weft_decoder *d, weft_group *g)
{
    const weft_host_batch batch = {.n_seqs = g->n_active,
                                   .n_tokens = 1,
                                   .ids = d->last_id,
                                   .positions = d->position,
                                   .q_offset = d->q_offset,
                                   .kv_length = d->kv_length};

    g->from = 0;
    g->n_waiting = g->n_active;
    for (int64_t i = 0; i < g->n_active; i++) {
        const weft_sequence *s = g->active[i];
        d->last_id[i] = s->ids[s->n_ids - 1];
        d->position[i] = (int32_t)(s->n_ids - 1);
        d->q_offset[i] = s->n_ids - 1;
        d->kv_length[i] = s->n_ids;
        if (d->config.rope.kind == WEFT_ROPE_DYNAMIC)
            WEFT_TRY(weft_run_fill_rope(d->decode, s->n_ids - 1, 1, s->n_ids));
    }
    return run_pass(d, g, d->decode, &batch);
}

/* ---- turns ---- */

/* What a call of weft_i_decoder_run works on. */
typedef struct work {
    weft_sequence *sequence; /* [n] */
    int64_t n, next;         /* prompts from `next` on were not read */
    bool is_reading;         /* prompts; then tokens are added */
    weft_delivery *delivery;
} work;

static bool is_stop_id(const weft_decoder *d, int32_t id)
{
    for (int i = 0; i < d->options.n_stop; i++) {
        if (d->options.stop[i] == id)
            return true;
    }
    return false;
}

static weft_status add_id(weft_decoder *d, weft_sequence *s, int32_t id, weft_delivery *delivery)
{
    s->ids[s->n_ids++] = id;
    d->n_new++;
    WEFT_TRY(weft_i_delivery_add(delivery, s, id));
    if (is_stop_id(d, id))
        return weft_i_delivery_end(delivery, s, WEFT_FINISH_EOS);
    if (s->n_ids >= s->n_limit)
        return weft_i_delivery_end(delivery, s, s->at_limit);
    return WEFT_OK;
}

/* Prompts that no id may be added to end without a pass. */
static weft_status skip_full(work *w)
{
    for (; w->next < w->n && w->sequence[w->next].n_ids >= w->sequence[w->next].n_limit;
         w->next++) {
        weft_sequence *s = &w->sequence[w->next];
        WEFT_TRY(weft_i_delivery_end(w->delivery, s, s->at_limit));
    }
    return WEFT_OK;
}

/* The group's turn has come: the ids of its last one are known, and what follows from them. */
static weft_status learn(weft_decoder *d, weft_group *g, const int32_t *ids, work *w)
{
    const int64_t n = g->n_waiting;

    g->n_waiting = 0;
    for (int64_t i = 0; i < n; i++)
        WEFT_TRY(add_id(d, g->active[g->from + i], ids[i], w->delivery));
    WEFT_TRY(weft_i_group_leave(g, &d->cache));
    return w->is_reading ? skip_full(w)
                         : weft_i_groups_balance(&d->groups, flight_of(d), &d->cache);
}

/* What this rank has to say about the turn. */
static int64_t own_word(const weft_decoder *d, const weft_group *g, const work *w)
{
    const weft_generate_callbacks *c = d->options.callbacks;
    const bool has_more = w->is_reading ? w->next < w->n : g->n_active > 0;
    int64_t word = has_more ? WORD_BUSY : WORD_DONE;

    if (!has_more && !w->is_reading && weft_i_groups_active(&d->groups) > 0)
        word = WORD_SKIP;
    if ((word > WORD_DONE || d->mesh->world_size > 1) && c != NULL && c->should_stop != NULL &&
        c->should_stop(c->user))
        word = WORD_STOP;
    return word;
}

/* The first stage decides what is done in the turn, the others hear it; all know the ids of the group's last turn then. */
static weft_status begin_turn(int32_t *word, weft_decoder *d, weft_group *g, work *w)
{
    int32_t *m = NULL;

    WEFT_TRY(weft_i_stage_link_word_of(&d->link, flight_of(d), &m));
    if (!weft_i_stage_link_is_first(&d->link)) {
        WEFT_TRY(weft_i_stage_link_pass_word(&d->link, flight_of(d)));
        *word = m[0];
        return learn(d, g, m + 1, w);
    }
    if (g->n_waiting > 0)
        WEFT_TRY(weft_i_stage_link_receive_answer(&d->link, flight_of(d), m + 1, g->n_waiting));
    WEFT_TRY(learn(d, g, m + 1, w));
    int64_t largest = own_word(d, g, w);
    if (d->mesh->layout.pp == 1)
        WEFT_TRY(weft_i_parallel_largest(d->replica.parallel, &largest));
    else
        WEFT_TRY(weft_i_stage_link_agree(&d->link, &largest));
    m[0] = (int32_t)largest;
    *word = m[0];
    return weft_i_stage_link_pass_word(&d->link, flight_of(d));
}

/* All stop: the ids of turns on their way are still to come, in the order of turns. */
static weft_status drain(weft_decoder *d, work *w)
{
    for (int i = 1; i < d->groups.n; i++) {
        int32_t *m = NULL;
        d->turn++;
        weft_group *g = &d->groups.group[flight_of(d)];
        if (g->n_waiting == 0)
            continue;
        WEFT_TRY(weft_i_stage_link_word_of(&d->link, flight_of(d), &m));
        m[0] = WORD_STOP;
        if (weft_i_stage_link_is_first(&d->link))
            WEFT_TRY(weft_i_stage_link_receive_answer(&d->link, flight_of(d), m + 1, g->n_waiting));
        WEFT_TRY(weft_i_stage_link_pass_word(&d->link, flight_of(d)));
        WEFT_TRY(learn(d, g, m + 1, w));
    }
    return WEFT_OK;
}

static weft_status run_turn(weft_decoder *d, weft_group *g, work *w)
{
    if (w->is_reading && w->next < w->n)
        return read_prompt(d, g, &w->sequence[w->next++]);
    if (!w->is_reading && g->n_active > 0)
        return read_last(d, g);
    return run_idle(d, w->is_reading ? d->prefill : d->decode);
}

/* Turns until no rank has anything to do in this phase, or rank 0 was told to stop. */
static weft_status run_phase(bool *is_stopped, weft_decoder *d, work *w)
{
    weft_i_parallel_bind(d->replica.parallel, w->is_reading ? d->prefill : d->decode);
    for (;; d->turn++) {
        weft_group *g = &d->groups.group[flight_of(d)];
        int32_t word = WORD_DONE;
        WEFT_TRY(begin_turn(&word, d, g, w));
        if (word == WORD_STOP) {
            *is_stopped = true;
            return drain(d, w);
        }
        if (word == WORD_DONE)
            return WEFT_OK;
        if (word == WORD_BUSY)
            WEFT_TRY(run_turn(d, g, w));
    }
}

weft_status weft_i_decoder_run(
    bool *is_stopped, weft_decoder *d, weft_sequence *first, int64_t n, weft_delivery *delivery)
{
    const double start = weft_i_clock_seconds();
    work w = {.sequence = first, .n = n, .is_reading = true, .delivery = delivery};

    *is_stopped = false;
    d->turn = 0;
    weft_i_groups_clear(&d->groups);
    WEFT_TRY(run_phase(is_stopped, d, &w));
    const double middle = weft_i_clock_seconds();
    w.is_reading = false;
    if (!*is_stopped)
        WEFT_TRY(run_phase(is_stopped, d, &w));
    WEFT_TRY(weft_i_stage_link_finish(&d->link));
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
