/* The file a probe writes: which tensors it will hold, and their bytes as they come. */
#ifndef WEFT_TRAIN_PROBE_OUTPUT_H
#define WEFT_TRAIN_PROBE_OUTPUT_H

#include "nn/models/load.h"
#include "train/probe_batch.h"

typedef struct weft_probe_output {
    weft_ctx *ctx;
    weft_st_writer *writer;
    char path[WEFT_PATH_MAX];      /* the name it gets once it is whole */
    char temporary[WEFT_PATH_MAX]; /* the name it is written under */
    weft_st_plan *plan;
    weft_param **param; /* [n_plan]: whose gradient it is; NULL: zeros, or no gradient */
    char *names;        /* "grad/NAME" one after another */
    size_t n_plan;
    size_t capacity;
    int64_t n_grads;
} weft_probe_output;

/**
 * Plans `logits`, `token_loss`, `loss` and, with is_grads, `grad/NAME` for every tensor of the checkpoint: parameters under
 * the file's names, and zeros for tensors the model does not use. Left out: buffers that are no weights, types that are no
 * numbers, and the head of a tied model (its gradient is in the embedding's). Then creates the file,
 * under another name until it is whole (base/file.h, weft_i_file_temporary).
 *
 * @return WEFT_OK | IO | NOMEM
 */
weft_status weft_i_probe_output_create(weft_probe_output *out,
                                       const char *path,
                                       weft_model *m,
                                       const weft_source *source,
                                       const weft_probe_batch *batch,
                                       bool is_grads);

/** Bytes of logits, token_loss and loss, in this order. */
weft_status weft_i_probe_output_add(weft_probe_output *o, const float *values, int64_t n);

/** All gradients, then the file is complete. Safe to destroy afterwards. */
weft_status weft_i_probe_output_finish(weft_probe_output *o);

/** Without finish: the unfinished file is removed, and what was there before is untouched. */
void weft_i_probe_output_destroy(weft_probe_output *o);

#endif
