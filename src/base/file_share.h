/* Files that several writers fill at once, each at its own offsets: made whole first, then written in place. */
#ifndef WEFT_BASE_FILE_SHARE_H
#define WEFT_BASE_FILE_SHARE_H

#include "base/file.h"

/**
 * Makes a file of n_bytes: `head` and room for the rest, which reads as zeros; on the disk too, where the file system can
 * promise it, so that a disk without that much room is found now. One writer calls it, before the others open.
 *
 * @return WEFT_OK | IO the bytes that were wanted and the system's reason; a pipe, which has no offsets
 */
weft_status
weft_i_file_make_room(const char *path, const void *head, size_t n_head, uint64_t n_bytes);

/** Opens what weft_i_file_make_room made; ended by weft_i_writer_close (which syncs) or weft_i_writer_abandon. */
weft_status weft_i_writer_open_shared(weft_writer *w, const char *path);

/**
 * Writes at an offset. Every 64 MB the file is synced, so that no sync is a long silence.
 *
 * @return WEFT_OK | IO
 */
weft_status
weft_i_writer_write_at(weft_writer *w, uint64_t offset, const void *bytes, size_t n_bytes);

#endif
