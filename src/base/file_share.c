/* Files that several writers fill at once (contract: file_share.h). */
#include "base/file_share.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYNC_BYTES ((uint64_t)64 << 20)

/* Room for the whole file; 0, or the system's error number. */
static int take_room(int fd, uint64_t n_bytes)
{
    const int error = posix_fallocate(fd, 0, (off_t)n_bytes);
    if (error != EINVAL && error != EOPNOTSUPP)
        return error;
    /* A file system that can promise nothing: the length alone. */
    return ftruncate(fd, (off_t)n_bytes) == 0 ? 0 : errno;
}

static weft_status check_offsets(int fd, const char *path)
{
    if (lseek(fd, 0, SEEK_CUR) >= 0)
        return WEFT_OK;
    WEFT_FAIL(WEFT_STATUS_IO,
              "%s: is a pipe or the like; tensors are written where they belong in the file, give "
              "the name of a file",
              path);
}

static weft_status write_head(weft_writer *w, const void *head, size_t n_head, uint64_t n_bytes)
{
    struct stat info;
    WEFT_TRY(check_offsets(w->fd, w->path));
    if (fstat(w->fd, &info) != 0)
        return weft_i_file_fail("looking at it", w->path);
    const int error = S_ISREG(info.st_mode) ? take_room(w->fd, n_bytes) : 0;
    if (error != 0) {
        char what[64];
        (void)snprintf(what, sizeof(what), "making room for its %" PRIu64 " bytes", n_bytes);
        errno = error;
        return weft_i_file_fail(what, w->path);
    }
    return weft_i_writer_write_at(w, 0, head, n_head);
}

weft_status
weft_i_file_make_room(const char *path, const void *head, size_t n_head, uint64_t n_bytes)
{
    weft_writer w;
    if (n_head > n_bytes || n_bytes > (uint64_t)INT64_MAX)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: cannot have %" PRIu64 " bytes, %zu of them its head", path,
                  n_bytes, n_head);
    WEFT_TRY(weft_i_writer_open(&w, path));
    const weft_status st = write_head(&w, head, n_head, n_bytes);
    if (st == WEFT_OK)
        return weft_i_writer_close(&w);
    weft_i_writer_abandon(&w);
    return st;
}

weft_status weft_i_writer_open_shared(weft_writer *w, const char *path)
{
    *w = (weft_writer){.fd = -1};
    WEFT_TRY(weft_i_str_print(w->path, sizeof(w->path), "%s", path));
    w->fd = open(path, O_WRONLY | O_CLOEXEC);
    return w->fd < 0 ? weft_i_file_fail("opening for writing", path) : WEFT_OK;
}

weft_status
weft_i_writer_write_at(weft_writer *w, uint64_t offset, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    size_t n_left = n_bytes;
    while (n_left > 0) {
        const ssize_t n = pwrite(w->fd, at, n_left, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_i_file_fail("writing", w->path);
        at += n;
        n_left -= (size_t)n;
        offset += (uint64_t)n;
    }
    const bool is_due = (w->n_bytes + n_bytes) / SYNC_BYTES != w->n_bytes / SYNC_BYTES;
    w->n_bytes += n_bytes;
    if (is_due && fdatasync(w->fd) != 0 && errno != EINVAL)
        return weft_i_file_fail("syncing", w->path);
    return WEFT_OK;
}
