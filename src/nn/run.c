/*
 * Runs a model's list of layers forward and backward, and alone decides what is kept in between.
 *
 *   slot of a micro-batch = batch | streams x_1 .. x_n | items of every layer that stay | results
 *
 * Items that do not stay are made in workspace: by the layer's forward, then again by recompute (cheap ones) or by
 * forward (all) when backward wants them. Layers cannot tell the difference.
 *
 * Invariants
 *  1. A slot has two parts. FOR_INPUT-only items lie in the first, everything that backward's WEIGHT part reads in the
 *     second, so a schedule that splits backward can free the first earlier.
 *  2. Offsets come from the largest shape; a smaller micro-batch uses the front of each place.
 *  3. Nothing is taken from the allocator after create.
 *  4. A recompute and its backward are one pass (BACKWARD) for the hooks.
 * Communication: none. Leaves to others: the order of micro-batches (train, pipeline), where gradients live (hooks).
 */
#include "nn/model_parts.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "formats/hf_config.h"

/* Where things of one layer lie in a slot; -1: not kept. */
typedef struct layer_place {
    int64_t stream;                 /* the layer's input x, in the second part */
    int64_t item[WEFT_LAYER_ITEMS]; /* byte offset in its part */
    bool is_input_part[WEFT_LAYER_ITEMS];
} layer_place;

typedef struct slot {
    char *
        input_part; /* one of input_parts, from forward to the INPUT part of backward; NULL otherwise */
    char *weight_part;
    void *ids, *targets, *positions, *samples;
    weft_batch batch;
    int64_t *q_offset; /* host, the slot's own copies */
    int64_t *kv_length;
} slot;

struct weft_run {
    weft_model *model;
    weft_ctx *ctx;
    weft_run_options options;
    weft_exec exec;
    weft_arena own_arena;
    weft_arena *arena; /* own_arena, or that of another run */
    void *arena_memory;
    layer_place *place; /* [n_layers] */
    int64_t output;     /* offset of the last layer's y in the second part; -1 */
    size_t input_part_bytes, weight_part_bytes;
    slot *slots;
    int n_slots; /* at least 1 */
    char **input_parts;
    bool *is_part_taken;
    int n_input_parts;
    void *grad_input, *grad_output;   /* the run's own */
    void *bound_input, *bound_output; /* given by the caller; NULL: its own */
    void *rope_cos, *rope_sin;
    int64_t n_positions;
    int64_t rope_length; /* what the tables were filled for */
    int32_t *host_ids;   /* staging of positions and samples, [n_seqs * n_tokens] */
    int64_t *host_samples;
};

/* ---- sizes ---- */

static weft_layer_shape shape_of(const weft_run *r, int64_t n_seqs, int64_t n_tokens)
{
    const weft_run_options *o = &r->options;
    weft_layer_shape s = {.n_seqs = n_seqs,
                          .n_tokens = n_tokens,
                          .rows_stream = n_seqs * n_tokens,
                          .rows_inside = n_seqs * n_tokens,
                          .is_stream_cut = o->stream_rows != NULL,
                          .dtype = r->model->dtype};
    if (s.is_stream_cut)
        o->stream_rows(o->stream_user, s.rows_inside, &s.first_row, &s.rows_stream);
    return s;
}

/* Rows of the largest micro-batch's stream. */
static int64_t most_stream_rows(const weft_run *r)
{
    return shape_of(r, r->options.n_seqs, r->options.n_tokens).rows_stream;
}

static int64_t take(size_t *total, size_t bytes)
{
    const size_t at = *total;
    *total += weft_i_alloc_rounded(bytes);
    return (int64_t)at;
}

static bool is_kept(const weft_run *r, unsigned flags)
{
    if ((flags & WEFT_ITEM_RESULT) != 0)
        return true;
    if (r->options.n_slots == 0)
        return false;
    if ((flags & WEFT_ITEM_GRADIENT) != 0)
        return r->options.is_split;
    if (r->options.recompute == WEFT_RECOMPUTE_FULL)
        return false;
    return r->options.recompute == WEFT_RECOMPUTE_NONE || (flags & WEFT_ITEM_CHEAP) == 0;
}

/* Columns of layer i's x; 0 when it has none. */
static int64_t cols_in(const weft_run *r, int64_t i)
{
    return i == 0 ? r->options.input_cols : r->model->layers[i - 1].cols_out;
}

static int64_t cols_out(const weft_run *r)
{
    return r->model->layers[r->model->n_layers - 1].cols_out;
}

static weft_status place_items(weft_run *r)
{
    const weft_layer_shape shape = shape_of(r, r->options.n_seqs, r->options.n_tokens);
    const size_t size = weft_dtype_bytes(shape.dtype);
    for (int64_t i = 0; i < r->model->n_layers; i++) {
        const weft_layer *l = &r->model->layers[i];
        layer_place *at = &r->place[i];
        weft_item item[WEFT_LAYER_ITEMS];
        int n_items = 0;
        WEFT_TRY(l->ops->items(l, &shape, item, &n_items));
        at->stream = -1;
        if ((r->options.n_slots > 0 || i == 0) && cols_in(r, i) > 0)
            at->stream =
                take(&r->weight_part_bytes, (size_t)(shape.rows_stream * cols_in(r, i)) * size);
        for (int k = 0; k < WEFT_LAYER_ITEMS; k++) {
            at->item[k] = -1;
            if (k >= n_items || !is_kept(r, item[k].flags))
                continue;
            const size_t bytes =
                (size_t)(item[k].rows * item[k].cols) * weft_dtype_bytes(item[k].dtype);
            at->is_input_part[k] = (item[k].flags & (WEFT_ITEM_FOR_INPUT | WEFT_ITEM_FOR_WEIGHT)) ==
                                   WEFT_ITEM_FOR_INPUT;
            at->item[k] =
                take(at->is_input_part[k] ? &r->input_part_bytes : &r->weight_part_bytes, bytes);
        }
    }
    r->output = -1;
    if (cols_out(r) > 0)
        r->output = take(&r->weight_part_bytes, (size_t)(shape.rows_stream * cols_out(r)) * size);
    return WEFT_OK;
}

/* ---- create and destroy ---- */

static weft_status get(weft_run *r, weft_mem kind, size_t bytes, const char *what, void *out)
{
    weft_backend *b = r->ctx->backend;
    void *p = NULL;
    WEFT_TRY(b->ops->mem_get(b, (int)kind, bytes, what, &p));
    memcpy(out, &p, sizeof(p));
    return WEFT_OK;
}

static weft_status create_slot(weft_run *r, slot *s)
{
    const size_t rows = (size_t)(r->options.n_seqs * r->options.n_tokens);
    const weft_mem kind = WEFT_MEM_ACTIVATIONS;
    void *p = NULL;
    WEFT_TRY(get(r, kind, r->weight_part_bytes, "activations", &s->weight_part));
    WEFT_TRY(get(r, kind, rows * sizeof(int32_t), "token ids", &s->ids));
    WEFT_TRY(get(r, kind, rows * sizeof(int32_t), "targets", &s->targets));
    WEFT_TRY(get(r, kind, rows * sizeof(int32_t), "positions", &s->positions));
    WEFT_TRY(get(r, kind, rows * sizeof(int64_t), "sample numbers", &s->samples));
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, (size_t)r->options.n_seqs, sizeof(*s->q_offset), &p));
    s->q_offset = p;
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, (size_t)r->options.n_seqs, sizeof(*s->kv_length), &p));
    s->kv_length = p;
    return WEFT_OK;
}

/* As many as there are micro-batches before the INPUT part of their backward: what only that reads needs no room later. */
static weft_status create_input_parts(weft_run *r)
{
    const int n = r->options.n_before_input;
    const bool is_fewer = r->options.is_split && n > 0 && n < r->n_slots;
    void *parts = NULL, *taken = NULL;
    r->n_input_parts = is_fewer ? n : r->n_slots;
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, (size_t)r->n_input_parts, sizeof(char *), &parts));
    r->input_parts = parts;
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, (size_t)r->n_input_parts, sizeof(bool), &taken));
    r->is_part_taken = taken;
    for (int i = 0; i < r->n_input_parts; i++)
        WEFT_TRY(
            get(r, WEFT_MEM_ACTIVATIONS, r->input_part_bytes, "activations", &r->input_parts[i]));
    return WEFT_OK;
}

static weft_status create_memory(weft_run *r)
{
    const weft_run_options *o = &r->options;
    const bool is_dry = weft_i_alloc_is_dry(r->ctx->alloc);
    const size_t rows = (size_t)(o->n_seqs * o->n_tokens);
    const size_t stream_rows = (size_t)most_stream_rows(r);
    const size_t size = weft_dtype_bytes(r->model->dtype);
    void *p = NULL;
    for (int i = 0; i < r->n_slots; i++)
        WEFT_TRY(create_slot(r, &r->slots[i]));
    WEFT_TRY(create_input_parts(r));
    if (o->n_slots > 0 && o->input_cols > 0)
        WEFT_TRY(get(r, WEFT_MEM_ACTIVATIONS, stream_rows * (size_t)o->input_cols * size,
                     "gradient of the input", &r->grad_input));
    if (o->n_slots > 0 && cols_out(r) > 0)
        WEFT_TRY(get(r, WEFT_MEM_ACTIVATIONS, stream_rows * (size_t)cols_out(r) * size,
                     "gradient of the output", &r->grad_output));
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, rows, sizeof(*r->host_ids), &p));
    r->host_ids = p;
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, rows, sizeof(*r->host_samples), &p));
    r->host_samples = p;
    if (o->workspace_of != NULL)
        return WEFT_OK;
    if (is_dry) {
        /* An address that is not NULL and never read. */
        weft_i_arena_init(&r->own_arena, (void *)(uintptr_t)WEFT_ALIGN_BYTES, SIZE_MAX);
    } else {
        WEFT_TRY(get(r, WEFT_MEM_WORKSPACE, o->workspace_bytes, "workspace", &r->arena_memory));
        weft_i_arena_init(&r->own_arena, r->arena_memory, o->workspace_bytes);
    }
    return WEFT_OK;
}

static weft_status create_rope(weft_run *r)
{
    const weft_model *m = r->model;
    const int64_t half = m->config.head_dim / 2;
    if (!m->has_rope)
        return WEFT_OK;
    const size_t bytes = (size_t)(r->n_positions * half) * sizeof(float);
    WEFT_TRY(get(r, WEFT_MEM_TABLES, bytes, "rotary table", &r->rope_cos));
    WEFT_TRY(get(r, WEFT_MEM_TABLES, bytes, "rotary table", &r->rope_sin));
    r->exec.rope_cos = weft_view_make(r->rope_cos, WEFT_DTYPE_F32, r->n_positions, half);
    r->exec.rope_sin = weft_view_make(r->rope_sin, WEFT_DTYPE_F32, r->n_positions, half);
    return weft_run_fill_rope(r, 0, r->n_positions, r->options.n_tokens);
}

weft_status weft_run_create(weft_run **out, weft_model *m, const weft_run_options *options)
{
    void *p = NULL;
    weft_status st = WEFT_OK;
    *out = NULL;
    if (options->n_seqs < 1 || options->n_tokens < 1 || options->n_slots < 0 || m->n_layers < 1)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "a run needs at least one sequence, token and layer, and had %lld, %lld, %lld",
                  (long long)options->n_seqs, (long long)options->n_tokens, (long long)m->n_layers);
    WEFT_TRY(weft_i_alloc_new(m->ctx->alloc, 1, sizeof(weft_run), &p));
    weft_run *r = p;
    r->model = m;
    r->ctx = m->ctx;
    r->options = *options;
    r->n_slots = options->n_slots > 0 ? options->n_slots : 1;
    r->n_positions = options->n_positions > 0 ? options->n_positions : options->n_tokens;
    r->arena = options->workspace_of != NULL ? options->workspace_of->arena : &r->own_arena;
    r->exec = (weft_exec){.backend = m->ctx->backend,
                          .workspace = r->arena,
                          .hooks = options->hooks,
                          .n_hooks = options->n_hooks,
                          .parts = WEFT_BACKWARD_BOTH,
                          .is_recomputing = options->recompute != WEFT_RECOMPUTE_NONE,
                          .loss_scale = 1.0f};
    WEFT_TRY_GOTO(st, weft_i_alloc_new(m->ctx->alloc, (size_t)m->n_layers, sizeof(layer_place), &p),
                  out);
    r->place = p;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(m->ctx->alloc, (size_t)r->n_slots, sizeof(slot), &p), out);
    r->slots = p;
    WEFT_TRY_GOTO(st, place_items(r), out);
    WEFT_TRY_GOTO(st, create_memory(r), out);
    WEFT_TRY_GOTO(st, create_rope(r), out);
out:
    if (st != WEFT_OK) {
        weft_run_destroy(r);
        return st;
    }
    *out = r;
    return WEFT_OK;
}

void weft_run_destroy(weft_run *r)
{
    if (r == NULL)
        return;
    weft_backend *b = r->ctx->backend;
    weft_alloc *a = r->ctx->alloc;
    for (int i = 0; r->slots != NULL && i < r->n_slots; i++) {
        slot *s = &r->slots[i];
        void *const block[] = {s->weight_part, s->ids, s->targets, s->positions, s->samples};
        for (size_t k = 0; k < WEFT_COUNT_OF(block); k++)
            b->ops->mem_put(b, block[k]);
        weft_i_alloc_put(a, s->q_offset);
        weft_i_alloc_put(a, s->kv_length);
    }
    void *const block[] = {r->grad_input, r->grad_output, r->rope_cos, r->rope_sin,
                           r->arena_memory};
    for (size_t k = 0; k < WEFT_COUNT_OF(block); k++)
        b->ops->mem_put(b, block[k]);
    for (int i = 0; r->input_parts != NULL && i < r->n_input_parts; i++)
        b->ops->mem_put(b, r->input_parts[i]);
    weft_i_alloc_put(a, r->is_part_taken);
    weft_i_alloc_put(a, r->input_parts);
    weft_i_alloc_put(a, r->slots);
    weft_i_alloc_put(a, r->place);
    weft_i_alloc_put(a, r->host_ids);
    weft_i_alloc_put(a, r->host_samples);
    weft_i_alloc_put(a, r);
}

weft_status weft_run_fill_rope(weft_run *r, int64_t first, int64_t n, int64_t length)
{
    const weft_config *c = &r->model->config;
    const int64_t half = c->head_dim / 2;
    weft_backend *b = r->ctx->backend;
    void *p = NULL;
    weft_status st = WEFT_OK;
    if (!r->model->has_rope || n == 0 || weft_i_alloc_is_dry(r->ctx->alloc))
        return WEFT_OK;
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, (size_t)half * 2, sizeof(double),
                              &p)); /* frequencies, then two rows */
    double *freq = p;
    float *row = (float *)(void *)(freq + half);
    weft_i_rope_frequencies(&c->rope, c->head_dim, c->max_positions, length, freq);
    for (int64_t i = first; i < first + n && st == WEFT_OK; i++) {
        const size_t at = (size_t)(i * half) * sizeof(float);
        for (int64_t k = 0; k < half; k++) {
            const double angle = (double)i * freq[k];
            row[k] = (float)(cos(angle) * c->rope.attention_factor);
            row[half + k] = (float)(sin(angle) * c->rope.attention_factor);
        }
        st = b->ops->copy_from_host(b, (char *)r->rope_cos + at, row, (size_t)half * sizeof(float));
        if (st == WEFT_OK)
            st = b->ops->copy_from_host(b, (char *)r->rope_sin + at, row + half,
                                        (size_t)half * sizeof(float));
    }
    weft_i_alloc_put(r->ctx->alloc, p);
    r->rope_length = length;
    return st;
}

/* ---- a micro-batch comes in ---- */

static weft_status check_batch(const weft_run *r, int slot_number, const weft_host_batch *b)
{
    if (slot_number < 0 || slot_number >= r->n_slots || b->n_seqs < 1 || b->n_tokens < 1 ||
        b->n_seqs > r->options.n_seqs || b->n_tokens > r->options.n_tokens)
        WEFT_FAIL(
            WEFT_STATUS_ARG,
            "a batch of %lld x %lld in slot %d does not fit a run of %lld x %lld with %d slots",
            (long long)b->n_seqs, (long long)b->n_tokens, slot_number, (long long)r->options.n_seqs,
            (long long)r->options.n_tokens, r->n_slots);
    for (int64_t i = 0; r->model->has_rope && b->positions != NULL && i < b->n_seqs * b->n_tokens;
         i++) {
        if (b->positions[i] < 0 || b->positions[i] >= r->n_positions)
            WEFT_FAIL(WEFT_STATUS_ARG, "position %d is outside the %lld positions of this run",
                      b->positions[i], (long long)r->n_positions);
    }
    return WEFT_OK;
}

/* With `dynamic` scaling the tables belong to one length; a batch of another length gets its own. */
static weft_status match_rope(weft_run *r, const weft_host_batch *b)
{
    if (!r->model->has_rope || r->model->config.rope.kind != WEFT_ROPE_DYNAMIC ||
        b->q_offset != NULL || r->rope_length == b->n_tokens)
        return WEFT_OK;
    if (WEFT_MAX(r->rope_length, b->n_tokens) <= r->model->config.max_positions)
        return WEFT_OK;
    return weft_run_fill_rope(r, 0, r->n_positions, b->n_tokens);
}

weft_status weft_run_load(weft_run *r, int slot_number, const weft_host_batch *b)
{
    WEFT_TRY(check_batch(r, slot_number, b));
    WEFT_TRY(match_rope(r, b));
    weft_backend *be = r->ctx->backend;
    slot *s = &r->slots[slot_number];
    const int64_t rows = b->n_seqs * b->n_tokens;
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    WEFT_TRY(be->ops->copy_from_host(be, s->ids, b->ids, bytes));
    if (b->targets != NULL)
        WEFT_TRY(be->ops->copy_from_host(be, s->targets, b->targets, bytes));
    for (int64_t i = 0; i < rows; i++) {
        r->host_ids[i] = b->positions != NULL ? b->positions[i] : (int32_t)(i % b->n_tokens);
        r->host_samples[i] = b->samples != NULL ? b->samples[i / b->n_tokens] : i / b->n_tokens;
    }
    WEFT_TRY(be->ops->copy_from_host(be, s->positions, r->host_ids, bytes));
    WEFT_TRY(
        be->ops->copy_from_host(be, s->samples, r->host_samples, (size_t)rows * sizeof(int64_t)));
    s->batch = (weft_batch){.n_seqs = b->n_seqs,
                            .n_tokens = b->n_tokens,
                            .ids = weft_view_make(s->ids, WEFT_DTYPE_I32, rows, 1),
                            .targets = weft_view_make(s->targets, WEFT_DTYPE_I32, rows, 1),
                            .positions = weft_view_make(s->positions, WEFT_DTYPE_I32, rows, 1),
                            .samples = weft_view_make(s->samples, WEFT_DTYPE_I64, rows, 1)};
    if (b->q_offset != NULL) {
        memcpy(s->q_offset, b->q_offset, (size_t)b->n_seqs * sizeof(int64_t));
        memcpy(s->kv_length, b->kv_length, (size_t)b->n_seqs * sizeof(int64_t));
        s->batch.q_offset = s->q_offset;
        s->batch.kv_length = s->kv_length;
    }
    return WEFT_OK;
}

weft_exec *weft_run_exec(weft_run *r)
{
    return &r->exec;
}

/* ---- passes ---- */

static weft_view in_slot(char *part, int64_t at, weft_dtype dtype, int64_t rows, int64_t cols)
{
    return at < 0 ? weft_view_none() : weft_view_make(part + at, dtype, rows, cols);
}

static weft_view stream_of(const weft_run *r, const slot *s, int64_t i)
{
    const int64_t rows = shape_of(r, s->batch.n_seqs, s->batch.n_tokens).rows_stream;
    if (i == r->model->n_layers)
        return in_slot(s->weight_part, r->output, r->model->dtype, rows, cols_out(r));
    return in_slot(s->weight_part, r->place[i].stream, r->model->dtype, rows, cols_in(r, i));
}

/* Views of layer i's items: in the slot where they stay, in workspace where they do not. */
static weft_status
item_views(weft_run *r, const slot *s, int64_t i, bool is_backward, weft_layer_io *io)
{
    const weft_layer *l = &r->model->layers[i];
    const layer_place *at = &r->place[i];
    weft_item item[WEFT_LAYER_ITEMS];
    int n_items = 0;
    WEFT_TRY(l->ops->items(l, &io->shape, item, &n_items));
    for (int k = 0; k < n_items; k++) {
        const weft_item *t = &item[k];
        const bool is_gradient = (t->flags & WEFT_ITEM_GRADIENT) != 0;
        io->item[k] = weft_view_none();
        if (at->item[k] >= 0) {
            char *part = at->is_input_part[k] ? s->input_part : s->weight_part;
            if (part != NULL) /* NULL: backward's INPUT part is done */
                io->item[k] = in_slot(part, at->item[k], t->dtype, t->rows, t->cols);
        } else if (is_gradient ? is_backward && (t->flags & WEFT_ITEM_SPLIT) == 0 : true) {
            WEFT_TRY(weft_exec_view(&r->exec, t->dtype, t->rows, t->cols, &io->item[k]));
        }
    }
    return WEFT_OK;
}

static weft_status begin_layer(weft_run *r, const weft_layer *l)
{
    for (int i = 0; i < r->exec.n_hooks; i++) {
        const weft_hooks *h = r->exec.hooks[i];
        if (h->layer_begin != NULL)
            WEFT_TRY(h->layer_begin(h->user, l, r->exec.pass));
    }
    return WEFT_OK;
}

static weft_status end_layer(weft_run *r, const weft_layer *l)
{
    for (int i = r->exec.n_hooks - 1; i >= 0; i--) {
        const weft_hooks *h = r->exec.hooks[i];
        if (h->layer_end != NULL)
            WEFT_TRY(h->layer_end(h->user, l, r->exec.pass));
    }
    return WEFT_OK;
}

static weft_layer_io make_io(weft_run *r, const slot *s, const weft_layer *l)
{
    const weft_layer_io io = {
        .layer = l, .exec = &r->exec, .batch = &s->batch, .shape = r->exec.shape};
    return io;
}

static void begin_pass(weft_run *r, const slot *s, weft_pass pass)
{
    r->exec.pass = pass;
    r->exec.is_again = false;
    r->exec.shape = shape_of(r, s->batch.n_seqs, s->batch.n_tokens);
}

/* Gives the slot's first part to another, or leaves it none. */
static void give_back_part(weft_run *r, slot *s)
{
    for (int i = 0; i < r->n_input_parts; i++)
        r->is_part_taken[i] = r->is_part_taken[i] && r->input_parts[i] != s->input_part;
    s->input_part = NULL;
}

/* A first part for the slot, unless it has one. */
static weft_status take_part(weft_run *r, slot *s)
{
    for (int i = 0; i < r->n_input_parts && s->input_part == NULL; i++) {
        if (r->is_part_taken[i])
            continue;
        r->is_part_taken[i] = true;
        s->input_part = r->input_parts[i];
    }
    if (s->input_part == NULL && r->input_part_bytes > 0)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "a run of %d micro-batches before their backward was given one more",
                  r->n_input_parts);
    return WEFT_OK;
}

weft_status weft_run_forward(weft_run *r, int slot_number)
{
    slot *s = &r->slots[slot_number];
    if (r->options.n_slots == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "a run without slots cannot keep what backward needs");
    WEFT_TRY(take_part(r, s));
    begin_pass(r, s, WEFT_PASS_FORWARD);
    for (int64_t i = 0; i < r->model->n_layers; i++) {
        weft_layer *l = &r->model->layers[i];
        const size_t mark = weft_exec_mark(&r->exec);
        weft_layer_io io = make_io(r, s, l);
        io.x = stream_of(r, s, i);
        io.y = stream_of(r, s, i + 1);
        WEFT_TRY(begin_layer(r, l));
        WEFT_TRY(item_views(r, s, i, false, &io));
        WEFT_TRY(l->ops->forward(l, &io));
        WEFT_TRY(end_layer(r, l));
        weft_exec_reset(&r->exec, mark);
    }
    return WEFT_OK;
}

/* Makes the items that did not stay, then the layer's backward. */
static weft_status backward_layer(weft_run *r, weft_layer *l, weft_layer_io *io, unsigned parts)
{
    const weft_recompute mode = r->options.recompute;
    if (mode == WEFT_RECOMPUTE_FULL) {
        r->exec.is_again = true;
        const weft_status st = l->ops->forward(l, io);
        r->exec.is_again = false;
        WEFT_TRY(st);
    } else if (mode == WEFT_RECOMPUTE_SELECTIVE && l->ops->recompute != NULL) {
        WEFT_TRY(l->ops->recompute(l, io));
    }
    return l->ops->backward(l, io, parts);
}

weft_status weft_run_backward(weft_run *r, int slot_number, unsigned parts)
{
    slot *s = &r->slots[slot_number];
    const size_t outer = weft_exec_mark(&r->exec);
    const int64_t n = r->model->n_layers;
    int64_t widest = 1;
    weft_view turn[2]; /* gradients of the stream, turn and turn about */
    begin_pass(r, s, WEFT_PASS_BACKWARD);
    r->exec.parts = parts;
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        weft_i_model_begin_micro_batch(r->model);
    for (int64_t i = 1; i < n; i++)
        widest = WEFT_MAX(widest, cols_in(r, i));
    const int64_t rows = r->exec.shape.rows_stream;
    for (int k = 0; k < 2; k++)
        WEFT_TRY(weft_exec_view(&r->exec, r->model->dtype, rows, widest, &turn[k]));
    weft_view dy = weft_run_grad_output(r);
    dy.rows = dy.data != NULL ? rows : 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        weft_layer *l = &r->model->layers[i];
        const size_t mark = weft_exec_mark(&r->exec);
        weft_layer_io io = make_io(r, s, l);
        io.x = stream_of(r, s, i);
        io.dy = dy;
        io.dx = weft_view_none();
        if (i > 0)
            io.dx = weft_view_make(turn[i % 2].data, r->model->dtype, rows, cols_in(r, i));
        else if (r->grad_input != NULL)
            io.dx =
                weft_view_make(weft_run_grad_input(r).data, r->model->dtype, rows, cols_in(r, 0));
        WEFT_TRY(begin_layer(r, l));
        WEFT_TRY(item_views(r, s, i, true, &io));
        WEFT_TRY(backward_layer(r, l, &io, parts));
        WEFT_TRY(end_layer(r, l));
        weft_exec_reset(&r->exec, mark);
        dy = io.dx;
    }
    if ((parts & WEFT_BACKWARD_INPUT) != 0 && r->n_input_parts < r->n_slots)
        give_back_part(r, s);
    weft_exec_reset(&r->exec, outer);
    return WEFT_OK;
}

weft_status weft_run_forward_only(weft_run *r, weft_kv *kv)
{
    slot *s = &r->slots[0];
    const size_t outer = weft_exec_mark(&r->exec);
    const int64_t n = r->model->n_layers;
    int64_t widest = 1;
    weft_view turn[2];
    const bool has_part = s->input_part != NULL;
    WEFT_TRY(take_part(r, s));
    begin_pass(r, s, WEFT_PASS_FORWARD);
    const int64_t rows = r->exec.shape.rows_stream;
    for (int64_t i = 0; i < n; i++)
        widest = WEFT_MAX(widest, r->model->layers[i].cols_out);
    for (int k = 0; k < 2; k++)
        WEFT_TRY(weft_exec_view(&r->exec, r->model->dtype, rows, widest, &turn[k]));
    weft_view x = stream_of(r, s, 0);
    for (int64_t i = 0; i < n; i++) {
        weft_layer *l = &r->model->layers[i];
        const size_t mark = weft_exec_mark(&r->exec);
        weft_layer_io io = make_io(r, s, l);
        io.x = x;
        io.y = i == n - 1 && r->output >= 0
                   ? stream_of(r, s, n)
                   : weft_view_make(turn[i % 2].data, r->model->dtype, rows, l->cols_out);
        io.kv = kv != NULL ? &kv[i] : NULL;
        if (io.kv != NULL && io.kv->k.data == NULL)
            io.kv = NULL;
        WEFT_TRY(begin_layer(r, l));
        WEFT_TRY(item_views(r, s, i, false, &io));
        WEFT_TRY(l->ops->forward(l, &io));
        WEFT_TRY(end_layer(r, l));
        weft_exec_reset(&r->exec, mark);
        x = io.y;
    }
    if (!has_part && r->n_input_parts < r->n_slots)
        give_back_part(r, s);
    weft_exec_reset(&r->exec, outer);
    return WEFT_OK;
}

/* Zeros into the gradients that layer l would write, announced as it would announce them. */
static weft_status idle_gradients(weft_run *r, const weft_layer *l)
{
    for (int i = 0; i < l->n_params; i++) {
        weft_param *p = l->params[i];
        weft_grad_target t;
        if (p->is_frozen)
            continue;
        WEFT_TRY(weft_exec_grad_begin(&r->exec, p, &t));
        if (!t.is_added) {
            /* Negative zeros: added to another rank's x they leave x as it is, also where x is -0. */
            const weft_fill_args a = {.x = t.view, .value = -0.0f};
            WEFT_TRY(weft_exec_op(&r->exec, WEFT_OP_FILL, &a));
        }
        WEFT_TRY(weft_exec_grad_end(&r->exec, p));
    }
    return WEFT_OK;
}

weft_status weft_run_idle(weft_run *r, weft_pass pass)
{
    if (pass == WEFT_PASS_BACKWARD)
        return weft_run_idle_backward(r, WEFT_BACKWARD_BOTH);
    r->exec.pass = pass;
    r->exec.is_again = false;
    for (int64_t i = 0; i < r->model->n_layers; i++) {
        WEFT_TRY(begin_layer(r, &r->model->layers[i]));
        WEFT_TRY(end_layer(r, &r->model->layers[i]));
    }
    return WEFT_OK;
}

weft_status weft_run_idle_backward(weft_run *r, unsigned parts)
{
    r->exec.pass = WEFT_PASS_BACKWARD;
    r->exec.is_again = false;
    r->exec.parts = parts;
    if ((parts & WEFT_BACKWARD_INPUT) != 0)
        weft_i_model_begin_micro_batch(r->model);
    for (int64_t i = r->model->n_layers - 1; i >= 0; i--) {
        const weft_layer *l = &r->model->layers[i];
        const unsigned writes =
            l->ops->has_weights_with_input ? WEFT_BACKWARD_INPUT : WEFT_BACKWARD_WEIGHT;
        WEFT_TRY(begin_layer(r, l));
        if ((parts & writes) != 0)
            WEFT_TRY(idle_gradients(r, l));
        WEFT_TRY(end_layer(r, l));
    }
    return WEFT_OK;
}

/* ---- what came out ---- */

weft_view weft_run_losses(const weft_run *r, int slot_number)
{
    const slot *s = &r->slots[slot_number];
    const weft_layer_shape shape = shape_of(r, s->batch.n_seqs, s->batch.n_tokens);
    for (int64_t i = r->model->n_layers - 1; i >= 0; i--) {
        const weft_layer *l = &r->model->layers[i];
        weft_item item[WEFT_LAYER_ITEMS];
        int n_items = 0;
        if (l->ops->items(l, &shape, item, &n_items) != WEFT_OK)
            break;
        for (int k = 0; k < n_items; k++) {
            if ((item[k].flags & WEFT_ITEM_RESULT) != 0)
                return in_slot(s->weight_part, r->place[i].item[k], item[k].dtype, item[k].rows,
                               item[k].cols);
        }
    }
    return weft_view_none();
}

weft_view weft_run_input(const weft_run *r, int slot_number)
{
    return stream_of(r, &r->slots[slot_number], 0);
}

weft_view weft_run_output(const weft_run *r, int slot_number)
{
    return stream_of(r, &r->slots[slot_number], r->model->n_layers);
}

weft_view weft_run_grad_input(const weft_run *r)
{
    if (r->grad_input == NULL)
        return weft_view_none();
    return weft_view_make(r->bound_input != NULL ? r->bound_input : r->grad_input, r->model->dtype,
                          most_stream_rows(r), r->options.input_cols);
}

weft_view weft_run_grad_output(const weft_run *r)
{
    if (r->grad_output == NULL)
        return weft_view_none();
    return weft_view_make(r->bound_output != NULL ? r->bound_output : r->grad_output,
                          r->model->dtype, most_stream_rows(r), cols_out(r));
}

void weft_run_bind_gradients(weft_run *r, weft_view grad_output, weft_view grad_input)
{
    r->bound_output = grad_output.data;
    r->bound_input = grad_input.data;
}

size_t weft_run_workspace_peak(const weft_run *r)
{
    return r->arena->peak_bytes;
}
