/* Sizes and names of element types, as safetensors spells them (weft/dtype.h). */
#include "weft/dtype.h"

#include <string.h>

typedef struct dtype_info {
    const char *name;
    size_t n_bytes;
} dtype_info;

static const dtype_info dtypes[WEFT_DTYPE_COUNT] = {
    [WEFT_DTYPE_F32] = {"F32", 4},   [WEFT_DTYPE_BF16] = {"BF16", 2},
    [WEFT_DTYPE_F16] = {"F16", 2},   [WEFT_DTYPE_F64] = {"F64", 8},
    [WEFT_DTYPE_I64] = {"I64", 8},   [WEFT_DTYPE_I32] = {"I32", 4},
    [WEFT_DTYPE_I16] = {"I16", 2},   [WEFT_DTYPE_I8] = {"I8", 1},
    [WEFT_DTYPE_U64] = {"U64", 8},   [WEFT_DTYPE_U32] = {"U32", 4},
    [WEFT_DTYPE_U16] = {"U16", 2},   [WEFT_DTYPE_U8] = {"U8", 1},
    [WEFT_DTYPE_BOOL] = {"BOOL", 1}, [WEFT_DTYPE_OTHER] = {"OTHER", 0},
};

static const dtype_info *info_of(weft_dtype dtype)
{
    const int i = (int)dtype;
    return &dtypes[i >= 0 && i < (int)WEFT_DTYPE_COUNT ? i : (int)WEFT_DTYPE_OTHER];
}

size_t weft_dtype_bytes(weft_dtype dtype)
{
    return info_of(dtype)->n_bytes;
}

const char *weft_dtype_name(weft_dtype dtype)
{
    return info_of(dtype)->name;
}

weft_dtype weft_dtype_from_name(const char *name)
{
    for (int i = 0; i < (int)WEFT_DTYPE_OTHER; i++) {
        if (strcmp(name, dtypes[i].name) == 0)
            return (weft_dtype)i;
    }
    return WEFT_DTYPE_OTHER;
}
