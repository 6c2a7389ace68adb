/*
 * Writing one safetensors file by several ranks at once.
 *
 * The header follows from the plan alone, so every rank knows where each element goes. One rank makes the file with its
 * header and its final length; then each writes its elements in place.
 *
 * Communication: none; who writes what, and when the file may be opened, is the callers'.
 * Invariant: what is written of a tensor, and its part of the tensor's checksum, is added to the caller's sums; when the
 * sums of all ranks have the tensor's bytes together, their checksums' xor is the tensor's.
 */
#include "base/crc32.h"
#include "base/file_share.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <string.h>

typedef struct place {
    uint64_t first;   /* byte of the file */
    uint64_t n_bytes; /* of the whole tensor */
    size_t elem_bytes;
} place;

struct weft_st_share {
    weft_alloc *alloc;
    weft_writer file;
    place *places; /* [n_plan] */
    size_t n_plan;
    weft_st_sum *sums;
};

static uint64_t bytes_of(const weft_st_plan *t)
{
    int64_t n = 0;
    (void)weft_i_shape_count(&t->shape, &n); /* weft_i_st_header has checked it */
    return (uint64_t)n * weft_dtype_bytes(t->dtype);
}

static weft_status make_header(weft_str *header, weft_alloc *alloc, const weft_st_content *c)
{
    weft_i_str_init(header, alloc);
    return weft_i_st_header(header, c->plan, c->n_plan, c->meta, c->n_meta);
}

weft_status weft_i_st_share_make(weft_st_sum *head,
                                 weft_alloc *alloc,
                                 const char *path,
                                 const weft_st_content *content)
{
    weft_str header;
    weft_status st = make_header(&header, alloc, content);
    if (st == WEFT_OK) {
        uint64_t n_bytes = header.n_bytes;
        for (size_t i = 0; i < content->n_plan; i++)
            n_bytes += bytes_of(&content->plan[i]);
        st = weft_i_file_make_room(path, header.text, header.n_bytes, n_bytes);
    }
    if (st == WEFT_OK)
        *head = (weft_st_sum){header.n_bytes, weft_i_crc32(header.text, header.n_bytes)};
    weft_i_str_fini(&header);
    return st;
}

weft_status weft_i_st_share_open(weft_st_share **out,
                                 weft_alloc *alloc,
                                 const char *path,
                                 const weft_st_content *content,
                                 weft_st_sum *sums)
{
    weft_str header;
    void *block = NULL;
    weft_st_share *s = NULL;
    uint64_t first = 0;
    weft_status st = WEFT_OK;
    WEFT_TRY_GOTO(st, make_header(&header, alloc, content), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, 1, sizeof(*s), &block), out);
    s = block;
    s->alloc = alloc;
    s->file.fd = -1;
    s->n_plan = content->n_plan;
    s->sums = sums;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, content->n_plan, sizeof(place), &block), out);
    s->places = block;
    first = header.n_bytes;
    for (size_t i = 0; i < content->n_plan; i++) {
        const weft_st_plan *t = &content->plan[i];
        s->places[i] = (place){first, bytes_of(t), weft_dtype_bytes(t->dtype)};
        first += s->places[i].n_bytes;
    }
    st = weft_i_writer_open_shared(&s->file, path);
out:
    weft_i_str_fini(&header);
    if (st == WEFT_OK)
        *out = s;
    else
        weft_i_st_share_abandon(s);
    return st;
}

weft_status
weft_i_st_share_write(weft_st_share *s, size_t tensor, int64_t first, int64_t n, const void *bytes)
{
    const place *p = tensor < s->n_plan ? &s->places[tensor] : NULL;
    const uint64_t n_elems = p != NULL ? p->n_bytes / p->elem_bytes : 0;
    if (first < 0 || n < 0 || (uint64_t)n > n_elems || (uint64_t)first > n_elems - (uint64_t)n)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: elements %" PRId64 " to %" PRId64
                  " of tensor %zu were to be written, it has "
                  "%" PRIu64,
                  s->file.path, first, first + n, tensor, n_elems);
    if (n == 0)
        return WEFT_OK;
    const uint64_t at = (uint64_t)first * p->elem_bytes;
    const uint64_t n_bytes = (uint64_t)n * p->elem_bytes;
    const uint32_t crc = weft_i_crc32(bytes, n_bytes);
    WEFT_TRY(weft_i_writer_write_at(&s->file, p->first + at, bytes, n_bytes));
    s->sums[tensor].crc ^= weft_i_crc32_moved(crc, p->n_bytes - at - n_bytes);
    s->sums[tensor].n_bytes += n_bytes;
    return WEFT_OK;
}

weft_status weft_i_st_share_close(weft_st_share *s)
{
    const weft_status st = weft_i_writer_close(&s->file);
    weft_i_st_share_abandon(s);
    return st;
}

void weft_i_st_share_abandon(weft_st_share *s)
{
    if (s == NULL)
        return;
    weft_i_writer_abandon(&s->file);
    weft_i_alloc_put(s->alloc, s->places);
    weft_i_alloc_put(s->alloc, s);
}
