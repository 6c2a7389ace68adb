/* Shapes: element counts that cannot wrap, comparison, text (tensor/shape.h). */
#include "tensor/shape.h"

#include <inttypes.h>
#include <stdio.h>

/* Left to right in unsigned 64-bit numbers, as the reference reader of safetensors counts: [0, 2^40, 2^40] is 0
 * elements and [2^40, 2^40, 0] is refused. */
weft_status weft_i_shape_count(const weft_shape *s, int64_t *out)
{
    uint64_t n = 1;
    char text[256];
    for (int i = 0; i < s->n_dims; i++) {
        if (s->dim[i] < 0)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "shape %s has a negative dimension",
                      weft_i_shape_text(s, text, sizeof(text)));
        const uint64_t d = (uint64_t)s->dim[i];
        if (d != 0 && n > UINT64_MAX / d)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "shape %s has more elements than 64 bits can count",
                      weft_i_shape_text(s, text, sizeof(text)));
        n *= d;
    }
    if (n > (uint64_t)INT64_MAX)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "shape %s has more elements than 64 bits can count",
                  weft_i_shape_text(s, text, sizeof(text)));
    *out = (int64_t)n;
    return WEFT_OK;
}

bool weft_i_shape_equal(const weft_shape *a, const weft_shape *b)
{
    if (a->n_dims != b->n_dims)
        return false;
    for (int i = 0; i < a->n_dims; i++) {
        if (a->dim[i] != b->dim[i])
            return false;
    }
    return true;
}

/* A text that does not fit is cut: it is for messages only. */
const char *weft_i_shape_text(const weft_shape *s, char *out, size_t size)
{
    size_t used = 0;
    for (int i = -1; i <= s->n_dims; i++) {
        int n;
        if (used >= size)
            break;
        if (i < 0)
            n = snprintf(out + used, size - used, "[");
        else if (i < s->n_dims)
            n = snprintf(out + used, size - used, "%s%" PRId64, i > 0 ? ", " : "", s->dim[i]);
        else
            n = snprintf(out + used, size - used, "]");
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

weft_shape weft_i_shape_1d(int64_t n)
{
    return (weft_shape){.n_dims = 1, .dim = {n}};
}

weft_shape weft_i_shape_2d(int64_t rows, int64_t cols)
{
    return (weft_shape){.n_dims = 2, .dim = {rows, cols}};
}
