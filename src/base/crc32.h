/**
 * CRC-32 as in zlib, gzip and PNG (polynomial 0xedb88320, reflected, complemented): zlib does the work.
 *
 * A CRC of a text is the sum (xor) of its parts' CRCs, each moved past what follows it. So parts can be summed up in any
 * order and on any rank, and one number each is all that has to be kept.
 */
#ifndef WEFT_BASE_CRC32_H
#define WEFT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/** Of n_bytes; of none: 0. */
uint32_t weft_i_crc32(const void *bytes, size_t n_bytes);

/** What a part with this CRC adds to that of the whole, n_bytes_after bytes of which come after it. */
uint32_t weft_i_crc32_moved(uint32_t crc, uint64_t n_bytes_after);

/** Of a text of CRC `a` followed by n_bytes of CRC `b`. */
uint32_t weft_i_crc32_join(uint32_t a, uint32_t b, uint64_t n_bytes);

/**
 * Of a whole file, read block by block and not through a map, so that a disk that cannot read is a status.
 *
 * @return WEFT_OK | IO
 */
weft_status weft_i_crc32_file(const char *path, uint32_t *crc, uint64_t *n_bytes);

#endif
