/*
 * Writes what a probe found (contract: probe_output.h).
 *
 * No rank holds all of it: each writes its micro-batches' logits and losses as they come and the gradients of its parts by
 * pieces, where they belong in the file. With one rank the bytes come in the file's order, so it may be a pipe.
 *
 * Communication: rank 0 makes the file before the others open it and names it after they closed it.
 * Invariant: what nobody writes (tensors that the model does not use) reads as zeros.
 */
#include "train/probe_output.h"

#include "base/ctx.h"
#include "base/file_share.h"
#include "parallel/ranks.h"

#include <inttypes.h>
#include <string.h>

#define PIECE_ELEMS ((int64_t)1 << 16)
#define BLOCK_BYTES ((size_t)1 << 22)
#define NAME_BYTES (WEFT_PARAM_NAME_BYTES + 8)

/* ---- what the file will hold ---- */

static bool is_number(weft_dtype t)
{
    return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16 || t == WEFT_DTYPE_F16 ||
           t == WEFT_DTYPE_F64;
}

static void add(weft_probe_output *o, const char *name, weft_shape shape)
{
    o->plan[o->n_plan++] = (weft_st_plan){.name = name, .dtype = WEFT_DTYPE_F32, .shape = shape};
}

static weft_status add_grad(weft_probe_output *o, const char *file_name, weft_shape shape)
{
    char *name = o->names + o->n_plan * NAME_BYTES;

    WEFT_TRY(weft_i_str_print(name, NAME_BYTES, "grad/%s", file_name));
    add(o, name, shape);
    o->n_grads++;
    return WEFT_OK;
}

static weft_status plan_grads(weft_probe_output *o, weft_model *m, const weft_source *s)
{
    char name[WEFT_PARAM_NAME_BYTES];

    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        const weft_shape shape = p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                                : weft_i_shape_2d(p->full_rows, p->full_cols);
        weft_i_weights_file_name(&s->names, p, name);
        o->plan_of_param[i] = (int64_t)o->n_plan;
        WEFT_TRY(add_grad(o, name, shape));
    }
    for (size_t i = 0; s->weights != NULL && i < weft_i_st_count(s->weights); i++) {
        const weft_st_tensor *t = weft_i_st_at(s->weights, i);
        if (weft_i_weights_role(m, &s->names, t->name) == WEFT_WEIGHT_UNKNOWN &&
            is_number(t->dtype) && strlen(t->name) < WEFT_PARAM_NAME_BYTES)
            WEFT_TRY(add_grad(o, t->name, t->shape));
    }
    return WEFT_OK;
}

static weft_status take_lists(weft_probe_output *o, weft_model *m, const weft_source *s)
{
    const int64_t n_file = s->weights != NULL ? (int64_t)weft_i_st_count(s->weights) : 0;
    const int64_t n_params = weft_model_param_count(m);
    const int64_t n = n_params + n_file + WEFT_PROBE_TENSORS;
    weft_alloc *alloc = o->mesh->ctx->alloc;

    WEFT_TRY(weft_i_alloc_array(alloc, n, sizeof(weft_st_plan), &o->plan));
    WEFT_TRY(weft_i_alloc_array(alloc, n + 1, sizeof(uint64_t), &o->place));
    WEFT_TRY(weft_i_alloc_array(alloc, n_params, sizeof(int64_t), &o->plan_of_param));
    return weft_i_alloc_array(alloc, n, NAME_BYTES, &o->names);
}

static weft_status make_plan(weft_probe_output *o,
                             weft_model *m,
                             const weft_source *source,
                             const weft_probe_batch *batch,
                             bool is_grads)
{
    const weft_shape logits = {
        .n_dims = 3, .dim = {batch->n_seqs, batch->n_tokens, source->hf.config.vocab_size}};

    WEFT_TRY(take_lists(o, m, source));
    add(o, "logits", logits);
    add(o, "token_loss", weft_i_shape_2d(batch->n_seqs, batch->n_tokens - 1));
    add(o, "loss", weft_i_shape_1d(1));
    return is_grads ? plan_grads(o, m, source) : WEFT_OK;
}

/* Where each tensor begins, behind a header of n_header bytes. */
static weft_status find_places(weft_probe_output *o, size_t n_header)
{
    o->place[0] = n_header;
    for (size_t i = 0; i < o->n_plan; i++) {
        int64_t n = 0;
        WEFT_TRY(weft_i_shape_count(&o->plan[i].shape, &n));
        o->place[i + 1] = o->place[i] + (uint64_t)n * sizeof(float);
    }
    return WEFT_OK;
}

/* ---- the file ---- */

/* The one rank, or rank 0: the file with its header and, for several, all its room. */
static weft_status make_file(weft_probe_output *o, const weft_str *header)
{
    if (!o->is_stream)
        return weft_i_file_make_room(o->temporary, header->text, header->n_bytes,
                                     o->place[o->n_plan]);
    WEFT_TRY(weft_i_writer_open(&o->file, o->temporary));
    o->is_open = true;
    return weft_i_writer_write(&o->file, header->text, header->n_bytes);
}

static weft_status open_file(weft_probe_output *o, const weft_str *header)
{
    weft_status st = WEFT_OK;

    if (o->mesh->world_rank == 0) {
        o->is_made = true;
        st = make_file(o, header);
    }
    WEFT_TRY(weft_i_mesh_agree(o->mesh, st));
    if (!o->is_open) {
        st = weft_i_writer_open_shared(&o->file, o->temporary);
        o->is_open = st == WEFT_OK;
    }
    return weft_i_mesh_agree(o->mesh, st);
}

weft_status weft_i_probe_output_create(weft_probe_output *out,
                                       const char *path,
                                       weft_mesh *mesh,
                                       weft_model *m,
                                       const weft_source *source,
                                       const weft_probe_batch *batch,
                                       bool is_grads)
{
    const weft_st_meta meta = {.key = "format", .value = "pt"};
    weft_probe_output o = {.mesh = mesh, .is_stream = mesh->world_size == 1, .file = {.fd = -1}};
    weft_str header;
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    weft_i_str_init(&header, mesh->ctx->alloc);
    st = make_plan(&o, m, source, batch, is_grads);
    if (st == WEFT_OK)
        st = weft_i_str_print(o.path, sizeof(o.path), "%s", path);
    if (st == WEFT_OK)
        st = weft_i_file_temporary(o.temporary, path);
    if (st == WEFT_OK)
        st = weft_i_st_header(&header, o.plan, o.n_plan, &meta, 1);
    if (st == WEFT_OK)
        st = find_places(&o, header.n_bytes);
    st = weft_i_mesh_agree(mesh, st);
    if (st == WEFT_OK)
        st = open_file(&o, &header);
    weft_i_str_fini(&header);
    if (st == WEFT_OK)
        *out = o;
    else
        weft_i_probe_output_destroy(&o);
    return st;
}

/* ---- bytes ---- */

static weft_status put_block(weft_probe_output *o, uint64_t at, const void *bytes, size_t n)
{
    WEFT_TRY(weft_i_ctx_alive(o->mesh->ctx));
    if (o->is_stream)
        return weft_i_writer_write(&o->file, bytes, n);
    return weft_i_writer_write_at(&o->file, at, bytes, n);
}

/* A stream gets zeros up to `at`. */
static weft_status skip_to(weft_probe_output *o, uint64_t at)
{
    static const char zeros[4096];

    if (!o->is_stream)
        return WEFT_OK;
    if (at < o->file.n_bytes)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s: byte %" PRIu64 " came after byte %" PRIu64, o->path,
                  at, o->file.n_bytes);
    while (o->file.n_bytes < at) {
        const uint64_t n = WEFT_MIN(at - o->file.n_bytes, sizeof(zeros));
        WEFT_TRY(put_block(o, 0, zeros, (size_t)n));
    }
    return WEFT_OK;
}

static weft_status
put(weft_probe_output *o, size_t tensor, int64_t first, const float *values, int64_t n)
{
    const uint64_t at = o->place[tensor] + (uint64_t)first * sizeof(float);
    const size_t n_bytes = (size_t)n * sizeof(float);
    const char *bytes = (const char *)values;

    WEFT_TRY(skip_to(o, at));
    for (size_t i = 0; i < n_bytes; i += BLOCK_BYTES)
        WEFT_TRY(put_block(o, at + i, bytes + i, WEFT_MIN(BLOCK_BYTES, n_bytes - i)));
    return WEFT_OK;
}

weft_status weft_i_probe_output_add(
    weft_probe_output *o, weft_probe_tensor tensor, int64_t first, const float *values, int64_t n)
{
    return put(o, (size_t)tensor, first, values, n);
}

static weft_status add_part(weft_probe_output *o, const weft_part *part, float *piece)
{
    weft_backend *b = o->mesh->ctx->backend;
    const size_t tensor = (size_t)o->plan_of_param[part->number];
    weft_stretch_walk walk = weft_i_stretch_begin(part->param, part->first, part->n);
    weft_stretch s;

    while (weft_i_stretch_next(&walk, &s)) {
        const float *from = (const float *)part->grad.data + (s.local - part->first);
        for (int64_t i = 0; i < s.n && s.is_owned; i += PIECE_ELEMS) {
            const int64_t n = WEFT_MIN(PIECE_ELEMS, s.n - i);
            WEFT_TRY(b->ops->copy_to_host(b, piece, from + i, (size_t)n * sizeof(float)));
            WEFT_TRY(put(o, tensor, s.full + i, piece, n));
        }
    }
    return WEFT_OK;
}

weft_status weft_i_probe_output_add_grads(weft_probe_output *o, const weft_parts *owned)
{
    weft_alloc *alloc = o->mesh->ctx->alloc;
    float *piece = NULL;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_i_alloc_array(alloc, PIECE_ELEMS, sizeof(float), &piece));
    for (int64_t i = 0; i < owned->n && st == WEFT_OK; i++)
        st = add_part(o, &owned->part[i], piece);
    weft_i_alloc_put(alloc, piece);
    return st;
}

/* ---- the end ---- */

weft_status weft_i_probe_output_finish(weft_probe_output *o)
{
    weft_status st = skip_to(o, o->place[o->n_plan]);

    if (st == WEFT_OK) {
        st = weft_i_writer_close(&o->file);
        o->is_open = false;
    }
    WEFT_TRY(weft_i_mesh_agree(o->mesh, st));
    if (o->is_made) {
        st = weft_i_file_appear(o->temporary, o->path);
        o->is_made = st != WEFT_OK;
    }
    return weft_i_mesh_agree(o->mesh, st);
}

void weft_i_probe_output_destroy(weft_probe_output *o)
{
    if (o->mesh == NULL)
        return;
    weft_alloc *alloc = o->mesh->ctx->alloc;
    if (o->is_open)
        weft_i_writer_abandon(&o->file);
    if (o->is_made)
        weft_i_file_discard(o->temporary, o->path);
    weft_i_alloc_put(alloc, o->plan);
    weft_i_alloc_put(alloc, o->place);
    weft_i_alloc_put(alloc, o->plan_of_param);
    weft_i_alloc_put(alloc, o->names);
    memset(o, 0, sizeof(*o));
}
