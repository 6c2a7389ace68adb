/* Text and token files as one stream: bytes as they are, refusals, ranges over file borders. */
#include "scratch.h"

#include "data/dataset.h"
#include "data/token_file.h"

#include <stdio.h>
#include <string.h>

static weft_status open_one(weft_dataset **d, scratch *s, const char *path, int64_t vocab_size)
{
    weft_tokenizer *t = NULL;
    expect_ok(weft_i_tokenizer_open(&t, s->alloc, "byte"));
    const weft_status st = weft_i_dataset_open(d, s->alloc, &path, 1, t, vocab_size);
    weft_i_tokenizer_close(t);
    return st;
}

static void write_tokens(const char *path, const int32_t *ids, size_t n_ids, int64_t vocab_size)
{
    weft_token_writer w;
    expect_ok(weft_i_token_writer_open(&w, path, vocab_size));
    expect_ok(weft_i_token_writer_add(&w, ids, n_ids));
    expect_ok(weft_i_token_writer_finish(&w));
}

static void test_data_dataset__bytes_are_kept_as_they_are(void **state)
{
    scratch *s = *state;
    static const char text[] = "\xEF\xBB\xBFone\r\ntwo\rthree\n\n\0\xFF";
    const size_t n = sizeof(text) - 1;
    weft_dataset *d = NULL;
    expect_ok(open_one(&d, s, scratch_file(s, "text", text, n), 257));
    assert_int_equal(weft_i_dataset_tokens(d), n);
    int32_t ids[sizeof(text)];
    expect_ok(weft_i_dataset_read(d, 0, (int64_t)n, ids));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], (unsigned char)text[i]);
    assert_int_equal(weft_i_dataset_bytes(d, 0, (int64_t)n), n);
    weft_i_dataset_close(d);
}

static void test_data_dataset__files_are_one_stream(void **state)
{
    scratch *s = *state;
    char paths[4][WEFT_PATH_MAX];
    (void)snprintf(paths[0], sizeof(paths[0]), "%s", scratch_file(s, "a", "ab", 2));
    (void)snprintf(paths[1], sizeof(paths[1]), "%s", scratch_file(s, "empty", "", 0));
    (void)snprintf(paths[2], sizeof(paths[2]), "%s", scratch_path(s, "c.bin"));
    const int32_t middle[] = {256, 7, 256};
    write_tokens(paths[2], middle, 3, 257);
    (void)snprintf(paths[3], sizeof(paths[3]), "%s", scratch_file(s, "d", "z", 1));
    const char *list[] = {paths[0], paths[1], paths[2], paths[3]};
    weft_tokenizer *t = NULL;
    expect_ok(weft_i_tokenizer_open(&t, s->alloc, "byte"));
    weft_dataset *d = NULL;
    expect_ok(weft_i_dataset_open(&d, s->alloc, list, 4, t, 300));
    const int32_t wanted[] = {'a', 'b', 256, 7, 256, 'z'};
    assert_int_equal(weft_i_dataset_tokens(d), 6);
    for (int64_t first = 0; first < 6; first++) {
        for (int64_t n = 0; n <= 6 - first; n++) {
            int32_t ids[6];
            expect_ok(weft_i_dataset_read(d, first, n, ids));
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(ids[i], wanted[first + i]);
        }
    }
    assert_int_equal(weft_i_dataset_bytes(d, 0, 6), 4);
    int32_t one[8];
    expect_failure(weft_i_dataset_read(d, 5, 2, one), WEFT_STATUS_ARG, "5 to 6", "stream of 6",
                   NULL);
    expect_failure(weft_i_dataset_read(d, -1, 1, one), WEFT_STATUS_ARG, "-1", NULL);
    weft_i_dataset_close(d);
    weft_i_tokenizer_close(t);
}

static void test_data_dataset__a_model_with_too_few_rows_is_refused(void **state)
{
    scratch *s = *state;
    const char *path = scratch_file(s, "text", "hello", 5);
    weft_dataset *d = NULL;
    expect_failure(open_one(&d, s, path, 256), WEFT_STATUS_MISMATCH, "257", "256", NULL);
    assert_null(d);
    expect_ok(open_one(&d, s, path, 257));
    weft_i_dataset_close(d);
    expect_ok(open_one(&d, s, path, 50304));
    weft_i_dataset_close(d);
}

static void test_data_dataset__an_id_beyond_the_model_is_refused_wherever_it_is(void **state)
{
    scratch *s = *state;
    /* At the start, in the last batch, and as the last token of all: a target only. */
    for (size_t place = 0; place < 3; place++) {
        int32_t ids[100] = {0};
        ids[place == 0 ? 0 : place == 1 ? 98 : 99] = 53;
        write_tokens(scratch_path(s, "ids.bin"), ids, 100, 60);
        const char *path = scratch_path(s, "ids.bin");
        weft_dataset *d = NULL;
        expect_failure(open_one(&d, s, path, 53), WEFT_STATUS_MISMATCH, path, "id 53", "53", NULL);
        assert_null(d);
    }
}

static void test_data_dataset__ids_without_a_header_are_not_taken_for_text(void **state)
{
    scratch *s = *state;
    weft_dataset *d = NULL;
    expect_failure(open_one(&d, s, scratch_file(s, "train.bin", "\1\0\2\0", 4), 257),
                   WEFT_STATUS_FORMAT, "train.bin", "header", NULL);
    expect_failure(open_one(&d, s, scratch_path(s, "none.txt"), 257), WEFT_STATUS_IO, "none.txt",
                   NULL);
    expect_failure(open_one(&d, s, s->dir, 257), WEFT_STATUS_IO, s->dir, NULL);
}

static void test_data_dataset__token_files_need_no_tokenizer(void **state)
{
    scratch *s = *state;
    const int32_t ids[] = {128000, 5};
    write_tokens(scratch_path(s, "ids.bin"), ids, 2, 128256);
    const char *path = scratch_path(s, "ids.bin");
    weft_dataset *d = NULL;
    expect_ok(weft_i_dataset_open(&d, s->alloc, &path, 1, NULL, 128256));
    int32_t back[2];
    expect_ok(weft_i_dataset_read(d, 0, 2, back));
    assert_int_equal(back[0], 128000);
    assert_int_equal(weft_i_dataset_bytes(d, 0, 2), -1);
    weft_i_dataset_close(d);
    path = scratch_file(s, "text", "x", 1);
    expect_failure(weft_i_dataset_open(&d, s->alloc, &path, 1, NULL, 300), WEFT_STATUS_ARG, path,
                   NULL);
    expect_failure(weft_i_dataset_open(&d, s->alloc, &path, 0, NULL, 300), WEFT_STATUS_ARG,
                   "no data", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_data_dataset__bytes_are_kept_as_they_are,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_dataset__files_are_one_stream, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_dataset__a_model_with_too_few_rows_is_refused,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(
            test_data_dataset__an_id_beyond_the_model_is_refused_wherever_it_is, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(
            test_data_dataset__ids_without_a_header_are_not_taken_for_text, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_dataset__token_files_need_no_tokenizer,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
