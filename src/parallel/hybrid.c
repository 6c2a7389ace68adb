/*
 * Composes the methods a layout asks for, in a fixed order: which part of the model a rank has, memory, lists of parts, runs,
 * and the numbers that all ranks share (contract: parallel.h). passes.c runs it.
 *
 * Hooks of a chunk, outermost first: the data axis (so that gathering comes before a layer's own time and a reduction after
 * it), the tensor axis (whose partial gradients are summed before the data axis reduces them), the trace, pace.
 *
 * Communication: of the methods; add_up, from_rank0 and largest as their comments say.
 * Invariant: sums over ranks are exact; what several ranks of a tensor group have alike, or a stage copies, counts once.
 */
#include "parallel/hybrid.h"

#include "base/ctx.h"
#include "nn/models/slice.h"
#include "parallel/pace.h"
#include "parallel/ranks.h"
#include "parallel/stage_cut.h"
#include "parallel/trace_hooks.h"

#include <string.h>

#define SUM_ELEMS (WEFT_SUM_BINS + 1)
#define MAX_SUMS 2
#define MAX_COUNTS 4

/* ---- creation: chunks ---- */

weft_status weft_i_parallel_model(weft_model **out,
                                  const weft_mesh *mesh,
                                  const weft_config *config,
                                  weft_dtype dtype)
{
    const weft_model_slice slice =
        weft_i_tensor_slice(config, &mesh->layout, mesh->coord[WEFT_AXIS_TP]);
    return weft_i_model_from_slice(out, mesh->ctx, config, dtype, &slice);
}

static weft_status make_hooks(weft_parallel *p)
{
    const weft_pace *const pace = p->mesh->layout.pace;
    if (p->mesh->trace != NULL)
        WEFT_TRY(weft_i_trace_hooks_create(&p->trace, p->ctx, p->mesh->trace, pace != NULL));
    if (pace != NULL && !weft_i_alloc_is_dry(p->ctx->alloc))
        WEFT_TRY(weft_i_pace_hooks_create(&p->pace, p->ctx, pace));
    for (int i = 0; i < p->n_chunks; i++) {
        weft_chunk *c = &p->chunks[i];
        c->hooks[c->n_hooks++] = &c->data->hooks;
        if (c->tensor != NULL)
            c->hooks[c->n_hooks++] = &c->tensor->hooks;
        c->trace = p->trace;
        c->pace = p->pace;
        if (p->trace != NULL)
            c->hooks[c->n_hooks++] = p->trace;
        if (p->pace != NULL)
            c->hooks[c->n_hooks++] = p->pace;
    }
    return WEFT_OK;
}

/* What was frozen in the whole is frozen in the part. */
static void copy_frozen(weft_model *part, weft_model *whole)
{
    for (int64_t i = 0; i < weft_model_param_count(part); i++) {
        weft_param *p = weft_model_param(part, i);
        const weft_param *same = weft_model_find_param(whole, p->name);
        p->is_frozen = same != NULL && same->is_frozen;
    }
}

static weft_status make_axes(weft_parallel *p, weft_chunk *c)
{
    WEFT_TRY(weft_i_data_axis_create(&c->data, p->mesh, c->model, p->is_training));
    if (p->mesh->size[WEFT_AXIS_TP] == 1 && p->mesh->layout.n_strips == 0)
        return WEFT_OK;
    return weft_i_tensor_axis_create(&c->tensor, p->mesh, c->model, p->is_training);
}

/* Items [cut->first[part], ...) of the caller's model as a model of its own. */
static weft_status make_chunk(weft_parallel *p, weft_chunk *c, const weft_stage_cut *cut, int part)
{
    weft_model_slice slice = *weft_i_model_slice(p->model);
    slice.first_item = cut->first[part];
    slice.n_items = cut->first[part + 1] - cut->first[part];
    c->is_first = part == 0;
    c->is_last = part == cut->n - 1;
    WEFT_TRY(weft_i_model_from_slice(&c->model, p->ctx, weft_model_config(p->model),
                                     weft_model_dtype(p->model), &slice));
    copy_frozen(c->model, p->model);
    weft_i_tied_mark(c, p->model);
    return make_axes(p, c);
}

static weft_status make_chunks(weft_parallel *p)
{
    const weft_layout *l = &p->mesh->layout;
    const int rank = p->mesh->coord[WEFT_AXIS_PP];
    weft_stage_cut cut;
    weft_status st = WEFT_OK;
    p->n_chunks = l->pp > 1 ? l->n_chunks : 1;
    WEFT_TRY(weft_i_alloc_array(p->ctx->alloc, p->n_chunks, sizeof(*p->chunks), &p->chunks));
    if (l->pp == 1) {
        weft_chunk *c = &p->chunks[0];
        c->model = p->model;
        c->is_first = c->is_last = true;
        return make_axes(p, c);
    }
    WEFT_TRY(weft_i_stage_cut_make(&cut, p->ctx->alloc, weft_model_config(p->model),
                                   WEFT_STAGE_CUT_TOKENS, l->pp * p->n_chunks, l->stage_layers));
    for (int i = 0; i < p->n_chunks && st == WEFT_OK; i++)
        st = make_chunk(p, &p->chunks[i], &cut, i * l->pp + rank);
    weft_i_stage_cut_fini(&cut);
    if (st == WEFT_OK && p->is_training)
        st = weft_i_tied_create(&p->tied, p->mesh, p->chunks, p->n_chunks);
    return st;
}

/* ---- creation: lists of all chunks ---- */

/* Numbers of parameters are those of the caller's model; states follow one another. */
static void add_parts(weft_parallel *p, weft_parts *to, const weft_parts *from, int64_t first_state)
{
    for (int64_t i = 0; i < from->n; i++) {
        weft_part *part = &to->part[to->n++];
        *part = from->part[i];
        part->number = weft_model_find_param(p->model, part->param->name)->number;
        part->state_first += part->state_first >= 0 ? first_state : 0;
    }
}

static weft_status join(weft_parallel *p)
{
    int64_t n[3] = {0};
    if (p->mesh->layout.pp == 1) {
        const weft_data_axis *a = p->chunks[0].data;
        p->values = a->value_parts;
        p->states = a->state_parts;
        p->owned = a->owned_parts;
        p->n_state_elems = a->n_state_elems;
        return WEFT_OK;
    }
    for (int i = 0; i < p->n_chunks; i++) {
        n[0] += p->chunks[i].data->value_parts.n;
        n[1] += p->chunks[i].data->state_parts.n;
        n[2] += p->chunks[i].data->owned_parts.n;
    }
    weft_alloc *alloc = p->ctx->alloc;
    WEFT_TRY(weft_i_alloc_array(alloc, WEFT_MAX(n[0], 1), sizeof(weft_part), &p->values.part));
    WEFT_TRY(weft_i_alloc_array(alloc, WEFT_MAX(n[1], 1), sizeof(weft_part), &p->states.part));
    WEFT_TRY(weft_i_alloc_array(alloc, WEFT_MAX(n[2], 1), sizeof(weft_part), &p->owned.part));
    for (int i = 0; i < p->n_chunks; i++) {
        const weft_data_axis *a = p->chunks[i].data;
        add_parts(p, &p->values, &a->value_parts, p->n_state_elems);
        add_parts(p, &p->states, &a->state_parts, p->n_state_elems);
        add_parts(p, &p->owned, &a->owned_parts, p->n_state_elems);
        p->n_state_elems += a->n_state_elems;
    }
    return WEFT_OK;
}

weft_status
weft_i_parallel_create(weft_parallel **out, weft_mesh *mesh, weft_model *model, bool is_training)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_parallel), &block));
    weft_parallel *p = block;
    p->ctx = mesh->ctx;
    p->mesh = mesh;
    p->model = model;
    p->is_training = is_training;
    weft_status st = make_chunks(p);
    if (st == WEFT_OK)
        st = join(p);
    if (st == WEFT_OK)
        st = make_hooks(p);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_i_parallel_destroy(p);
    return st;
}

void weft_i_parallel_destroy(weft_parallel *p)
{
    if (p == NULL)
        return;
    weft_alloc *alloc = p->ctx->alloc;
    const bool is_cut = p->mesh->layout.pp > 1;
    weft_i_pipeline_destroy(p->pipeline);
    weft_i_tied_destroy(p->tied);
    weft_i_pace_hooks_destroy(p->pace);
    weft_i_trace_hooks_destroy(p->trace);
    if (is_cut) {
        weft_i_alloc_put(alloc, p->values.part);
        weft_i_alloc_put(alloc, p->states.part);
        weft_i_alloc_put(alloc, p->owned.part);
    }
    for (int i = 0; i < p->n_chunks && p->chunks != NULL; i++) {
        weft_chunk *c = &p->chunks[i];
        if (i > 0)
            weft_run_destroy(c->run); /* the first is the caller's */
        weft_i_tensor_axis_destroy(c->tensor);
        weft_i_data_axis_destroy(c->data);
        if (is_cut)
            weft_model_destroy(c->model);
    }
    weft_i_alloc_put(alloc, p->chunks);
    weft_i_alloc_put(alloc, p);
}

/* ---- runs ---- */

/* Slots of every chunk's run for a step of so many micro-batches; at least one where backward is wanted. */
static weft_status count_slots(weft_parallel *p, int n_wanted, int64_t n_rounds)
{
    const weft_layout *l = &p->mesh->layout;
    int *n_slots = NULL; /* of every chunk, then those before the INPUT part of their backward */
    for (int i = 0; i < p->n_chunks; i++)
        p->chunks[i].n_slots = n_wanted;
    if (l->pp == 1 || n_wanted == 0)
        return WEFT_OK;
    const weft_schedule_shape shape = {l->schedule, l->pp, (int)WEFT_MAX(n_rounds, 1), p->n_chunks};
    WEFT_TRY(weft_i_alloc_array(p->ctx->alloc, (int64_t)2 * p->n_chunks, sizeof(int), &n_slots));
    const weft_status st = weft_i_pipeline_slots(n_slots, n_slots + p->n_chunks, p->ctx->alloc,
                                                 &shape, p->mesh->coord[WEFT_AXIS_PP]);
    for (int i = 0; i < p->n_chunks && st == WEFT_OK; i++) {
        p->chunks[i].n_slots = n_slots[i];
        p->chunks[i].n_before_input = n_slots[p->n_chunks + i];
    }
    weft_i_alloc_put(p->ctx->alloc, n_slots);
    return st;
}

static void chunk_options(weft_chunk *c, weft_run_options *options)
{
    options->hooks = c->hooks;
    options->n_hooks = c->n_hooks;
    options->stream_rows = NULL;
    if (c->tensor != NULL && c->tensor->is_sequence_parallel) {
        options->stream_rows = weft_i_sequence_rows;
        options->stream_user = c->tensor;
    }
}

weft_model *weft_i_parallel_part(const weft_parallel *p)
{
    return p->chunks[0].model;
}

void weft_i_parallel_run_options(weft_parallel *p, weft_run_options *options)
{
    chunk_options(&p->chunks[0], options);
    if (!p->chunks[0].is_first)
        options->input_cols = weft_model_config(p->model)->hidden_size;
}

weft_status weft_i_parallel_run_create(weft_run **out,
                                       weft_parallel *p,
                                       const weft_run_options *options,
                                       int64_t n_rounds)
{
    const weft_layout *l = &p->mesh->layout;
    const int64_t n_cols = weft_model_config(p->model)->hidden_size;
    *out = NULL;
    WEFT_TRY(count_slots(p, options->n_slots, n_rounds));
    for (int i = 0; i < p->n_chunks; i++) {
        weft_chunk *c = &p->chunks[i];
        weft_run_options o = *options;
        chunk_options(c, &o);
        o.n_slots = c->n_slots;
        o.n_before_input = c->n_before_input;
        o.input_cols = c->is_first ? options->input_cols : n_cols;
        o.is_split = l->pp > 1 ? weft_i_schedule_is_split(l->schedule) : options->is_split;
        o.workspace_of = i > 0 ? p->chunks[0].run : NULL;
        WEFT_TRY(weft_run_create(&c->run, c->model, &o));
        *out = p->chunks[0].run;
    }
    if (l->pp == 1)
        return WEFT_OK;
    const weft_pipeline_options o = {.mesh = p->mesh,
                                     .chunks = p->chunks,
                                     .n_chunks = p->n_chunks,
                                     .kind = l->schedule,
                                     .tied = p->tied,
                                     .n_rows = options->n_seqs * options->n_tokens,
                                     .n_cols = n_cols};
    WEFT_TRY(weft_i_pipeline_create(&p->pipeline, &o));
    if (options->n_slots == 0)
        return WEFT_OK;
    return weft_i_pipeline_prepare(p->pipeline, WEFT_MAX(n_rounds, 1));
}

weft_mesh *weft_i_parallel_mesh(const weft_parallel *p)
{
    return p->mesh;
}

const weft_parts *weft_i_parallel_values(const weft_parallel *p)
{
    return &p->values;
}

const weft_parts *weft_i_parallel_states(const weft_parallel *p)
{
    return &p->states;
}

const weft_parts *weft_i_parallel_owned(const weft_parallel *p)
{
    return &p->owned;
}

int64_t weft_i_parallel_state_elems(const weft_parallel *p)
{
    return p->n_state_elems;
}

/* ---- weights ---- */

bool weft_i_parallel_is_source(const weft_parallel *p)
{
    return p->chunks[0].data->method->is_value_shard || p->mesh->coord[WEFT_AXIS_DP] == 0;
}

static weft_status share_chunk(const weft_data_axis *a)
{
    const weft_dtype dtype = weft_model_dtype(a->model);
    if (a->method->is_value_shard || a->comm->size == 1)
        return WEFT_OK;
    for (int64_t i = 0; i < a->shards.n_segments; i++) {
        const weft_segment *s = &a->shards.segments[i];
        char *at = (char *)a->values + (size_t)s->value_first * weft_dtype_bytes(dtype);
        const weft_message m = {.op = WEFT_COMM_BROADCAST,
                                .dtype = dtype,
                                .send = at,
                                .recv = at,
                                .n_elems = s->n_elems,
                                .tensor = weft_i_segment_name(a, s)};
        WEFT_TRY(weft_comm_call(a->comm, &m));
    }
    return WEFT_OK;
}

weft_status weft_i_parallel_share_weights(weft_parallel *p)
{
    for (int i = 0; i < p->n_chunks; i++)
        WEFT_TRY(share_chunk(p->chunks[i].data));
    return WEFT_OK;
}

weft_status weft_i_parallel_share_update(weft_parallel *p)
{
    const weft_data_method *m = p->chunks[0].data->method;
    for (int i = 0; i < p->n_chunks && m->share_update != NULL; i++)
        WEFT_TRY(m->share_update(p->chunks[i].data));
    return WEFT_OK;
}

/* ---- who reads ---- */

weft_status weft_i_parallel_reserve(weft_parallel *p, int64_t n_seqs, int64_t n_tokens)
{
    if (!p->chunks[0].data->method->is_on_root)
        return WEFT_OK;
    return weft_i_data_parallel_reserve(p->chunks[0].data, n_seqs, n_tokens);
}

bool weft_i_parallel_is_reader(const weft_parallel *p)
{
    return !p->chunks[0].data->method->is_on_root || p->chunks[0].data->comm->rank == 0;
}

weft_status weft_i_parallel_from_reader(weft_parallel *p, int64_t *value)
{
    const weft_message m = {.op = WEFT_COMM_BROADCAST,
                            .dtype = WEFT_DTYPE_I64,
                            .send = value,
                            .recv = value,
                            .n_elems = 1,
                            .is_host = true,
                            .tensor = "word of the reader"};
    return p->chunks[0].data->method->is_on_root ? weft_comm_call(p->chunks[0].data->comm, &m)
                                                 : WEFT_OK;
}

/* ---- numbers of all ranks ---- */

weft_status
weft_i_parallel_add_up(weft_parallel *p, weft_sum *sums, int n, int64_t *counts, int n_counts)
{
    int64_t x[MAX_SUMS * SUM_ELEMS + MAX_COUNTS];
    const bool has_model_axes = p->mesh->layout.tp * p->mesh->layout.pp > 1;
    weft_comm *comm = p->mesh->comm[has_model_axes ? WEFT_AXIS_WORLD : WEFT_AXIS_DP];
    const int64_t n_elems = (int64_t)n * SUM_ELEMS + n_counts;
    WEFT_ASSERT(n <= MAX_SUMS && n_counts <= MAX_COUNTS);
    if (comm->size == 1)
        return WEFT_OK;
    for (int i = 0; i < n; i++) {
        weft_i_sum_normalise(&sums[i]);
        memcpy(x + i * SUM_ELEMS, sums[i].bin, sizeof(sums[i].bin));
        x[i * SUM_ELEMS + WEFT_SUM_BINS] = sums[i].n_nonfinite;
    }
    for (int i = 0; i < n_counts; i++)
        x[n * SUM_ELEMS + i] = counts[i];
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = WEFT_DTYPE_I64,
                            .send = x,
                            .recv = x,
                            .n_elems = n_elems,
                            .is_host = true,
                            .tensor = "sums of the step"};
    WEFT_TRY(weft_comm_call(comm, &m));
    for (int i = 0; i < n; i++) {
        memcpy(sums[i].bin, x + i * SUM_ELEMS, sizeof(sums[i].bin));
        sums[i].n_nonfinite = x[i * SUM_ELEMS + WEFT_SUM_BINS];
        sums[i].n_pending = comm->size; /* each bin is a sum of that many digits */
        weft_i_sum_normalise(&sums[i]);
    }
    for (int i = 0; i < n_counts; i++)
        counts[i] = x[n * SUM_ELEMS + i];
    return WEFT_OK;
}

weft_status weft_i_parallel_from_rank0(weft_parallel *p, int64_t *value)
{
    weft_comm *comm = p->mesh->comm[WEFT_AXIS_WORLD];
    const weft_message m = {.op = WEFT_COMM_BROADCAST,
                            .dtype = WEFT_DTYPE_I64,
                            .send = value,
                            .recv = value,
                            .n_elems = 1,
                            .is_host = true,
                            .tensor = "word of rank 0"};
    return comm->size == 1 ? WEFT_OK : weft_comm_call(comm, &m);
}

weft_status weft_i_parallel_largest(weft_parallel *p, int64_t *value)
{
    return weft_i_mesh_largest(p->mesh, WEFT_AXIS_WORLD, value, "largest of all ranks");
}
