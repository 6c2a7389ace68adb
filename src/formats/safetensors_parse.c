/*
 * The header of one safetensors file: everything is checked here, so that nothing read later can be out of range.
 *
 * Source: the format's specification, github.com/huggingface/safetensors, "Format"; the reference reader 0.8.0 for
 * what is accepted (leading white space, unknown fields, null metadata, empty tensors anywhere on a boundary).
 *
 * Stricter than the reference: a key twice, a NUL inside a name, over WEFT_SHAPE_MAX dimensions, dimensions over
 * 2^63 - 1, and what its parser takes though the specification does not (a tensor as a list, a type as an object).
 * Wider: a type name it does not know is kept as OTHER with its range checked, so that a tensor nobody asks for does
 * not make the rest unreadable.
 *
 * Invariants after WEFT_OK: 1. the ranges tile the data section from 0 to the file's end, no gap, no overlap.
 * 2. n_bytes = n_elems * size of the type, where the size is known. 3. n_elems fits int64_t.
 */
#include "formats/json.h"
#include "formats/safetensors_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES ((size_t)8)
#define METADATA_KEY "__metadata__"

/* Types the reference reader knows and weft does not compute with. */
typedef struct other_type {
    const char *name;
    uint64_t n_bits;
} other_type;

static const other_type other_types[] = {
    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"F8_E5M2", 8},     {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"C64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

typedef struct span {
    uint64_t begin, end;
    size_t tensor;
} span;

typedef struct parser {
    weft_st_file *f;
    const unsigned char *data; /* the section after the header */
    uint64_t n_data;
    uint64_t n_file;
    span *spans;
    char *next_string;
} parser;

/* Bits of one element; 0 when the name is unknown. */
static uint64_t bits_of(weft_dtype dtype, const char *name)
{
    if (dtype != WEFT_DTYPE_OTHER)
        return 8 * (uint64_t)weft_dtype_bytes(dtype);
    for (size_t i = 0; i < WEFT_COUNT_OF(other_types); i++) {
        if (strcmp(name, other_types[i].name) == 0)
            return other_types[i].n_bits;
    }
    return 0;
}

static weft_status
header_length(const weft_st_file *f, const unsigned char *bytes, size_t n_bytes, size_t *out)
{
    uint64_t n = 0;
    if (n_bytes < LENGTH_BYTES)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: %zu bytes are too few for a safetensors file, which starts with 8 bytes of "
                  "header length; "
                  "it is empty, truncated or something else",
                  f->path, n_bytes);
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        n |= (uint64_t)bytes[i] << (8 * i);
    if (n > WEFT_SAFETENSORS_HEADER_MAX)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: header too large: it says %" PRIu64 " bytes, the limit is %" PRIu64
                  " (the file has %zu); damaged, or no safetensors file",
                  f->path, n, WEFT_SAFETENSORS_HEADER_MAX, n_bytes);
    if (n > n_bytes - LENGTH_BYTES)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: the header of %" PRIu64
                  " bytes ends past the file's %zu bytes (expected at least %" PRIu64
                  "): truncated, or no safetensors file",
                  f->path, n, n_bytes, n + LENGTH_BYTES);
    *out = (size_t)n;
    return WEFT_OK;
}

static const char *keep_string(parser *p, const char *text)
{
    const size_t n = strlen(text) + 1;
    char *kept = p->next_string;
    memcpy(kept, text, n);
    p->next_string += n;
    return kept;
}

static weft_status read_shape(const parser *p, weft_st_tensor *t, const json_t *shape)
{
    const size_t n = json_array_size(shape);
    if (!json_is_array(shape))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor '%.200s': its shape is no list of sizes",
                  p->f->path, t->name);
    if (n > WEFT_SHAPE_MAX)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor '%.200s' has %zu dimensions, weft takes up to %d",
                  p->f->path, t->name, n, WEFT_SHAPE_MAX);
    t->shape.n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(shape, i);
        char text[64];
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor '%.200s': dimension %zu is %s, not a size",
                      p->f->path, t->name, i, weft_i_json_text(d, text, sizeof(text)));
        t->shape.dim[i] = json_integer_value(d);
    }
    if (weft_i_shape_count(&t->shape, &t->n_elems) != WEFT_OK)
        return weft_i_error_prefix(WEFT_STATUS_FORMAT, "%s: tensor '%.200s'", p->f->path, t->name);
    return WEFT_OK;
}

static weft_status
read_range(const parser *p, const weft_st_tensor *t, const json_t *offsets, span *out)
{
    char text[64];
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < 0)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: tensor '%.200s': data_offsets is %s, not two positions [begin, end]",
                  p->f->path, t->name, weft_i_json_text(offsets, text, sizeof(text)));
    out->begin = (uint64_t)json_integer_value(begin);
    out->end = (uint64_t)json_integer_value(end);
    if (out->end < out->begin)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: tensor '%.200s': its range runs backwards, from %" PRIu64 " to %" PRIu64,
                  p->f->path, t->name, out->begin, out->end);
    return WEFT_OK;
}

/* Does the range hold as many bytes as type and shape need? */
static weft_status check_bytes(const parser *p, const weft_st_tensor *t, const span *range)
{
    const uint64_t bits = bits_of(t->dtype, t->dtype_name);
    const uint64_t n = (uint64_t)t->n_elems;
    char text[256];
    if (bits == 0)
        return WEFT_OK;
    if (n > UINT64_MAX / bits)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: tensor '%.200s': %s of %s takes more bytes than 64 bits can count",
                  p->f->path, t->name, weft_i_shape_text(&t->shape, text, sizeof(text)),
                  t->dtype_name);
    if (n * bits % 8 != 0)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor '%.200s': %s of %s does not end on a whole byte",
                  p->f->path, t->name, weft_i_shape_text(&t->shape, text, sizeof(text)),
                  t->dtype_name);
    if (n * bits / 8 != range->end - range->begin)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: tensor '%.200s': %s of %s takes %" PRIu64 " bytes, its range [%" PRIu64
                  ", %" PRIu64 "] has %" PRIu64,
                  p->f->path, t->name, weft_i_shape_text(&t->shape, text, sizeof(text)),
                  t->dtype_name, n * bits / 8, range->begin, range->end, range->end - range->begin);
    return WEFT_OK;
}

static weft_status read_tensor(parser *p, size_t i, const char *name, const json_t *info)
{
    weft_st_tensor *t = &p->f->tensors[i];
    t->name = keep_string(p, name);
    if (!json_is_object(info))
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: tensor '%.200s' is no object with dtype, shape and data_offsets", p->f->path,
                  t->name);
    const json_t *dtype = json_object_get(info, "dtype");
    const json_t *shape = json_object_get(info, "shape");
    const json_t *offsets = json_object_get(info, "data_offsets");
    if (dtype == NULL || shape == NULL || offsets == NULL)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor '%.200s' has no %s", p->f->path, t->name,
                  dtype == NULL   ? "dtype"
                  : shape == NULL ? "shape"
                                  : "data_offsets");
    if (!json_is_string(dtype))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: tensor '%.200s': its dtype is no string", p->f->path,
                  t->name);
    t->dtype_name = keep_string(p, json_string_value(dtype));
    t->dtype = weft_dtype_from_name(t->dtype_name);
    span *range = &p->spans[i];
    range->tensor = i;
    WEFT_TRY(read_shape(p, t, shape));
    WEFT_TRY(read_range(p, t, offsets, range));
    return check_bytes(p, t, range);
}

static weft_status read_metadata(parser *p, json_t *metadata)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: " METADATA_KEY " '%.200s' is no string", p->f->path,
                      key);
        p->f->metas[i].key = keep_string(p, key);
        p->f->metas[i].value = keep_string(p, json_string_value(value));
        i++;
    }
    return WEFT_OK;
}

static int compare_spans(const void *a, const void *b)
{
    const span *x = a;
    const span *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const weft_st_tensor *x = a;
    const weft_st_tensor *y = b;
    return strcmp(x->name, y->name);
}

/* The ranges must tile the data section; only then are they turned into pointers. */
static weft_status place_data(parser *p)
{
    weft_st_file *f = p->f;
    uint64_t at = 0;
    const char *before = NULL;
    if (f->n_tensors > 0)
        qsort(p->spans, f->n_tensors, sizeof(*p->spans), compare_spans);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const span *s = &p->spans[i];
        weft_st_tensor *t = &f->tensors[s->tensor];
        if (s->begin != at)
            WEFT_FAIL(WEFT_STATUS_FORMAT,
                      "%s: tensor '%.200s': its range [%" PRIu64 ", %" PRIu64
                      "] %s, %s%.200s%s ends at %" PRIu64,
                      f->path, t->name, s->begin, s->end,
                      s->begin < at ? "overlaps the one before" : "leaves a gap",
                      before == NULL ? "the header" : "'", before == NULL ? "" : before,
                      before == NULL ? "" : "'", at);
        at = s->end;
        before = t->name;
        if (at <= p->n_data) {
            t->data = p->data + s->begin;
            t->n_bytes = (size_t)(s->end - s->begin);
        }
    }
    if (at != p->n_data)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: the file has %" PRIu64 " bytes, its header describes %" PRIu64
                  " (last tensor '%.200s'): %s",
                  f->path, p->n_file, p->n_file - p->n_data + at, before == NULL ? "" : before,
                  at > p->n_data ? "truncated" : "something was appended, or the header lies");
    return WEFT_OK;
}

/* Counts first, so that everything is taken at once and names stay where they are. */
static weft_status make_room(parser *p, weft_alloc *alloc, json_t *root)
{
    weft_st_file *f = p->f;
    size_t n_text = 0;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, METADATA_KEY) == 0) {
            const char *meta_key;
            json_t *meta_value;
            if (!json_is_object(value) && !json_is_null(value))
                WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: " METADATA_KEY " is no object of strings",
                          f->path);
            f->n_metas = json_object_size(value);
            json_object_foreach(value, meta_key, meta_value) n_text +=
                strlen(meta_key) + json_string_length(meta_value) + 2;
        } else {
            f->n_tensors++;
            n_text += strlen(key) + json_string_length(json_object_get(value, "dtype")) + 2;
        }
    }
    void *tensors = NULL;
    void *metas = NULL;
    void *strings = NULL;
    void *spans = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, f->n_tensors, sizeof(*f->tensors), &tensors));
    f->tensors = tensors;
    WEFT_TRY(weft_i_alloc_new(alloc, f->n_metas, sizeof(*f->metas), &metas));
    f->metas = metas;
    WEFT_TRY(weft_i_alloc_new(alloc, n_text, 1, &strings));
    f->strings = strings;
    p->next_string = strings;
    WEFT_TRY(weft_i_alloc_new(alloc, f->n_tensors, sizeof(*p->spans), &spans));
    p->spans = spans;
    return WEFT_OK;
}

weft_status
weft_i_st_file_parse(weft_st_file *f, weft_alloc *alloc, const unsigned char *bytes, size_t n_bytes)
{
    weft_status st = WEFT_OK;
    size_t n_header = 0;
    size_t i = 0;
    json_t *root = NULL;
    const char *key;
    json_t *value;
    parser p = {.f = f, .n_file = n_bytes};
    WEFT_TRY(header_length(f, bytes, n_bytes, &n_header));
    p.data = bytes + LENGTH_BYTES + n_header;
    p.n_data = n_bytes - LENGTH_BYTES - n_header;
    WEFT_TRY(
        weft_i_json_parse(&root, f->path, "header", (const char *)bytes + LENGTH_BYTES, n_header));
    WEFT_TRY_GOTO(st, make_room(&p, alloc, root), out);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, METADATA_KEY) == 0)
            WEFT_TRY_GOTO(st, read_metadata(&p, value), out);
        else
            WEFT_TRY_GOTO(st, read_tensor(&p, i++, key, value), out);
    }
    WEFT_TRY_GOTO(st, place_data(&p), out);
    if (f->n_tensors > 0)
        qsort(f->tensors, f->n_tensors, sizeof(*f->tensors), compare_names);
out:
    weft_i_alloc_put(alloc, p.spans);
    json_decref(root);
    return st;
}
