/* Even and uneven slices in blocks (contract: tensor/split.h). */
#include "tensor/split.h"

#include "base/compiler.h"

int64_t weft_i_split_first(int64_t n, int64_t block, int size, int rank)
{
    const int64_t n_blocks = (n + block - 1) / block;
    const int64_t each = n_blocks / size;
    const int64_t n_longer = n_blocks % size;
    const int64_t first = (each * rank + WEFT_MIN((int64_t)rank, n_longer)) * block;
    return WEFT_MIN(first, n);
}

int64_t weft_i_split_count(int64_t n, int64_t block, int size, int rank)
{
    return weft_i_split_first(n, block, size, rank + 1) - weft_i_split_first(n, block, size, rank);
}
