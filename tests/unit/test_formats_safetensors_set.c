/* A folder's shards as one set: every promise of the index is checked, and what is missing is named. */
#include "check.h"
#include "scratch.h"

#include "formats/safetensors.h"

/* A file with one-element I32 tensors of these names (a text of single letters); each holds its letter's code. */
static void shard(scratch *s, const char *file, const char *letters)
{
    weft_st_plan plan[8];
    char names[8][2];
    weft_st_writer *w = NULL;
    const size_t n = strlen(letters);
    for (size_t i = 0; i < n; i++) {
        names[i][0] = letters[i];
        names[i][1] = '\0';
        plan[i] = (weft_st_plan){names[i], WEFT_DTYPE_I32, weft_i_shape_1d(1)};
    }
    CHECK_OK(weft_i_st_create(&w, s->alloc, scratch_path(s, file), plan, n, NULL, 0));
    for (size_t i = 0; i < n; i++) {
        const int32_t value = letters[i];
        CHECK_OK(weft_i_st_append(w, &value, sizeof(value)));
    }
    CHECK_OK(weft_i_st_finish(w));
}

static void write_index(scratch *s, const char *text)
{
    scratch_file(s, "model.safetensors.index.json", text, strlen(text));
}

static void remove_file(scratch *s, const char *name)
{
    assert_int_equal(remove(scratch_path(s, name)), 0);
}

static const char three_shards[] =
    "{\"metadata\":{\"total_size\":99},\"weight_map\":{"
    "\"a\":\"model-00001-of-00003.safetensors\",\"b\":\"model-00002-of-00003.safetensors\","
    "\"c\":\"model-00003-of-00003.safetensors\",\"d\":\"model-00001-of-00003.safetensors\"}}";

static void make_three(scratch *s)
{
    shard(s, "model-00001-of-00003.safetensors", "ad");
    shard(s, "model-00002-of-00003.safetensors", "b");
    shard(s, "model-00003-of-00003.safetensors", "c");
    write_index(s, three_shards);
}

static void opens_with(scratch *s, const char *letters, size_t n_files)
{
    weft_st *st = NULL;
    CHECK_OK(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"));
    assert_int_equal(weft_i_st_count(st), strlen(letters));
    assert_int_equal(weft_i_st_file_count(st), n_files);
    for (size_t i = 0; i < strlen(letters); i++) {
        const char name[2] = {letters[i], '\0'};
        const weft_st_tensor *t = weft_i_st_find(st, name);
        int32_t value = 0;
        assert_non_null(t);
        assert_ptr_equal(t, weft_i_st_at(st, i));
        memcpy(&value, t->data, sizeof(value));
        assert_int_equal(value, letters[i]);
        weft_i_st_drop(st, t);
        memcpy(&value, t->data, sizeof(value));
        assert_int_equal(value, letters[i]);
    }
    weft_i_st_close(st);
}

static void test_formats_safetensors_set__opens_shards_as_one(void **state)
{
    make_three(*state);
    opens_with(*state, "abcd", 3);
}

static void test_formats_safetensors_set__names_every_missing_shard(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    make_three(s);
    remove_file(s, "model-00002-of-00003.safetensors");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_IO,
                   "model.safetensors.index.json names 3 files, of which 1 is missing: "
                   "model-00002-of-00003.safetensors",
                   NULL);
    remove_file(s, "model-00003-of-00003.safetensors");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_IO, s->dir,
                   "2 are missing",
                   "model-00002-of-00003.safetensors, model-00003-of-00003.safetensors", NULL);
    assert_null(st);
}

static void test_formats_safetensors_set__refuses_shards_without_an_index(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    make_three(s);
    remove_file(s, "model.safetensors.index.json");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                   s->dir, "no model.safetensors.index.json", "model-00001-of-00003.safetensors",
                   "model-00003-of-00003.safetensors", NULL);
}

static void test_formats_safetensors_set__opens_a_single_file_without_an_index(void **state)
{
    shard(*state, "model.safetensors", "xyz");
    opens_with(*state, "xyz", 1);
}

static void test_formats_safetensors_set__reads_another_base(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    make_three(s);
    shard(s, "optimizer.safetensors", "m");
    CHECK_OK(weft_i_st_open_folder(&st, s->alloc, s->dir, "optimizer"));
    assert_int_equal(weft_i_st_count(st), 1);
    weft_i_st_close(st);
}

static void test_formats_safetensors_set__takes_names_from_the_index_only(void **state)
{
    scratch *s = *state;
    shard(s, "weights_A.safetensors", "ac");
    shard(s, "weights_B.safetensors", "b");
    shard(s, "model-00001-of-00001.safetensors", "z"); /* not in the index: must not be read */
    write_index(s,
                "{\"weight_map\":{\"c\":\"weights_A.safetensors\",\"b\":\"weights_B.safetensors\","
                "\"a\":\"weights_A.safetensors\"}}");
    opens_with(s, "abc", 2);
}

static void test_formats_safetensors_set__refuses_an_index_that_lies(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    shard(s, "A.safetensors", "ac");
    shard(s, "B.safetensors", "b");
    write_index(s, "{\"weight_map\":{\"a\":\"A.safetensors\",\"q\":\"B.safetensors\"}}");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                   "index.json", "tensor 'q' in B.safetensors, which does not hold it", NULL);
    write_index(s, "{\"weight_map\":{\"a\":\"A.safetensors\",\"c\":\"B.safetensors\"}}");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                   "index.json", "tensor 'c' in B.safetensors, but it is in A.safetensors", NULL);
    assert_null(st);
}

static void test_formats_safetensors_set__refuses_a_tensor_in_two_files(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    shard(s, "A.safetensors", "ab");
    shard(s, "B.safetensors", "b");
    write_index(s, "{\"weight_map\":{\"a\":\"A.safetensors\",\"b\":\"B.safetensors\"}}");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                   "tensor 'b' is in two", "A.safetensors", "B.safetensors", NULL);
}

static void test_formats_safetensors_set__refuses_a_damaged_index(void **state)
{
    static const char *const texts[] = {
        "",
        "{}",
        "{\"weight_map\":{}}",
        "{\"weight_map\":[\"A.safetensors\"]}",
        "{\"weight_map\":{\"a\":3}}",
        "{\"weight_map\":{\"a\":\"\"}}",
        "{\"weight_map\":{\"a\":\"../A.safetensors\"}}",
        "{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
        "{\"weight_map\":{\"a\":\"A.safetensors\",\"a\":\"B.safetensors\"}}",
        "{\"weight_map\":{\"a\":\"A.safetensors\"}",
    };
    scratch *s = *state;
    weft_st *st = NULL;
    shard(s, "A.safetensors", "a");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_index(s, texts[i]);
        expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                       "model.safetensors.index.json", NULL);
        assert_null(st);
    }
}

/* Readers differ in which of the two they believe, so neither is taken. */
static void test_formats_safetensors_set__refuses_a_single_file_beside_other_shards(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    make_three(s);
    shard(s, "model.safetensors", "abcd");
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                   s->dir, "holds model.safetensors and an index", NULL);
    write_index(s, "{\"weight_map\":{\"a\":\"model.safetensors\"}}");
    opens_with(s, "abcd", 1);
}

static void test_formats_safetensors_set__says_what_an_empty_folder_lacks(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_IO, s->dir,
                   "neither model.safetensors nor model.safetensors.index.json", NULL);
    scratch_file(s, "pytorch_model.bin", "x", 1);
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_IO,
                   "does not read .bin", NULL);
    expect_failure(weft_i_st_open_folder(&st, s->alloc, "/nowhere/at/all", "model"), WEFT_STATUS_IO,
                   "/nowhere/at/all: no such folder", NULL);
}

static void test_formats_safetensors_set__names_a_damaged_shard(void **state)
{
    scratch *s = *state;
    weft_st *st = NULL;
    make_three(s);
    scratch_file(s, "model-00002-of-00003.safetensors", "short", 5);
    expect_failure(weft_i_st_open_folder(&st, s->alloc, s->dir, "model"), WEFT_STATUS_FORMAT,
                   "model-00002-of-00003.safetensors: 5 bytes", NULL);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_safetensors_set__opens_shards_as_one),
        WITH_SCRATCH(test_formats_safetensors_set__names_every_missing_shard),
        WITH_SCRATCH(test_formats_safetensors_set__refuses_shards_without_an_index),
        WITH_SCRATCH(test_formats_safetensors_set__opens_a_single_file_without_an_index),
        WITH_SCRATCH(test_formats_safetensors_set__reads_another_base),
        WITH_SCRATCH(test_formats_safetensors_set__takes_names_from_the_index_only),
        WITH_SCRATCH(test_formats_safetensors_set__refuses_an_index_that_lies),
        WITH_SCRATCH(test_formats_safetensors_set__refuses_a_tensor_in_two_files),
        WITH_SCRATCH(test_formats_safetensors_set__refuses_a_damaged_index),
        WITH_SCRATCH(test_formats_safetensors_set__refuses_a_single_file_beside_other_shards),
        WITH_SCRATCH(test_formats_safetensors_set__says_what_an_empty_folder_lacks),
        WITH_SCRATCH(test_formats_safetensors_set__names_a_damaged_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
