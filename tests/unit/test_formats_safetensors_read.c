/* Opening files by map: what is named on failure, lookup by name, files beyond 4 GiB. */
#include "check.h"
#include "scratch.h"

#include <unistd.h>

#include "formats/safetensors.h"

static void test_formats_safetensors_read__names_the_file_it_cannot_open(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    expect_failure(weft_i_st_open(&st, s->alloc, scratch_path(s, "missing.safetensors")),
                   WEFT_STATUS_IO, "missing.safetensors", NULL);
    expect_failure(weft_i_st_open(&st, s->alloc, s->dir), WEFT_STATUS_IO, s->dir, NULL);
    expect_failure(weft_i_st_open(&st, s->alloc, scratch_file(s, "empty.safetensors", "", 0)),
                   WEFT_STATUS_FORMAT, "empty.safetensors: 0 bytes", NULL);
    assert_null(st);
}

static void test_formats_safetensors_read__finds_every_name(void **state)
{
    enum { N = 300 };
    scratch *s = *state;
    static char names[N][16];
    static weft_st_plan plan[N];
    weft_st_writer *w = NULL;
    weft_st *st = NULL;
    for (int i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "t%d", i * 7919 % N);
        plan[i] = (weft_st_plan){names[i], WEFT_DTYPE_I16, weft_i_shape_1d(1)};
    }
    CHECK_OK(weft_i_st_create(&w, s->alloc, scratch_path(s, "x.safetensors"), plan, N, NULL, 0));
    for (int i = 0; i < N; i++) {
        const int16_t value = (int16_t)(i * 7919 % N);
        CHECK_OK(weft_i_st_append(w, &value, sizeof(value)));
    }
    CHECK_OK(weft_i_st_finish(w));
    CHECK_OK(weft_i_st_open(&st, s->alloc, s->path));
    assert_string_equal(weft_i_st_file(st, 0), s->path);
    for (int i = 0; i < N; i++) {
        char name[16];
        int16_t value = -1;
        (void)snprintf(name, sizeof(name), "t%d", i);
        const weft_st_tensor *t = weft_i_st_find(st, name);
        assert_non_null(t);
        memcpy(&value, t->data, sizeof(value));
        assert_int_equal(value, i);
        if (i > 0)
            assert_true(strcmp(weft_i_st_at(st, (size_t)i - 1)->name,
                               weft_i_st_at(st, (size_t)i)->name) < 0);
    }
    assert_null(weft_i_st_find(st, "t300"));
    assert_null(weft_i_st_find(st, ""));
    weft_i_st_close(st);
    weft_i_st_close(NULL);
}

/* A sparse file, so that nothing is stored. */
static void test_formats_safetensors_read__reads_beyond_4_gib(void **state)
{
    scratch *s = *state;
    const int64_t n = (int64_t)5 << 30;
    const weft_st_plan plan[] = {{"big", WEFT_DTYPE_U8, weft_i_shape_1d(n)},
                                 {"last", WEFT_DTYPE_U8, weft_i_shape_1d(2)}};
    weft_str header;
    weft_st *st = NULL;
    weft_i_str_init(&header, s->alloc);
    CHECK_OK(weft_i_st_header(&header, plan, 2, NULL, 0));
    scratch_file(s, "x.safetensors", header.text, header.n_bytes);
    const int64_t at = (int64_t)header.n_bytes + n;
    weft_i_str_fini(&header);
    if (truncate(s->path, at) != 0)
        skip();
    FILE *f = fopen(s->path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite("yz", 1, 2, f), 2);
    assert_int_equal(fclose(f), 0);
    CHECK_OK(weft_i_st_open(&st, s->alloc, s->path));
    assert_true(weft_i_st_find(st, "big")->n_bytes == (size_t)n);
    assert_memory_equal(weft_i_st_find(st, "last")->data, "yz", 2);
    weft_i_st_drop(st, weft_i_st_find(st, "big"));
    weft_i_st_close(st);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_safetensors_read__names_the_file_it_cannot_open),
        WITH_SCRATCH(test_formats_safetensors_read__finds_every_name),
        WITH_SCRATCH(test_formats_safetensors_read__reads_beyond_4_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
