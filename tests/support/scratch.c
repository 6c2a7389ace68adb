/* A folder of a test's own. */
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int scratch_setup(void **state)
{
    weft_alloc *alloc = NULL;
    void *memory = NULL;
    if (weft_i_alloc_create(&alloc, false, 0) != WEFT_OK ||
        weft_i_alloc_new(alloc, 1, sizeof(scratch), &memory) != WEFT_OK)
        return -1;
    scratch *s = memory;
    s->alloc = alloc;
    const char *base = getenv("TMPDIR");
    (void)snprintf(s->dir, sizeof(s->dir), "%s/weft-test-XXXXXX", base == NULL ? "/tmp" : base);
    if (mkdtemp(s->dir) == NULL)
        return -1;
    *state = s;
    return 0;
}

int scratch_teardown(void **state)
{
    scratch *s = *state;
    weft_alloc *alloc = s->alloc;
    const bool is_gone = weft_i_dir_remove(s->dir) == WEFT_OK;
    weft_i_alloc_put(alloc, s);
    weft_i_alloc_destroy(alloc); /* asserts that the test gave everything back */
    return is_gone ? 0 : -1;
}

const char *scratch_path(scratch *s, const char *name)
{
    (void)snprintf(s->path, sizeof(s->path), "%s/%s", s->dir, name);
    return s->path;
}

const char *scratch_file(scratch *s, const char *name, const void *bytes, size_t n_bytes)
{
    const char *path = scratch_path(s, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

void expect_failure(weft_status st, weft_status code, const char *text, ...)
{
    if (st != code)
        fail_msg("status is %s, should be %s; message: %s", weft_status_name(st),
                 weft_status_name(code), st == WEFT_OK ? "" : weft_last_error());
    va_list args;
    va_start(args, text);
    for (const char *wanted = text; wanted != NULL; wanted = va_arg(args, const char *)) {
        if (strstr(weft_last_error(), wanted) == NULL) {
            va_end(args);
            fail_msg("the message lacks \"%s\": %s", wanted, weft_last_error());
        }
    }
    va_end(args);
}

void expect_ok(weft_status st)
{
    if (st != WEFT_OK)
        fail_msg("status is %s: %s", weft_status_name(st), weft_last_error());
}
