/* Which slice of something is rank r's: the only place that says so, uneven cases included. */
#ifndef WEFT_TENSOR_SPLIT_H
#define WEFT_TENSOR_SPLIT_H

#include <stdint.h>

/**
 * n items over `size` ranks in blocks of `block` items (the last block may be shorter): every rank gets n_blocks / size
 * blocks, the first n_blocks % size ranks one more. So ranks at the end may get nothing, and slices are in rank order.
 */
int64_t weft_i_split_count(int64_t n, int64_t block, int size, int rank);

/** Items before rank `rank`'s slice; for rank == size: n. */
int64_t weft_i_split_first(int64_t n, int64_t block, int size, int rank);

#endif
