/* Folders for tests, with the C library alone. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* nftw */
#endif

#include "tmpdir.h"

#include "check.h"

#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

void tmpdir_make(char path[TMPDIR_PATH_BYTES])
{
    const char *const root = getenv("TMPDIR");
    (void)snprintf(path, TMPDIR_PATH_BYTES, "%s/weft-test-XXXXXX", root != NULL ? root : "/tmp");
    if (mkdtemp(path) == NULL)
        fail_msg("no folder %s could be made", path);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void tmpdir_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *tmpdir_join(char out[TMPDIR_PATH_BYTES], const char *dir, const char *name)
{
    const int n = snprintf(out, TMPDIR_PATH_BYTES, "%s/%s", dir, name);
    assert_in_range(n, 1, TMPDIR_PATH_BYTES - 1);
    return out;
}

void tmpdir_write(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const file = fopen(path, "wb");
    if (file == NULL) {
        fail_msg("%s could not be written", path);
        return;
    }
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

size_t tmpdir_read(const char *path, void *bytes, size_t size)
{
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s could not be read", path);
        return 0;
    }
    const size_t n = fread(bytes, 1, size, file);
    (void)fclose(file);
    return n;
}
