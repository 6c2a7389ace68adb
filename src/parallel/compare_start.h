/* Before the first step or pass: whether all ranks were started alike. */
#ifndef WEFT_PARALLEL_COMPARE_START_H
#define WEFT_PARALLEL_COMPARE_START_H

#include "nn/models/load.h"
#include "parallel/mesh.h"

/** Adds what the command was told, and what it reads beside the model, as texts of any form. @collective none */
typedef weft_status weft_start_texts_fn(weft_str *options, weft_str *data, const void *user);

/**
 * Whether all ranks run the same version with the same config, tensors, options and data; when all inputs are open, before
 * memory is taken.
 *
 * @collective  world: weft_i_mesh_agree and weft_i_mesh_compare; one rank: none, and `texts` is not called
 * @return      WEFT_OK | MISMATCH on every rank: the rank and the thing that differ, with both values | what `texts` returns
 */
weft_status weft_i_mesh_compare_start(weft_mesh *m,
                                      const weft_source *source,
                                      weft_start_texts_fn *texts,
                                      const void *user);

/** "5 6 7\n": ids as a part of such a text. */
weft_status weft_i_start_add_ids(weft_str *out, const int32_t *ids, int64_t n);

#endif
