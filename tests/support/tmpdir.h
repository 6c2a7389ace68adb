/*
 * Plain files and folders for tests of the file layer itself: made with the C library alone, so that what is tested
 * does not also make its own input. Other tests take scratch.h, which is shorter to use.
 */
#ifndef WEFT_TESTS_TMPDIR_H
#define WEFT_TESTS_TMPDIR_H

#include <stddef.h>

#define TMPDIR_PATH_BYTES 512

/** Makes a new empty folder under TMPDIR or /tmp and writes its path; fails the test when it cannot. */
void tmpdir_make(char path[TMPDIR_PATH_BYTES]);

/** Removes the folder and everything in it. */
void tmpdir_remove(const char *path);

/** "DIR/NAME"; returns out. */
const char *tmpdir_join(char out[TMPDIR_PATH_BYTES], const char *dir, const char *name);

void tmpdir_write(const char *path, const void *bytes, size_t n_bytes);

/** Reads at most size bytes; returns how many. */
size_t tmpdir_read(const char *path, void *bytes, size_t size);

#endif
