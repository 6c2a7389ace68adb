/* Files and folders: whole reads, read-only maps, durable writes, folders, links. Messages name the path and errno's text. */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include "base/alloc.h"

#define WEFT_PATH_MAX 4096

/** Sets "PATH: WHAT failed: REASON" from errno. @return IO, or NOMEM for ENOMEM */
weft_status weft_i_file_fail(const char *what, const char *path);

/**
 * Opens for reading what has to be a regular file; the caller closes *fd. Refuses pipes and devices at once (IO): to open a
 * pipe would wait, perhaps for ever, until somebody writes.
 */
weft_status weft_i_file_open_regular(const char *path, int *fd, uint64_t *n_bytes);

/** A read-only map of a whole file. Empty files map to n_bytes 0 and data NULL. */
typedef struct weft_map {
    const unsigned char *data;
    size_t n_bytes;
} weft_map;

weft_status weft_i_map_open(weft_map *out, const char *path);
void weft_i_map_close(weft_map *m);

/** Tells the kernel that these bytes of the map are not needed again soon, so they stop counting as resident. */
void weft_i_map_drop(const weft_map *m, size_t offset, size_t n_bytes);

/**
 * Whole file into CONTROL memory, a NUL after it; refused with IO over max_bytes. A pipe is read to its end; one that
 * gives nothing, since nobody writes or it was read before, is refused.
 */
weft_status weft_i_file_read(
    weft_alloc *alloc, const char *path, size_t max_bytes, char **out, size_t *n_bytes);

/** A file being written; close syncs it to disk. Destroying without close leaves the partial file for the caller. */
typedef struct weft_writer {
    int fd;
    char path[WEFT_PATH_MAX];
    uint64_t n_bytes;
} weft_writer;

weft_status weft_i_writer_open(weft_writer *w, const char *path);
weft_status weft_i_writer_write(weft_writer *w, const void *bytes, size_t n_bytes);
weft_status weft_i_writer_close(weft_writer *w); /* fsync + close */
void weft_i_writer_abandon(weft_writer *w);      /* close, ignore errors; safe after close */

/**
 * Where to write what is to appear under `path` at once: PATH.tmp, or `path` itself where there is something that a rename
 * would destroy (a link, a device, a pipe). Once written and closed it gets its name by appear; after a failure, discard.
 * @return WEFT_OK | IO: `path` is a folder
 */
weft_status weft_i_file_temporary(char out[WEFT_PATH_MAX], const char *path);
weft_status weft_i_file_appear(const char *temporary, const char *path);
void weft_i_file_discard(const char *temporary, const char *path);

/** Writes a small file whole: weft_i_file_temporary, fsync, weft_i_file_appear. */
weft_status weft_i_file_write(const char *path, const void *bytes, size_t n_bytes);

/** Whether weft_i_file_write could write there, long before it does; what is there stays as it is. @return WEFT_OK | IO */
weft_status weft_i_file_check_place(const char *path);

bool weft_i_file_exists(const char *path);
bool weft_i_file_is_same(const char *a,
                         const char *b);  /* both exist and are one regular file, links followed */
bool weft_i_dir_exists(const char *path); /* follows links */
weft_status weft_i_file_size(const char *path, uint64_t *out);
weft_status weft_i_dir_make(const char *path); /* parents too; an existing folder is fine */
weft_status weft_i_dir_sync(const char *path);
weft_status weft_i_dir_remove(const char *path); /* with everything in it; a missing one is fine */
weft_status weft_i_file_rename(const char *from, const char *to);
weft_status weft_i_file_copy(const char *from, const char *to); /* durable */
/** As weft_i_file_copy, of a file that is open already, from its beginning; `from` is its name in messages. */
weft_status weft_i_file_copy_open(int fd, const char *from, const char *to);

/** Makes or replaces the symbolic link atomically (a temporary link, then rename). */
weft_status weft_i_link_replace(const char *target, const char *link_path);
/** Whether weft_i_link_replace could do so, long before it does: some file systems have no links. @return WEFT_OK | IO */
weft_status weft_i_link_check_place(const char *link_path);

/** Names in a folder, sorted bytewise, without "." and ".."; free with weft_i_names_free. */
weft_status weft_i_dir_list(weft_alloc *alloc, const char *path, char ***names, size_t *n_names);
void weft_i_names_free(weft_alloc *alloc, char **names, size_t n_names);

/** "DIR/NAME" into out[WEFT_PATH_MAX]. ARG when too long. */
weft_status weft_i_path_join(char *out, const char *dir, const char *name);

#endif
