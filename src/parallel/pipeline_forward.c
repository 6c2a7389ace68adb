/*
 * Forward alone over a pipeline: evaluation and probing (contract: pipeline.h).
 *
 * Micro-batches go in groups of as many as there are stages: the group through the first chunk of every stage, then through the
 * second, and so on (with one chunk the groups do not matter). What comes in is received while the micro-batch before it
 * computes, what goes out is sent while the next one does: each from a place of its own, copied to and from where the run
 * reads and writes. The places are those of gradients in training.
 *
 * Communication (pp): [rows of the micro-batch, hidden] of the model's type a micro-batch and edge between chunks; tags as in
 * pipeline.c. Invariants
 *  1. All ranks have the same steps in the same order. Receiving is a step ahead, sending up to two behind, so no circle of
 *     ranks waits for each other: a group has as many micro-batches as ranks, and every rank can take in three before it
 *     sends one.
 *  2. A micro-batch that its dp rank does not have runs idle on every stage, without messages.
 */
#include "parallel/pipeline_edges.h"

#include "base/compiler.h"

typedef struct forward_step {
    int chunk;
    int64_t micro_batch;
} forward_step;

/* Step k of m micro-batches through all chunks. */
static forward_step step_of(const weft_pipeline *p, int64_t m, int64_t k)
{
    const int64_t most = p->comm->size;
    const int64_t first = k / (most * p->o.n_chunks) * most;
    const int64_t n = WEFT_MIN(most, m - first), at = k - first * p->o.n_chunks;
    return (forward_step){(int)(at / n), first + at % n};
}

/* The input of step k on its way. */
static weft_status post(weft_pipeline *p, int64_t m, int64_t k)
{
    weft_place *in = &p->in[k % WEFT_PIPELINE_RING];
    if (k >= m * p->o.n_chunks)
        return WEFT_OK;
    const forward_step s = step_of(p, m, k);
    if (p->o.chunks[s.chunk].is_first || weft_i_edges_is_idle(p, s.micro_batch))
        return WEFT_OK;
    weft_message message =
        weft_i_edges_message(p, WEFT_COMM_RECV, s.micro_batch, s.chunk, WEFT_TOWARDS_END);
    message.recv = in->data;
    in->is_taken = true;
    return p->comm->ops->start(p->comm, &message, &in->request);
}

static weft_status wait_for(weft_pipeline *p, weft_place *place)
{
    if (!place->is_taken)
        return WEFT_OK;
    place->is_taken = false;
    return p->comm->ops->wait(p->comm, &place->request);
}

static weft_status take_input(weft_pipeline *p, weft_chunk *c, weft_place *in)
{
    if (c->is_first)
        return WEFT_OK;
    const weft_view x = weft_run_input(c->run, 0);
    const weft_copy_args copy = {.dst = x,
                                 .src = weft_view_make(in->data, x.dtype, x.rows, x.cols)};
    WEFT_TRY(wait_for(p, in));
    return weft_exec_op(weft_run_exec(c->run), WEFT_OP_COPY, &copy);
}

static weft_status send_output(weft_pipeline *p, const forward_step *s, weft_place *out)
{
    const weft_chunk *c = &p->o.chunks[s->chunk];
    const weft_view y = weft_run_output(c->run, 0);
    const weft_copy_args copy = {.dst = weft_view_make(out->data, y.dtype, y.rows, y.cols),
                                 .src = y};
    WEFT_TRY(wait_for(p, out));
    WEFT_TRY(weft_exec_op(weft_run_exec(c->run), WEFT_OP_COPY, &copy));
    weft_message message =
        weft_i_edges_message(p, WEFT_COMM_SEND, s->micro_batch, s->chunk, WEFT_TOWARDS_END);
    message.send = out->data;
    out->is_taken = true;
    return p->comm->ops->start(p->comm, &message, &out->request);
}

static weft_status run_step(weft_pipeline *p, int64_t m, int64_t k)
{
    const forward_step s = step_of(p, m, k);
    const weft_micro_batch mb = weft_i_edges_part(p, s.micro_batch);
    weft_chunk *c = &p->o.chunks[s.chunk];
    WEFT_TRY(post(p, m, k + 1));
    weft_i_pipeline_set_exec(p, c);
    if (mb.n_seqs == 0)
        return weft_run_idle(c->run, WEFT_PASS_FORWARD);
    WEFT_TRY(weft_i_micro_batch_load(c->run, 0, p->pass, &mb));
    if (!c->is_last)
        weft_run_exec(c->run)->logits = weft_view_none();
    WEFT_TRY(take_input(p, c, &p->in[k % WEFT_PIPELINE_RING]));
    WEFT_TRY(weft_run_forward_only(c->run, NULL));
    if (!c->is_last)
        return send_output(p, &s, &p->out[k % WEFT_PIPELINE_RING]);
    const weft_exec *e = weft_run_exec(c->run);
    return weft_i_pipeline_deliver(p, c, s.micro_batch, e->logits,
                                   e->is_loss_wanted ? weft_run_losses(c->run, 0)
                                                     : weft_view_none());
}

weft_status weft_i_pipeline_forward(weft_pipeline *p, const weft_parallel_pass *pass)
{
    const int64_t m = weft_i_mesh_rounds(p->mesh, pass->batch->n_seqs, pass->micro_batch);
    p->pass = pass;
    WEFT_TRY(post(p, m, 0));
    for (int64_t k = 0; k < m * p->o.n_chunks; k++)
        WEFT_TRY(run_step(p, m, k));
    for (int i = 0; i < WEFT_PIPELINE_RING; i++)
        WEFT_TRY(wait_for(p, &p->out[i]));
    return WEFT_OK;
}
