/* Elements of a tensor in a file as doubles, for comparing and printing. */
#ifndef WEFT_TRAIN_TENSOR_VALUES_H
#define WEFT_TRAIN_TENSOR_VALUES_H

#include "formats/safetensors.h"

/** Whether weft knows what the bytes of this type mean. */
bool weft_i_tensor_is_readable(weft_dtype dtype);

/** out[i] = element first + i, for i < n. Exact but for integers beyond 2^53. The range must lie inside. */
void weft_i_tensor_values(double *out, const weft_st_tensor *t, int64_t first, int64_t n);

#endif
