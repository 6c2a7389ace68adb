/**
 * Checkpoints: a Hugging Face folder with the optimizer's state beside the weights (layout of the files: docs/formats.md).
 *
 * OUT/checkpoint-STEP appears under its name only when every byte of it is on the disk; OUT/latest, a symbolic link, is
 * moved to it after that; older ones go last. So at every moment the newest complete checkpoint can be found.
 */
#ifndef WEFT_TRAIN_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_H

#include "train/trainer.h"
#include "train/trainer_state.h"

#define WEFT_CHECKPOINT_SHARD_BYTES ((uint64_t)5000000000)

/** What a checkpoint is made of; all borrowed. */
typedef struct weft_checkpoint {
    const char *out; /* the run's folder */
    weft_trainer *trainer;
    const weft_source
        *source; /* config's text, names of tensors, folder of the tokenizer's files */
    const weft_trainer_state *state;
    int64_t keep;         /* how many stay; 0: all */
    uint64_t shard_bytes; /* of tensor data in one file, at most (one tensor may be more) */
} weft_checkpoint;

/**
 * Removes what a killed run left half done in OUT and finishes a replacement that was cut short. A missing OUT is fine.
 *
 * @collective  none
 */
weft_status weft_i_checkpoint_clean(weft_alloc *alloc, const char *out);

/**
 * The newest checkpoint of OUT: where `latest` leads, else the one of the highest step. `dir` (WEFT_PATH_MAX) becomes ""
 * when there is none.
 */
weft_status weft_i_checkpoint_latest(weft_alloc *alloc, const char *out, char *dir);

/**
 * Writes OUT/checkpoint-STEP (replacing one of that step), moves OUT/latest to it, removes old ones.
 *
 * @collective  none
 * @return      WEFT_OK | IO the file and the system's reason; older checkpoints are as they were and nothing is left over
 */
weft_status weft_i_checkpoint_save(const weft_checkpoint *c);

/** The files of a checkpoint, into an existing folder; checkpoint_write.c. */
weft_status weft_i_checkpoint_write(const weft_checkpoint *c, const char *dir);

/**
 * Fills the trainer's optimizer from a checkpoint's folder, and with it the weights where the checkpoint keeps them
 * finer than its model files do; checkpoint_read.c. The other weights are loaded already.
 *
 * @return WEFT_OK | FORMAT, MISMATCH file, tensor, what is there and what was wanted | IO
 */
weft_status weft_i_checkpoint_read(weft_trainer *t, const weft_source *source, const char *dir);

/** "exp_avg/NAME" into out [WEFT_PARAM_NAME_BYTES + 16], NAME as in the model's file. */
void weft_i_checkpoint_state_name(char *out,
                                  weft_state state,
                                  const weft_weight_names *names,
                                  const weft_param *p);

#endif
