/* The file of --pace: stated durations of layers and messages (docs/formats.md). */
#ifndef WEFT_FORMATS_PACE_FILE_H
#define WEFT_FORMATS_PACE_FILE_H

#include "base/error.h"
#include "base/pace_spec.h"

/**
 * @collective  none
 * @return      WEFT_OK | IO | NOMEM | FORMAT naming file, key and value
 */
weft_status weft_i_pace_file_read(weft_pace *out, const char *path);

#endif
