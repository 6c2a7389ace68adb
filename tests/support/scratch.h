/* A folder of a test's own, gone when the test ends; and cmocka, which wants its headers in this order. */
#ifndef WEFT_TESTS_SCRATCH_H
#define WEFT_TESTS_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"

typedef struct scratch {
    weft_alloc *alloc;
    char dir[WEFT_PATH_MAX / 4];
    char path[WEFT_PATH_MAX]; /* of the last scratch_path */
} scratch;

/* For cmocka_unit_test_setup_teardown: *state is the scratch. */
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* DIR/NAME, valid until the next call. */
const char *scratch_path(scratch *s, const char *name);

/* Writes DIR/NAME and returns its path, as scratch_path does. */
const char *scratch_file(scratch *s, const char *name, const void *bytes, size_t n_bytes);

/* Fails the test unless `st` is `code` and the message holds every one of the texts (ended by NULL). */
void expect_failure(weft_status st, weft_status code, const char *text, ...);

/* Fails the test with the library's message unless `st` is OK. */
void expect_ok(weft_status st);

#endif
