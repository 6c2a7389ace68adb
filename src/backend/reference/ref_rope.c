/*
 * Reference rotary positions (Su et al., arXiv:2104.09864), the two halves of a head being the two coordinates:
 *   (u, w) -> (u cos - w sin, w cos + u sin), and with -sin backward, as a rotation's inverse is its transpose.
 */
#include <inttypes.h>

#include "backend/reference/ref_ops.h"

weft_status weft_i_ref_rope(weft_backend *b, const void *args, void *workspace)
{
    const weft_rope_args *a = args;
    const int64_t half = a->head_dim / 2;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->x.rows; r++) {
        const int64_t position = weft_i_ref_id(&a->positions, r);
        if (position < 0 || position >= a->cos.rows)
            WEFT_FAIL(WEFT_STATUS_ARG,
                      "rope: position %" PRId64 " of row %" PRId64
                      " is outside the table of %" PRId64,
                      position, r, a->cos.rows);
        for (int64_t head = 0; head < a->x.cols; head += a->head_dim) {
            for (int64_t i = 0; i < half; i++) {
                const double u = (double)weft_i_ref_get(&a->x, r, head + i);
                const double w = (double)weft_i_ref_get(&a->x, r, head + half + i);
                const double cos = (double)weft_i_ref_get(&a->cos, position, i);
                const double forward = (double)weft_i_ref_get(&a->sin, position, i);
                const double sin = a->is_inverse ? -forward : forward;
                weft_i_ref_set(&a->x, r, head + i, u * cos - w * sin);
                weft_i_ref_set(&a->x, r, head + half + i, w * cos + u * sin);
            }
        }
    }
    return WEFT_OK;
}
