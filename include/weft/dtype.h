/**
 * Types of elements, in memory and in files.
 */
#ifndef WEFT_DTYPE_H
#define WEFT_DTYPE_H

#include <stddef.h>

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** weft computes in F32 and BF16; F16 is read and written, the rest appears in files only (I32 and I64 hold ids). */
typedef enum weft_dtype {
    WEFT_DTYPE_F32,
    WEFT_DTYPE_BF16,
    WEFT_DTYPE_F16,
    WEFT_DTYPE_F64,
    WEFT_DTYPE_I64,
    WEFT_DTYPE_I32,
    WEFT_DTYPE_I16,
    WEFT_DTYPE_I8,
    WEFT_DTYPE_U64,
    WEFT_DTYPE_U32,
    WEFT_DTYPE_U16,
    WEFT_DTYPE_U8,
    WEFT_DTYPE_BOOL,
    WEFT_DTYPE_OTHER, /* a type name a file uses and weft does not know */
    WEFT_DTYPE_COUNT
} weft_dtype;

/** Bytes of one element; 0 for OTHER. @collective none */
WEFT_API size_t weft_dtype_bytes(weft_dtype dtype);

/** The name safetensors uses: "F32", "BF16", ... @collective none */
WEFT_API const char *weft_dtype_name(weft_dtype dtype);

/** The reverse; OTHER when the name is none of them. @collective none */
WEFT_API weft_dtype weft_dtype_from_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
