/*
 * Reads the batch of a probe (contract: probe_batch.h).
 *
 * The shift by one happens here, inside each sequence: position t is scored on label t + 1 and the last position on none,
 * so label 0 of a sequence is never used (but checked like the others).
 */
#include "train/probe_batch.h"

#include "base/log.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <string.h>

#define NOT_COUNTED (-100)

static int64_t element(const weft_st_tensor *t, int64_t i)
{
    int64_t wide = 0;
    int32_t narrow = 0;

    if (t->dtype == WEFT_DTYPE_I64) {
        memcpy(&wide, (const char *)t->data + (size_t)i * sizeof(wide), sizeof(wide));
        return wide;
    }
    memcpy(&narrow, (const char *)t->data + (size_t)i * sizeof(narrow), sizeof(narrow));
    return narrow;
}

static weft_status check_tensor(const weft_st *file, const weft_st_tensor *t)
{
    char shape[96];

    if (t->dtype != WEFT_DTYPE_I64 && t->dtype != WEFT_DTYPE_I32)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "%s: %s has type %s; it must be I64 or I32",
                  weft_i_st_file(file, t->file), t->name, t->dtype_name);
    if (t->shape.n_dims != 2 || t->shape.dim[0] < 1 || t->shape.dim[1] < 1)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %s is %s; it must be [sequences, tokens], neither 0",
                  weft_i_st_file(file, t->file), t->name,
                  weft_i_shape_text(&t->shape, shape, sizeof(shape)));
    if (t->shape.dim[0] > INT32_MAX / t->shape.dim[1])
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "%s: %s is %s, over 2^31 tokens",
                  weft_i_st_file(file, t->file), t->name,
                  weft_i_shape_text(&t->shape, shape, sizeof(shape)));
    return WEFT_OK;
}

static weft_status
check_id(const weft_st *file, const weft_st_tensor *t, int64_t i, int64_t vocab_size)
{
    const int64_t id = element(t, i);
    const bool is_label = strcmp(t->name, "labels") == 0;

    if ((id < 0 || id >= vocab_size) && !(is_label && id == NOT_COUNTED))
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "%s: %s[%" PRId64 ", %" PRId64 "] is %" PRId64
                  "; the model's ids are 0 .. %" PRId64 "%s",
                  weft_i_st_file(file, t->file), t->name, i / t->shape.dim[1], i % t->shape.dim[1],
                  id, vocab_size - 1, is_label ? ", and -100 is not counted" : "");
    return WEFT_OK;
}

static void warn_others(const weft_ctx *ctx, const weft_st *file)
{
    const weft_st_tensor *first = NULL;
    int n = 0;
    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const weft_st_tensor *t = weft_i_st_at(file, i);
        if (strcmp(t->name, "input_ids") == 0 || strcmp(t->name, "labels") == 0)
            continue;
        first = first != NULL ? first : t;
        n++;
    }
    if (n > 0)
        weft_log(ctx, WEFT_LOG_WARN, "train",
                 "%s: tensors that are neither input_ids nor labels are not used: %d, the first is "
                 "%s",
                 weft_i_st_file(file, first->file), n, first->name);
}

static weft_status
find(const weft_st_tensor **ids, const weft_st_tensor **labels, const weft_st *file)
{
    *ids = weft_i_st_find(file, "input_ids");
    *labels = weft_i_st_find(file, "labels");
    if (*ids == NULL)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s has no tensor input_ids", weft_i_st_file(file, 0));
    WEFT_TRY(check_tensor(file, *ids));
    if (*labels == NULL)
        *labels = *ids;
    WEFT_TRY(check_tensor(file, *labels));
    if (!weft_i_shape_equal(&(*ids)->shape, &(*labels)->shape)) {
        char a[96];
        char b[96];
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: labels are %s and input_ids %s; they must be alike",
                  weft_i_st_file(file, 0), weft_i_shape_text(&(*labels)->shape, a, sizeof(a)),
                  weft_i_shape_text(&(*ids)->shape, b, sizeof(b)));
    }
    return WEFT_OK;
}

static weft_status fill(weft_probe_batch *b, const weft_st *file, int64_t vocab_size)
{
    const weft_st_tensor *ids = NULL;
    const weft_st_tensor *labels = NULL;

    WEFT_TRY(find(&ids, &labels, file));
    b->n_seqs = ids->shape.dim[0];
    b->n_tokens = ids->shape.dim[1];
    const int64_t n = b->n_seqs * b->n_tokens;
    WEFT_TRY(weft_i_alloc_array(b->alloc, n, sizeof(int32_t), &b->ids));
    WEFT_TRY(weft_i_alloc_array(b->alloc, n, sizeof(int32_t), &b->targets));
    for (int64_t i = 0; i < n; i++) {
        const bool is_last = i % b->n_tokens == b->n_tokens - 1;
        WEFT_TRY(check_id(file, ids, i, vocab_size));
        WEFT_TRY(check_id(file, labels, i, vocab_size));
        b->ids[i] = (int32_t)element(ids, i);
        b->targets[i] = is_last ? NOT_COUNTED : (int32_t)element(labels, i + 1);
        b->n_targets += b->targets[i] != NOT_COUNTED;
    }
    return WEFT_OK;
}

weft_status
weft_i_probe_batch_init(weft_probe_batch *out, weft_ctx *ctx, const char *path, int64_t vocab_size)
{
    weft_probe_batch b = {.alloc = ctx->alloc};
    weft_st *file = NULL;
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY(weft_i_st_open(&file, ctx->alloc, path));
    WEFT_TRY_GOTO(st, fill(&b, file, vocab_size), out);
    warn_others(ctx, file);
out:
    weft_i_st_close(file);
    if (st == WEFT_OK)
        *out = b;
    else
        weft_i_probe_batch_fini(&b);
    return st;
}

void weft_i_probe_batch_fini(weft_probe_batch *b)
{
    if (b->alloc == NULL)
        return;
    weft_i_alloc_put(b->alloc, b->ids);
    weft_i_alloc_put(b->alloc, b->targets);
    memset(b, 0, sizeof(*b));
}
