/* Writing safetensors: the bytes of a file, round trips, and what a plan cannot say. */
#include "check.h"
#include "scratch.h"

#include "formats/json.h"
#include "formats/safetensors.h"

static const weft_st_meta pt[] = {{"format", "pt"}};

/* Byte for byte what the specification asks for, written out by hand. */
static void test_formats_safetensors_write__writes_the_specified_bytes(void **state)
{
    scratch *s = *state;
    static const char wanted[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F16\",\"shape\":[2,1],"
        "\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]}}";
    const weft_st_plan plan[] = {{"b", WEFT_DTYPE_F16, weft_i_shape_2d(2, 1)},
                                 {"a", WEFT_DTYPE_U8, {.n_dims = 0}}};
    weft_st_writer *w = NULL;
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(weft_i_st_create(&w, s->alloc, scratch_path(s, "x.safetensors"), plan, 2, pt, 1));
    CHECK_OK(weft_i_st_append(w, "12", 2)); /* in pieces of any size */
    CHECK_OK(weft_i_st_append(w, "", 0));
    CHECK_OK(weft_i_st_append(w, "345", 3));
    CHECK_OK(weft_i_st_finish(w));
    CHECK_OK(weft_i_file_read(s->alloc, s->path, 4096, &text, &n));
    const size_t padded = (sizeof(wanted) - 1 + 7) / 8 * 8;
    assert_int_equal(n, 8 + padded + 5);
    assert_int_equal((unsigned char)text[0], padded);
    for (int i = 1; i < 8; i++)
        assert_int_equal(text[i], 0);
    assert_memory_equal(text + 8, wanted, sizeof(wanted) - 1);
    for (size_t i = sizeof(wanted) - 1; i < padded; i++)
        assert_int_equal(text[8 + i], ' ');
    assert_memory_equal(text + 8 + padded, "12345", 5);
    weft_i_alloc_put(s->alloc, text);
}

/* Metadata only; an empty tensor; a scalar. */
static void test_formats_safetensors_write__round_trips(void **state)
{
    scratch *s = *state;
    const weft_st_meta meta[] = {{"format", "pt"}, {"quote\"d", "line\nend\\ \xc3\xa9"}};
    const weft_st_plan plan[] = {
        {"empty", WEFT_DTYPE_F32, weft_i_shape_1d(0)},
        {"scalar", WEFT_DTYPE_I64, {.n_dims = 0}},
        {"odd \"name\"\t\xf0\x9f\x98\x80", WEFT_DTYPE_BF16, {3, {1, 2, 1}}}};
    for (size_t n_plan = 0; n_plan <= 3; n_plan++) {
        weft_st_writer *w = NULL;
        weft_st *st = NULL;
        const int64_t number = -5;
        CHECK_OK(weft_i_st_create(&w, s->alloc, scratch_path(s, "x.safetensors"), plan, n_plan,
                                  meta, n_plan % 3));
        if (n_plan > 1)
            CHECK_OK(weft_i_st_append(w, &number, 8));
        if (n_plan > 2)
            CHECK_OK(weft_i_st_append(w, "wxyz", 4));
        CHECK_OK(weft_i_st_finish(w));
        CHECK_OK(weft_i_st_open(&st, s->alloc, s->path));
        assert_int_equal(weft_i_st_count(st), n_plan);
        assert_int_equal(weft_i_st_meta_count(st), n_plan % 3);
        for (size_t i = 0; i < n_plan; i++) {
            const weft_st_tensor *t = weft_i_st_find(st, plan[i].name);
            assert_non_null(t);
            assert_int_equal(t->dtype, plan[i].dtype);
            assert_true(weft_i_shape_equal(&t->shape, &plan[i].shape));
        }
        for (size_t i = 0; i < n_plan % 3; i++) {
            assert_string_equal(weft_i_st_meta_at(st, i).key, meta[i].key);
            assert_string_equal(weft_i_st_meta_at(st, i).value, meta[i].value);
        }
        if (n_plan > 1)
            assert_memory_equal(weft_i_st_find(st, "scalar")->data, &number, 8);
        if (n_plan > 2)
            assert_memory_equal(weft_i_st_find(st, plan[2].name)->data, "wxyz", 4);
        weft_i_st_close(st);
    }
}

/* The data section starts on a multiple of 8 whatever the names' lengths. */
static void test_formats_safetensors_write__aligns_the_data(void **state)
{
    scratch *s = *state;
    for (int n = 1; n <= 9; n++) {
        char name[16] = {0};
        weft_str header;
        memset(name, 'n', (size_t)n);
        const weft_st_plan plan = {name, WEFT_DTYPE_F64, weft_i_shape_1d(1)};
        weft_i_str_init(&header, s->alloc);
        CHECK_OK(weft_i_st_header(&header, &plan, 1, NULL, 0));
        assert_int_equal(header.n_bytes % 8, 0);
        assert_int_equal((unsigned char)header.text[0] + 8, header.n_bytes);
        weft_i_str_fini(&header);
    }
}

static void test_formats_safetensors_write__refuses_bad_plans(void **state)
{
    scratch *s = *state;
    const weft_shape one = weft_i_shape_1d(1);
    const weft_st_plan twice[] = {
        {"a", WEFT_DTYPE_F32, one}, {"b", WEFT_DTYPE_F32, one}, {"a", WEFT_DTYPE_F16, one}};
    const weft_st_plan meta_name = {"__metadata__", WEFT_DTYPE_F32, one};
    const weft_st_plan other = {"q", WEFT_DTYPE_OTHER, one};
    const weft_st_plan huge = {"h", WEFT_DTYPE_F64, weft_i_shape_1d(INT64_MAX / 4)};
    const weft_st_plan negative = {"n", WEFT_DTYPE_F64, weft_i_shape_1d(-1)};
    const weft_st_plan latin = {"caf\xe9", WEFT_DTYPE_F32, one};
    const char *path = scratch_path(s, "x.safetensors");
    weft_st_writer *w = NULL;
    expect_failure(weft_i_st_create(&w, s->alloc, path, twice, 3, NULL, 0), WEFT_STATUS_ARG,
                   "'a' is planned twice", NULL);
    expect_failure(weft_i_st_create(&w, s->alloc, path, &meta_name, 1, NULL, 0), WEFT_STATUS_ARG,
                   "__metadata__", NULL);
    expect_failure(weft_i_st_create(&w, s->alloc, path, &other, 1, NULL, 0), WEFT_STATUS_ARG, "'q'",
                   "type", NULL);
    expect_failure(weft_i_st_create(&w, s->alloc, path, &huge, 1, NULL, 0), WEFT_STATUS_ARG, "'h'",
                   "2^63", NULL);
    expect_failure(weft_i_st_create(&w, s->alloc, path, &negative, 1, NULL, 0), WEFT_STATUS_ARG,
                   "'n'", "[-1]", NULL);
    expect_failure(weft_i_st_create(&w, s->alloc, path, &latin, 1, NULL, 0), WEFT_STATUS_ARG,
                   "not UTF-8", "byte 3", NULL);
    assert_false(weft_i_file_exists(path));
    expect_failure(weft_i_st_create(&w, s->alloc, "/nowhere/at/all", twice, 2, NULL, 0),
                   WEFT_STATUS_IO, "/nowhere/at/all", NULL);
    assert_null(w);
}

static void test_formats_safetensors_write__counts_the_bytes(void **state)
{
    scratch *s = *state;
    const weft_st_plan plan = {"a", WEFT_DTYPE_F32, weft_i_shape_1d(2)};
    weft_st_writer *w = NULL;
    CHECK_OK(weft_i_st_create(&w, s->alloc, scratch_path(s, "x.safetensors"), &plan, 1, NULL, 0));
    CHECK_OK(weft_i_st_append(w, "1234", 4));
    expect_failure(weft_i_st_append(w, "12345", 5), WEFT_STATUS_ARG, "x.safetensors: 8 bytes",
                   "5 more came after 4", NULL);
    expect_failure(weft_i_st_finish(w), WEFT_STATUS_ARG, "x.safetensors: 8 bytes", "4 came", NULL);
    weft_i_st_abandon(NULL);
}

static void test_formats_safetensors_write__writes_the_index(void **state)
{
    scratch *s = *state;
    const weft_st_place places[] = {{"w.b", "model-00002-of-00002.safetensors"},
                                    {"w.a", "model-00001-of-00002.safetensors"}};
    static const char wanted[] =
        "{\n  \"metadata\": {\n    \"total_size\": 18446744073709551615\n  },\n"
        "  \"weight_map\": {\n    \"w.a\": \"model-00001-of-00002.safetensors\",\n"
        "    \"w.b\": \"model-00002-of-00002.safetensors\"\n  }\n}\n";
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(weft_i_st_write_index(s->alloc, scratch_path(s, "i.json"), places, 2, UINT64_MAX));
    CHECK_OK(weft_i_file_read(s->alloc, s->path, 4096, &text, &n));
    assert_string_equal(text, wanted);
    weft_i_alloc_put(s->alloc, text);
    const weft_st_place twice[] = {{"w", "A"}, {"w", "B"}};
    expect_failure(weft_i_st_write_index(s->alloc, s->path, twice, 2, 0), WEFT_STATUS_ARG, "'w'",
                   "A", "B", NULL);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_safetensors_write__writes_the_specified_bytes),
        WITH_SCRATCH(test_formats_safetensors_write__round_trips),
        WITH_SCRATCH(test_formats_safetensors_write__aligns_the_data),
        WITH_SCRATCH(test_formats_safetensors_write__refuses_bad_plans),
        WITH_SCRATCH(test_formats_safetensors_write__counts_the_bytes),
        WITH_SCRATCH(test_formats_safetensors_write__writes_the_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
