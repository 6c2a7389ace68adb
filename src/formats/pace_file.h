/* The file of --pace: stated durations of layers and messages (docs/formats.md). */
#ifndef WEFT_FORMATS_PACE_FILE_H
#define WEFT_FORMATS_PACE_FILE_H

#include "base/alloc.h"
#include "base/pace_spec.h"

/**
 * @collective  none
 * @param[in] alloc  for the time of the call
 * @return      WEFT_OK | IO | NOMEM | FORMAT naming file, key and value
 */
weft_status weft_i_pace_file_read(weft_pace *out, weft_alloc *alloc, const char *path);

#endif
