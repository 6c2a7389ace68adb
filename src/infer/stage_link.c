/*
 * Messages of generation over the stages of a pipeline (contract: stage_link.h).
 *
 * A turn's word starts at the first stage and goes from stage to stage, each passing it on before it works; with it go the
 * ids that the last stage chose for the same sequences, which it had sent to the first stage alone. So all stages decide alike
 * and no stage waits for more than its neighbour.
 *
 * Communication (pp), a turn: a SEND and RECV of 1 + n_ids I32 an edge; of the stream, [rows, hidden] of the model's type, an
 * edge; of the chosen ids, from the last stage to the first. (dp, tp) of the first stage: 1 all_reduce of 1 I64 each.
 * Invariants
 *  1. Both ends have a kind's messages in the order of turns and count them; kind and number make the tag, so one that is
 *     lost is waited for, and the next is not taken for it.
 *  2. A buffer is used again only when what was sent from it has come. That waits for a turn that began earlier, so stages
 *     cannot wait for each other in a circle.
 */
#include "infer/stage_link.h"

#include "backend/run_op.h"
#include "base/ctx.h"
#include "parallel/ranks.h"

#include <string.h>

#define TAGS ((int64_t)1 << 28) /* messages of a kind until numbers come again */

/* ---- memory ---- */

size_t weft_i_stage_link_place_bytes(const weft_mesh *mesh,
                                     int64_t n_rows,
                                     int64_t n_cols,
                                     weft_dtype dtype)
{
    if (mesh->coord[WEFT_AXIS_PP] == mesh->size[WEFT_AXIS_PP] - 1)
        return 0;
    return (size_t)(n_rows * n_cols) * weft_dtype_bytes(dtype);
}

static weft_status take_host(weft_stage_link *l)
{
    weft_alloc *a = l->ctx->alloc;
    const int64_t n = l->n_flights;

    WEFT_TRY(weft_i_alloc_array(a, n * (1 + l->n_ids), sizeof(int32_t), &l->words));
    WEFT_TRY(weft_i_alloc_array(a, n * (1 + l->n_ids), sizeof(int32_t), &l->answers));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(weft_request), &l->word_sent));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(weft_request), &l->answer_sent));
    WEFT_TRY(weft_i_alloc_array(a, n, sizeof(bool), &l->is_word_sent));
    return weft_i_alloc_array(a, n, sizeof(bool), &l->is_answer_sent);
}

weft_status weft_i_stage_link_init(weft_stage_link *out,
                                   weft_mesh *mesh,
                                   const weft_model *part,
                                   int n_flights,
                                   int64_t n_ids,
                                   int64_t n_rows)
{
    weft_stage_link l = {.ctx = mesh->ctx,
                         .mesh = mesh,
                         .comm = mesh->comm[WEFT_AXIS_PP],
                         .dtype = weft_model_dtype(part),
                         .n_cols = weft_model_config(part)->hidden_size,
                         .n_ids = n_ids,
                         .n_flights = n_flights};
    const size_t n_bytes = weft_i_stage_link_place_bytes(mesh, n_rows, l.n_cols, l.dtype);
    weft_backend *b = mesh->ctx->backend;
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY_GOTO(st, take_host(&l), out);
    for (int i = 0; i < WEFT_STAGE_LINK_PLACES && n_bytes > 0; i++)
        WEFT_TRY_GOTO(st,
                      b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, n_bytes,
                                      "activations to the next stage", &l.place[i]),
                      out);
out:
    if (st == WEFT_OK)
        *out = l;
    else
        weft_i_stage_link_fini(&l);
    return st;
}

void weft_i_stage_link_fini(weft_stage_link *l)
{
    if (l->ctx == NULL)
        return;
    weft_alloc *a = l->ctx->alloc;
    void *const block[] = {l->words,       l->answers,      l->word_sent,
                           l->answer_sent, l->is_word_sent, l->is_answer_sent};
    for (int i = 0; i < WEFT_STAGE_LINK_PLACES; i++)
        l->ctx->backend->ops->mem_put(l->ctx->backend, l->place[i]);
    for (size_t i = 0; i < WEFT_COUNT_OF(block); i++)
        weft_i_alloc_put(a, block[i]);
    memset(l, 0, sizeof(*l));
}

/* ---- messages ---- */

bool weft_i_stage_link_is_first(const weft_stage_link *l)
{
    return l->comm->rank == 0;
}

bool weft_i_stage_link_is_last(const weft_stage_link *l)
{
    return l->comm->rank == l->comm->size - 1;
}

/* The next message of its kind that is sent or received. */
static int next_tag(weft_stage_link *l, weft_comm_op op, weft_stage_message kind)
{
    int64_t *n = op == WEFT_COMM_SEND ? &l->n_sent[kind] : &l->n_received[kind];
    return (int)((*n)++ % TAGS) * WEFT_STAGE_MESSAGES + (int)kind;
}

static weft_message
host_message(weft_stage_link *l, weft_comm_op op, weft_stage_message kind, int peer, int64_t n)
{
    return (weft_message){.op = op,
                          .dtype = WEFT_DTYPE_I32,
                          .n_elems = n,
                          .peer = peer,
                          .tag = next_tag(l, op, kind),
                          .is_host = true,
                          .tensor = kind == WEFT_STAGE_WORD ? "word of a turn" : "chosen ids"};
}

static weft_status wait_sent(weft_stage_link *l, weft_request *request, bool *is_sent)
{
    if (!*is_sent)
        return WEFT_OK;
    *is_sent = false;
    return l->comm->ops->wait(l->comm, request);
}

weft_status weft_i_stage_link_agree(weft_stage_link *l, int64_t *word)
{
    WEFT_TRY(weft_i_mesh_largest(l->mesh, WEFT_AXIS_DP, word, "word of a turn"));
    return weft_i_mesh_largest(l->mesh, WEFT_AXIS_TP, word, "word of a turn");
}

weft_status weft_i_stage_link_word_of(weft_stage_link *l, int flight, int32_t **out)
{
    *out = l->words + flight * (1 + l->n_ids);
    return wait_sent(l, &l->word_sent[flight], &l->is_word_sent[flight]);
}

weft_status weft_i_stage_link_pass_word(weft_stage_link *l, int flight)
{
    int32_t *word = l->words + flight * (1 + l->n_ids);

    if (!weft_i_stage_link_is_first(l)) {
        weft_message in =
            host_message(l, WEFT_COMM_RECV, WEFT_STAGE_WORD, l->comm->rank - 1, 1 + l->n_ids);
        in.recv = word;
        WEFT_TRY(weft_comm_call(l->comm, &in));
    }
    if (weft_i_stage_link_is_last(l))
        return WEFT_OK;
    weft_message out =
        host_message(l, WEFT_COMM_SEND, WEFT_STAGE_WORD, l->comm->rank + 1, 1 + l->n_ids);
    out.send = word;
    WEFT_TRY(l->comm->ops->start(l->comm, &out, &l->word_sent[flight]));
    l->is_word_sent[flight] = true;
    return WEFT_OK;
}

weft_status weft_i_stage_link_answer_of(weft_stage_link *l, int flight, int32_t **out)
{
    *out = l->answers + flight * (1 + l->n_ids);
    return wait_sent(l, &l->answer_sent[flight], &l->is_answer_sent[flight]);
}

weft_status weft_i_stage_link_send_answer(weft_stage_link *l, int flight, int64_t n)
{
    if (l->comm->size == 1)
        return WEFT_OK;
    weft_message m = host_message(l, WEFT_COMM_SEND, WEFT_STAGE_ANSWER, 0, n);
    m.send = l->answers + flight * (1 + l->n_ids);
    WEFT_TRY(l->comm->ops->start(l->comm, &m, &l->answer_sent[flight]));
    l->is_answer_sent[flight] = true;
    return WEFT_OK;
}

weft_status
weft_i_stage_link_receive_answer(weft_stage_link *l, int flight, int32_t *ids, int64_t n)
{
    if (l->comm->size == 1) {
        memcpy(ids, l->answers + flight * (1 + l->n_ids), (size_t)n * sizeof(int32_t));
        return WEFT_OK;
    }
    weft_message m = host_message(l, WEFT_COMM_RECV, WEFT_STAGE_ANSWER, l->comm->size - 1, n);
    m.recv = ids;
    return weft_comm_call(l->comm, &m);
}

static weft_message stream_message(weft_stage_link *l, weft_comm_op op, int peer, int64_t n_elems)
{
    return (weft_message){.op = op,
                          .dtype = l->dtype,
                          .n_elems = n_elems,
                          .peer = peer,
                          .tag = next_tag(l, op, WEFT_STAGE_OUTPUT),
                          .tensor = "activations"};
}

weft_status weft_i_stage_link_receive(weft_stage_link *l, const weft_run *run)
{
    if (weft_i_stage_link_is_first(l))
        return WEFT_OK;
    const weft_view x = weft_run_input(run, 0);
    weft_message m = stream_message(l, WEFT_COMM_RECV, l->comm->rank - 1, x.rows * x.cols);
    m.recv = x.data;
    return weft_comm_call(l->comm, &m);
}

weft_status weft_i_stage_link_send(weft_stage_link *l, const weft_run *run)
{
    const int at = (int)(l->n_sent[WEFT_STAGE_OUTPUT] % WEFT_STAGE_LINK_PLACES);

    if (weft_i_stage_link_is_last(l))
        return WEFT_OK;
    WEFT_TRY(wait_sent(l, &l->place_sent[at], &l->is_place_sent[at]));
    const weft_view y = weft_run_output(run, 0);
    const weft_copy_args copy = {.dst = weft_view_make(l->place[at], l->dtype, y.rows, y.cols),
                                 .src = y};
    WEFT_TRY(weft_i_op_run(l->ctx->backend, WEFT_OP_COPY, &copy, NULL));
    weft_message m = stream_message(l, WEFT_COMM_SEND, l->comm->rank + 1, y.rows * y.cols);
    m.send = l->place[at];
    WEFT_TRY(l->comm->ops->start(l->comm, &m, &l->place_sent[at]));
    l->is_place_sent[at] = true;
    return WEFT_OK;
}

weft_status weft_i_stage_link_finish(weft_stage_link *l)
{
    for (int i = 0; i < l->n_flights; i++) {
        WEFT_TRY(wait_sent(l, &l->word_sent[i], &l->is_word_sent[i]));
        WEFT_TRY(wait_sent(l, &l->answer_sent[i], &l->is_answer_sent[i]));
    }
    for (int i = 0; i < WEFT_STAGE_LINK_PLACES; i++)
        WEFT_TRY(wait_sent(l, &l->place_sent[i], &l->is_place_sent[i]));
    return WEFT_OK;
}
