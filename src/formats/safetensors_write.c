/*
 * Writing safetensors files: the header from a plan, then the tensors' bytes in plan order; and the index of a folder.
 *
 * Source: the format's specification; the header is padded with spaces to a multiple of 8 bytes, as the reference
 * writer does, so that data of up to 8-byte elements can be used where it is mapped.
 *
 * Invariants: 1. ranges follow each other in plan order without gap. 2. finish succeeds only if exactly the planned
 * bytes were appended. Making a folder of files appear at once (temporary name, rename) is the caller's.
 */
#include "formats/json.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct weft_st_writer {
    weft_alloc *alloc;
    weft_writer file;
    uint64_t n_planned;
    uint64_t n_written;
};

static int compare_text(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

static weft_status check_names(weft_alloc *alloc, const weft_st_plan *plan, size_t n_plan)
{
    weft_status st = WEFT_OK;
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, n_plan, sizeof(const char *), &block));
    const char **names = block;
    for (size_t i = 0; i < n_plan; i++)
        names[i] = plan[i].name;
    if (n_plan > 0)
        qsort(names, n_plan, sizeof(*names), compare_text);
    for (size_t i = 0; i < n_plan && st == WEFT_OK; i++) {
        if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            st = weft_i_error_set(WEFT_STATUS_ARG, "tensor '%.200s' is planned twice for one file",
                                  names[i]);
        else if (strcmp(names[i], "__metadata__") == 0)
            st = weft_i_error_set(WEFT_STATUS_ARG,
                                  "no tensor can be named __metadata__ in a safetensors file");
    }
    weft_i_alloc_put(alloc, block);
    return st;
}

/* Bytes of one planned tensor, added to *end with the check that nothing wraps. */
static weft_status add_bytes(const weft_st_plan *t, uint64_t *end)
{
    const uint64_t size = weft_dtype_bytes(t->dtype);
    int64_t n = 0;
    if (weft_i_shape_count(&t->shape, &n) != WEFT_OK)
        return weft_i_error_prefix(WEFT_STATUS_ARG, "tensor '%.200s'", t->name);
    if (size == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "tensor '%.200s' has no type that can be written", t->name);
    if ((uint64_t)n > ((uint64_t)INT64_MAX - *end) / size)
        WEFT_FAIL(WEFT_STATUS_ARG, "tensor '%.200s': the file would pass 2^63 bytes", t->name);
    *end += (uint64_t)n * size;
    return WEFT_OK;
}

static weft_status add_metadata(weft_str *s, const weft_st_meta *meta, size_t n_meta)
{
    if (n_meta == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_str_addf(s, "\"__metadata__\":{"));
    for (size_t i = 0; i < n_meta; i++) {
        if (i > 0)
            WEFT_TRY(weft_i_str_add(s, ",", 1));
        WEFT_TRY(weft_i_json_add_string(s, meta[i].key));
        WEFT_TRY(weft_i_str_add(s, ":", 1));
        WEFT_TRY(weft_i_json_add_string(s, meta[i].value));
    }
    return weft_i_str_add(s, "}", 1);
}

static weft_status add_tensor(weft_str *s, const weft_st_plan *t, uint64_t begin, uint64_t end)
{
    WEFT_TRY(weft_i_json_add_string(s, t->name));
    WEFT_TRY(weft_i_str_addf(s, ":{\"dtype\":\"%s\",\"shape\":[", weft_dtype_name(t->dtype)));
    for (int i = 0; i < t->shape.n_dims; i++)
        WEFT_TRY(weft_i_str_addf(s, "%s%" PRId64, i > 0 ? "," : "", t->shape.dim[i]));
    return weft_i_str_addf(s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

static weft_status make_json(
    weft_str *s, const weft_st_plan *plan, size_t n_plan, const weft_st_meta *meta, size_t n_meta)
{
    uint64_t end = 0;
    WEFT_TRY(weft_i_str_add(s, "{", 1));
    WEFT_TRY(add_metadata(s, meta, n_meta));
    for (size_t i = 0; i < n_plan; i++) {
        const uint64_t begin = end;
        WEFT_TRY(add_bytes(&plan[i], &end));
        if (i > 0 || n_meta > 0)
            WEFT_TRY(weft_i_str_add(s, ",", 1));
        WEFT_TRY(add_tensor(s, &plan[i], begin, end));
    }
    WEFT_TRY(weft_i_str_add(s, "}", 1));
    while (s->n_bytes % 8 != 0)
        WEFT_TRY(weft_i_str_add(s, " ", 1));
    if (s->n_bytes > WEFT_SAFETENSORS_HEADER_MAX)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "the header of %zu tensors takes %zu bytes, a safetensors file may have %" PRIu64,
                  n_plan, s->n_bytes, WEFT_SAFETENSORS_HEADER_MAX);
    return WEFT_OK;
}

weft_status weft_i_st_header(
    weft_str *out, const weft_st_plan *plan, size_t n_plan, const weft_st_meta *meta, size_t n_meta)
{
    weft_status st = WEFT_OK;
    weft_str json;
    char length[8];
    WEFT_TRY(check_names(out->alloc, plan, n_plan));
    weft_i_str_init(&json, out->alloc);
    WEFT_TRY_GOTO(st, make_json(&json, plan, n_plan, meta, n_meta), out);
    for (size_t i = 0; i < sizeof(length); i++) {
        const unsigned char byte = (unsigned char)((uint64_t)json.n_bytes >> (8 * i));
        memcpy(&length[i], &byte, 1);
    }
    WEFT_TRY_GOTO(st, weft_i_str_add(out, length, sizeof(length)), out);
    WEFT_TRY_GOTO(st, weft_i_str_add(out, json.text, json.n_bytes), out);
out:
    weft_i_str_fini(&json);
    return st;
}

weft_status weft_i_st_create(weft_st_writer **out,
                             weft_alloc *alloc,
                             const char *path,
                             const weft_st_plan *plan,
                             size_t n_plan,
                             const weft_st_meta *meta,
                             size_t n_meta)
{
    weft_status st = WEFT_OK;
    weft_st_writer *w = NULL;
    void *block = NULL;
    bool is_open = false;
    weft_str header;
    weft_i_str_init(&header, alloc);
    WEFT_TRY_GOTO(st, weft_i_st_header(&header, plan, n_plan, meta, n_meta), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, 1, sizeof(*w), &block), out);
    w = block;
    w->alloc = alloc;
    for (size_t i = 0; i < n_plan; i++)
        WEFT_TRY_GOTO(st, add_bytes(&plan[i], &w->n_planned), out);
    WEFT_TRY_GOTO(st, weft_i_writer_open(&w->file, path), out);
    is_open = true;
    WEFT_TRY_GOTO(st, weft_i_writer_write(&w->file, header.text, header.n_bytes), out);
    *out = w;
out:
    weft_i_str_fini(&header);
    if (st != WEFT_OK) {
        if (is_open)
            weft_i_writer_abandon(&w->file);
        weft_i_alloc_put(alloc, block);
    }
    return st;
}

weft_status weft_i_st_append(weft_st_writer *w, const void *bytes, size_t n_bytes)
{
    if (n_bytes > w->n_planned - w->n_written)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: %" PRIu64 " bytes of tensors were planned, %zu more came after %" PRIu64,
                  w->file.path, w->n_planned, n_bytes, w->n_written);
    WEFT_TRY(weft_i_writer_write(&w->file, bytes, n_bytes));
    w->n_written += n_bytes;
    return WEFT_OK;
}

weft_status weft_i_st_finish(weft_st_writer *w)
{
    weft_status st = WEFT_OK;
    if (w->n_written != w->n_planned)
        st = weft_i_error_set(WEFT_STATUS_ARG,
                              "%s: %" PRIu64 " bytes of tensors were planned, %" PRIu64 " came",
                              w->file.path, w->n_planned, w->n_written);
    else
        st = weft_i_writer_close(&w->file);
    weft_i_st_abandon(w);
    return st;
}

void weft_i_st_abandon(weft_st_writer *w)
{
    if (w == NULL)
        return;
    weft_i_writer_abandon(&w->file);
    weft_i_alloc_put(w->alloc, w);
}

static int compare_places(const void *a, const void *b)
{
    const weft_st_place *x = a;
    const weft_st_place *y = b;
    return strcmp(x->name, y->name);
}

static weft_status add_places(weft_str *s, const weft_st_place *places, size_t n_places)
{
    for (size_t i = 0; i < n_places; i++) {
        if (i > 0 && strcmp(places[i - 1].name, places[i].name) == 0)
            WEFT_FAIL(WEFT_STATUS_ARG, "tensor '%.200s' is placed in two files, %s and %s",
                      places[i].name, places[i - 1].file, places[i].file);
        WEFT_TRY(weft_i_str_addf(s, "%s\n    ", i > 0 ? "," : ""));
        WEFT_TRY(weft_i_json_add_string(s, places[i].name));
        WEFT_TRY(weft_i_str_addf(s, ": "));
        WEFT_TRY(weft_i_json_add_string(s, places[i].file));
    }
    return WEFT_OK;
}

weft_status weft_i_st_write_index(weft_alloc *alloc,
                                  const char *path,
                                  const weft_st_place *places,
                                  size_t n_places,
                                  uint64_t total_bytes)
{
    weft_status st = WEFT_OK;
    weft_str s;
    weft_st_place *sorted = NULL;
    void *block = NULL;
    weft_i_str_init(&s, alloc);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n_places, sizeof(*places), &block), out);
    sorted = block;
    if (n_places > 0) {
        memcpy(sorted, places, n_places * sizeof(*places));
        qsort(sorted, n_places, sizeof(*sorted), compare_places);
    }
    WEFT_TRY_GOTO(st,
                  weft_i_str_addf(&s,
                                  "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64
                                  "\n  },\n  \"weight_map\": {",
                                  total_bytes),
                  out);
    WEFT_TRY_GOTO(st, add_places(&s, sorted, n_places), out);
    WEFT_TRY_GOTO(st, weft_i_str_addf(&s, "\n  }\n}\n"), out);
    st = weft_i_file_write(path, s.text, s.n_bytes);
out:
    weft_i_alloc_put(alloc, block);
    weft_i_str_fini(&s);
    return st;
}
