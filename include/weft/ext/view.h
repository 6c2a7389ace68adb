/**
 * A view of a matrix in a backend's memory. Everything a Transformer computes with is a matrix of rows (tokens) by
 * columns; what is finer (heads, sequences) is in the arguments of the operation. Views never own.
 */
#ifndef WEFT_EXT_VIEW_H
#define WEFT_EXT_VIEW_H

#include <stdint.h>

#include "weft/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/** data == NULL means "not given" where an argument is optional. Only the backend may read through `data`. */
typedef struct weft_view {
    void *data;
    weft_dtype dtype;
    int64_t rows;
    int64_t cols;
    int64_t ld; /* elements from one row to the next, >= cols */
} weft_view;

/** A dense matrix at `data`. */
static inline weft_view weft_view_make(void *data, weft_dtype dtype, int64_t rows, int64_t cols)
{
    const weft_view v = {data, dtype, rows, cols, cols};
    return v;
}

/** Rows [first, first + rows) of v. */
static inline weft_view weft_view_rows(weft_view v, int64_t first, int64_t rows)
{
    v.data = (char *)v.data + (size_t)(first * v.ld) * weft_dtype_bytes(v.dtype);
    v.rows = rows;
    return v;
}

/** Columns [first, first + cols) of v. */
static inline weft_view weft_view_cols(weft_view v, int64_t first, int64_t cols)
{
    v.data = (char *)v.data + (size_t)first * weft_dtype_bytes(v.dtype);
    v.cols = cols;
    return v;
}

static inline weft_view weft_view_none(void)
{
    const weft_view v = {0, WEFT_DTYPE_F32, 0, 0, 0};
    return v;
}

#ifdef __cplusplus
}
#endif
#endif
