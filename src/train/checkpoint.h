/**
 * Checkpoints: a Hugging Face folder with the optimizer's state beside the weights (layout of the files: docs/formats.md).
 *
 * OUT/checkpoint-STEP appears under its name only when every byte of it is on the disk; OUT/latest, a symbolic link, is
 * moved to it after that; older ones go last. So at every moment the newest complete checkpoint can be found.
 *
 * Files hold logical tensors: whole, under their names. Every rank writes and reads the parts it holds, so what one layout
 * wrote any layout reads.
 */
#ifndef WEFT_TRAIN_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_H

#include "nn/models/load.h"
#include "optim/optimizer.h"
#include "parallel/mesh.h"
#include "parallel/shard.h"
#include "train/checksums.h"
#include "train/companions.h"
#include "train/trainer_state.h"

#define WEFT_CHECKPOINT_SHARD_BYTES ((uint64_t)5000000000)

/** What a checkpoint is made of, or filled from it, on one rank; all borrowed. */
typedef struct weft_checkpoint {
    weft_ctx *ctx;
    weft_mesh *mesh; /* NULL: one rank */
    weft_model *model;
    const weft_parts *owned;  /* written: every element of every parameter on one rank */
    const weft_parts *values; /* read: weights that lie here */
    const weft_parts *states; /* read: what the optimizer here updates */
    const weft_optimizer *optimizer;
    weft_dtype save_dtype;     /* of the weights' files */
    const weft_source *source; /* config's text, names of tensors */

    /* Of saving alone. */
    const char *out; /* the run's folder */
    const weft_trainer_state *state;
    int64_t keep;                      /* how many stay; 0: all */
    const weft_companions *companions; /* of the rank that writes the small files; NULL: none */
    uint64_t shard_bytes; /* of tensor data in one file, at most (one tensor may be more) */
} weft_checkpoint;

/**
 * Removes what a killed run left half done in OUT and finishes a replacement that was cut short. A missing OUT is fine.
 *
 * @collective  none: one rank does it
 */
weft_status weft_i_checkpoint_clean(weft_alloc *alloc, const char *out);

/**
 * The newest checkpoint of OUT: where `latest` leads, else the one of the highest step. `dir` (WEFT_PATH_MAX) becomes ""
 * when there is none.
 */
weft_status weft_i_checkpoint_latest(weft_alloc *alloc, const char *out, char *dir);

/** What a name in a run's folder stands for; `step` is set for all but OTHER. */
typedef enum weft_checkpoint_kind {
    WEFT_CHECKPOINT_OTHER,
    WEFT_CHECKPOINT_FINAL,    /* checkpoint-STEP */
    WEFT_CHECKPOINT_WRITTEN,  /* tmp-checkpoint-STEP */
    WEFT_CHECKPOINT_REPLACED, /* replaced-checkpoint-STEP */
    WEFT_CHECKPOINT_REMOVED   /* tmp-removed-STEP */
} weft_checkpoint_kind;

weft_checkpoint_kind weft_i_checkpoint_kind(const char *name, int64_t *step);

/**
 * Writes OUT/checkpoint-STEP (replacing one of that step), moves OUT/latest to it, removes old ones.
 *
 * @collective  world: agreements, and those of two tensor writers
 * @return      WEFT_OK | IO the file and the system's reason; the same on every rank; older checkpoints are as they were
 *              and nothing is left over
 */
weft_status weft_i_checkpoint_save(const weft_checkpoint *c);

/** The files of a checkpoint, into an existing folder; checkpoint_write.c. @collective world, as above */
weft_status weft_i_checkpoint_write(const weft_checkpoint *c, const char *dir);

/**
 * Fills the optimizer's state from a checkpoint's folder, and with it the weights where the checkpoint keeps them finer
 * than its model files do; checkpoint_read.c. The other weights are loaded already.
 *
 * @collective  world: agree
 * @return      WEFT_OK | FORMAT, MISMATCH file, tensor, what is there and what was wanted | IO; the same on every rank
 */
weft_status weft_i_checkpoint_restore(const weft_checkpoint *c, const char *dir);

/** "exp_avg/NAME" into out [WEFT_PARAM_NAME_BYTES + 16], NAME as in the model's file. */
void weft_i_checkpoint_state_name(char *out,
                                  weft_state state,
                                  const weft_weight_names *names,
                                  const weft_param *p);

/** Whether the optimizer keeps this state for this parameter, here or on another rank. */
bool weft_i_checkpoint_is_kept(const weft_checkpoint *c, weft_state state, const weft_param *p);

#endif
