/*
 * Buckets: the gradients of a segment from the first write to the sum over ranks. Shared by data_parallel.c, ddp.c and
 * zero1.c to zero3.c.
 *
 * Two ways, chosen once:
 *   by step         gradients of all micro-batches add up in the flat gradients; the last one's backward starts the
 *                   reductions (DataParallel, DDP, ZeRO-1).
 *   by micro-batch  each micro-batch's gradient is made in a slot of a ring and reduced onto `own`, this rank's part
 *                   of the sum (ZeRO-2, ZeRO-3, everything with --reproducible). The reduction starts from `own`, so n
 *                   ranks add in the order of micro-batches: ((g0 + g1) + g2) + ..., whatever n is.
 *
 * Communication (dp): one reduction a bucket and step, or a bucket and micro-batch; from the last layer to the first, the same
 * order on every rank. Where a pipeline splits backward, a bucket belongs to the part that completes it.
 * Invariants
 *  1. Buckets are issued in one fixed order, never in that of readiness.
 *  2. A rank without a micro-batch contributes negative zeros: x + (-0) is x, bit for bit.
 *  3. Padding behind a parameter is zero whenever a bucket is reduced.
 *  4. The ring has a slot for every bucket that one layer's backward can have open, and one more to reduce from while the
 *     next one fills (overlap). Parameters of several layers have a place of their own, open all through backward.
 */
#include "backend/run_op.h"
#include "base/ctx.h"
#include "parallel/data_axis.h"

const char *weft_i_segment_name(const weft_data_axis *a, const weft_segment *s)
{
    return weft_model_param(a->model, s->first_param)->name;
}

/* ---- the order, the ring ---- */

/* a is complete before b: backward runs layers from last to first, and a bucket ends with its lowest layer. */
static bool is_before(const weft_segment *a, const weft_segment *b)
{
    if (a->first_layer != b->first_layer)
        return a->first_layer > b->first_layer;
    return a->value_first > b->value_first;
}

static void sort_buckets(weft_bucket *b, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const weft_bucket moved = b[i];
        int64_t k = i;
        for (; k > 0 && is_before(moved.segment, b[k - 1].segment); k--)
            b[k] = b[k - 1];
        b[k] = moved;
    }
}

/* INPUT when that part of a split backward makes every gradient of the segment, else WEIGHT, which comes later. */
static unsigned part_of(const weft_data_axis *a, const weft_segment *s)
{
    const int64_t step = s->is_shared ? WEFT_MAX(s->last_layer - s->first_layer, 1) : 1; /* ends */
    for (int64_t l = s->first_layer; l <= s->last_layer; l += step) {
        const weft_layer *layer = weft_model_layer(a->model, l);
        if (layer != NULL && !layer->ops->has_weights_with_input)
            return WEFT_BACKWARD_WEIGHT;
    }
    return WEFT_BACKWARD_INPUT;
}

/* Buckets that a layer's backward can have open at once, at most. */
static int most_open(const weft_data_axis *a)
{
    int most = 0;
    for (int64_t l = 0; l < weft_model_layer_count(a->model); l++) {
        int n = 0;
        for (int64_t i = 0; i < a->n_buckets; i++) {
            const weft_segment *s = a->buckets[i].segment;
            n += !s->is_shared && s->first_layer <= l && l <= s->last_layer ? 1 : 0;
        }
        most = WEFT_MAX(most, n);
    }
    return most;
}

static weft_status get_buffer(weft_data_axis *a, int64_t n_elems, const char *what, float **out)
{
    weft_backend *b = a->ctx->backend;
    void *p = NULL;
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, (size_t)n_elems * sizeof(float), what, &p));
    *out = p;
    return WEFT_OK;
}

static weft_status create_ring(weft_data_axis *a)
{
    for (int64_t i = 0; i < a->n_buckets; i++) {
        weft_bucket *b = &a->buckets[i];
        if (b->segment->is_shared)
            WEFT_TRY(
                get_buffer(a, b->segment->n_elems, "gradient of a shared parameter", &b->grad));
        else
            a->ring_elems = WEFT_MAX(a->ring_elems, b->segment->n_elems);
    }
    const int n = most_open(a) + (a->layout->is_overlapped ? 1 : 0);
    if (a->ring_elems == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_alloc_array(a->ctx->alloc, n, sizeof(*a->ring), &a->ring));
    a->n_ring = n;
    for (int i = 0; i < n; i++)
        WEFT_TRY(get_buffer(a, a->ring_elems, "ring of gradients", &a->ring[i].data));
    return WEFT_OK;
}

weft_status weft_i_buckets_create(weft_data_axis *a)
{
    const weft_shards *s = &a->shards;
    weft_alloc *alloc = a->ctx->alloc;
    float *const grads = a->grads;
    WEFT_TRY(weft_i_alloc_array(alloc, s->n_segments, sizeof(weft_bucket), &a->buckets));
    WEFT_TRY(weft_i_alloc_array(alloc, s->n_segments, sizeof(int64_t), &a->bucket_of_segment));
    WEFT_TRY(
        weft_i_alloc_array(alloc, weft_model_param_count(a->model), sizeof(bool), &a->is_written));
    for (int64_t i = 0; i < s->n_segments; i++) {
        const weft_segment *segment = &s->segments[i];
        a->bucket_of_segment[i] = -1;
        if (segment->grad_first < 0)
            continue;
        weft_bucket *b = &a->buckets[a->n_buckets++];
        b->segment = segment;
        b->part = part_of(a, segment);
        b->slot = -1;
        if (segment->n_mine > 0)
            b->own = a->method->is_grad_shard ? grads + segment->grad_shard_first
                                              : grads + segment->grad_first + segment->mine_first;
        if (!a->is_by_micro_batch)
            b->grad = grads + segment->grad_first;
    }
    sort_buckets(a->buckets, a->n_buckets);
    for (int64_t i = 0; i < a->n_buckets; i++)
        a->bucket_of_segment[a->buckets[i].segment - s->segments] = i;
    return a->is_by_micro_batch ? create_ring(a) : WEFT_OK;
}

void weft_i_buckets_destroy(weft_data_axis *a)
{
    weft_backend *b = a->ctx->backend;
    for (int i = 0; i < a->n_ring; i++)
        b->ops->mem_put(b, a->ring[i].data);
    for (int64_t i = 0; i < a->n_buckets && a->is_by_micro_batch; i++) {
        if (a->buckets[i].segment->is_shared)
            b->ops->mem_put(b, a->buckets[i].grad);
    }
    weft_i_alloc_put(a->ctx->alloc, a->ring);
    weft_i_alloc_put(a->ctx->alloc, a->is_written);
    weft_i_alloc_put(a->ctx->alloc, a->bucket_of_segment);
    weft_i_alloc_put(a->ctx->alloc, a->buckets);
}

/* ---- a bucket's life ---- */

static weft_status wait_for(weft_data_axis *a, weft_bucket *b)
{
    if (b->is_in_flight) {
        b->is_in_flight = false;
        WEFT_TRY(a->comm->ops->wait(a->comm, &b->request));
    }
    if (b->slot >= 0) {
        a->ring[b->slot].bucket = NULL;
        b->slot = -1;
        b->grad = NULL;
    }
    return WEFT_OK;
}

static weft_status fill(weft_data_axis *a, float *at, int64_t n, float value)
{
    const weft_fill_args args = {.x = weft_view_make(at, WEFT_DTYPE_F32, 1, n), .value = value};
    return n > 0 ? weft_i_op_run(a->ctx->backend, WEFT_OP_FILL, &args, NULL) : WEFT_OK;
}

/* Where parameter p's gradient lies in its bucket's. */
static float *place_of(const weft_bucket *b, const weft_param *p)
{
    return b->grad + (p->grad_first - b->segment->grad_first);
}

/* Zeros behind every parameter: the slot held another bucket before. */
static weft_status clear_padding(weft_data_axis *a, weft_bucket *b)
{
    const weft_segment *s = b->segment;
    for (int64_t i = s->first_param; i < s->first_param + s->n_params; i++) {
        const weft_param *p = weft_model_param(a->model, i);
        const int64_t n = p->rows * p->cols;
        const int64_t over = n % WEFT_PARAM_ALIGN_ELEMS;
        if (over != 0)
            WEFT_TRY(fill(a, place_of(b, p) + n, WEFT_PARAM_ALIGN_ELEMS - over, 0.0f));
    }
    return WEFT_OK;
}

/* Gives the bucket a slot of the ring: a free one, else the one whose reduction was issued first. */
static weft_status open_bucket(weft_data_axis *a, weft_bucket *b)
{
    int slot = -1;
    for (int i = 0; i < a->n_ring && slot < 0; i++)
        slot = a->ring[i].bucket == NULL ? i : -1;
    for (int64_t i = 0; i < a->n_buckets && slot < 0; i++) {
        if (a->buckets[i].is_in_flight && a->buckets[i].slot >= 0) {
            slot = a->buckets[i].slot;
            WEFT_TRY(wait_for(a, &a->buckets[i]));
        }
    }
    if (slot < 0)
        WEFT_FAIL(WEFT_STATUS_INTERNAL,
                  "the ring of %d gradient slots has none for %s: parameters of a layer must be "
                  "added one after another",
                  a->n_ring, weft_i_segment_name(a, b->segment));
    a->ring[slot].bucket = b;
    b->slot = slot;
    b->grad = a->ring[slot].data;
    return clear_padding(a, b);
}

static weft_bucket *bucket_of(weft_data_axis *a, const weft_param *p)
{
    return &a->buckets[a->bucket_of_segment[a->shards.segment_of_param[p->number]]];
}

weft_status weft_i_bucket_grad_need(void *axis, weft_param *p, weft_grad_target *target)
{
    weft_data_axis *a = axis;
    if (!a->is_by_micro_batch)
        return WEFT_OK;
    weft_bucket *b = bucket_of(a, p);
    if (b->is_in_flight) /* the micro-batch before is still being reduced */
        WEFT_TRY(wait_for(a, b));
    if (b->grad == NULL)
        WEFT_TRY(open_bucket(a, b));
    target->view = weft_view_make(place_of(b, p), WEFT_DTYPE_F32, p->rows, p->cols);
    target->is_added = a->is_written[p->number];
    a->is_written[p->number] = true;
    return WEFT_OK;
}

weft_status weft_i_bucket_grad_ready(void *axis, weft_param *p)
{
    weft_data_axis *a = axis;
    if (a->is_reducing)
        bucket_of(a, p)->n_ready++;
    return WEFT_OK;
}

/* ---- reductions ---- */

weft_status weft_i_bucket_reduce_onto_own(weft_data_axis *a, weft_bucket *b)
{
    const weft_segment *s = b->segment;
    const weft_message m = {.op = WEFT_COMM_REDUCE_SCATTER,
                            .dtype = WEFT_DTYPE_F32,
                            .send = b->grad,
                            .recv = b->own,
                            .n_elems = s->n_elems,
                            .counts = s->counts,
                            .is_added = b->has_sum,
                            .tensor = weft_i_segment_name(a, s)};
    b->has_sum = true;
    return a->comm->ops->start(a->comm, &m, &b->request);
}

static weft_status issue(weft_data_axis *a, weft_bucket *b)
{
    b->is_issued = true;
    if (b->is_guest || (!a->is_by_micro_batch && a->comm->size == 1))
        return WEFT_OK; /* the flat gradients are the sum */
    WEFT_TRY(a->method->reduce(a, b));
    b->is_in_flight = true;
    return a->layout->is_overlapped ? WEFT_OK : wait_for(a, b);
}

/* Whether the action at hand completes the bucket. */
static bool is_due(const weft_data_axis *a, const weft_bucket *b)
{
    return !b->is_issued && (b->part & a->parts) != 0;
}

weft_status weft_i_buckets_issue(weft_data_axis *a)
{
    for (int64_t i = 0; i < a->n_buckets; i++) {
        weft_bucket *b = &a->buckets[i];
        if (!is_due(a, b))
            continue;
        if (b->n_ready < b->segment->n_params)
            break;
        WEFT_TRY(issue(a, b));
    }
    return WEFT_OK;
}

/* A parameter without a gradient counts as zeros (invariant 2: the zeros that change no bit). */
static weft_status complete(weft_data_axis *a, weft_bucket *b)
{
    const weft_segment *s = b->segment;
    const float zero = a->is_by_micro_batch || a->comm->size > 1 ? -0.0f : 0.0f;
    for (int64_t i = s->first_param; i < s->first_param + s->n_params; i++) {
        weft_param *p = weft_model_param(a->model, i);
        weft_grad_target t = {weft_view_none(), false};
        if (a->is_by_micro_batch ? a->is_written[i] : p->has_grad)
            continue;
        if (a->is_by_micro_batch)
            WEFT_TRY(weft_i_bucket_grad_need(a, p, &t));
        WEFT_TRY(fill(a, place_of(b, p), p->rows * p->cols, zero));
        p->has_grad = true;
    }
    b->n_ready = s->n_params;
    return WEFT_OK;
}

/* ---- steps and micro-batches ---- */

static void reset(weft_data_axis *a, weft_bucket *b)
{
    const weft_segment *s = b->segment;
    b->n_ready = 0;
    b->is_issued = false;
    for (int64_t i = s->first_param; i < s->first_param + s->n_params; i++)
        a->is_written[i] = false;
}

void weft_i_buckets_begin_step(weft_data_axis *a)
{
    for (int64_t i = 0; i < a->n_buckets; i++) {
        a->buckets[i].has_sum = false;
        reset(a, &a->buckets[i]);
    }
}

void weft_i_buckets_begin_action(weft_data_axis *a, unsigned parts, bool is_last)
{
    a->parts = parts;
    a->is_reducing = is_last || a->is_by_micro_batch;
    for (int64_t i = 0; i < a->n_buckets && a->is_by_micro_batch; i++) {
        if ((a->buckets[i].part & parts) != 0)
            reset(a, &a->buckets[i]);
    }
}

weft_status weft_i_buckets_end_action(weft_data_axis *a)
{
    for (int64_t i = 0; i < a->n_buckets && a->is_reducing; i++) {
        weft_bucket *b = &a->buckets[i];
        if (!is_due(a, b))
            continue;
        WEFT_TRY(complete(a, b));
        WEFT_TRY(issue(a, b));
    }
    return WEFT_OK;
}

weft_status weft_i_buckets_end_step(weft_data_axis *a)
{
    for (int64_t i = 0; i < a->n_buckets; i++)
        WEFT_TRY(wait_for(a, &a->buckets[i]));
    return WEFT_OK;
}
