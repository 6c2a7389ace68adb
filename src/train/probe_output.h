/* The file a probe writes: which tensors it will hold, and every rank's part of their bytes. */
#ifndef WEFT_TRAIN_PROBE_OUTPUT_H
#define WEFT_TRAIN_PROBE_OUTPUT_H

#include "nn/models/load.h"
#include "parallel/mesh.h"
#include "parallel/shard.h"
#include "train/probe_batch.h"

/** The tensors that every probe has, in the file's order. */
typedef enum weft_probe_tensor {
    WEFT_PROBE_LOGITS,     /* [sequences, tokens, vocabulary] */
    WEFT_PROBE_TOKEN_LOSS, /* [sequences, tokens - 1] */
    WEFT_PROBE_LOSS,       /* [1] */
    WEFT_PROBE_TENSORS
} weft_probe_tensor;

typedef struct weft_probe_output {
    weft_mesh *mesh;
    weft_writer file;
    bool is_open;
    bool is_stream;                /* one rank: bytes in the file's order */
    bool is_made;                  /* this rank made the file */
    char path[WEFT_PATH_MAX];      /* the name it gets once it is whole */
    char temporary[WEFT_PATH_MAX]; /* the name it is written under */
    weft_st_plan *plan;            /* [n_plan] */
    uint64_t *place;        /* [n_plan + 1] byte at which each begins; the last: the file's end */
    int64_t *plan_of_param; /* [parameters]; with gradients */
    char *names;            /* "grad/NAME" one after another */
    size_t n_plan;
    int64_t n_grads;
} weft_probe_output;

/**
 * Plans `logits`, `token_loss`, `loss` and, with is_grads, `grad/NAME` for every tensor of the checkpoint: parameters under
 * the file's names, and zeros for tensors the model does not use. Left out: buffers that are no weights, types that are no
 * numbers, and the head of a tied model (its gradient is in the embedding's). Then rank 0 makes the file, under another name
 * until it is whole (base/file.h, weft_i_file_temporary), and every rank opens it.
 *
 * @collective  world: 3 weft_i_mesh_agree
 * @return      WEFT_OK | IO | NOMEM
 */
weft_status weft_i_probe_output_create(weft_probe_output *out,
                                       const char *path,
                                       weft_mesh *mesh,
                                       weft_model *m,
                                       const weft_source *source,
                                       const weft_probe_batch *batch,
                                       bool is_grads);

/** Elements of a tensor from `first` on. With one rank pieces come in the file's order. @collective none */
weft_status weft_i_probe_output_add(
    weft_probe_output *o, weft_probe_tensor tensor, int64_t first, const float *values, int64_t n);

/** Gradients of the parts that this rank owns. @collective none */
weft_status weft_i_probe_output_add_grads(weft_probe_output *o, const weft_parts *owned);

/** The file gets its name. @collective world: 2 weft_i_mesh_agree */
weft_status weft_i_probe_output_finish(weft_probe_output *o);

/** Without finish: the unfinished file is removed, and what was there before is untouched. */
void weft_i_probe_output_destroy(weft_probe_output *o);

#endif
