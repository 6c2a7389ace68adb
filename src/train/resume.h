/* Which checkpoint a run goes on from, and whether the model that was given is the one in it. */
#ifndef WEFT_TRAIN_RESUME_H
#define WEFT_TRAIN_RESUME_H

#include "formats/hf_config.h"
#include "weft/train.h"

/**
 * Cleans OUT of what a killed run left and finds the checkpoint to go on from.
 *
 * @param[in]  resume  NULL: a fresh run; "": OUT's newest; else a checkpoint's folder
 * @param[out] dir     [WEFT_PATH_MAX]; "" for a fresh run
 * @return     WEFT_OK | ARG a fresh run into a folder that holds checkpoints | IO there is none to resume
 */
weft_status weft_i_resume_find(weft_alloc *alloc, const char *out, const char *resume, char *dir);

/**
 * Whether two descriptions make the same model, number for number.
 *
 * @param[in] dir  the checkpoint, for the message
 * @return    WEFT_OK | MISMATCH the key and both values
 */
weft_status
weft_i_resume_compare_config(const weft_config *saved, const weft_config *given, const char *dir);

#endif
