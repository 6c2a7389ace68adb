/*
 * Tied embeddings over a pipeline: the first stage has the table, the last stage a copy for the head. Both copies take the
 * same update from the same sum of gradients, so they stay equal bit for bit.
 *
 * Source: Narayanan et al., arXiv:2104.04473, sec. 4 (gradients of the two are summed over the two ranks).
 *
 *   by step          each stage reduces its own gradients over dp; then the two exchange their sums and add them, first
 *                    stage's + last stage's, on both.
 *   --reproducible   a micro-batch's gradient of the head goes to the first stage, whose backward adds the embedding's rows
 *                    onto it, as on one rank; the first stage reduces that, and at the end of the step sends the sum.
 *
 * Communication (pp), E elements of the table here (of its part with a ZeRO stage), f32: a step SEND E and RECV E on both;
 * with --reproducible the last stage SEND all of it a micro-batch, the first SEND E a step.
 * Memory, of kind COMMUNICATION: E f32; with --reproducible on the last stage as many whole tables as its schedule makes
 * before the first stage asks for them.
 * Invariant: the table is a segment of its own on both stages, so both cut it alike over dp.
 * Leaves to others: that it counts once in norms and files (weft_param_piece.is_owned).
 */
#include "parallel/tied.h"

#include "backend/run_op.h"
#include "base/ctx.h"

/* Beyond the tags of a pipeline's other messages. */
enum { TAG_EXCHANGE = 0x40000000, TAG_MICRO_BATCH };

/* A micro-batch's gradient of the head that the first stage has not asked for yet. */
typedef struct tied_place {
    float *data;
    weft_request sent;
    bool is_sending;
} tied_place;

struct weft_tied {
    weft_ctx *ctx;
    weft_comm *comm; /* pp */
    const weft_chunk *chunk;
    weft_bucket *bucket;
    weft_param *table;
    bool is_first;
    float *other;       /* the other stage's sum */
    int64_t n_elems;    /* of the exchange */
    float *mine;        /* what is exchanged and becomes the sum */
    tied_place *places; /* --reproducible, last stage */
    int n_places, next;
};

/* The table's parameter in a chunk that embeds or that has the head; NULL elsewhere. */
static weft_param *table_of(const weft_chunk *c, const weft_param *whole)
{
    if (!c->is_first && !c->is_last)
        return NULL;
    return weft_model_find_param(c->model, whole->name);
}

void weft_i_tied_mark(weft_chunk *c, weft_model *whole)
{
    const weft_config *config = weft_model_config(whole);
    if (!config->is_tied || c->is_first == c->is_last)
        return;
    /* The token table is the first parameter of every family. */
    weft_param *table = table_of(c, weft_model_param(whole, 0));
    if (table != NULL)
        table->is_apart = true;
}

static weft_status find(weft_tied *t, weft_chunk *c)
{
    for (int64_t i = 0; i < weft_model_param_count(c->model); i++) {
        weft_param *p = weft_model_param(c->model, i);
        if (p->is_apart)
            t->table = p;
    }
    t->chunk = c;
    t->is_first = c->is_first;
    const weft_data_axis *a = c->data;
    const int64_t number = a->bucket_of_segment[a->shards.segment_of_param[t->table->number]];
    t->bucket = &c->data->buckets[number];
    return WEFT_OK;
}

/* The rank's chunk that has a copy of a trained table; NULL: none. */
static weft_chunk *chunk_with_table(weft_chunk *chunks, int n_chunks)
{
    for (int i = 0; i < n_chunks; i++) {
        for (int64_t k = 0; k < weft_model_param_count(chunks[i].model); k++) {
            const weft_param *p = weft_model_param(chunks[i].model, k);
            if (p->is_apart && !p->is_frozen)
                return &chunks[i];
        }
    }
    return NULL;
}

weft_status weft_i_tied_create(weft_tied **out, weft_mesh *mesh, weft_chunk *chunks, int n_chunks)
{
    weft_chunk *c = chunk_with_table(chunks, n_chunks);
    weft_backend *b = mesh->ctx->backend;
    void *block = NULL, *other = NULL;
    *out = NULL;
    if (c == NULL)
        return WEFT_OK;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_tied), &block));
    weft_tied *t = block;
    t->ctx = mesh->ctx;
    t->comm = mesh->comm[WEFT_AXIS_PP];
    *out = t;
    WEFT_TRY(find(t, c));
    const weft_data_axis *a = c->data;
    const weft_segment *s = t->bucket->segment;
    const bool is_whole = !a->method->is_state_shard && !a->layout->is_reproducible;
    t->n_elems = is_whole ? s->n_elems : s->n_mine;
    t->mine = is_whole ? (float *)a->grads + s->grad_first : t->bucket->own;
    t->bucket->is_guest = a->layout->is_reproducible && !t->is_first;
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, (size_t)t->n_elems * sizeof(float),
                             "the other stage's gradient of the embedding", &other));
    t->other = other;
    return WEFT_OK;
}

void weft_i_tied_destroy(weft_tied *t)
{
    if (t == NULL)
        return;
    weft_backend *b = t->ctx->backend;
    for (int i = 0; i < t->n_places; i++)
        b->ops->mem_put(b, t->places[i].data);
    b->ops->mem_put(b, t->other);
    weft_i_alloc_put(t->ctx->alloc, t->places);
    weft_i_alloc_put(t->ctx->alloc, t);
}

/* Between the two stages. */
static weft_message message_of(const weft_tied *t, weft_comm_op op, int tag, int64_t n_elems)
{
    return (weft_message){.op = op,
                          .dtype = WEFT_DTYPE_F32,
                          .n_elems = n_elems,
                          .peer = t->is_first ? t->comm->size - 1 : 0,
                          .tag = tag,
                          .tensor = t->table->name};
}

weft_status weft_i_tied_receive(weft_tied *t, const weft_chunk *c)
{
    if (t == NULL || c != t->chunk || !t->is_first || !c->data->layout->is_reproducible)
        return WEFT_OK;
    weft_grad_target target = {.is_added = false};
    WEFT_TRY(weft_i_bucket_grad_need(c->data, t->table, &target)); /* from now on it is added to */
    weft_message m = message_of(t, WEFT_COMM_RECV, TAG_MICRO_BATCH, t->bucket->segment->n_elems);
    m.recv = t->bucket->grad;
    return weft_comm_call(t->comm, &m);
}

weft_status weft_i_tied_reserve(weft_tied *t, int n_places)
{
    weft_backend *b = NULL;
    if (t == NULL || t->is_first || !t->chunk->data->layout->is_reproducible || t->n_places > 0)
        return WEFT_OK;
    b = t->ctx->backend;
    WEFT_TRY(weft_i_alloc_array(t->ctx->alloc, n_places, sizeof(*t->places), &t->places));
    for (; t->n_places < n_places; t->n_places++) {
        void *data = NULL;
        WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION,
                                 (size_t)t->bucket->segment->n_elems * sizeof(float),
                                 "gradients of the head on their way", &data));
        t->places[t->n_places].data = data;
    }
    return WEFT_OK;
}

static weft_status wait_place(weft_tied *t, tied_place *p)
{
    if (!p->is_sending)
        return WEFT_OK;
    p->is_sending = false;
    return t->comm->ops->wait(t->comm, &p->sent);
}

weft_status weft_i_tied_send(weft_tied *t, const weft_chunk *c)
{
    if (t == NULL || c != t->chunk || t->is_first || !c->data->layout->is_reproducible)
        return WEFT_OK;
    tied_place *p = &t->places[t->next];
    const int64_t n = t->bucket->segment->n_elems;
    const weft_copy_args copy = {.dst = weft_view_make(p->data, WEFT_DTYPE_F32, 1, n),
                                 .src = weft_view_make(t->bucket->grad, WEFT_DTYPE_F32, 1, n)};
    t->next = (t->next + 1) % t->n_places;
    WEFT_TRY(wait_place(t, p)); /* the oldest of them */
    WEFT_TRY(weft_i_op_run(t->ctx->backend, WEFT_OP_COPY, &copy, NULL));
    weft_message m = message_of(t, WEFT_COMM_SEND, TAG_MICRO_BATCH, n);
    m.send = p->data;
    p->is_sending = true;
    return t->comm->ops->start(t->comm, &m, &p->sent);
}

/* mine = first stage's + last stage's */
static weft_status add(weft_tied *t)
{
    const weft_view mine = weft_view_make(t->mine, WEFT_DTYPE_F32, 1, t->n_elems);
    const weft_view other = weft_view_make(t->other, WEFT_DTYPE_F32, 1, t->n_elems);
    const weft_add_args args = {
        .dst = mine, .a = t->is_first ? mine : other, .b = t->is_first ? other : mine};
    return t->n_elems > 0 ? weft_i_op_run(t->ctx->backend, WEFT_OP_ADD, &args, NULL) : WEFT_OK;
}

weft_status weft_i_tied_exchange(weft_tied *t)
{
    weft_request sent, received;
    if (t == NULL)
        return WEFT_OK;
    for (int i = 0; i < t->n_places; i++)
        WEFT_TRY(wait_place(t, &t->places[i]));
    weft_message out = message_of(t, WEFT_COMM_SEND, TAG_EXCHANGE, t->n_elems);
    weft_message in = message_of(t, WEFT_COMM_RECV, TAG_EXCHANGE, t->n_elems);
    const bool is_one_way = t->chunk->data->layout->is_reproducible;
    out.send = t->mine;
    in.recv = is_one_way ? t->mine : t->other;
    if (is_one_way)
        return weft_comm_call(t->comm, t->is_first ? &out : &in);
    WEFT_TRY(t->comm->ops->start(t->comm, &out, &sent));
    WEFT_TRY(t->comm->ops->start(t->comm, &in, &received));
    WEFT_TRY(t->comm->ops->wait(t->comm, &received));
    WEFT_TRY(t->comm->ops->wait(t->comm, &sent));
    return add(t);
}
