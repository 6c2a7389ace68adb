/* Shapes: counts of elements with overflow checks, comparison, printing. */
#ifndef WEFT_TENSOR_SHAPE_H
#define WEFT_TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define WEFT_SHAPE_MAX 8

typedef struct weft_shape {
    int n_dims; /* 0 is a scalar: one element */
    int64_t dim[WEFT_SHAPE_MAX];
} weft_shape;

/** Product of the dimensions; FORMAT when it does not fit or a dimension is negative. */
weft_status weft_i_shape_count(const weft_shape *s, int64_t *out);
bool weft_i_shape_equal(const weft_shape *a, const weft_shape *b);

/** "[2, 24, 256]" into out; returns out. */
const char *weft_i_shape_text(const weft_shape *s, char *out, size_t size);

weft_shape weft_i_shape_1d(int64_t n);
weft_shape weft_i_shape_2d(int64_t rows, int64_t cols);

#endif
