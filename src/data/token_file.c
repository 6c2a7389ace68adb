/*
 * Token files. The header is written last, when the number of tokens is known, and the file gets its name after
 * that: a run that is cut short leaves no file that could be taken for a whole one.
 *
 * All positions are 64 bits wide; numbers are put together from bytes, so the order of bytes of the machine does
 * not matter.
 */
#include "data/token_file.h"

#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "WEFTTOK"
#define MAGIC_BYTES 7
#define VERSION '1'
#define NARROW_IDS 65536
#define BLOCK_IDS 4096
#define DROP_IDS ((int64_t)1 << 22)

static void put_u32(unsigned char *out, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(x >> (8 * i));
}

static void put_u64(unsigned char *out, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(x >> (8 * i));
}

static uint32_t get_u32(const unsigned char *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint64_t get_u64(const unsigned char *in)
{
    return (uint64_t)get_u32(in) | (uint64_t)get_u32(in + 4) << 32;
}

static int width_of(int64_t vocab_size)
{
    return vocab_size <= NARROW_IDS ? 2 : 4;
}

bool weft_i_token_file_is(const unsigned char *bytes, size_t n_bytes)
{
    return n_bytes >= MAGIC_BYTES && memcmp(bytes, MAGIC, MAGIC_BYTES) == 0;
}

static weft_status read_header(weft_token_file *f, const char *path)
{
    const unsigned char *h = f->map.data;
    if (f->map.n_bytes < WEFT_TOKEN_HEADER_BYTES || !weft_i_token_file_is(h, f->map.n_bytes))
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s is no token file (%zu bytes, no %s header); `weft tokenize` makes one", path,
                  f->map.n_bytes, MAGIC);
    if (h[MAGIC_BYTES] != VERSION)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s is a token file of another version than %c", path,
                  VERSION);
    const uint32_t id_bytes = get_u32(h + 8);
    const uint64_t vocab_size = get_u64(h + 16);
    const uint64_t n_tokens = get_u64(h + 24);
    const uint64_t n_used = get_u64(h + 32);
    if ((id_bytes != 2 && id_bytes != 4) || vocab_size == 0 ||
        vocab_size > (uint64_t)INT32_MAX + 1 || (id_bytes == 2 && vocab_size > NARROW_IDS) ||
        n_used > vocab_size)
        WEFT_FAIL(
            WEFT_STATUS_FORMAT,
            "%s: the header says %u bytes an id, %llu ids, highest id + 1 = %llu, which cannot be",
            path, id_bytes, (unsigned long long)vocab_size, (unsigned long long)n_used);
    const uint64_t n_data = (uint64_t)f->map.n_bytes - WEFT_TOKEN_HEADER_BYTES;
    if (n_tokens > n_data / id_bytes || n_tokens * id_bytes != n_data)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: the header says %llu tokens of %u bytes, but %llu bytes follow it", path,
                  (unsigned long long)n_tokens, id_bytes, (unsigned long long)n_data);
    f->id_bytes = (int)id_bytes;
    f->vocab_size = (int64_t)vocab_size;
    f->n_tokens = (int64_t)n_tokens;
    f->highest_id = (int64_t)n_used - 1;
    return WEFT_OK;
}

weft_status weft_i_token_file_open(weft_token_file *out, const char *path)
{
    weft_token_file f = {0};
    WEFT_TRY(weft_i_map_open(&f.map, path));
    const weft_status st = read_header(&f, path);
    if (st != WEFT_OK) {
        weft_i_map_close(&f.map);
        return st;
    }
    *out = f;
    return WEFT_OK;
}

void weft_i_token_file_close(weft_token_file *f)
{
    weft_i_map_close(&f->map);
}

void weft_i_token_file_read(const weft_token_file *f, int64_t first, int64_t n, int32_t *out)
{
    WEFT_ASSERT(first >= 0 && n >= 0 && first <= f->n_tokens - n);
    const unsigned char *in =
        f->map.data + WEFT_TOKEN_HEADER_BYTES + (size_t)first * (size_t)f->id_bytes;
    if (f->id_bytes == 2) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (int32_t)((uint32_t)in[2 * i] | (uint32_t)in[2 * i + 1] << 8);
    } else {
        /* A lying file may hold more than 31 bits: such an id comes out negative and is refused by the check. */
        for (int64_t i = 0; i < n; i++) {
            const uint32_t id = get_u32(in + 4 * i);
            out[i] = id > (uint32_t)INT32_MAX ? -1 : (int32_t)id;
        }
    }
}

/* As the file has it, for the message. */
static uint32_t raw_id(const weft_token_file *f, int64_t i)
{
    const unsigned char *in =
        f->map.data + WEFT_TOKEN_HEADER_BYTES + (size_t)i * (size_t)f->id_bytes;
    return f->id_bytes == 2 ? (uint32_t)in[0] | (uint32_t)in[1] << 8 : get_u32(in);
}

weft_status weft_i_token_file_check(const weft_token_file *f, const char *path, int64_t vocab_size)
{
    int32_t ids[BLOCK_IDS];
    const uint32_t limit = (uint32_t)WEFT_MIN(vocab_size, (int64_t)INT32_MAX + 1);
    for (int64_t first = 0; first < f->n_tokens; first += BLOCK_IDS) {
        const int64_t n = WEFT_MIN(f->n_tokens - first, BLOCK_IDS);
        weft_i_token_file_read(f, first, n, ids);
        uint32_t highest = 0; /* -1 becomes the highest of all */
#pragma omp simd reduction(max : highest)
        for (int64_t i = 0; i < n; i++)
            highest = (uint32_t)ids[i] > highest ? (uint32_t)ids[i] : highest;
        for (int64_t i = 0; highest >= limit && i < n; i++) {
            if ((uint32_t)ids[i] >= limit)
                WEFT_FAIL(WEFT_STATUS_MISMATCH,
                          "%s: token %lld is id %u, but the model has %lld (0 to %lld)", path,
                          (long long)(first + i), raw_id(f, first + i), (long long)vocab_size,
                          (long long)vocab_size - 1);
        }
        if ((first + n) % DROP_IDS == 0)
            weft_i_map_drop(&f->map,
                            WEFT_TOKEN_HEADER_BYTES +
                                (size_t)(first + n - DROP_IDS) * (size_t)f->id_bytes,
                            (size_t)DROP_IDS * (size_t)f->id_bytes);
    }
    return WEFT_OK;
}

weft_status weft_i_token_writer_open(weft_token_writer *w, const char *path, int64_t vocab_size)
{
    if (vocab_size < 1 || vocab_size > (int64_t)INT32_MAX + 1)
        WEFT_FAIL(WEFT_STATUS_ARG, "a token file cannot hold ids of a tokenizer of %lld",
                  (long long)vocab_size);
    *w = (weft_token_writer){
        .id_bytes = width_of(vocab_size), .vocab_size = vocab_size, .highest_id = -1};
    char temporary[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_str_print(w->path, sizeof(w->path), "%s", path));
    WEFT_TRY(weft_i_file_temporary(temporary, path));
    WEFT_TRY(weft_i_writer_open(&w->file, temporary));
    const unsigned char zeros[WEFT_TOKEN_HEADER_BYTES] = {0};
    weft_status st = WEFT_OK;
    if (lseek(w->file.fd, 0, SEEK_CUR) < 0)
        st = weft_i_error_set(WEFT_STATUS_IO,
                              "%s: is a pipe or the like, and the header of a token file is "
                              "written last; give a regular file",
                              path);
    else
        st = weft_i_writer_write(&w->file, zeros, sizeof(zeros));
    if (st != WEFT_OK)
        weft_i_token_writer_abandon(w);
    return st;
}

weft_status weft_i_token_writer_add(weft_token_writer *w, const int32_t *ids, size_t n_ids)
{
    unsigned char bytes[4 * BLOCK_IDS];
    for (size_t first = 0; first < n_ids; first += BLOCK_IDS) {
        const size_t n = WEFT_MIN(n_ids - first, BLOCK_IDS);
        for (size_t i = 0; i < n; i++) {
            const int32_t id = ids[first + i];
            if (id < 0 || id >= w->vocab_size)
                WEFT_FAIL(WEFT_STATUS_ARG, "token %lld is id %d, but the tokenizer has %lld",
                          (long long)w->n_tokens + (long long)i, id, (long long)w->vocab_size);
            w->highest_id = WEFT_MAX(w->highest_id, (int64_t)id);
            if (w->id_bytes == 2) {
                bytes[2 * i] = (unsigned char)((uint32_t)id & 0xFF);
                bytes[2 * i + 1] = (unsigned char)((uint32_t)id >> 8);
            } else {
                put_u32(bytes + 4 * i, (uint32_t)id);
            }
        }
        WEFT_TRY(weft_i_writer_write(&w->file, bytes, n * (size_t)w->id_bytes));
        w->n_tokens += (int64_t)n;
    }
    return WEFT_OK;
}

static weft_status write_header(weft_token_writer *w)
{
    unsigned char h[WEFT_TOKEN_HEADER_BYTES] = {0};
    memcpy(h, MAGIC, MAGIC_BYTES);
    h[MAGIC_BYTES] = VERSION;
    put_u32(h + 8, (uint32_t)w->id_bytes);
    put_u64(h + 16, (uint64_t)w->vocab_size);
    put_u64(h + 24, (uint64_t)w->n_tokens);
    put_u64(h + 32, (uint64_t)(w->highest_id + 1));
    const ssize_t n = pwrite(w->file.fd, h, sizeof(h), 0);
    if (n != (ssize_t)sizeof(h))
        WEFT_FAIL(WEFT_STATUS_IO, "could not write the header of %s: %s", w->file.path,
                  n < 0 ? strerror(errno) : "the disk took only a part");
    return WEFT_OK;
}

weft_status weft_i_token_writer_finish(weft_token_writer *w)
{
    weft_status st;
    WEFT_TRY_GOTO(st, write_header(w), failed);
    WEFT_TRY_GOTO(st, weft_i_writer_close(&w->file), failed);
    WEFT_TRY_GOTO(st, weft_i_file_appear(w->file.path, w->path), failed);
    return WEFT_OK;
failed:
    weft_i_token_writer_abandon(w);
    return st;
}

void weft_i_token_writer_abandon(weft_token_writer *w)
{
    weft_i_writer_abandon(&w->file);
    weft_i_file_discard(w->file.path, w->path);
}
