/* One run at a time writes to an OUT folder. */
#ifndef WEFT_TRAIN_OUT_LOCK_H
#define WEFT_TRAIN_OUT_LOCK_H

#include "base/error.h"

/**
 * Takes the folder for this run until release, or the end of the process however it comes. A second call with a lock held
 * is fine.
 *
 * @param[in,out] fd  -1: not held
 * @return WEFT_OK, also where the file system knows no locks | IO another run has the folder
 */
weft_status weft_i_out_lock(int *fd, const char *out);
void weft_i_out_unlock(int *fd);

#endif
