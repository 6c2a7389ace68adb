/* Writes tensors of a model or an optimizer as safetensors, in one file or in shards with an index. */
#ifndef WEFT_TRAIN_TENSOR_WRITER_H
#define WEFT_TRAIN_TENSOR_WRITER_H

#include "formats/safetensors.h"
#include "weft/ext/layer.h"

/** One tensor to write: where it lies here is told by a parameter's pieces. */
typedef struct weft_tensor_item {
    char name[WEFT_PARAM_NAME_BYTES + 16];
    weft_dtype dtype;        /* in the file */
    const weft_param *param; /* shape and pieces */
    weft_view local;         /* [param->rows, param->cols] of F32 or BF16 */
} weft_tensor_item;

/**
 * DIR/BASE.safetensors, or DIR/BASE-0000i-of-0000n.safetensors and their index when all of it is over shard_bytes. Every
 * file is synced. Takes CONTROL memory for the names and one staging buffer.
 *
 * @return WEFT_OK | IO | NOMEM
 */
weft_status weft_i_tensors_write(weft_backend *b,
                                 const char *dir,
                                 const char *base,
                                 const weft_tensor_item *items,
                                 size_t n_items,
                                 uint64_t shard_bytes);

/**
 * The reverse for one tensor: fills `local` from the file's numbers (any type weft reads).
 *
 * @param stage, stage_elems  room on the host, f32-sized elements, at least 1
 */
weft_status weft_i_tensor_fill(weft_backend *b,
                               const weft_st_tensor *file,
                               const weft_param *param,
                               weft_view local,
                               void *stage,
                               int64_t stage_elems);

#endif
