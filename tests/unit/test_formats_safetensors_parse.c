/*
 * What a safetensors header may say. Acceptance is what the reference reader 0.8.0 does (values taken from it), but for
 * the differences safetensors_parse.c states; every refusal must name the file, the tensor and the numbers.
 */
#include "check.h"
#include "scratch.h"

#include <inttypes.h>

#include "formats/safetensors.h"

#define A4 "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

static size_t make_file(unsigned char *out, uint64_t length, const char *header, size_t n_data)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(length >> (8 * i));
    memcpy(out + 8, header, strlen(header));
    for (size_t i = 0; i < n_data; i++)
        out[8 + strlen(header) + i] = (unsigned char)i;
    return 8 + strlen(header) + n_data;
}

/* Parses header + n_data bytes; the caller closes. */
static weft_status parse(weft_st **out, scratch *s, const char *header, size_t n_data)
{
    static unsigned char bytes[8192];
    assert_true(strlen(header) + n_data + 8 <= sizeof(bytes));
    const size_t n = make_file(bytes, strlen(header), header, n_data);
    *out = NULL;
    return weft_i_st_parse(out, s->alloc, "m.safetensors", bytes, n);
}

static void accepts(scratch *s, const char *header, size_t n_data, size_t n_tensors)
{
    weft_st *st;
    const weft_status status = parse(&st, s, header, n_data);
    if (status != WEFT_OK)
        fail_msg("%s: %s", header, weft_last_error());
    assert_int_equal(weft_i_st_count(st), n_tensors);
    weft_i_st_close(st);
}

static void
refuses(scratch *s, const char *header, size_t n_data, const char *text, const char *more)
{
    weft_st *st;
    const weft_status status = parse(&st, s, header, n_data);
    if (status == WEFT_OK)
        fail_msg("%s was accepted", header);
    assert_null(st);
    expect_failure(status, WEFT_STATUS_FORMAT, "m.safetensors: ", text, more, NULL);
}

static void test_formats_safetensors_parse__reads_a_tensor(void **state)
{
    weft_st *st;
    CHECK_OK(parse(&st, *state,
                   "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"},\"w.x\":{\"dtype\":\"BF16\","
                   "\"shape\":[2,3],"
                   "\"data_offsets\":[4,16]}," A4 "}",
                   16));
    const weft_st_tensor *t = weft_i_st_find(st, "w.x");
    assert_non_null(t);
    assert_int_equal(t->dtype, WEFT_DTYPE_BF16);
    assert_string_equal(t->dtype_name, "BF16");
    assert_int_equal(t->n_elems, 6);
    assert_int_equal(t->n_bytes, 12);
    assert_int_equal(t->shape.n_dims, 2);
    assert_int_equal(t->shape.dim[0], 2);
    assert_int_equal(t->shape.dim[1], 3);
    assert_int_equal(*(const unsigned char *)t->data, 4);
    assert_string_equal(weft_i_st_at(st, 0)->name, "a"); /* sorted */
    assert_string_equal(weft_i_st_at(st, 1)->name, "w.x");
    assert_null(weft_i_st_find(st, "w"));
    assert_int_equal(weft_i_st_meta_count(st), 2);
    assert_string_equal(weft_i_st_meta_at(st, 0).key, "format");
    assert_string_equal(weft_i_st_meta_at(st, 1).value, "v");
    weft_i_st_drop(st, t); /* nothing is mapped: must do nothing */
    weft_i_st_close(st);
}

static void test_formats_safetensors_parse__accepts_what_the_reference_accepts(void **state)
{
    scratch *s = *state;
    accepts(s, "{}", 0, 0);
    accepts(s, "{\"__metadata__\":{}}", 0, 0);
    accepts(s, "{\"__metadata__\":null}", 0, 0);
    accepts(s, "{" A4 "}             ", 4, 1); /* padded by 13 spaces */
    accepts(s, "\n {" A4 "}\t\r\n", 4, 1);
    accepts(s,
            "{\"a\":{\"data_offsets\":[0,4],\"extra\":[1,{\"x\":2.5}],\"shape\":[1],\"dtype\":"
            "\"F32\"}}",
            4, 1);
    accepts(s, "{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 1);
    accepts(s, "{\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8,
            1); /* a scalar */
    accepts(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 1);
    accepts(s,
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,1099511627776,1099511627776],\"data_offsets\":["
            "0,0]}}",
            0, 1);
    /* empty tensors at either end of another, in any order of names */
    accepts(s,
            "{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}," A4
            ",\"c\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[4,4]}}",
            4, 3);
    accepts(s, "{" A4 ",\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 4, 2);
    accepts(s, "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, 1);
    accepts(s, "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1);
    accepts(s, "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, 1);
    accepts(s, "{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, 1);
    accepts(s,
            "{\"\\u00e9\\ud83d\\ude00\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}",
            1, 1);
}

static void test_formats_safetensors_parse__checks_the_header_length_first(void **state)
{
    scratch *s = *state;
    static const uint64_t lengths[] = {(uint64_t)1 << 63, 100000001, UINT64_MAX, 1000000, 100, 93};
    unsigned char bytes[100] = {0};
    weft_alloc_count before, after;
    weft_st *st = NULL;
    char text[64];
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        make_file(bytes, lengths[i], "{" A4 "}", 0);
        weft_i_alloc_counts(s->alloc, WEFT_MEM_CONTROL, &before);
        const weft_status status =
            weft_i_st_parse(&st, s->alloc, "m.safetensors", bytes, sizeof(bytes));
        weft_i_alloc_counts(s->alloc, WEFT_MEM_CONTROL, &after);
        (void)snprintf(text, sizeof(text), "%" PRIu64, lengths[i]);
        expect_failure(status, WEFT_STATUS_FORMAT, "m.safetensors", text,
                       i < 3 ? "too large" : "100 bytes", NULL);
        assert_true(after.peak_bytes - before.now_bytes < 4096);
    }
}

static void test_formats_safetensors_parse__refuses_files_without_a_header(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    expect_failure(weft_i_st_parse(&st, s->alloc, "m", NULL, 0), WEFT_STATUS_FORMAT, "m: 0 bytes",
                   NULL);
    expect_failure(weft_i_st_parse(&st, s->alloc, "m", "1234567", 7), WEFT_STATUS_FORMAT,
                   "m: 7 bytes", NULL);
    refuses(s, "", 0, "no valid JSON", "header");
    refuses(s, "[]", 0, "no object", "header");
    refuses(s, "{" A4, 4, "no valid JSON", "line 1");
    refuses(s, "{" A4 "}x", 4, "no valid JSON", "end of file expected");
    refuses(s, "\xef\xbb\xbf{" A4 "}", 4, "no valid JSON", "header");
    refuses(s, "{\"\xff\":1}", 4, "no valid JSON", "0xff");
    refuses(s, "{\"\\ud800\":1}", 4, "no valid JSON", "header");
}

/* A key twice: the reference keeps one of the two in silence. */
static void test_formats_safetensors_parse__refuses_repeated_keys_and_nul(void **state)
{
    scratch *s = *state;
    refuses(s, "{" A4 "," A4 "}", 4, "a key twice", "\"a\"");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "a key twice", "shape");
    refuses(s, "{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":{\"a\":\"b\"}}", 0, "a key twice",
            "__metadata__");
    refuses(s, "{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "NUL character", "line 1");
}

static void test_formats_safetensors_parse__refuses_wrong_types(void **state)
{
    scratch *s = *state;
    refuses(s, "{\"__metadata__\":{\"n\":1}}", 0, "__metadata__", "'n' is no string");
    refuses(s, "{\"__metadata__\":[]}", 0, "__metadata__", "no object of strings");
    refuses(s, "{\"a\":null}", 0, "tensor 'a'", "no object");
    refuses(s, "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 'a'", "no dtype");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor 'a'", "no shape");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor 'a'", "no data_offsets");
    refuses(s, "{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 'a'",
            "dtype is no string");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "tensor 'a'",
            "no list");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
            "tensor 'a'", "1.0");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "tensor 'a'",
            "-1");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4,
            "tensor 'a'", "[0, 4, 4]");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "tensor 'a'",
            "[0]");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4,
            "tensor 'a'", "\"4\"");
    refuses(s, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,4]}}", 4, "tensor 'a'",
            "-4");
}

static void test_formats_safetensors_parse__refuses_shapes_that_lie(void **state)
{
    scratch *s = *state;
    refuses(s, "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,20]}}", 20,
            "tensor 'w': [2, 3] of F32", "24 bytes, its range [0, 20] has 20");
    refuses(s, "{\"w\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
            "leaves a gap", "the header");
    refuses(s, "{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "tensor 'w'",
            "whole byte");
    refuses(s, "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
            "tensor 'w'", "3 bytes");
    refuses(s,
            "{\"w\":{\"dtype\":\"U8\",\"shape\":[1099511627776,1099511627776,0],\"data_offsets\":["
            "0,0]}}",
            0, "tensor 'w': shape [1099511627776, 1099511627776, 0]", "more elements");
    refuses(s, "{\"w\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}",
            0, "tensor 'w'", "64 bits");
    refuses(s, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
            4, "9 dimensions", "up to 8");
    refuses(s, "{\"w\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]}}",
            4, "no valid JSON", "too big integer");
}

static void test_formats_safetensors_parse__refuses_ranges_that_do_not_tile(void **state)
{
    scratch *s = *state;
    refuses(s, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "tensor 'w'",
            "backwards, from 4 to 0");
    refuses(s, "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", 6,
            "tensor 'b': its range [2, 6] overlaps", "'a' ends at 4");
    refuses(s, "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12,
            "tensor 'b': its range [8, 12] leaves a gap", "'a' ends at 4");
    refuses(s, "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "overlaps", "ends at 4");
    refuses(s, "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]}}", 4,
            "tensor 'b'", "overlaps");
    refuses(s,
            "{\"w\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,"
            "9223372036854775807]}}",
            4, "tensor 'w'", "64 bits");
    refuses(s, "{\"w\":{\"dtype\":\"??\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}",
            4, "'w'", "truncated");
    refuses(s, "{}", 1, "the file has 11 bytes", "describes 10");
}

/* Cut at every byte, and appended to. */
static void test_formats_safetensors_parse__refuses_every_truncation(void **state)
{
    scratch *s = *state;
    const char *header = "{" A4 ",\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[4,10]}}";
    unsigned char bytes[300];
    const size_t n = make_file(bytes, strlen(header), header, 10);
    weft_st *st = NULL;
    char sizes[2][32];
    for (size_t cut = 0; cut < n; cut++) {
        const weft_status status = weft_i_st_parse(&st, s->alloc, "m.safetensors", bytes, cut);
        (void)snprintf(sizes[0], sizeof(sizes[0]), "%zu bytes", cut);
        (void)snprintf(sizes[1], sizeof(sizes[1]), "%zu", n);
        expect_failure(status, WEFT_STATUS_FORMAT, "m.safetensors", sizes[0], NULL);
        if (cut >= n - 10)
            expect_failure(status, WEFT_STATUS_FORMAT, "describes", sizes[1], "'b'", "truncated",
                           NULL);
        assert_null(st);
    }
    memset(bytes + n, 0, 4);
    expect_failure(weft_i_st_parse(&st, s->alloc, "m", bytes, n + 4), WEFT_STATUS_FORMAT,
                   "appended", sizes[1], NULL);
    CHECK_OK(weft_i_st_parse(&st, s->alloc, "m", bytes, n));
    weft_i_st_close(st);
}

/* A type nobody knows does not hide its range, and does not keep the others from being read. */
static void test_formats_safetensors_parse__keeps_unknown_types_as_other(void **state)
{
    weft_st *st;
    CHECK_OK(parse(&st, *state,
                   "{" A4 ",\"q\":{\"dtype\":\"Q4\",\"shape\":[16],\"data_offsets\":[4,12]}}", 12));
    const weft_st_tensor *q = weft_i_st_find(st, "q");
    assert_int_equal(q->dtype, WEFT_DTYPE_OTHER);
    assert_string_equal(q->dtype_name, "Q4");
    assert_int_equal(q->n_bytes, 8);
    assert_int_equal(weft_i_st_find(st, "a")->dtype, WEFT_DTYPE_F32);
    weft_i_st_close(st);
    refuses(*state, "{\"q\":{\"dtype\":\"Q4\",\"shape\":[16],\"data_offsets\":[0,8]}}", 4, "'q'",
            "truncated");
    refuses(*state, "{\"q\":{\"dtype\":\"Q4\",\"shape\":[16],\"data_offsets\":[1,8]}}", 8, "'q'",
            "gap");
}

static void test_formats_safetensors_parse__keeps_long_names_out_of_messages(void **state)
{
    scratch *s = *state;
    static char header[4096];
    char name[2049];
    memset(name, 'n', 2048);
    name[2048] = '\0';
    (void)snprintf(header, sizeof(header),
                   "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,20]}}", name);
    refuses(s, header, 20, "its range [0, 20] has 20", "nnnn'");
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_safetensors_parse__reads_a_tensor),
        WITH_SCRATCH(test_formats_safetensors_parse__accepts_what_the_reference_accepts),
        WITH_SCRATCH(test_formats_safetensors_parse__checks_the_header_length_first),
        WITH_SCRATCH(test_formats_safetensors_parse__refuses_files_without_a_header),
        WITH_SCRATCH(test_formats_safetensors_parse__refuses_repeated_keys_and_nul),
        WITH_SCRATCH(test_formats_safetensors_parse__refuses_wrong_types),
        WITH_SCRATCH(test_formats_safetensors_parse__refuses_shapes_that_lie),
        WITH_SCRATCH(test_formats_safetensors_parse__refuses_ranges_that_do_not_tile),
        WITH_SCRATCH(test_formats_safetensors_parse__refuses_every_truncation),
        WITH_SCRATCH(test_formats_safetensors_parse__keeps_unknown_types_as_other),
        WITH_SCRATCH(test_formats_safetensors_parse__keeps_long_names_out_of_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
