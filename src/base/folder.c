/*
 * Folders, links and paths (declared in file.h).
 *
 * A rename is made durable by syncing the folder it happened in. Removing a tree works through open folders, so a
 * symbolic link inside is removed and never followed.
 */
#include "base/file.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 200 /* of a tree that is removed; each level holds a file descriptor */

bool weft_i_dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static weft_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && weft_i_dir_exists(path)))
        return WEFT_OK;
    return weft_i_file_fail("making the folder", path);
}

weft_status weft_i_dir_make(const char *path)
{
    char part[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_str_print(part, sizeof(part), "%s", path));
    for (char *c = part + 1; part[0] != '\0' && *c != '\0'; c++) {
        if (*c != '/' || c[-1] == '/')
            continue;
        *c = '\0';
        WEFT_TRY(make_one(part));
        *c = '/';
    }
    return make_one(part);
}

weft_status weft_i_dir_sync(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return weft_i_file_fail("opening the folder", path);
    weft_status st = WEFT_OK;
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: a file system that cannot sync folders */
        st = weft_i_file_fail("syncing the folder", path);
    (void)close(fd);
    return st;
}

/* ---- removing ---- */

/* Removes all in the folder `fd`, which is closed; false with errno set. */
static bool remove_inside(int fd, int depth)
{
    DIR *const dir = fdopendir(fd);
    if (dir == NULL || depth > MAX_DEPTH) {
        if (dir != NULL)
            (void)closedir(dir);
        else
            (void)close(fd);
        errno = depth > MAX_DEPTH ? ELOOP : errno;
        return false;
    }
    bool is_done = true;
    while (is_done) {
        errno = 0;
        const struct dirent *const entry = readdir(dir);
        if (entry == NULL) {
            is_done = errno == 0;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) == 0)
            continue;
        if (errno != EISDIR && errno != EPERM) { /* EPERM: how other systems say EISDIR */
            is_done = false;
            break;
        }
        const int inner =
            openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        is_done = inner >= 0 && remove_inside(inner, depth + 1) &&
                  unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0;
    }
    const int error = errno;
    (void)closedir(dir);
    errno = error;
    return is_done;
}

weft_status weft_i_dir_remove(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? WEFT_OK : weft_i_file_fail("looking at it", path);
    if (!S_ISDIR(info.st_mode))
        return unlink(path) == 0 ? WEFT_OK : weft_i_file_fail("removing", path);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return weft_i_file_fail("opening the folder", path);
    if (!remove_inside(fd, 0) || rmdir(path) != 0)
        return weft_i_file_fail("removing", path);
    return WEFT_OK;
}

/* ---- renaming and links ---- */

static weft_status sync_parent(const char *path)
{
    char parent[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_str_print(parent, sizeof(parent), "%s", path));
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = '\0';
    char *const slash = strrchr(parent, '/');
    if (slash == NULL)
        return weft_i_dir_sync(".");
    slash[slash == parent ? 1 : 0] = '\0';
    return weft_i_dir_sync(parent);
}

weft_status weft_i_file_rename(const char *from, const char *to)
{
    if (rename(from, to) == 0)
        return sync_parent(to);
    const int error = errno;
    char what[WEFT_PATH_MAX + 32];
    (void)snprintf(what, sizeof(what), "renaming it to %s", to);
    errno = error;
    return weft_i_file_fail(what, from);
}

weft_status weft_i_link_replace(const char *target, const char *link_path)
{
    char temporary[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_str_print(temporary, sizeof(temporary), "%s.tmp", link_path));
    (void)unlink(temporary); /* of a run that was killed between the two steps */
    if (symlink(target, temporary) != 0)
        return weft_i_file_fail("making the link", temporary);
    const weft_status st = weft_i_file_rename(temporary, link_path);
    if (st != WEFT_OK)
        (void)unlink(temporary);
    return st;
}

weft_status weft_i_link_check_place(const char *link_path)
{
    char temporary[WEFT_PATH_MAX];
    struct stat info;
    if (lstat(link_path, &info) == 0 && S_ISDIR(info.st_mode))
        WEFT_FAIL(WEFT_STATUS_IO,
                  "%s: is a folder where a symbolic link belongs; where a copy followed the link, "
                  "remove the folder (what it led to is beside it)",
                  link_path);
    WEFT_TRY(weft_i_str_print(temporary, sizeof(temporary), "%s.tmp", link_path));
    (void)unlink(temporary);
    if (symlink("nowhere", temporary) == 0 && unlink(temporary) == 0)
        return WEFT_OK;
    return weft_i_file_fail("trying a symbolic link", temporary);
}

/* ---- listing ---- */

static int compare_names(const void *a, const void *b)
{
    const char *const *const left = a;
    const char *const *const right = b;
    return strcmp(*left, *right);
}

/* Copies the names into *names, which the caller frees also on failure. */
static weft_status
list_open_dir(weft_alloc *alloc, DIR *dir, const char *path, char ***names, size_t *n_names)
{
    size_t capacity = 0;
    for (;;) {
        errno = 0;
        const struct dirent *const entry = readdir(dir);
        if (entry == NULL)
            return errno == 0 ? WEFT_OK : weft_i_file_fail("listing", path);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        void *array = *names;
        WEFT_TRY(weft_i_alloc_grow(alloc, *n_names + 1, sizeof(**names), &capacity, &array));
        *names = array;
        WEFT_TRY(weft_i_str_copy(alloc, entry->d_name, &(*names)[*n_names]));
        (*n_names)++;
    }
}

weft_status weft_i_dir_list(weft_alloc *alloc, const char *path, char ***names, size_t *n_names)
{
    DIR *const dir = opendir(path);
    if (dir == NULL)
        return weft_i_file_fail("opening the folder", path);
    char **list = NULL;
    size_t n = 0;
    const weft_status st = list_open_dir(alloc, dir, path, &list, &n);
    (void)closedir(dir);
    if (st != WEFT_OK) {
        weft_i_names_free(alloc, list, n);
        return st;
    }
    if (n > 0)
        qsort(list, n, sizeof(*list), compare_names);
    *names = list;
    *n_names = n;
    return WEFT_OK;
}

void weft_i_names_free(weft_alloc *alloc, char **names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        weft_i_alloc_put(alloc, names[i]);
    weft_i_alloc_put(alloc, names);
}

weft_status weft_i_path_join(char *out, const char *dir, const char *name)
{
    const size_t n = strlen(dir);
    const char *const slash = n > 0 && dir[n - 1] == '/' ? "" : "/";
    return weft_i_str_print(out, WEFT_PATH_MAX, "%s%s%s", dir, n == 0 ? "" : slash, name);
}
