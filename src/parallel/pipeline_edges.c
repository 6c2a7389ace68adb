/*
 * The edges of a pipeline on one rank (contract: pipeline_edges.h; what is sent when: pipeline.c).
 *
 * Communication (pp): starts SENDs and RECVs ahead of the actions that need them.
 * Invariants
 *  1. Both ends of an edge post in the order of micro-batches that their lists give; tags keep them apart.
 *  2. A slot is given away only when its output was received; a gradient's place only when it was sent.
 */
#include "parallel/pipeline_edges.h"

#include "base/compiler.h"

/* ---- who and what ---- */

static int64_t number_of(const weft_pipeline *p, int64_t micro_batch)
{
    return micro_batch * p->mesh->size[WEFT_AXIS_DP] + p->mesh->coord[WEFT_AXIS_DP];
}

weft_micro_batch weft_i_edges_part(const weft_pipeline *p, int64_t micro_batch)
{
    return weft_i_micro_batch_of(p->pass, number_of(p, micro_batch));
}

/* Of the micro-batch's stream on this rank. */
static int64_t rows_of(const weft_pipeline *p, int64_t micro_batch)
{
    const weft_tensor_axis *t = p->o.chunks[0].tensor;
    int64_t first = 0, n = weft_i_edges_part(p, micro_batch).n_seqs * p->pass->batch->n_tokens;
    if (t != NULL && t->is_sequence_parallel)
        weft_i_sequence_rows(t, n, &first, &n);
    return n;
}

bool weft_i_edges_is_idle(const weft_pipeline *p, int64_t micro_batch)
{
    return weft_i_edges_part(p, micro_batch).n_seqs == 0;
}

weft_message weft_i_edges_message(
    const weft_pipeline *p, weft_comm_op op, int64_t micro_batch, int chunk, int way)
{
    const int size = p->comm->size, me = p->comm->rank;
    const bool is_next = (op == WEFT_COMM_SEND) == (way == WEFT_TOWARDS_END);
    /* The receiver's chunk is in the tag: behind the last rank it is the next one, before the first the one before. */
    int receiver = chunk;
    if (op == WEFT_COMM_SEND && way == WEFT_TOWARDS_END && me == size - 1)
        receiver++;
    if (op == WEFT_COMM_SEND && way == WEFT_TOWARDS_BEGIN && me == 0)
        receiver--;
    return (weft_message){
        .op = op,
        .dtype = weft_model_dtype(p->o.chunks[0].model),
        .n_elems = rows_of(p, micro_batch) * p->o.n_cols,
        .peer = is_next ? (me + 1) % size : (me + size - 1) % size,
        .tag = (int)((micro_batch * p->o.n_chunks + receiver) * 2 + way),
        .tensor = way == WEFT_TOWARDS_END ? "activations" : "gradients of activations",
    };
}

/* The slot that holds micro-batch m in chunk c, or a free one for m = -1; -1: there is none. */
int weft_i_edges_slot(const weft_pipeline *p, int chunk, int64_t micro_batch)
{
    for (int i = 0; i < p->o.chunks[chunk].n_slots; i++) {
        if (p->flights[chunk * p->n_slots + i].micro_batch == micro_batch)
            return i;
    }
    return -1;
}

weft_flight *weft_i_edges_flight(const weft_pipeline *p, int chunk, int slot)
{
    return &p->flights[chunk * p->n_slots + slot];
}

/* ---- messages ---- */

static weft_status wait_sent(weft_pipeline *p, weft_flight *f)
{
    if (!f->is_sending)
        return WEFT_OK;
    f->is_sending = false;
    return p->comm->ops->wait(p->comm, &f->sent);
}

/* A slot for the forward, and its input on the way. False in *is_done where no slot is free yet. */
static weft_status post_forward(weft_pipeline *p, const weft_action *a, bool *is_done)
{
    const weft_chunk *c = &p->o.chunks[a->chunk];
    *is_done = true;
    if (weft_i_edges_slot(p, a->chunk, a->micro_batch) >= 0)
        return WEFT_OK;
    const int slot = weft_i_edges_slot(p, a->chunk, -1);
    *is_done = slot >= 0;
    if (slot < 0)
        return WEFT_OK;
    weft_flight *f = weft_i_edges_flight(p, a->chunk, slot);
    WEFT_TRY(wait_sent(p, f)); /* what left it before */
    f->micro_batch = a->micro_batch;
    if (c->is_first || weft_i_edges_is_idle(p, a->micro_batch))
        return WEFT_OK;
    weft_message m =
        weft_i_edges_message(p, WEFT_COMM_RECV, a->micro_batch, a->chunk, WEFT_TOWARDS_END);
    m.recv = weft_run_input(c->run, slot).data;
    f->is_receiving = true;
    return p->comm->ops->start(p->comm, &m, &f->received);
}

weft_place *weft_i_edges_place(weft_place *ring, int64_t micro_batch, int chunk)
{
    for (int i = 0; i < WEFT_PIPELINE_RING; i++) {
        if (ring[i].is_taken && ring[i].micro_batch == micro_batch && ring[i].chunk == chunk)
            return &ring[i];
    }
    return NULL;
}

static weft_place *free_place(weft_place *ring)
{
    for (int i = 0; i < WEFT_PIPELINE_RING; i++) {
        if (!ring[i].is_taken)
            return &ring[i];
    }
    return NULL;
}

/* The gradient of the output on the way. */
static weft_status post_backward(weft_pipeline *p, const weft_action *a, bool *is_done)
{
    *is_done = true;
    if (p->o.chunks[a->chunk].is_last || weft_i_edges_is_idle(p, a->micro_batch) ||
        weft_i_edges_place(p->in, a->micro_batch, a->chunk) != NULL)
        return WEFT_OK;
    weft_place *at = free_place(p->in);
    *is_done = at != NULL;
    if (at == NULL)
        return WEFT_OK;
    weft_message m =
        weft_i_edges_message(p, WEFT_COMM_RECV, a->micro_batch, a->chunk, WEFT_TOWARDS_BEGIN);
    m.recv = at->data;
    at->micro_batch = a->micro_batch;
    at->chunk = a->chunk;
    at->is_taken = true;
    return p->comm->ops->start(p->comm, &m, &at->request);
}

/* Posts the messages of the actions from number i on, as far as there is room. */
weft_status weft_i_edges_post(weft_pipeline *p, int64_t i)
{
    for (int64_t k = i; k < WEFT_MIN(i + 1 + WEFT_PIPELINE_AHEAD, p->list.n); k++) {
        const weft_action *a = &p->list.action[k];
        bool is_done = true;
        if (a->kind == WEFT_ACTION_FORWARD)
            WEFT_TRY(post_forward(p, a, &is_done));
        else if (a->kind != WEFT_ACTION_WEIGHT)
            WEFT_TRY(post_backward(p, a, &is_done));
        if (!is_done)
            break; /* later ones wait too: both ends post in the order of the lists */
    }
    return WEFT_OK;
}

/* A place for the gradient of the input: a free one, else the one that was sent first. */
weft_status weft_i_edges_place_out(weft_pipeline *p, weft_place **out)
{
    *out = free_place(p->out);
    if (*out != NULL)
        return WEFT_OK;
    weft_place *first = &p->out[0];
    for (int i = 1; i < WEFT_PIPELINE_RING; i++) {
        if (p->out[i].request.sequence < first->request.sequence)
            first = &p->out[i];
    }
    first->is_taken = false;
    *out = first;
    return p->comm->ops->wait(p->comm, &first->request);
}

/* Everything that was sent has been received. */
weft_status weft_i_edges_wait(weft_pipeline *p)
{
    for (int i = 0; i < p->o.n_chunks * p->n_slots; i++)
        WEFT_TRY(wait_sent(p, &p->flights[i]));
    for (int i = 0; i < WEFT_PIPELINE_RING; i++) {
        if (!p->out[i].is_taken)
            continue;
        p->out[i].is_taken = false;
        WEFT_TRY(p->comm->ops->wait(p->comm, &p->out[i].request));
    }
    return WEFT_OK;
}
