/*
 * Texts to a token file and back (weft/data.h).
 *
 * A text goes through in pieces, so its size is bounded by the disk alone; that needs a tokenizer whose ids do not
 * depend on where a text is cut, which the byte tokenizer is.
 */
#include "weft/data.h"

#include "base/str.h"
#include "data/token_file.h"
#include "formats/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)65536)

static weft_status fail_system(const char *what, const char *path)
{
    char reason[128];
    if (strerror_r(errno, reason, sizeof(reason)) != 0)
        reason[0] = '\0';
    WEFT_FAIL(WEFT_STATUS_IO, "%s: %s failed: %s", path, what, reason);
}

static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* ---- text to ids ---- */

typedef struct encoding {
    const weft_tokenizer *tokenizer;
    weft_token_writer writer;
    char *piece;  /* [PIECE_BYTES] */
    int32_t *ids; /* [PIECE_BYTES] */
    int64_t n_bytes;
} encoding;

static weft_status encode_descriptor(encoding *e, int fd, const char *name)
{
    for (;;) {
        const ssize_t n = read(fd, e->piece, PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_system("reading", name);
        if (n == 0)
            return WEFT_OK;
        size_t n_ids = 0;
        WEFT_TRY(weft_i_tokenizer_encode(e->tokenizer, e->piece, (size_t)n, e->ids, &n_ids));
        WEFT_TRY(weft_i_token_writer_add(&e->writer, e->ids, n_ids));
        e->n_bytes += (int64_t)n;
    }
}

static weft_status encode_file(encoding *e, const char *path)
{
    if (strcmp(path, "-") == 0)
        return encode_descriptor(e, STDIN_FILENO, name_of(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_system("opening", path);
    const weft_status st = encode_descriptor(e, fd, path);
    (void)close(fd);
    return st;
}

static weft_status encode_all(encoding *e, const weft_tokenize_options *o)
{
    const int32_t eos = (int32_t)weft_i_tokenizer_eos(e->tokenizer);
    for (size_t i = 0; i < o->n_files; i++) {
        WEFT_TRY(encode_file(e, o->files[i]));
        if (o->append_eos)
            WEFT_TRY(weft_i_token_writer_add(&e->writer, &eos, 1));
    }
    return WEFT_OK;
}

static weft_status check_options(const weft_tokenize_options *o)
{
    if (o->n_files == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "no file was given");
    if (!o->decode && (o->out == NULL || o->out[0] == '\0'))
        WEFT_FAIL(WEFT_STATUS_ARG, "--out FILE is needed: the token file to write");
    for (size_t i = 0; i < o->n_files && o->out != NULL; i++) {
        if (weft_i_file_is_same(o->files[i], o->out))
            WEFT_FAIL(WEFT_STATUS_ARG, "%s is read and would be written; give --out another name",
                      o->out);
    }
    return WEFT_OK;
}

static weft_status
tokenize(weft_tokenize_result *out, weft_alloc *alloc, const weft_tokenize_options *o)
{
    weft_tokenizer *tokenizer = NULL;
    encoding e = {0};
    weft_tokenize_result result = {0};
    bool is_open = false;
    void *memory = NULL;
    weft_status st;
    WEFT_TRY_GOTO(st, weft_i_tokenizer_open(&tokenizer, alloc, o->tokenizer), out);
    e.tokenizer = tokenizer;
    if (!weft_i_tokenizer_is_bytewise(tokenizer))
        st = weft_i_error_set(WEFT_STATUS_UNSUPPORTED,
                              "only the byte tokenizer can make token files");
    if (o->append_eos && weft_i_tokenizer_eos(tokenizer) < 0)
        st =
            weft_i_error_set(WEFT_STATUS_ARG, "--append-eos: this tokenizer has no end-of-text id");
    if (st != WEFT_OK)
        goto out;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, PIECE_BYTES, 1, &memory), out);
    e.piece = memory;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, PIECE_BYTES, sizeof(int32_t), &memory), out);
    e.ids = memory;
    WEFT_TRY_GOTO(st, weft_i_token_writer_open(&e.writer, o->out, weft_i_tokenizer_size(tokenizer)),
                  out);
    is_open = true;
    WEFT_TRY_GOTO(st, encode_all(&e, o), out);
    result = (weft_tokenize_result){
        .n_tokens = e.writer.n_tokens,
        .n_bytes = e.n_bytes,
        .vocab_size = e.writer.vocab_size,
        .highest_id = e.writer.highest_id,
        .id_bytes = e.writer.id_bytes,
    };
    is_open = false;
    WEFT_TRY_GOTO(st, weft_i_token_writer_finish(&e.writer), out);
    *out = result;
out:
    if (is_open)
        weft_i_token_writer_abandon(&e.writer);
    weft_i_alloc_put(alloc, e.ids);
    weft_i_alloc_put(alloc, e.piece);
    weft_i_tokenizer_close(tokenizer);
    return st;
}

weft_status weft_tokenize_run(weft_tokenize_result *out, const weft_tokenize_options *options)
{
    WEFT_TRY(check_options(options));
    weft_alloc *alloc = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    const weft_status st = tokenize(out, alloc, options);
    weft_i_alloc_destroy(alloc);
    return st;
}

/* ---- ids to text ---- */

static weft_status decode_file(weft_alloc *alloc,
                               const weft_tokenizer *tokenizer,
                               const char *path,
                               weft_bytes_fn *sink,
                               void *user,
                               bool *is_stopped)
{
    weft_token_file f;
    WEFT_TRY(weft_i_token_file_open(&f, path));
    weft_str text;
    weft_i_str_init(&text, alloc);
    weft_status st = weft_i_token_file_check(&f, path, weft_i_tokenizer_size(tokenizer));
    int32_t ids[4096];
    for (int64_t first = 0; st == WEFT_OK && first < f.n_tokens && !*is_stopped;) {
        const int64_t n = WEFT_MIN(f.n_tokens - first, (int64_t)WEFT_COUNT_OF(ids));
        weft_i_token_file_read(&f, first, n, ids);
        weft_i_str_clear(&text);
        for (int64_t i = 0; st == WEFT_OK && i < n; i++)
            st = weft_i_tokenizer_decode(tokenizer, ids[i], &text);
        if (st == WEFT_OK && text.n_bytes > 0)
            *is_stopped = !sink(user, text.text, text.n_bytes);
        first += n;
    }
    weft_i_str_fini(&text);
    weft_i_token_file_close(&f);
    return st;
}

weft_status
weft_tokenize_decode(const weft_tokenize_options *options, weft_bytes_fn *sink, void *user)
{
    WEFT_TRY(check_options(options));
    weft_alloc *alloc = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    weft_tokenizer *tokenizer = NULL;
    weft_status st = weft_i_tokenizer_open(&tokenizer, alloc, options->tokenizer);
    bool is_stopped = false;
    for (size_t i = 0; st == WEFT_OK && i < options->n_files && !is_stopped; i++)
        st = decode_file(alloc, tokenizer, options->files[i], sink, user, &is_stopped);
    weft_i_tokenizer_close(tokenizer);
    weft_i_alloc_destroy(alloc);
    return st;
}

weft_status weft_tokenize_peek(int32_t *ids, int64_t *n, const char *path, int64_t n_wanted)
{
    weft_token_file f;
    WEFT_TRY(weft_i_token_file_open(&f, path));
    *n = WEFT_MIN(WEFT_MAX(n_wanted, (int64_t)0), f.n_tokens);
    weft_i_token_file_read(&f, 0, *n, ids);
    weft_i_token_file_close(&f);
    return WEFT_OK;
}
