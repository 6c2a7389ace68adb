/*
 * Text and token files as one stream of ids.
 *
 * Nothing is copied: token files are read through their map, and so is text, since with the byte tokenizer a byte is
 * an id. Bytes are taken as they are; no end-of-text id is put between files.
 *
 * What it leaves to others: the order of samples (sampler.c), the making of token files (tokenize.c).
 */
#include "data/dataset.h"

#include "data/token_file.h"

#include <string.h>

typedef struct source {
    bool is_text;
    weft_map text;
    weft_token_file tokens;
    int64_t first; /* position of its first token in the stream */
    int64_t n_tokens;
} source;

struct weft_dataset {
    weft_alloc *alloc;
    source *sources;
    size_t n_sources; /* opened so far */
    int64_t n_tokens;
    bool is_bytewise; /* ids below 256 are bytes */
    char *first_path;
};

static bool ends_with(const char *text, const char *end)
{
    const size_t n_text = strlen(text);
    const size_t n_end = strlen(end);
    return n_text >= n_end && strcmp(text + n_text - n_end, end) == 0;
}

static weft_status check_text(const char *path, const weft_tokenizer *tokenizer, int64_t vocab_size)
{
    if (ends_with(path, ".bin"))
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s has no token-file header; make one with `weft tokenize`, or give a text file "
                  "another ending",
                  path);
    if (tokenizer == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s is text and no tokenizer was given", path);
    const int64_t n_ids = weft_i_tokenizer_size(tokenizer);
    if (n_ids > vocab_size)
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "the tokenizer has %lld ids, but the model only has rows for %lld",
                  (long long)n_ids, (long long)vocab_size);
    return WEFT_OK;
}

static weft_status
open_source(source *s, const char *path, const weft_tokenizer *tokenizer, int64_t vocab_size)
{
    WEFT_TRY(weft_i_map_open(&s->text, path));
    s->is_text = !weft_i_token_file_is(s->text.data, s->text.n_bytes);
    weft_status st = WEFT_OK;
    if (s->is_text) {
        st = check_text(path, tokenizer, vocab_size);
        s->n_tokens = (int64_t)s->text.n_bytes;
        if (st != WEFT_OK)
            weft_i_map_close(&s->text);
        return st;
    }
    weft_i_map_close(&s->text);
    WEFT_TRY(weft_i_token_file_open(&s->tokens, path));
    s->n_tokens = s->tokens.n_tokens;
    st = weft_i_token_file_check(&s->tokens, path, vocab_size);
    if (st != WEFT_OK)
        weft_i_token_file_close(&s->tokens);
    return st;
}

weft_status weft_i_dataset_open(weft_dataset **out,
                                weft_alloc *alloc,
                                const char *const *paths,
                                size_t n_paths,
                                const weft_tokenizer *tokenizer,
                                int64_t vocab_size)
{
    *out = NULL;
    if (n_paths == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "no data file was given");
    void *memory = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, 1, sizeof(weft_dataset), &memory));
    weft_dataset *d = memory;
    d->alloc = alloc;
    d->is_bytewise = tokenizer != NULL && weft_i_tokenizer_is_bytewise(tokenizer);
    weft_status st;
    WEFT_TRY_GOTO(st, weft_i_str_copy(alloc, paths[0], &d->first_path), failed);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n_paths, sizeof(source), &memory), failed);
    d->sources = memory;
    for (size_t i = 0; i < n_paths; i++) {
        source *s = &d->sources[i];
        WEFT_TRY_GOTO(st, open_source(s, paths[i], tokenizer, vocab_size), failed);
        d->n_sources++;
        s->first = d->n_tokens;
        d->n_tokens += s->n_tokens;
    }
    *out = d;
    return WEFT_OK;
failed:
    weft_i_dataset_close(d);
    return st;
}

void weft_i_dataset_close(weft_dataset *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->n_sources; i++) {
        if (d->sources[i].is_text)
            weft_i_map_close(&d->sources[i].text);
        else
            weft_i_token_file_close(&d->sources[i].tokens);
    }
    weft_i_alloc_put(d->alloc, d->sources);
    weft_i_alloc_put(d->alloc, d->first_path);
    weft_i_alloc_put(d->alloc, d);
}

int64_t weft_i_dataset_tokens(const weft_dataset *d)
{
    return d->n_tokens;
}

bool weft_i_dataset_has_text(const weft_dataset *d)
{
    for (size_t i = 0; i < d->n_sources; i++) {
        if (d->sources[i].is_text)
            return true;
    }
    return false;
}

const char *weft_i_dataset_first_path(const weft_dataset *d)
{
    return d->first_path;
}

static void read_source(const source *s, int64_t first, int64_t n, int32_t *out)
{
    if (!s->is_text) {
        weft_i_token_file_read(&s->tokens, first, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = s->text.data[first + i];
}

static weft_status check_range(const weft_dataset *d, int64_t first, int64_t n)
{
    if (first < 0 || n < 0 || n > d->n_tokens || first > d->n_tokens - n)
        WEFT_FAIL(WEFT_STATUS_ARG, "tokens %lld to %lld were asked of a stream of %lld",
                  (long long)first, (long long)first + (long long)n - 1, (long long)d->n_tokens);
    return WEFT_OK;
}

weft_status weft_i_dataset_read(const weft_dataset *d, int64_t first, int64_t n, int32_t *out)
{
    WEFT_TRY(check_range(d, first, n));
    for (size_t i = 0; i < d->n_sources && n > 0; i++) {
        const source *s = &d->sources[i];
        const int64_t at = first - s->first; /* >= 0: what lies in earlier files was taken */
        if (at >= s->n_tokens)
            continue;
        const int64_t n_here = WEFT_MIN(n, s->n_tokens - at);
        read_source(s, at, n_here, out);
        out += n_here;
        first += n_here;
        n -= n_here;
    }
    return WEFT_OK;
}

int64_t weft_i_dataset_bytes(const weft_dataset *d, int64_t first, int64_t n)
{
    if (!d->is_bytewise || check_range(d, first, n) != WEFT_OK)
        return -1;
    int32_t ids[4096];
    int64_t n_bytes = 0;
    while (n > 0) {
        const int64_t n_now = WEFT_MIN(n, (int64_t)WEFT_COUNT_OF(ids));
        if (weft_i_dataset_read(d, first, n_now, ids) != WEFT_OK)
            return -1;
        for (int64_t i = 0; i < n_now; i++) {
            if (ids[i] > 256) /* a token file of another tokenizer */
                return -1;
            n_bytes += ids[i] < 256;
        }
        first += n_now;
        n -= n_now;
    }
    return n_bytes;
}
