/* The files beside the weights of a model's folder that every checkpoint of a run takes along: a tokenizer's and the like. */
#ifndef WEFT_TRAIN_COMPANIONS_H
#define WEFT_TRAIN_COMPANIONS_H

#include "train/checksums.h"

#define WEFT_COMPANION_MAX 16

/** Open from the run's start to its end, so that they come along whatever becomes of the folder meanwhile. */
typedef struct weft_companions {
    int n;
    int fd[WEFT_COMPANION_MAX];
    const char *name[WEFT_COMPANION_MAX]; /* borrowed from a table */
    const char *dir;                      /* borrowed; for messages */
} weft_companions;

/**
 * Opens those that are there. `dir` "": none.
 *
 * @collective  none: the rank that writes the small files does it
 * @return WEFT_OK | IO one of them is there and cannot be read; nothing is open then
 */
weft_status weft_i_companions_open(weft_companions *out, const char *dir);

/** Copies them into the folder of a checkpoint and adds their checksums. @return WEFT_OK | IO | NOMEM */
weft_status
weft_i_companions_write(const weft_companions *c, const char *dir, weft_checksums *sums);

void weft_i_companions_close(weft_companions *c); /* all zeros is fine */

#endif
