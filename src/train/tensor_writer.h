/**
 * Writes tensors as safetensors, in one file or in shards with an index, by all ranks at once: every rank writes the
 * elements that it holds, where they belong in the files. No rank holds more than its own and one staging buffer.
 */
#ifndef WEFT_TRAIN_TENSOR_WRITER_H
#define WEFT_TRAIN_TENSOR_WRITER_H

#include "formats/safetensors.h"
#include "nn/param_part.h"
#include "parallel/mesh.h"
#include "train/checksums.h"

#define WEFT_TENSOR_NAME_BYTES (WEFT_PARAM_NAME_BYTES + 16)

/** One tensor to write. */
typedef struct weft_tensor_item {
    char name[WEFT_TENSOR_NAME_BYTES];
    weft_dtype dtype; /* in the file */
    weft_shape shape;
} weft_tensor_item;

/** A parameter's full tensor under a name. @return WEFT_OK | ARG the name is too long */
weft_status weft_i_tensor_item_set(weft_tensor_item *item,
                                   const char *name,
                                   weft_dtype dtype,
                                   const weft_param *param);

/** All borrowed until finish. */
typedef struct weft_tensor_writer_options {
    weft_ctx *ctx;
    weft_mesh *mesh;  /* NULL: one rank */
    const char *path; /* one file under this name; NULL: DIR/BASE.safetensors or its shards */
    const char *dir;
    const char *base;
    uint64_t shard_bytes;          /* with dir: more than this of data in all makes shards */
    const weft_tensor_item *items; /* the same on every rank */
    size_t n_items;
    weft_checksums *sums; /* rank 0: where the files' checksums are added; NULL: nowhere */
} weft_tensor_writer_options;

typedef struct weft_tensor_writer weft_tensor_writer;

/**
 * Rank 0 makes the files, headers in them and room for all their data, so a full disk is found here. Takes CONTROL memory
 * for the plan and one staging buffer of 2 MB.
 *
 * @collective  world: agree (parallel/ranks.h)
 * @return      WEFT_OK | IO | NOMEM | ARG, the same on every rank; what rank 0 began on disk is the caller's to remove
 */
weft_status weft_i_tensor_writer_create(weft_tensor_writer **out,
                                        const weft_tensor_writer_options *options);

/**
 * The owned elements of a part (weft_stretch.is_owned) into tensor `item`; the others are another rank's.
 *
 * @collective  none
 * @param[in] from  [1, part->n] F32 or BF16 in the backend's memory: the part's value, gradient or state
 * @return      WEFT_OK | IO file and the system's reason | REMOTE another rank failed
 */
weft_status weft_i_tensor_writer_part(weft_tensor_writer *w,
                                      size_t item,
                                      const weft_part *part,
                                      weft_view from);

/**
 * Elements [first, first + n) of tensor `item` from the host's memory.
 *
 * @collective  none
 * @param[in] values  [n] of `dtype`, converted when the file's is another one; NULL: zeros
 */
weft_status weft_i_tensor_writer_values(weft_tensor_writer *w,
                                        size_t item,
                                        int64_t first,
                                        int64_t n,
                                        weft_dtype dtype,
                                        const void *values);

/**
 * Syncs, checks that every element was written by exactly one rank, adds up the checksums on rank 0, and frees the writer.
 *
 * @collective  world: agree, gathers of 2 I64 a tensor to rank 0, agree
 * @param[in] st  what became of this rank's writing; when it is not WEFT_OK on one, all fail
 * @return      WEFT_OK | the lowest failing rank's status; what lies on disk is the caller's to remove
 */
weft_status weft_i_tensor_writer_finish(weft_tensor_writer *w, weft_status st);

/** Frees the writer without a word to the others: after a collective has failed. NULL is fine. */
void weft_i_tensor_writer_abandon(weft_tensor_writer *w);

#endif
