/*
 * CRC-32 through zlib (contract: crc32.h).
 *
 * Why the parts' CRCs add up: with s(c, n) = c * x^(8 n) modulo the polynomial, zlib's joined CRC of A and B is
 * s(A, |B|) ^ B, the complements at both ends included; s is linear over xor, so the CRC of A1 A2 ... Ak is the xor of
 * s(Ai, bytes after Ai). s(c, n) itself is the joined CRC with B = 0.
 */
#include "base/crc32.h"

#include "base/file.h"

#include <errno.h>
#include <unistd.h>
#include <zlib.h>

#define BLOCK_BYTES 131072

_Static_assert(sizeof(z_off_t) == sizeof(int64_t), "a file's length needs 64 bits");

uint32_t weft_i_crc32(const void *bytes, size_t n_bytes)
{
    return n_bytes == 0 ? 0 : (uint32_t)crc32_z(0, bytes, n_bytes);
}

uint32_t weft_i_crc32_moved(uint32_t crc, uint64_t n_bytes_after)
{
    return (uint32_t)crc32_combine(crc, 0, (z_off_t)n_bytes_after);
}

uint32_t weft_i_crc32_join(uint32_t a, uint32_t b, uint64_t n_bytes)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)n_bytes);
}

static weft_status sum_open_file(int fd, const char *path, uint32_t *crc, uint64_t *n_bytes)
{
    unsigned char block[BLOCK_BYTES];
    uLong sum = 0;
    *n_bytes = 0;
    for (;;) {
        const ssize_t n = read(fd, block, sizeof(block));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_i_file_fail("reading", path);
        if (n == 0)
            break;
        sum = crc32_z(sum, block, (size_t)n);
        *n_bytes += (uint64_t)n;
    }
    *crc = (uint32_t)sum;
    return WEFT_OK;
}

weft_status weft_i_crc32_file(const char *path, uint32_t *crc, uint64_t *n_bytes)
{
    int fd = -1;
    WEFT_TRY(weft_i_file_open_regular(path, &fd, n_bytes));
    const weft_status st = sum_open_file(fd, path, crc, n_bytes);
    (void)close(fd);
    return st;
}
