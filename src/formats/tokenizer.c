/*
 * The built-in byte tokenizer: id = byte for 0..255, and 256 is the end of text.
 *
 * Invariant: decode(encode(x)) = x for every byte string, valid UTF-8 or not. What a terminal should see of it is
 * utf8_stream.c's business.
 */
#include "formats/tokenizer.h"

#include <string.h>

#define N_BYTE_IDS 256
#define BYTE_EOS 256

struct weft_tokenizer {
    weft_alloc *alloc;
};

weft_status weft_i_tokenizer_open(weft_tokenizer **out, weft_alloc *alloc, const char *name)
{
    *out = NULL;
    if (name == NULL || strcmp(name, "byte") != 0)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                  "tokenizer \"%s\" is none that weft has; there is \"byte\" (257 ids: the bytes "
                  "and end of text)",
                  name == NULL ? "" : name);
    void *memory = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, 1, sizeof(weft_tokenizer), &memory));
    weft_tokenizer *t = memory;
    t->alloc = alloc;
    *out = t;
    return WEFT_OK;
}

void weft_i_tokenizer_close(weft_tokenizer *t)
{
    if (t != NULL)
        weft_i_alloc_put(t->alloc, t);
}

int64_t weft_i_tokenizer_size(const weft_tokenizer *t)
{
    (void)t;
    return N_BYTE_IDS + 1;
}

int64_t weft_i_tokenizer_eos(const weft_tokenizer *t)
{
    (void)t;
    return BYTE_EOS;
}

bool weft_i_tokenizer_is_bytewise(const weft_tokenizer *t)
{
    (void)t;
    return true;
}

weft_status weft_i_tokenizer_encode(
    const weft_tokenizer *t, const char *text, size_t n_bytes, int32_t *ids, size_t *n_ids)
{
    (void)t;
    for (size_t i = 0; i < n_bytes; i++)
        ids[i] = (unsigned char)text[i];
    *n_ids = n_bytes;
    return WEFT_OK;
}

weft_status weft_i_tokenizer_decode(const weft_tokenizer *t, int32_t id, weft_str *out)
{
    (void)t;
    if (id < 0 || id > BYTE_EOS)
        WEFT_FAIL(WEFT_STATUS_ARG, "id %d is none of the byte tokenizer's (0 to %d)", id, BYTE_EOS);
    if (id == BYTE_EOS)
        return WEFT_OK;
    const char byte = (char)(unsigned char)id;
    return weft_i_str_add(out, &byte, 1);
}
