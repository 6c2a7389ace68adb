/*
 * Weights between Hugging Face files and a model's parameters.
 *
 * A parameter's description is all this file knows: its name, its size in the file, and which rectangles of it lie here.
 * The order of axes is the file's (GPT-2's products are stored [in, out]); nothing is transposed on the way.
 *
 * Invariants
 *  1. Either every part is filled from the file or the call fails: no weight is left as it was.
 *  2. A staging buffer and the pages of a few megabytes of the file are resident beside the model, no second copy.
 *
 * What a type of file holds is left to formats/safetensors; which parameters there are, to the models.
 */
#include "nn/models/weights.h"

#include "base/ctx.h"
#include "base/log.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "transformer."
#define HEAD "lm_head.weight"
#define STAGING_ELEMS ((int64_t)1 << 18)
#define N_LISTED 12 /* names in a message before "and N more" */

/* The embedding under the names of the families: what a tied head repeats. */
static const char *const EMBEDDINGS[] = {"model.embed_tokens.weight", "transformer.wte.weight"};

/* Buffers that some exports carry along and no family of ours reads. */
static const char *const BUFFERS[] = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"};

/* ---- names ---- */

static bool has_prefix(const char *name)
{
    return strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0;
}

weft_status weft_i_weights_names(weft_weight_names *out, weft_model *m, const weft_st *file)
{
    bool is_bare_found = false;

    *out = (weft_weight_names){.has_no_prefix = false};
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const char *name = weft_model_param(m, i)->name;
        if (!has_prefix(name))
            continue;
        if (weft_i_st_find(file, name) != NULL)
            return WEFT_OK;
        is_bare_found = is_bare_found || weft_i_st_find(file, name + sizeof(PREFIX) - 1) != NULL;
    }
    out->has_no_prefix = is_bare_found;
    return WEFT_OK;
}

void weft_i_weights_file_name(const weft_weight_names *names, const weft_param *p, char *out)
{
    const bool is_cut = names->has_no_prefix && has_prefix(p->name);
    const char *name = is_cut ? p->name + sizeof(PREFIX) - 1 : p->name;
    memcpy(out, name, strlen(name) + 1);
}

static const weft_st_tensor *
find_tensor(const weft_st *file, const weft_weight_names *names, const weft_param *p)
{
    char name[WEFT_PARAM_NAME_BYTES];
    weft_i_weights_file_name(names, p, name);
    return weft_i_st_find(file, name);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* The parameter that a name of the file stands for; NULL when there is none. */
static weft_param *param_of(weft_model *m, const weft_weight_names *names, const char *file_name)
{
    char name[WEFT_PARAM_NAME_BYTES];
    weft_param *p = weft_model_find_param(m, file_name);

    if (!names->has_no_prefix || (p != NULL && !has_prefix(p->name)))
        return p;
    const int n = snprintf(name, sizeof(name), "%s%s", PREFIX, file_name);
    return n > 0 && (size_t)n < sizeof(name) ? weft_model_find_param(m, name) : NULL;
}

weft_weight_role
weft_i_weights_role(weft_model *m, const weft_weight_names *names, const char *file_name)
{
    if (param_of(m, names, file_name) != NULL)
        return WEFT_WEIGHT_PARAM;
    if (strcmp(file_name, HEAD) == 0)
        return WEFT_WEIGHT_TIED;
    for (size_t i = 0; i < WEFT_COUNT_OF(BUFFERS); i++) {
        if (ends_with(file_name, BUFFERS[i]))
            return WEFT_WEIGHT_BUFFER;
    }
    return WEFT_WEIGHT_UNKNOWN;
}

/* ---- checks ---- */

static bool is_readable(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F32 || dtype == WEFT_DTYPE_BF16 || dtype == WEFT_DTYPE_F16;
}

/* All names that are missing, as one message; *n counts them. */
static weft_status list_missing(
    weft_str *text, int64_t *n, weft_model *m, const weft_st *file, const weft_weight_names *names)
{
    char name[WEFT_PARAM_NAME_BYTES];

    *n = 0;
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        if (find_tensor(file, names, p) != NULL)
            continue;
        weft_i_weights_file_name(names, p, name);
        if (*n < N_LISTED)
            WEFT_TRY(weft_i_str_addf(text, "%s%s", *n == 0 ? "" : ", ", name));
        (*n)++;
    }
    if (*n > N_LISTED)
        WEFT_TRY(weft_i_str_addf(text, " and %" PRId64 " more", *n - N_LISTED));
    return WEFT_OK;
}

static weft_status check_missing(weft_model *m, const weft_st *file, const weft_weight_names *names)
{
    weft_str text;
    int64_t n = 0;
    weft_status st = WEFT_OK;

    weft_i_str_init(&text, weft_model_ctx(m)->alloc);
    WEFT_TRY_GOTO(st, list_missing(&text, &n, m, file, names), out);
    if (n > 0) {
        const bool is_head = n == 1 && strcmp(text.text, HEAD) == 0;
        st = weft_i_error_set(
            WEFT_STATUS_FORMAT, "%s%s: %" PRId64 " tensor%s the config asks for %s missing: %s%s",
            weft_i_st_file_count(file) > 0 ? weft_i_st_file(file, 0) : "weights",
            weft_i_st_file_count(file) > 1 ? " and its other shards" : "", n, n == 1 ? "" : "s",
            n == 1 ? "is" : "are", text.text,
            is_head ? " (to use the embedding as the head, set \"tie_word_embeddings\": true in "
                      "config.json)"
                    : "");
    }
out:
    weft_i_str_fini(&text);
    return st;
}

static weft_status check_tensor(const weft_st *file, const weft_st_tensor *t, const weft_param *p)
{
    char have[96];
    char want[96];
    const weft_shape shape = p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                            : weft_i_shape_2d(p->full_rows, p->full_cols);

    if (!weft_i_shape_equal(&t->shape, &shape))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor %s is %s, the config makes it %s",
                  weft_i_st_file(file, t->file), t->name,
                  weft_i_shape_text(&t->shape, have, sizeof(have)),
                  weft_i_shape_text(&shape, want, sizeof(want)));
    if (!is_readable(t->dtype))
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                  "%s: tensor %s has type %s; weft reads F32, BF16 and F16",
                  weft_i_st_file(file, t->file), t->name, t->dtype_name);
    return WEFT_OK;
}

weft_status weft_i_weights_check(weft_model *m, const weft_st *file, const weft_weight_names *names)
{
    WEFT_TRY(check_missing(m, file, names));
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        WEFT_TRY(check_tensor(file, find_tensor(file, names, p), p));
    }
    return WEFT_OK;
}

/* ---- what is passed over ---- */

static void warn_tied(weft_model *m, const weft_st *file, const weft_weight_names *names)
{
    const weft_st_tensor *head = weft_i_st_find(file, HEAD);
    const weft_st_tensor *table = NULL;

    for (size_t i = 0; i < WEFT_COUNT_OF(EMBEDDINGS) && table == NULL; i++) {
        const weft_param *p = weft_model_find_param(m, EMBEDDINGS[i]);
        table = p != NULL ? find_tensor(file, names, p) : NULL;
    }
    const bool is_equal = table != NULL && table->dtype == head->dtype &&
                          table->n_bytes == head->n_bytes &&
                          memcmp(table->data, head->data, head->n_bytes) == 0;
    if (!is_equal)
        weft_log(
            weft_model_ctx(m), WEFT_LOG_WARN, "nn",
            "%s: %s differs from the embedding, but the config ties them: the embedding is used",
            weft_i_st_file(file, head->file), HEAD);
    weft_i_st_drop(file, head);
}

static void warn_extra(weft_model *m, const weft_st *file, const weft_weight_names *names)
{
    const weft_st_tensor *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const weft_st_tensor *t = weft_i_st_at(file, i);
        const weft_weight_role role = weft_i_weights_role(m, names, t->name);
        if (role == WEFT_WEIGHT_TIED)
            warn_tied(m, file, names);
        if (role != WEFT_WEIGHT_UNKNOWN)
            continue;
        first = first == NULL ? t : first;
        n++;
    }
    if (n > 0)
        weft_log(weft_model_ctx(m), WEFT_LOG_WARN, "nn",
                 "%s: %zu tensor%s the model has no use for: %s%s",
                 weft_i_st_file(file, first->file), n, n == 1 ? "" : "s", first->name,
                 n == 1 ? "" : ", ...");
}

/* ---- filling ---- */

typedef struct fill {
    weft_ctx *ctx;
    const weft_st *file;
    char *staging; /* STAGING_ELEMS of the model's type */
    weft_dtype dtype;
} fill;

/* n elements of t that lie one after another in the file and here; pages that were read go at once. A block is a sign of
   life for the other ranks. */
static weft_status
fill_line(const fill *f, char *dst, const weft_st_tensor *t, const char *src, int64_t n)
{
    const size_t dst_bytes = weft_dtype_bytes(f->dtype);
    const size_t src_bytes = weft_dtype_bytes(t->dtype);

    for (int64_t i = 0; i < n; i += STAGING_ELEMS) {
        const int64_t k = WEFT_MIN(STAGING_ELEMS, n - i);
        const void *from = src + (size_t)i * src_bytes;
        weft_st_tensor part = *t;
        part.data = from;
        part.n_bytes = (size_t)k * src_bytes;
        if (t->dtype != f->dtype) {
            WEFT_TRY(weft_i_convert(f->staging, f->dtype, from, t->dtype, k));
            from = f->staging;
        }
        weft_backend *b = f->ctx->backend;
        WEFT_TRY(
            b->ops->copy_from_host(b, dst + (size_t)i * dst_bytes, from, (size_t)k * dst_bytes));
        WEFT_TRY(weft_i_ctx_alive(f->ctx));
        if (k == STAGING_ELEMS)
            weft_i_st_drop(f->file, &part);
    }
    return WEFT_OK;
}

/* The part's elements from tensor t, a stretch at a time. */
static weft_status fill_part(const fill *f, const weft_st_tensor *t, const weft_part *part)
{
    const size_t dst_bytes = weft_dtype_bytes(f->dtype);
    const size_t src_bytes = weft_dtype_bytes(t->dtype);
    int64_t first = t->n_elems; /* elements of the tensor that were read: [first, end) */
    int64_t end = 0;
    weft_stretch s;

    if (part->value.data == NULL)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s has no memory here to load it into", part->param->name);
    weft_stretch_walk walk = weft_i_stretch_begin(part->param, part->first, part->n);
    while (weft_i_stretch_next(&walk, &s)) {
        const char *src = (const char *)t->data + (size_t)s.full * src_bytes;
        char *dst = (char *)part->value.data + (size_t)(s.local - part->first) * dst_bytes;
        WEFT_TRY(fill_line(f, dst, t, src, s.n));
        first = WEFT_MIN(first, s.full);
        end = WEFT_MAX(end, s.full + s.n);
    }
    if (first < end) {
        weft_st_tensor range = *t;
        range.data = (const char *)t->data + (size_t)first * src_bytes;
        range.n_bytes = (size_t)(end - first) * src_bytes;
        weft_i_st_drop(f->file, &range);
    }
    return WEFT_OK;
}

weft_status weft_i_weights_load_parts(weft_model *m,
                                      const weft_st *file,
                                      const weft_weight_names *names,
                                      const weft_part *parts,
                                      int64_t n)
{
    weft_ctx *ctx = weft_model_ctx(m);
    fill f = {.ctx = ctx, .file = file, .dtype = weft_model_dtype(m)};
    void *staging = NULL;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_i_weights_check(m, file, names));
    WEFT_TRY(
        weft_i_alloc_new(ctx->alloc, (size_t)STAGING_ELEMS, weft_dtype_bytes(f.dtype), &staging));
    f.staging = staging;
    if (ctx->log != NULL && ctx->log_level <= WEFT_LOG_WARN)
        warn_extra(m, file, names);
    for (int64_t i = 0; i < n; i++)
        WEFT_TRY_GOTO(st, fill_part(&f, find_tensor(file, names, parts[i].param), &parts[i]), out);
out:
    weft_i_alloc_put(ctx->alloc, staging);
    return st;
}

weft_status weft_i_weights_load(weft_model *m, const weft_st *file, const weft_weight_names *names)
{
    weft_part *parts = NULL;

    WEFT_TRY(weft_i_part_list(&parts, m));
    const weft_status st =
        weft_i_weights_load_parts(m, file, names, parts, weft_model_param_count(m));
    weft_i_alloc_put(weft_model_ctx(m)->alloc, parts);
    return st;
}

weft_dtype weft_i_weights_dtype(const weft_st *file)
{
    bool is_found = false;

    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const weft_st_tensor *t = weft_i_st_at(file, i);
        if (t->shape.n_dims != 2)
            continue;
        if (t->dtype != WEFT_DTYPE_BF16)
            return WEFT_DTYPE_F32;
        is_found = true;
    }
    return is_found ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
}
