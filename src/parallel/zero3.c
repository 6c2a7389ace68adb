/*
 * ZeRO stage 3: weights are cut over the dp ranks too. A layer's are gathered before it runs and dropped after it.
 *
 * Source: Rajbhandari et al., arXiv:1910.02054, sec. 5.3 (P_os+g+p).
 *
 * Communication (dp), a pass: 1 all_gather a segment of every layer that reads its parameters in it, in the model's type;
 * gradients as zero2.c. With --zero-prefetch the next layer's is started before the one at hand computes.
 * Invariants
 *  1. Gathered weights live in a ring of 1 + prefetch slots of the largest layer; nothing else is ever whole.
 *  2. Segments of a layer lie in a slot in flat order without gaps, so products over neighbours (q, k, v) see the same
 *     memory layout as on one rank.
 *  3. Which layers gather follows from the pass alone (weft_layer_ops.is_reading): the same on a rank without a
 *     micro-batch.
 * Leaves to others: gradients (bucket.c), the update of this rank's shard (optim/).
 */
#include "base/ctx.h"
#include "parallel/data_axis.h"

static int64_t n_slots_wanted(const weft_data_axis *a)
{
    return a->layout->has_prefetch ? 2 : 1;
}

/* ---- creation ---- */

static bool has_segment(const weft_gather_unit *u, int64_t segment)
{
    for (int64_t i = 0; i < u->n; i++) {
        if (u->segment[i] == segment)
            return true;
    }
    return false;
}

/* The segments of a layer's parameters in flat order. */
static weft_status make_unit(weft_data_axis *a, const weft_layer *l, weft_gather_unit *u)
{
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, l->n_params, sizeof(int64_t), &u->segment));
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, l->n_params, sizeof(int64_t), &u->at));
    for (int i = 0; i < l->n_params; i++) {
        const int64_t segment = a->shards.segment_of_param[l->params[i]->number];
        if (has_segment(u, segment))
            continue;
        int64_t k = u->n++;
        for (; k > 0 && u->segment[k - 1] > segment; k--)
            u->segment[k] = u->segment[k - 1];
        u->segment[k] = segment;
    }
    for (int64_t i = 0; i < u->n; i++) {
        u->at[i] = u->n_elems;
        u->n_elems += a->shards.segments[u->segment[i]].n_elems;
    }
    return WEFT_OK;
}

static weft_status make_slot(weft_data_axis *a, weft_gather_slot *slot)
{
    weft_backend *b = a->ctx->backend;
    const size_t size = weft_dtype_bytes(weft_model_dtype(a->model));
    void *p = NULL;
    slot->layer = -1;
    WEFT_TRY(
        weft_i_alloc_array(a->ctx->alloc, a->n_requests, sizeof(weft_request), &slot->requests));
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, (size_t)a->slot_elems * size,
                             "ring of gathered weights", &p));
    slot->data = p;
    return WEFT_OK;
}

weft_status weft_i_zero3_create(weft_data_axis *a)
{
    const int64_t n_layers = weft_model_layer_count(a->model);
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, n_layers, sizeof(*a->units), &a->units));
    for (int64_t i = 0; i < n_layers; i++) {
        WEFT_TRY(make_unit(a, weft_model_layer(a->model, i), &a->units[i]));
        a->slot_elems = WEFT_MAX(a->slot_elems, a->units[i].n_elems);
        a->n_requests = WEFT_MAX(a->n_requests, a->units[i].n);
    }
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, n_slots_wanted(a), sizeof(*a->slots), &a->slots));
    for (int64_t i = 0; i < n_slots_wanted(a); i++) {
        a->n_slots++;
        WEFT_TRY(make_slot(a, &a->slots[i]));
    }
    return WEFT_OK;
}

void weft_i_zero3_destroy(weft_data_axis *a)
{
    weft_backend *b = a->ctx->backend;
    for (int i = 0; i < a->n_slots; i++) {
        b->ops->mem_put(b, a->slots[i].data);
        weft_i_alloc_put(a->ctx->alloc, a->slots[i].requests);
    }
    for (int64_t i = 0; a->units != NULL && i < weft_model_layer_count(a->model); i++) {
        weft_i_alloc_put(a->ctx->alloc, a->units[i].segment);
        weft_i_alloc_put(a->ctx->alloc, a->units[i].at);
    }
    weft_i_alloc_put(a->ctx->alloc, a->slots);
    weft_i_alloc_put(a->ctx->alloc, a->units);
}

/* ---- gathering ---- */

static weft_gather_slot *slot_of(weft_data_axis *a, int64_t layer)
{
    for (int i = 0; i < a->n_slots; i++) {
        if (a->slots[i].layer == layer)
            return &a->slots[i];
    }
    return NULL;
}

static weft_status start_gather(weft_data_axis *a, weft_gather_slot *slot, int64_t layer)
{
    const weft_gather_unit *u = &a->units[layer];
    const weft_dtype dtype = weft_model_dtype(a->model);
    const int64_t size = (int64_t)weft_dtype_bytes(dtype);
    slot->layer = layer;
    slot->is_in_flight = true;
    for (int64_t i = 0; i < u->n; i++) {
        const weft_segment *s = &a->shards.segments[u->segment[i]];
        const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                                .dtype = dtype,
                                .send = (const char *)a->values + s->value_shard_first * size,
                                .recv = slot->data + u->at[i] * size,
                                .n_elems = s->n_elems,
                                .counts = s->counts,
                                .tensor = weft_i_segment_name(a, s)};
        WEFT_TRY(a->comm->ops->start(a->comm, &m, &slot->requests[i]));
    }
    return WEFT_OK;
}

/* Waits for the layer's weights and points its parameters at them. */
static weft_status finish_gather(weft_data_axis *a, weft_gather_slot *slot, const weft_layer *l)
{
    const weft_gather_unit *u = &a->units[slot->layer];
    const int64_t size = (int64_t)weft_dtype_bytes(weft_model_dtype(a->model));
    for (int64_t i = 0; i < u->n && slot->is_in_flight; i++)
        WEFT_TRY(a->comm->ops->wait(a->comm, &slot->requests[i]));
    slot->is_in_flight = false;
    for (int k = 0; k < l->n_params; k++) {
        weft_param *p = l->params[k];
        const int64_t segment = a->shards.segment_of_param[p->number];
        for (int64_t i = 0; i < u->n; i++) {
            if (u->segment[i] != segment)
                continue;
            const int64_t at = u->at[i] + p->value_first - a->shards.segments[segment].value_first;
            p->value.data = slot->data + at * size;
        }
    }
    return WEFT_OK;
}

static bool is_read(const weft_data_axis *a, const weft_layer *l)
{
    return l->n_params > 0 && (l->ops->is_reading == NULL || l->ops->is_reading(l, a->exec));
}

/* The layer whose weights this pass reads next; -1. */
static int64_t next_layer(const weft_data_axis *a, int64_t layer, weft_pass pass)
{
    const int64_t way = pass == WEFT_PASS_FORWARD ? 1 : -1;
    for (int64_t i = layer + way; i >= 0 && i < weft_model_layer_count(a->model); i += way) {
        if (is_read(a, weft_model_layer(a->model, i)))
            return i;
    }
    return -1;
}

weft_status weft_i_zero3_layer_begin(weft_data_axis *a, const weft_layer *l, weft_pass pass)
{
    if (!is_read(a, l))
        return WEFT_OK;
    weft_gather_slot *slot = slot_of(a, l->number);
    if (slot == NULL) {
        slot = slot_of(a, -1);
        WEFT_TRY(start_gather(a, slot, l->number));
    }
    WEFT_TRY(finish_gather(a, slot, l));
    const int64_t next = a->layout->has_prefetch ? next_layer(a, l->number, pass) : -1;
    weft_gather_slot *free_slot = slot_of(a, -1);
    if (next < 0 || free_slot == NULL || slot_of(a, next) != NULL)
        return WEFT_OK;
    return start_gather(a, free_slot, next);
}

weft_status weft_i_zero3_layer_end(weft_data_axis *a, const weft_layer *l, weft_pass pass)
{
    weft_gather_slot *slot = slot_of(a, l->number);
    (void)pass;
    if (slot == NULL || slot->is_in_flight)
        return WEFT_OK;
    slot->layer = -1;
    for (int k = 0; k < l->n_params; k++)
        l->params[k]->value.data = NULL;
    return WEFT_OK;
}

const weft_data_method weft_i_zero3_method = {.is_state_shard = true,
                                              .is_grad_shard = true,
                                              .is_value_shard = true,
                                              .reduce = weft_i_bucket_reduce_onto_own};
