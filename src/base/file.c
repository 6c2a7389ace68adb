/*
 * Files: read-only maps, whole reads, durable writes.
 *
 * Durable means: the bytes are synced before close or rename reports success, and a small file is replaced whole or
 * not at all (a temporary one beside it, sync, rename, sync of the folder). Every message names the path and what
 * the system said. Folders and links are folder.c's.
 */
#include "base/file.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES 65536
#define FIRST_READ_BYTES ((size_t)65536)

weft_status weft_i_file_fail(const char *what, const char *path)
{
    const int error = errno;
    char reason[128];
    if (strerror_r(error, reason, sizeof(reason)) != 0)
        (void)snprintf(reason, sizeof(reason), "error %d", error);
    const weft_status code = error == ENOMEM ? WEFT_STATUS_NOMEM : WEFT_STATUS_IO;
    WEFT_FAIL(code, "%s: %s failed: %s", path, what, reason);
}

/* Opens for reading and looks at what it is. Does not wait for somebody to write into a pipe. */
static weft_status open_to_read(const char *path, int *fd, struct stat *info)
{
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return weft_i_file_fail("opening", path);
    weft_status st = WEFT_OK;
    if (fstat(opened, info) != 0 || fcntl(opened, F_SETFL, O_RDONLY) != 0)
        st = weft_i_file_fail("looking at it", path);
    else if (S_ISDIR(info->st_mode))
        st = weft_i_error_set(WEFT_STATUS_IO, "%s: is a folder, a file was expected", path);
    if (st != WEFT_OK) {
        (void)close(opened);
        return st;
    }
    *fd = opened;
    return WEFT_OK;
}

weft_status weft_i_file_open_regular(const char *path, int *fd, uint64_t *n_bytes)
{
    struct stat info;
    int opened = -1;
    WEFT_TRY(open_to_read(path, &opened, &info));
    if (!S_ISREG(info.st_mode)) {
        (void)close(opened);
        WEFT_FAIL(WEFT_STATUS_IO, "%s: is not a regular file (a pipe or a device)", path);
    }
    *fd = opened;
    *n_bytes = (uint64_t)info.st_size;
    return WEFT_OK;
}

/* ---- maps ---- */

weft_status weft_i_map_open(weft_map *out, const char *path)
{
    int fd = -1;
    uint64_t n_bytes = 0;
    WEFT_TRY(weft_i_file_open_regular(path, &fd, &n_bytes));
    weft_status st = WEFT_OK;
    weft_map map = {0};
    if (n_bytes > 0) {
        map.n_bytes = (size_t)n_bytes;
        void *const data = mmap(NULL, map.n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            st = weft_i_file_fail("mapping", path);
        else
            map.data = data;
    }
    (void)close(fd);
    if (st == WEFT_OK)
        *out = map;
    return st;
}

void weft_i_map_close(weft_map *m)
{
    if (m->data != NULL)
        (void)munmap((void *)(uintptr_t)m->data, m->n_bytes);
    *m = (weft_map){0};
}

void weft_i_map_drop(const weft_map *m, size_t offset, size_t n_bytes)
{
    if (m->data == NULL || offset >= m->n_bytes)
        return;
    /* Whole pages, both ends outwards: what a neighbour still needs is read again from the file. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t first = offset / page * page;
    const size_t end = n_bytes > m->n_bytes - offset ? m->n_bytes : offset + n_bytes;
    if (end > first)
        (void)madvise((void *)((uintptr_t)m->data + first), end - first, MADV_DONTNEED);
}

/* ---- whole reads ---- */

static weft_status fail_too_big(const char *path, size_t max_bytes)
{
    WEFT_FAIL(WEFT_STATUS_IO, "%s: holds more than the %zu bytes a file of its kind may have", path,
              max_bytes);
}

/* Reads to the end into *buffer, growing it; what is not regular (a pipe, /proc) has no size beforehand. */
static weft_status read_to_end(weft_alloc *alloc,
                               int fd,
                               const char *path,
                               size_t first_bytes,
                               size_t max_bytes,
                               void **buffer,
                               size_t *n_read)
{
    size_t capacity = 0;
    size_t n = 0;
    WEFT_TRY(weft_i_alloc_grow(alloc, first_bytes, 1, &capacity, buffer));
    for (;;) {
        if (n + 1 >= capacity)
            WEFT_TRY(weft_i_alloc_grow(alloc, capacity + FIRST_READ_BYTES, 1, &capacity, buffer));
        char *const at = (char *)*buffer + n;
        const ssize_t got = read(fd, at, capacity - 1 - n); /* one byte stays for the NUL */
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return weft_i_file_fail("reading", path);
        n += (size_t)got;
        if (n > max_bytes)
            return fail_too_big(path, max_bytes);
        if (got == 0)
            break;
    }
    ((char *)*buffer)[n] = '\0';
    *n_read = n;
    return WEFT_OK;
}

weft_status
weft_i_file_read(weft_alloc *alloc, const char *path, size_t max_bytes, char **out, size_t *n_bytes)
{
    int fd = -1;
    struct stat info;
    WEFT_TRY(open_to_read(path, &fd, &info));
    void *buffer = NULL;
    size_t n_read = 0;
    weft_status st = WEFT_OK;
    const size_t expected =
        S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size : FIRST_READ_BYTES;
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size > max_bytes)
        st = fail_too_big(path, max_bytes);
    else
        st = read_to_end(alloc, fd, path, expected + 2, max_bytes, &buffer, &n_read);
    (void)close(fd);
    if (st == WEFT_OK && n_read == 0 && !S_ISREG(info.st_mode))
        st = weft_i_error_set(WEFT_STATUS_IO,
                              "%s: is a pipe or a device and gave nothing; what was read from a "
                              "pipe is gone, so give a file",
                              path);
    if (st != WEFT_OK) {
        weft_i_alloc_put(alloc, buffer);
        return st;
    }
    *out = buffer;
    if (n_bytes != NULL)
        *n_bytes = n_read;
    return WEFT_OK;
}

/* ---- writing ---- */

weft_status weft_i_writer_open(weft_writer *w, const char *path)
{
    *w = (weft_writer){.fd = -1};
    WEFT_TRY(weft_i_str_print(w->path, sizeof(w->path), "%s", path));
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->fd < 0 ? weft_i_file_fail("opening for writing", path) : WEFT_OK;
}

weft_status weft_i_writer_write(weft_writer *w, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    size_t n_left = n_bytes;
    while (n_left > 0) {
        const ssize_t n = write(w->fd, at, n_left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_i_file_fail("writing", w->path);
        at += n;
        n_left -= (size_t)n;
        w->n_bytes += (uint64_t)n;
    }
    return WEFT_OK;
}

weft_status weft_i_writer_close(weft_writer *w)
{
    const int fd = w->fd;
    w->fd = -1;
    /* EINVAL: a pipe or a terminal, which has nothing to sync. */
    const bool is_synced = fsync(fd) == 0 || errno == EINVAL;
    weft_status st = is_synced ? WEFT_OK : weft_i_file_fail("syncing", w->path);
    if (close(fd) != 0 && st == WEFT_OK)
        st = weft_i_file_fail("closing", w->path);
    return st;
}

void weft_i_writer_abandon(weft_writer *w)
{
    if (w->fd >= 0)
        (void)close(w->fd);
    w->fd = -1;
}

/* Writes and closes; nothing is left open. */
static weft_status write_plain(const char *path, const void *bytes, size_t n_bytes)
{
    weft_writer w;
    WEFT_TRY(weft_i_writer_open(&w, path));
    weft_status st = weft_i_writer_write(&w, bytes, n_bytes);
    if (st == WEFT_OK)
        return weft_i_writer_close(&w);
    weft_i_writer_abandon(&w);
    return st;
}

weft_status weft_i_file_temporary(char out[WEFT_PATH_MAX], const char *path)
{
    struct stat info;
    /* lstat: /dev/stdout is a link, also where it leads to a regular file. */
    const bool is_there = lstat(path, &info) == 0;
    const bool is_kept = is_there && !S_ISREG(info.st_mode);
    if (is_there && S_ISDIR(info.st_mode))
        WEFT_FAIL(WEFT_STATUS_IO, "%s is a folder and cannot be written to as a file", path);
    return weft_i_str_print(out, WEFT_PATH_MAX, is_kept ? "%s" : "%s.tmp", path);
}

weft_status weft_i_file_appear(const char *temporary, const char *path)
{
    return strcmp(temporary, path) == 0 ? WEFT_OK : weft_i_file_rename(temporary, path);
}

void weft_i_file_discard(const char *temporary, const char *path)
{
    if (strcmp(temporary, path) != 0)
        (void)unlink(temporary);
}

weft_status weft_i_file_write(const char *path, const void *bytes, size_t n_bytes)
{
    char temporary[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_file_temporary(temporary, path));
    weft_status st = write_plain(temporary, bytes, n_bytes);
    if (st == WEFT_OK)
        st = weft_i_file_appear(temporary, path);
    if (st != WEFT_OK)
        weft_i_file_discard(temporary, path);
    return st;
}

weft_status weft_i_file_check_place(const char *path)
{
    char temporary[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_file_temporary(temporary, path));
    if (strcmp(temporary, path) == 0)
        return access(path, W_OK) == 0 ? WEFT_OK : weft_i_file_fail("opening for writing", path);
    const weft_status st = write_plain(temporary, "", 0);
    weft_i_file_discard(temporary, path);
    return st;
}

weft_status weft_i_file_copy_open(int fd, const char *from, const char *to)
{
    weft_writer w;
    weft_status st = weft_i_writer_open(&w, to);
    char buffer[COPY_BYTES];
    while (st == WEFT_OK) {
        const ssize_t n = pread(fd, buffer, sizeof(buffer), (off_t)w.n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            st = weft_i_file_fail("reading", from);
        if (n <= 0)
            break;
        st = weft_i_writer_write(&w, buffer, (size_t)n);
    }
    if (st == WEFT_OK)
        return weft_i_writer_close(&w);
    weft_i_writer_abandon(&w);
    return st;
}

weft_status weft_i_file_copy(const char *from, const char *to)
{
    int fd = -1;
    uint64_t n_bytes = 0;
    WEFT_TRY(weft_i_file_open_regular(from, &fd, &n_bytes));
    const weft_status st = weft_i_file_copy_open(fd, from, to);
    (void)close(fd);
    return st;
}

/* ---- questions ---- */

bool weft_i_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool weft_i_file_is_same(const char *a, const char *b)
{
    struct stat of_a;
    struct stat of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && S_ISREG(of_a.st_mode) &&
           of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

weft_status weft_i_file_size(const char *path, uint64_t *out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return weft_i_file_fail("looking at it", path);
    if (!S_ISREG(info.st_mode))
        WEFT_FAIL(WEFT_STATUS_IO, "%s: is not a regular file, so it has no size", path);
    *out = (uint64_t)info.st_size;
    return WEFT_OK;
}
