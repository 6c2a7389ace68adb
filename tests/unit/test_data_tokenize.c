/* Texts to token files and back. */
#include "scratch.h"

#include "base/str.h"
#include "weft/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct collected {
    weft_str bytes;
    size_t limit; /* stop after so many calls; 0: never */
    size_t n_calls;
} collected;

static bool collect(void *user, const char *bytes, size_t n_bytes)
{
    collected *c = user;
    expect_ok(weft_i_str_add(&c->bytes, bytes, n_bytes));
    return ++c->n_calls != c->limit;
}

static weft_tokenize_options options_of(const char **files, size_t n_files, const char *out)
{
    weft_tokenize_options o;
    weft_options_init(WEFT_COMMAND_TOKENIZE, &o);
    o.files = files;
    o.n_files = n_files;
    o.out = out;
    return o;
}

static void test_data_tokenize__a_round_trip_gives_the_bytes_back(void **state)
{
    scratch *s = *state;
    static char text[200000];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof(text); i++) {
        x = x * 1664525U + 1013904223U;
        text[i] = (char)(unsigned char)(x >> 24);
    }
    char in[WEFT_PATH_MAX], second[WEFT_PATH_MAX], out[WEFT_PATH_MAX];
    (void)snprintf(in, sizeof(in), "%s", scratch_file(s, "in", text, sizeof(text)));
    (void)snprintf(second, sizeof(second), "%s", scratch_file(s, "second", "\xEF\xBB\xBFx\r\n", 6));
    (void)snprintf(out, sizeof(out), "%s", scratch_path(s, "out.bin"));
    const char *files[] = {in, second};
    weft_tokenize_options o = options_of(files, 2, out);
    o.append_eos = true;
    weft_tokenize_result r;
    expect_ok(weft_tokenize_run(&r, &o));
    assert_int_equal(r.n_bytes, sizeof(text) + 6);
    assert_int_equal(r.n_tokens, sizeof(text) + 6 + 2);
    assert_int_equal(r.id_bytes, 2);
    assert_int_equal(r.vocab_size, 257);
    assert_int_equal(r.highest_id, 256);
    int32_t ids[4];
    int64_t n = 0;
    expect_ok(weft_tokenize_peek(ids, &n, out, 4));
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ids[i], (unsigned char)text[i]);

    const char *back[] = {out};
    o = options_of(back, 1, "");
    o.decode = true;
    collected c = {.limit = 0};
    weft_i_str_init(&c.bytes, s->alloc);
    expect_ok(weft_tokenize_decode(&o, collect, &c));
    assert_int_equal(c.bytes.n_bytes, sizeof(text) + 6);
    assert_memory_equal(c.bytes.text, text, sizeof(text));
    assert_memory_equal(c.bytes.text + sizeof(text), "\xEF\xBB\xBFx\r\n", 6);
    weft_i_str_fini(&c.bytes);
    c = (collected){.limit = 2};
    weft_i_str_init(&c.bytes, s->alloc);
    expect_ok(weft_tokenize_decode(&o, collect, &c)); /* the sink says enough */
    assert_int_equal(c.n_calls, 2);
    weft_i_str_fini(&c.bytes);
}

static void test_data_tokenize__an_empty_text_gives_no_token(void **state)
{
    scratch *s = *state;
    char in[WEFT_PATH_MAX], out[WEFT_PATH_MAX];
    (void)snprintf(in, sizeof(in), "%s", scratch_file(s, "in", "", 0));
    (void)snprintf(out, sizeof(out), "%s", scratch_path(s, "out.bin"));
    const char *files[] = {in};
    const weft_tokenize_options o = options_of(files, 1, out);
    weft_tokenize_result r;
    expect_ok(weft_tokenize_run(&r, &o));
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(r.highest_id, -1);
}

/* Links and devices are written to, never replaced; pipes cannot take a header at the end; inputs are no outputs. */
static void test_data_tokenize__what_is_there_is_not_destroyed(void **state)
{
    scratch *s = *state;
    char in[WEFT_PATH_MAX], out[WEFT_PATH_MAX], pipe_path[WEFT_PATH_MAX];
    (void)snprintf(in, sizeof(in), "%s", scratch_file(s, "in", "abc", 3));
    (void)snprintf(out, sizeof(out), "%s", scratch_path(s, "out.bin"));
    (void)snprintf(pipe_path, sizeof(pipe_path), "%s", scratch_path(s, "pipe"));
    const char *files[] = {in};
    weft_tokenize_options o = options_of(files, 1, out);
    weft_tokenize_result r;
    struct stat info;
    assert_int_equal(symlink("/dev/null", out), 0);
    expect_ok(weft_tokenize_run(&r, &o));
    assert_int_equal(lstat(out, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    const int fd = open(pipe_path, O_RDWR); /* so that opening it does not wait */
    assert_true(fd >= 0);
    o.out = pipe_path;
    expect_failure(weft_tokenize_run(&r, &o), WEFT_STATUS_IO, pipe_path, "regular file", NULL);
    assert_int_equal(lstat(pipe_path, &info), 0);
    (void)close(fd);
    o.out = in;
    expect_failure(weft_tokenize_run(&r, &o), WEFT_STATUS_ARG, in, "another name", NULL);
    assert_int_equal(stat(in, &info), 0);
    assert_int_equal(info.st_size, 3);
}

static void test_data_tokenize__a_failure_leaves_no_file(void **state)
{
    scratch *s = *state;
    char in[WEFT_PATH_MAX], none[WEFT_PATH_MAX], out[WEFT_PATH_MAX];
    (void)snprintf(in, sizeof(in), "%s", scratch_file(s, "in", "abc", 3));
    (void)snprintf(none, sizeof(none), "%s", scratch_path(s, "none"));
    (void)snprintf(out, sizeof(out), "%s", scratch_path(s, "out.bin"));
    const char *files[] = {in, none};
    weft_tokenize_options o = options_of(files, 2, out);
    weft_tokenize_result r;
    expect_failure(weft_tokenize_run(&r, &o), WEFT_STATUS_IO, none, NULL);
    assert_false(weft_i_file_exists(out));
    assert_false(weft_i_file_exists(scratch_path(s, "out.bin.tmp")));
    files[1] = s->dir;
    expect_failure(weft_tokenize_run(&r, &o), WEFT_STATUS_IO, s->dir, NULL);
    o.out = "";
    expect_failure(weft_tokenize_run(&r, &o), WEFT_STATUS_ARG, "--out", NULL);
    o.out = out;
    o.tokenizer = "gpt2";
    expect_failure(weft_tokenize_run(&r, &o), WEFT_STATUS_UNSUPPORTED, "gpt2", NULL);
    o.tokenizer = "byte";
    o.decode = true;
    o.n_files = 1;
    expect_failure(weft_tokenize_decode(&o, collect, NULL), WEFT_STATUS_FORMAT, in, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_data_tokenize__a_round_trip_gives_the_bytes_back,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_tokenize__an_empty_text_gives_no_token,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_tokenize__what_is_there_is_not_destroyed,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_tokenize__a_failure_leaves_no_file, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
