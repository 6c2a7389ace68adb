/**
 * Text to ids and back. Today the built-in byte tokenizer; the interface is the one tokenizer.json will fill.
 */
#ifndef WEFT_FORMATS_TOKENIZER_H
#define WEFT_FORMATS_TOKENIZER_H

#include "base/str.h"

typedef struct weft_tokenizer weft_tokenizer;

/** `name`: "byte" (ids 0..255 are the bytes, 256 is the end of text). Others: UNSUPPORTED, naming what there is. */
weft_status weft_i_tokenizer_open(weft_tokenizer **out, weft_alloc *alloc, const char *name);
void weft_i_tokenizer_close(weft_tokenizer *t);

int64_t weft_i_tokenizer_size(const weft_tokenizer *t); /* highest id + 1 */
int64_t weft_i_tokenizer_eos(const weft_tokenizer *t);  /* -1: none */

/** Whether a text may be cut anywhere: the ids of the pieces are the ids of the whole, one a byte. */
bool weft_i_tokenizer_is_bytewise(const weft_tokenizer *t);

/** Any bytes, valid UTF-8 or not, give ids; ids has room for n_bytes. */
weft_status weft_i_tokenizer_encode(
    const weft_tokenizer *t, const char *text, size_t n_bytes, int32_t *ids, size_t *n_ids);

/** Appends the bytes an id stands for (none for special ids). ARG for an id out of range. */
weft_status weft_i_tokenizer_decode(const weft_tokenizer *t, int32_t id, weft_str *out);

/**
 * Whole characters as they become complete: add bytes, take what may be shown. An incomplete tail is held back;
 * garbage becomes U+FFFD, one for each maximal subpart (Unicode 15, section 3.9), and never stalls the stream.
 */
typedef struct weft_utf8_stream {
    unsigned char held[4];
    int n_held;
} weft_utf8_stream;

weft_status
weft_i_utf8_stream_add(weft_utf8_stream *s, const char *bytes, size_t n_bytes, weft_str *out);
weft_status weft_i_utf8_stream_end(weft_utf8_stream *s,
                                   weft_str *out); /* an incomplete tail gives one U+FFFD */

#endif
