/*
 * Bytes that come one by one, shown as whole characters.
 *
 * Source: The Unicode Standard 15, section 3.9: well-formed sequences (table 3-7) and "substitution of maximal
 * subparts": each longest beginning of a well-formed sequence that does not go on becomes one U+FFFD.
 *
 * Invariants: what is added to `out` is valid UTF-8; at most three bytes are held back; every byte added is shown,
 * held, or part of one replacement.
 */
#include "formats/tokenizer.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

/* Length of the sequence a first byte opens; 0 when no sequence starts with it. */
static int sequence_length(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    if (lead >= 0xF0 && lead <= 0xF4)
        return 4;
    return 0;
}

/* Whether `byte` may follow the n bytes held: only the second byte has limits of its own. */
static bool may_follow(const unsigned char *held, int n, unsigned char byte)
{
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (n == 1) {
        switch (held[0]) {
        case 0xE0: /* no overlong forms */
            low = 0xA0;
            break;
        case 0xED: /* no surrogates */
            high = 0x9F;
            break;
        case 0xF0:
            low = 0x90;
            break;
        case 0xF4: /* nothing over U+10FFFF */
            high = 0x8F;
            break;
        default:
            break;
        }
    }
    return byte >= low && byte <= high;
}

static weft_status add_replacement(weft_str *out)
{
    return weft_i_str_add(out, replacement, sizeof(replacement) - 1);
}

static weft_status add_byte(weft_utf8_stream *s, unsigned char byte, weft_str *out)
{
    if (s->n_held > 0 && !may_follow(s->held, s->n_held, byte)) {
        s->n_held = 0;
        WEFT_TRY(add_replacement(out));
    }
    if (s->n_held == 0 && sequence_length(byte) == 0)
        return add_replacement(out);
    s->held[s->n_held++] = byte;
    if (s->n_held < sequence_length(s->held[0]))
        return WEFT_OK;
    const size_t n_bytes = (size_t)s->n_held;
    s->n_held = 0;
    char whole[sizeof(s->held)];
    memcpy(whole, s->held, n_bytes);
    return weft_i_str_add(out, whole, n_bytes);
}

weft_status
weft_i_utf8_stream_add(weft_utf8_stream *s, const char *bytes, size_t n_bytes, weft_str *out)
{
    for (size_t i = 0; i < n_bytes; i++)
        WEFT_TRY(add_byte(s, (unsigned char)bytes[i], out));
    return WEFT_OK;
}

weft_status weft_i_utf8_stream_end(weft_utf8_stream *s, weft_str *out)
{
    if (s->n_held == 0)
        return WEFT_OK;
    s->n_held = 0;
    return add_replacement(out);
}
