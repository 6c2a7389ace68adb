/* Token files: widths, round trips, refusals, 64-bit positions. */
#include "scratch.h"

#include "data/token_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes ids for a tokenizer of vocab_size and reads them back; returns the width. */
static int round_trip(scratch *s, const int32_t *ids, size_t n_ids, int64_t vocab_size)
{
    const char *path = scratch_path(s, "ids.bin");
    weft_token_writer w;
    expect_ok(weft_i_token_writer_open(&w, path, vocab_size));
    expect_ok(weft_i_token_writer_add(&w, ids, n_ids));
    expect_ok(weft_i_token_writer_finish(&w));
    weft_token_file f;
    expect_ok(weft_i_token_file_open(&f, path));
    assert_int_equal(f.n_tokens, n_ids);
    assert_int_equal(f.vocab_size, vocab_size);
    assert_int_equal(f.map.n_bytes, 64 + n_ids * (size_t)f.id_bytes);
    int64_t highest = -1;
    for (size_t i = 0; i < n_ids; i++) {
        int32_t id = -1;
        weft_i_token_file_read(&f, (int64_t)i, 1, &id);
        assert_int_equal(id, ids[i]);
        highest = WEFT_MAX(highest, (int64_t)ids[i]);
    }
    assert_int_equal(f.highest_id, highest);
    expect_ok(weft_i_token_file_check(&f, path, vocab_size));
    const int id_bytes = f.id_bytes;
    weft_i_token_file_close(&f);
    return id_bytes;
}

static void test_data_token_file__ids_of_every_size_come_back(void **state)
{
    const int32_t ids[] = {0, 32767, 32768, 65535, 65536, 128000, INT32_MAX, 1};
    assert_int_equal(round_trip(*state, ids, 4, 65536), 2);
    assert_int_equal(round_trip(*state, ids, 4, 65537), 4);
    assert_int_equal(round_trip(*state, ids, 5, 65537), 4);
    assert_int_equal(round_trip(*state, ids, 6, 128256), 4);
    assert_int_equal(round_trip(*state, ids, 8, (int64_t)INT32_MAX + 1), 4);
    assert_int_equal(round_trip(*state, ids, 1, 257), 2);
    assert_int_equal(round_trip(*state, ids, 0, 257), 2);
}

static void test_data_token_file__the_header_is_the_one_documented(void **state)
{
    scratch *s = *state;
    const int32_t ids[] = {258, 1, 65536};
    (void)round_trip(s, ids, 3, 70000);
    static const unsigned char wanted[] = {
        'W', 'E', 'F', 'T', 'T', 'O', 'K', '1', 4, 0, 0, 0, 0, 0, 0, 0, 0x70, 0x11, 1,
        0,   0,   0,   0,   0,   3,   0,   0,   0, 0, 0, 0, 0, 1, 0, 1, 0,    0,    0,
        0,   0,   0,   0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 0,    0,    0,
        0,   0,   0,   0,   0,   0,   0,   2,   1, 0, 0, 1, 0, 0, 0, 0, 0,    1,    0,
    };
    char *bytes = NULL;
    size_t n_bytes = 0;
    expect_ok(weft_i_file_read(s->alloc, scratch_path(s, "ids.bin"), 1000, &bytes, &n_bytes));
    assert_int_equal(n_bytes, sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    weft_i_alloc_put(s->alloc, bytes);
}

static void test_data_token_file__an_id_the_tokenizer_lacks_is_not_written(void **state)
{
    scratch *s = *state;
    weft_token_writer w;
    expect_ok(weft_i_token_writer_open(&w, scratch_path(s, "ids.bin"), 65536));
    const int32_t ids[] = {5, 65536};
    expect_failure(weft_i_token_writer_add(&w, ids, 2), WEFT_STATUS_ARG, "65536", NULL);
    weft_i_token_writer_abandon(&w);
    assert_false(weft_i_file_exists(scratch_path(s, "ids.bin")));
    assert_false(weft_i_file_exists(scratch_path(s, "ids.bin.tmp")));
}

static void test_data_token_file__ids_beyond_the_model_are_named(void **state)
{
    scratch *s = *state;
    enum { N = 10000 };
    static int32_t ids[N];
    const size_t places[] = {0, 4095, 4096, N - 1};
    for (size_t p = 0; p < WEFT_COUNT_OF(places); p++) {
        memset(ids, 0, sizeof(ids));
        ids[places[p]] = 53;
        (void)round_trip(s, ids, N, 100);
        weft_token_file f;
        const char *path = scratch_path(s, "ids.bin");
        expect_ok(weft_i_token_file_open(&f, path));
        char position[64];
        (void)snprintf(position, sizeof(position), "token %zu is id 53", places[p]);
        expect_failure(weft_i_token_file_check(&f, path, 53), WEFT_STATUS_MISMATCH, path, position,
                       "53", NULL);
        expect_ok(weft_i_token_file_check(&f, path, 54));
        weft_i_token_file_close(&f);
    }
}

/* Changes n bytes of a good file of two 16-bit ids and expects it refused. */
static void
expect_refused(scratch *s, size_t at, const char *bytes, size_t n, size_t length, const char *why)
{
    const int32_t ids[] = {1, 2};
    (void)round_trip(s, ids, 2, 257);
    const char *path = scratch_path(s, "ids.bin");
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, (off_t)length), 0);
    weft_token_file opened;
    expect_failure(weft_i_token_file_open(&opened, path), WEFT_STATUS_FORMAT, path, why, NULL);
}

static void test_data_token_file__a_lying_header_is_refused(void **state)
{
    scratch *s = *state;
    expect_refused(s, 0, "X", 1, 68, "no token file");
    expect_refused(s, 7, "2", 1, 68, "another version");
    expect_refused(s, 0, "", 0, 63, "63 bytes");
    expect_refused(s, 0, "", 0, 67, "3 bytes follow");
    expect_refused(s, 0, "", 0, 70, "6 bytes follow");
    expect_refused(s, 8, "\3", 1, 68, "3 bytes an id");
    expect_refused(s, 8, "\4", 1, 68, "2 tokens of 4 bytes");
    expect_refused(s, 16, "\0\0", 2, 68, "0 ids");
    expect_refused(s, 18, "\1", 1, 68, "2 bytes an id, 65793 ids");
    expect_refused(s, 32, "\3\1", 2, 68, "257"); /* highest id + 1 = 259 of 257 */
    expect_refused(s, 24, "\2\0\0\0\0\0\0\x80", 8, 68,
                   "9223372036854775810 tokens"); /* x 2 wraps to 4 */
}

static void test_data_token_file__five_gibibytes_are_read_to_the_end(void **state)
{
    scratch *s = *state;
    const char *path = scratch_path(s, "sparse.bin");
    const int64_t n_tokens = ((int64_t)5 << 30) / 4;
    const int32_t id = 3;
    weft_token_writer w;
    expect_ok(weft_i_token_writer_open(&w, path, 70000));
    expect_ok(weft_i_token_writer_add(&w, &id, 1));
    /* As if zeros had been written up to the last token. */
    if (lseek(w.file.fd, 64 + 4 * (n_tokens - 1), SEEK_SET) < 0)
        skip();
    w.n_tokens = n_tokens - 1;
    const int32_t last = 69999;
    if (weft_i_token_writer_add(&w, &last, 1) != WEFT_OK ||
        weft_i_token_writer_finish(&w) != WEFT_OK)
        skip(); /* a file system without such large files */
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    if ((int64_t)info.st_blocks * 512 > (int64_t)1 << 30)
        skip(); /* without holes */
    weft_token_file f;
    expect_ok(weft_i_token_file_open(&f, path));
    assert_true(f.n_tokens == n_tokens);
    int32_t ids[3] = {-1, -1, -1};
    weft_i_token_file_read(&f, n_tokens - 3, 3, ids);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 0);
    assert_int_equal(ids[2], 69999);
    weft_i_token_file_read(&f, 0, 2, ids);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 0);
    char position[64];
    (void)snprintf(position, sizeof(position), "token %lld is id 69999", (long long)n_tokens - 1);
    expect_failure(weft_i_token_file_check(&f, path, 69999), WEFT_STATUS_MISMATCH, position, NULL);
    weft_i_token_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_data_token_file__ids_of_every_size_come_back,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_token_file__the_header_is_the_one_documented,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(
            test_data_token_file__an_id_the_tokenizer_lacks_is_not_written, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_token_file__ids_beyond_the_model_are_named,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_token_file__a_lying_header_is_refused,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_token_file__five_gibibytes_are_read_to_the_end,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
