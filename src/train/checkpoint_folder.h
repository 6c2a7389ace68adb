/* Which checkpoints a path stands for: shared by listing and verifying. */
#ifndef WEFT_TRAIN_CHECKPOINT_FOLDER_H
#define WEFT_TRAIN_CHECKPOINT_FOLDER_H

#include "base/file.h"
#include "train/checkpoint.h"

typedef struct weft_checkpoint_place {
    weft_checkpoint_kind kind; /* OTHER: the path itself is a checkpoint */
    int64_t step;              /* of its name; -1 */
    char path[WEFT_PATH_MAX];
} weft_checkpoint_place;

/**
 * The checkpoints in `dir`, by step; or the one that `dir` is, when it holds none and has files of one.
 *
 * @param[out] places  CONTROL memory, the caller's
 * @return     WEFT_OK | IO there is no such folder, or no checkpoint in it | NOMEM
 */
weft_status weft_i_checkpoint_places(weft_checkpoint_place **places,
                                     size_t *n_places,
                                     weft_alloc *alloc,
                                     const char *dir);

#endif
