/*
 * Pipeline parallelism: runs any list of actions (schedule_*.c) over the chunks of this rank.
 *
 * Source: Huang et al. (GPipe), arXiv:1811.06965; Narayanan et al., arXiv:2104.04473; Qi et al., arXiv:2401.10241.
 *
 * A micro-batch in a chunk has a slot of that chunk's run from its first message to the end of its last backward action.
 * What comes in is received where the run reads it (the slot's input), or into a ring of gradients; what goes out is sent
 * from where the run left it. Messages of the next actions are posted before an action computes.
 *
 * Communication (pp): forward of stage g sends its output to stage g + 1, backward its input's gradient to stage g - 1:
 * [rows of the micro-batch, hidden] of the model's type. Tag: (micro-batch * chunks + chunk of the receiver) * 2 + direction.
 * Invariants
 *  1. Both ends of an edge post in the order of micro-batches that their lists give; tags keep them apart.
 *  2. A slot is given away only when its output was received; a gradient's place only when it was sent.
 *  3. A micro-batch that its dp rank does not have runs idle on every stage, without messages.
 *  4. Nothing is taken after the first step: lists are made once for a number of micro-batches.
 * Leaves to others: the order of actions (schedule_*.c), gradients over dp (data_axis.h), tied embeddings (tied.c), forward
 * alone (pipeline_forward.c).
 */
#include "parallel/pipeline_edges.h"

#include "base/ctx.h"
#include "parallel/schedule_sim.h"
#include "parallel/tied.h"

/* ---- creation ---- */

/* The most micro-batches of a chunk between their forward and their `last` action: slots it needs, where that is the end. */
static int slots_of(const weft_actions *list, int chunk, weft_action_kind last)
{
    int n = 0, most = 0;
    for (int64_t i = 0; i < list->n; i++) {
        if (list->action[i].chunk != chunk)
            continue;
        n += list->action[i].kind == WEFT_ACTION_FORWARD ? 1 : 0;
        most = WEFT_MAX(most, n);
        n -= list->action[i].kind == last ? 1 : 0;
    }
    return most;
}

static weft_action_kind last_of(bool is_split)
{
    return is_split ? WEFT_ACTION_WEIGHT : WEFT_ACTION_BACKWARD;
}

weft_status weft_i_pipeline_slots(int *n_slots,
                                  int *n_before_input,
                                  weft_alloc *alloc,
                                  const weft_schedule_shape *shape,
                                  int rank)
{
    weft_actions list;
    WEFT_TRY(weft_i_schedule_make(&list, alloc, shape, rank));
    const bool is_split = weft_i_schedule_is_split(shape->kind);
    for (int c = 0; c < shape->n_chunks; c++) {
        n_slots[c] = slots_of(&list, c, last_of(is_split));
        n_before_input[c] = slots_of(&list, c, is_split ? WEFT_ACTION_INPUT : WEFT_ACTION_BACKWARD);
    }
    weft_i_actions_fini(&list);
    return WEFT_OK;
}

static weft_status take_places(weft_pipeline *p)
{
    weft_backend *b = p->ctx->backend;
    const size_t n_bytes = (size_t)(p->o.n_rows * p->o.n_cols) *
                           weft_dtype_bytes(weft_model_dtype(p->o.chunks[0].model));
    for (int i = 0; i < WEFT_PIPELINE_RING; i++) {
        WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, n_bytes,
                                 "gradients from the next stage", &p->in[i].data));
        WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, n_bytes,
                                 "gradients to the stage before", &p->out[i].data));
    }
    return WEFT_OK;
}

weft_status weft_i_pipeline_create(weft_pipeline **out, const weft_pipeline_options *options)
{
    weft_alloc *alloc = options->mesh->ctx->alloc;
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, 1, sizeof(weft_pipeline), &block));
    weft_pipeline *p = block;
    p->ctx = options->mesh->ctx;
    p->mesh = options->mesh;
    p->comm = options->mesh->comm[WEFT_AXIS_PP];
    p->o = *options;
    const weft_status st = take_places(p);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_i_pipeline_destroy(p);
    return st;
}

void weft_i_pipeline_destroy(weft_pipeline *p)
{
    if (p == NULL)
        return;
    weft_backend *b = p->ctx->backend;
    for (int i = 0; i < WEFT_PIPELINE_RING; i++) {
        b->ops->mem_put(b, p->in[i].data);
        b->ops->mem_put(b, p->out[i].data);
    }
    weft_i_actions_fini(&p->list);
    weft_i_alloc_put(p->ctx->alloc, p->flights);
    weft_i_alloc_put(p->ctx->alloc, p);
}

/* The runs were made for a step of so many micro-batches; more in flight would find no slot. */
static weft_status check_slots(const weft_pipeline *p)
{
    for (int c = 0; c < p->o.n_chunks; c++) {
        const int n = slots_of(&p->list, c, last_of(weft_i_schedule_is_split(p->o.kind)));
        if (n > p->o.chunks[c].n_slots)
            WEFT_FAIL(
                WEFT_STATUS_INTERNAL,
                "the schedule has %d micro-batches of chunk %d in flight, its run has %d slots", n,
                c, p->o.chunks[c].n_slots);
    }
    return WEFT_OK;
}

/*
 * How many micro-batches of the head's chunk the last rank runs backward before the first stage can run one of them: all in
 * its list before the same micro-batch of its chunk 0, whose gradient the first stage waits for. At least the depth of the
 * pipeline, so that nobody waits in a steady state.
 */
static int count_ahead(const weft_pipeline *p)
{
    int n_head = 0, n_first = 0, most = p->comm->size;
    for (int64_t i = 0; i < p->list.n; i++) {
        const weft_action *a = &p->list.action[i];
        if (a->kind != WEFT_ACTION_BACKWARD && a->kind != WEFT_ACTION_INPUT)
            continue;
        n_head += a->chunk == p->o.n_chunks - 1 ? 1 : 0;
        n_first += a->chunk == 0 ? 1 : 0;
        most = WEFT_MAX(most, n_head - n_first + 1);
    }
    return WEFT_MIN(most, (int)p->n_listed);
}

/* Lists that would wait for each other end here, in the plan, with who waits for what. One stage looks at all of them. */
static weft_status check_order(const weft_pipeline *p, const weft_schedule_shape *shape)
{
    const weft_sim_times times = {.forward = 1.0, .backward = 1.0, .weight = 1.0};
    weft_sim sim;
    if (p->comm->rank != 0 || !weft_i_alloc_is_dry(p->ctx->alloc))
        return WEFT_OK;
    WEFT_TRY(weft_i_sim_run(&sim, p->ctx->alloc, shape, &times, 1));
    weft_i_sim_fini(&sim);
    return WEFT_OK;
}

weft_status weft_i_pipeline_prepare(weft_pipeline *p, int64_t m)
{
    const weft_schedule_shape shape = {p->o.kind, p->comm->size, (int)m,
                                       p->o.kind == WEFT_SCHEDULE_INTERLEAVED ? p->o.n_chunks : 1};
    if (p->n_listed == m)
        return WEFT_OK;
    weft_i_actions_fini(&p->list);
    weft_i_alloc_put(p->ctx->alloc, p->flights);
    p->flights = NULL;
    p->n_listed = 0;
    WEFT_TRY(check_order(p, &shape));
    WEFT_TRY(weft_i_schedule_make(&p->list, p->ctx->alloc, &shape, p->comm->rank));
    p->n_slots = 1;
    for (int c = 0; c < p->o.n_chunks; c++)
        p->n_slots = WEFT_MAX(p->n_slots, p->o.chunks[c].n_slots);
    WEFT_TRY(check_slots(p));
    WEFT_TRY(weft_i_alloc_array(p->ctx->alloc, (int64_t)p->o.n_chunks * p->n_slots,
                                sizeof(*p->flights), &p->flights));
    for (int i = 0; i < p->o.n_chunks * p->n_slots; i++)
        p->flights[i].micro_batch = -1;
    p->n_listed = m;
    return weft_i_tied_reserve(p->o.tied, count_ahead(p));
}

/* ---- actions ---- */

void weft_i_pipeline_set_exec(const weft_pipeline *p, weft_chunk *c)
{
    const weft_exec *from = weft_run_exec(p->o.chunks[0].run);
    weft_exec *e = weft_run_exec(c->run);
    e->is_training = from->is_training;
    e->is_loss_wanted = from->is_loss_wanted;
    e->dropout_key[0] = from->dropout_key[0];
    e->dropout_key[1] = from->dropout_key[1];
    e->loss_scale = from->loss_scale;
    e->logits = c->is_last ? p->pass->logits : weft_view_none();
    weft_i_chunk_bind(c, c->run);
}

/* What the last stage made of a micro-batch: logits by forward, losses by whoever computes them. */
weft_status weft_i_pipeline_deliver(
    weft_pipeline *p, const weft_chunk *c, int64_t micro_batch, weft_view logits, weft_view losses)
{
    weft_micro_batch mb = weft_i_edges_part(p, micro_batch);
    if (p->pass->done == NULL || !c->is_last || p->mesh->coord[WEFT_AXIS_TP] != 0 ||
        (logits.data == NULL && losses.data == NULL))
        return WEFT_OK;
    mb.logits = logits;
    mb.losses = losses;
    return p->pass->done(p->pass->user, &mb);
}

static weft_status run_forward(weft_pipeline *p, const weft_action *a)
{
    weft_chunk *c = &p->o.chunks[a->chunk];
    const int slot = weft_i_edges_slot(p, a->chunk, a->micro_batch);
    weft_flight *f = weft_i_edges_flight(p, a->chunk, slot);
    const weft_micro_batch mb = weft_i_edges_part(p, a->micro_batch);
    weft_i_pipeline_set_exec(p, c);
    if (mb.n_seqs == 0)
        return weft_run_idle(c->run, WEFT_PASS_FORWARD);
    if (f->is_receiving) {
        f->is_receiving = false;
        WEFT_TRY(p->comm->ops->wait(p->comm, &f->received));
    }
    weft_i_step_record_begin(&p->mesh->record);
    WEFT_TRY(weft_i_micro_batch_load(c->run, slot, p->pass, &mb));
    if (!c->is_last)
        weft_run_exec(c->run)->logits = weft_view_none();
    WEFT_TRY(weft_run_forward(c->run, slot));
    weft_i_step_record_end(&p->mesh->record, WEFT_STEP_FORWARD, mb.number, a->chunk);
    if (c->is_last)
        return weft_i_pipeline_deliver(p, c, a->micro_batch, weft_run_exec(c->run)->logits,
                                       weft_view_none());
    weft_message m =
        weft_i_edges_message(p, WEFT_COMM_SEND, a->micro_batch, a->chunk, WEFT_TOWARDS_END);
    m.send = weft_run_output(c->run, slot).data;
    f->is_sending = true;
    return p->comm->ops->start(p->comm, &m, &f->sent);
}

static weft_status run_gradients(weft_pipeline *p, const weft_action *a, int slot, unsigned parts)
{
    _Static_assert((int)WEFT_STEP_WEIGHT == (int)WEFT_ACTION_WEIGHT,
                   "kinds of actions as they are recorded");
    weft_i_step_record_begin(&p->mesh->record);
    WEFT_TRY(weft_run_backward(p->o.chunks[a->chunk].run, slot, parts));
    weft_i_step_record_end(&p->mesh->record, (weft_step_kind)a->kind,
                           weft_i_edges_part(p, a->micro_batch).number, a->chunk);
    return WEFT_OK;
}

static weft_status
run_input_half(weft_pipeline *p, const weft_action *a, weft_chunk *c, int slot, unsigned parts)
{
    weft_place *in = weft_i_edges_place(p->in, a->micro_batch, a->chunk), *out = NULL;
    WEFT_TRY(weft_i_tied_receive(p->o.tied, c));
    weft_view dy = weft_view_none(), dx = weft_view_none();
    if (in != NULL) {
        WEFT_TRY(p->comm->ops->wait(p->comm, &in->request));
        dy.data = in->data;
    }
    if (!c->is_first) {
        WEFT_TRY(weft_i_edges_place_out(p, &out));
        dx.data = out->data;
    }
    weft_run_bind_gradients(c->run, dy, dx);
    WEFT_TRY(run_gradients(p, a, slot, parts));
    WEFT_TRY(weft_i_tied_send(p->o.tied, c));
    if (in != NULL)
        in->is_taken = false;
    WEFT_TRY(weft_i_pipeline_deliver(p, c, a->micro_batch, weft_view_none(),
                                     weft_run_losses(c->run, slot)));
    if (c->is_first)
        return WEFT_OK;
    weft_message m =
        weft_i_edges_message(p, WEFT_COMM_SEND, a->micro_batch, a->chunk, WEFT_TOWARDS_BEGIN);
    m.send = out->data;
    out->micro_batch = a->micro_batch;
    out->chunk = a->chunk;
    out->is_taken = true;
    return p->comm->ops->start(p->comm, &m, &out->request);
}

static unsigned parts_of(weft_action_kind kind)
{
    return kind == WEFT_ACTION_INPUT    ? WEFT_BACKWARD_INPUT
           : kind == WEFT_ACTION_WEIGHT ? WEFT_BACKWARD_WEIGHT
                                        : WEFT_BACKWARD_BOTH;
}

static weft_status run_backward(weft_pipeline *p, const weft_action *a)
{
    weft_chunk *c = &p->o.chunks[a->chunk];
    const unsigned parts = parts_of(a->kind);
    const int slot = weft_i_edges_slot(p, a->chunk, a->micro_batch);
    weft_i_pipeline_set_exec(p, c);
    weft_i_buckets_begin_action(c->data, parts, a->micro_batch == p->n_listed - 1);
    if (c->tensor != NULL)
        weft_i_tensor_begin_action(c->tensor, c->data->is_reducing);
    if (weft_i_edges_is_idle(p, a->micro_batch))
        WEFT_TRY(weft_run_idle_backward(c->run, parts));
    else if (parts == WEFT_BACKWARD_WEIGHT)
        WEFT_TRY(run_gradients(p, a, slot, parts));
    else
        WEFT_TRY(run_input_half(p, a, c, slot, parts));
    WEFT_TRY(weft_i_buckets_end_action(c->data));
    if ((parts & WEFT_BACKWARD_WEIGHT) != 0)
        weft_i_edges_flight(p, a->chunk, slot)->micro_batch = -1;
    return WEFT_OK;
}

weft_status weft_i_pipeline_train(weft_pipeline *p, const weft_parallel_pass *pass)
{
    p->pass = pass;
    WEFT_TRY(weft_i_pipeline_prepare(
        p, weft_i_mesh_rounds(p->mesh, pass->batch->n_seqs, pass->micro_batch)));
    for (int c = 0; c < p->o.n_chunks; c++) {
        weft_model_begin_step(p->o.chunks[c].model);
        weft_i_buckets_begin_step(p->o.chunks[c].data);
    }
    for (int64_t i = 0; i < p->list.n; i++) {
        const weft_action *a = &p->list.action[i];
        WEFT_TRY(weft_i_edges_post(p, i));
        WEFT_TRY(a->kind == WEFT_ACTION_FORWARD ? run_forward(p, a) : run_backward(p, a));
    }
    WEFT_TRY(weft_i_edges_wait(p));
    for (int c = 0; c < p->o.n_chunks; c++)
        WEFT_TRY(weft_i_buckets_end_step(p->o.chunks[c].data));
    WEFT_TRY(weft_i_tied_exchange(p->o.tied));
    for (int c = 0; c < p->o.n_chunks; c++) {
        weft_data_axis *data = p->o.chunks[c].data;
        if (data->method->end_step != NULL)
            WEFT_TRY(data->method->end_step(data));
    }
    return WEFT_OK;
}
