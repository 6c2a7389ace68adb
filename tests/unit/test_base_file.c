/* Files: maps, reads, durable writes, and messages that name the path and the reason. */
#include "check.h"
#include "tmpdir.h"

#include "base/crc32.h"
#include "base/env.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[TMPDIR_PATH_BYTES];
static char path[TMPDIR_PATH_BYTES];
static char other[TMPDIR_PATH_BYTES];
static weft_alloc *alloc;

static int set_up(void **state)
{
    (void)state;
    tmpdir_make(dir);
    tmpdir_join(path, dir, "file");
    tmpdir_join(other, dir, "other");
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tmpdir_remove(dir);
    weft_i_alloc_destroy(alloc); /* asserts that the test put everything back */
    return 0;
}

static void test_base_file__maps_a_whole_file(void **state)
{
    (void)state;
    static unsigned char bytes[100000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    tmpdir_write(path, bytes, sizeof(bytes));
    weft_map m;
    CHECK_OK(weft_i_map_open(&m, path));
    assert_int_equal(m.n_bytes, sizeof(bytes));
    assert_memory_equal(m.data, bytes, sizeof(bytes));
    weft_i_map_drop(&m, 0, sizeof(bytes));
    weft_i_map_drop(&m, 5000, SIZE_MAX);
    weft_i_map_drop(&m, sizeof(bytes), 1);
    weft_i_map_drop(&m, 4097, 0);
    assert_memory_equal(m.data, bytes, sizeof(bytes)); /* read again from the file */
    weft_i_map_close(&m);
    assert_null(m.data);
    weft_i_map_close(&m);
}

static void test_base_file__drops_mapped_pages_from_memory(void **state)
{
    (void)state;
    const size_t size = (size_t)32 << 20;
    char *const bytes = calloc(1, size);
    assert_non_null(bytes);
    tmpdir_write(path, bytes, size);
    free(bytes);
    weft_map m;
    CHECK_OK(weft_i_map_open(&m, path));
    unsigned sum = 0;
    for (size_t i = 0; i < size; i += 512)
        sum += m.data[i];
    assert_int_equal(sum, 0);
    const uint64_t before = weft_i_env_resident_bytes();
    weft_i_map_drop(&m, 0, size);
    const uint64_t after = weft_i_env_resident_bytes();
    weft_i_map_close(&m);
    assert_true(before > after && before - after > size - (1 << 20));
}

static void test_base_file__maps_an_empty_file(void **state)
{
    (void)state;
    tmpdir_write(path, "", 0);
    weft_map m;
    CHECK_OK(weft_i_map_open(&m, path));
    assert_int_equal(m.n_bytes, 0);
    assert_null(m.data);
    weft_i_map_drop(&m, 0, 1);
    weft_i_map_close(&m);
}

static void test_base_file__names_what_it_could_not_open(void **state)
{
    (void)state;
    weft_map m = {.n_bytes = 77};
    char *text = NULL;
    uint64_t size = 0;
    CHECK_FAILS(weft_i_map_open(&m, path), WEFT_STATUS_IO, path);
    assert_non_null(strstr(weft_last_error(), strerror(ENOENT)));
    assert_int_equal(m.n_bytes, 77); /* outputs stay untouched */
    CHECK_FAILS(weft_i_map_open(&m, dir), WEFT_STATUS_IO, "folder");
    CHECK_FAILS(weft_i_map_open(&m, "/dev/null"), WEFT_STATUS_IO, "not a regular file");
    CHECK_FAILS(weft_i_file_read(alloc, path, 100, &text, NULL), WEFT_STATUS_IO, path);
    CHECK_FAILS(weft_i_file_read(alloc, dir, 100, &text, NULL), WEFT_STATUS_IO, dir);
    CHECK_FAILS(weft_i_file_size(path, &size), WEFT_STATUS_IO, path);
    CHECK_FAILS(weft_i_file_size(dir, &size), WEFT_STATUS_IO, dir);
    CHECK_FAILS(weft_i_file_copy(path, other), WEFT_STATUS_IO, path);
    assert_null(text);
    assert_false(weft_i_file_exists(path));
    assert_true(weft_i_file_exists(dir));
}

/* Opening a pipe waits for a writer; a run whose data or config is one would stand still for ever. */
static void test_base_file__does_not_wait_for_a_pipe(void **state)
{
    (void)state;
    weft_map m;
    char *text = NULL;
    size_t n_bytes = 1;
    uint32_t crc = 0;
    uint64_t n_summed = 0;
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)alarm(20); /* of waiting the test dies */
    CHECK_FAILS(weft_i_map_open(&m, path), WEFT_STATUS_IO, "not a regular file");
    CHECK_FAILS(weft_i_crc32_file(path, &crc, &n_summed), WEFT_STATUS_IO, path);
    CHECK_FAILS(weft_i_file_copy(path, other), WEFT_STATUS_IO, path);
    CHECK_FAILS(weft_i_file_read(alloc, path, 100, &text, &n_bytes), WEFT_STATUS_IO,
                "gave nothing");
    assert_null(text);

    /* A pipe with a writer is read to its end, however late its bytes come. */
    int ends[2];
    char name[32];
    assert_int_equal(pipe(ends), 0);
    const pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        const struct timespec late = {0, 100000000};
        (void)nanosleep(&late, NULL);
        _exit(write(ends[1], "late", 4) == 4 ? 0 : 1);
    }
    (void)close(ends[1]);
    (void)snprintf(name, sizeof(name), "/dev/fd/%d", ends[0]);
    CHECK_OK(weft_i_file_read(alloc, name, 100, &text, &n_bytes));
    assert_string_equal(text, "late");
    weft_i_alloc_put(alloc, text);
    (void)close(ends[0]);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    (void)alarm(0);
}

static void test_base_file__reads_up_to_a_limit(void **state)
{
    (void)state;
    static char bytes[200000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i % 251);
    static const size_t size[] = {0, 1, 65535, 65536, 65537, sizeof(bytes)};
    for (size_t i = 0; i < WEFT_COUNT_OF(size); i++) {
        tmpdir_write(path, bytes, size[i]);
        char *text = NULL;
        size_t n = 99;
        CHECK_OK(weft_i_file_read(alloc, path, size[i], &text, &n));
        assert_int_equal(n, size[i]);
        assert_memory_equal(text, bytes, n);
        assert_int_equal(text[n], '\0');
        weft_i_alloc_put(alloc, text);
        text = NULL;
        if (size[i] > 0)
            CHECK_FAILS(weft_i_file_read(alloc, path, size[i] - 1, &text, &n), WEFT_STATUS_IO,
                        path);
        assert_null(text);
    }
}

static void test_base_file__reads_what_has_no_size(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(weft_i_file_read(alloc, "/proc/self/status", 1 << 20, &text, &n));
    assert_true(n > 100 && strlen(text) == n);
    assert_non_null(strstr(text, "VmRSS"));
    weft_i_alloc_put(alloc, text);
    text = NULL;
    CHECK_FAILS(weft_i_file_read(alloc, "/dev/zero", 1 << 20, &text, &n), WEFT_STATUS_IO,
                "1048576");
    assert_null(text);
    /* Address 0 of a process holds nothing: opening succeeds, reading fails. */
    CHECK_FAILS(weft_i_file_read(alloc, "/proc/self/mem", 100, &text, &n), WEFT_STATUS_IO,
                "reading");
    CHECK_FAILS(weft_i_file_copy("/proc/self/mem", path), WEFT_STATUS_IO, "/proc/self/mem");
    assert_null(text);
}

static void test_base_file__writes_and_counts(void **state)
{
    (void)state;
    weft_writer w;
    CHECK_OK(weft_i_writer_open(&w, path));
    CHECK_OK(weft_i_writer_write(&w, "abc", 3));
    CHECK_OK(weft_i_writer_write(&w, NULL, 0));
    CHECK_OK(weft_i_writer_write(&w, "defg", 4));
    assert_int_equal(w.n_bytes, 7);
    CHECK_OK(weft_i_writer_close(&w));
    weft_i_writer_abandon(&w);
    char text[16] = "";
    assert_int_equal(tmpdir_read(path, text, sizeof(text)), 7);
    assert_memory_equal(text, "abcdefg", 7);
    uint64_t size = 0;
    CHECK_OK(weft_i_file_size(path, &size));
    assert_int_equal(size, 7);
}

/* Devices are reached through links in the test's own folder: a mistake then replaces the link, not the device. */
static const char *link_to_device(const char *device)
{
    (void)unlink(other);
    assert_int_equal(symlink(device, other), 0);
    return other;
}

static void test_base_file__reports_a_full_disk(void **state)
{
    (void)state;
    const char *const full = link_to_device("/dev/full");
    weft_writer w;
    CHECK_OK(weft_i_writer_open(&w, full));
    CHECK_FAILS(weft_i_writer_write(&w, "abc", 3), WEFT_STATUS_IO, full);
    assert_non_null(strstr(weft_last_error(), strerror(ENOSPC)));
    weft_i_writer_abandon(&w);
    CHECK_FAILS(weft_i_file_write(full, "abc", 3), WEFT_STATUS_IO, full);
    CHECK_FAILS(weft_i_writer_open(&w, dir), WEFT_STATUS_IO, dir);
    weft_i_writer_abandon(&w);
}

static void test_base_file__replaces_a_small_file_whole(void **state)
{
    (void)state;
    char text[32] = "", temporary[TMPDIR_PATH_BYTES];
    CHECK_OK(weft_i_file_write(path, "first", 5));
    CHECK_OK(weft_i_file_write(path, "second!", 7));
    assert_int_equal(tmpdir_read(path, text, sizeof(text)), 7);
    assert_memory_equal(text, "second!", 7);
    assert_false(weft_i_file_exists(tmpdir_join(temporary, dir, "file.tmp")));
    CHECK_FAILS(weft_i_file_write(tmpdir_join(temporary, dir, "none/file"), "x", 1), WEFT_STATUS_IO,
                "none/file");
    const char *const null = link_to_device("/dev/null");
    CHECK_OK(weft_i_file_write(null, "x", 1)); /* written to, not replaced */
    struct stat info;
    assert_int_equal(lstat(null, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void test_base_file__a_link_to_a_file_is_written_through(void **state)
{
    (void)state;
    char link[TMPDIR_PATH_BYTES], text[8] = "", temporary[WEFT_PATH_MAX];
    struct stat info;
    tmpdir_write(path, "old", 3);
    assert_int_equal(symlink(path, tmpdir_join(link, dir, "link")), 0);
    CHECK_OK(weft_i_file_write(link, "new", 3));
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(tmpdir_read(path, text, sizeof(text)), 3);
    assert_memory_equal(text, "new", 3);
    CHECK_OK(weft_i_file_temporary(temporary, link));
    assert_string_equal(temporary, link);
    weft_i_file_discard(temporary, link); /* not the one there is */
    assert_true(weft_i_file_is_same(link, path));
    assert_false(weft_i_file_is_same(path, dir));
    assert_false(weft_i_file_is_same("/dev/null", "/dev/null"));
}

/* When the last step fails (a folder is in the way), neither the old nor a temporary file is touched or left. */
static void test_base_file__leaves_nothing_when_replacing_fails(void **state)
{
    (void)state;
    char temporary[WEFT_PATH_MAX];
    CHECK_OK(weft_i_dir_make(path));
    CHECK_FAILS(weft_i_file_temporary(temporary, path), WEFT_STATUS_IO, "is a folder");
    CHECK_FAILS(weft_i_file_write(path, "x", 1), WEFT_STATUS_IO, path);
    assert_true(weft_i_dir_exists(path));
    assert_false(weft_i_file_exists(tmpdir_join(temporary, dir, "file.tmp")));
}

/* Before a long run: what is there stays as it is, and nothing is left where nothing was. */
static void test_base_file__looks_whether_a_place_can_be_written_to(void **state)
{
    (void)state;
    char link[TMPDIR_PATH_BYTES], none[TMPDIR_PATH_BYTES], text[8] = "";
    CHECK_OK(weft_i_file_check_place(path));
    assert_false(weft_i_file_exists(path));
    tmpdir_write(path, "kept", 4);
    assert_int_equal(symlink(path, tmpdir_join(link, dir, "link")), 0);
    CHECK_OK(weft_i_file_check_place(path));
    CHECK_OK(weft_i_file_check_place(link));
    assert_int_equal(tmpdir_read(path, text, sizeof(text)), 4);
    assert_memory_equal(text, "kept", 4);
    CHECK_FAILS(weft_i_file_check_place(tmpdir_join(none, dir, "none/file")), WEFT_STATUS_IO,
                "none/file");
    CHECK_FAILS(weft_i_file_check_place(dir), WEFT_STATUS_IO, "is a folder");
}

static void test_base_file__copies(void **state)
{
    (void)state;
    static char bytes[150000], back[150001];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * i);
    tmpdir_write(path, bytes, sizeof(bytes));
    CHECK_OK(weft_i_file_copy(path, other));
    assert_int_equal(tmpdir_read(other, back, sizeof(back)), sizeof(bytes));
    assert_memory_equal(back, bytes, sizeof(bytes));
    const char *const full = link_to_device("/dev/full");
    CHECK_FAILS(weft_i_file_copy(path, full), WEFT_STATUS_IO, full);
}

int main(void)
{
#define FILE_TEST(name) cmocka_unit_test_setup_teardown(test_base_file__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FILE_TEST(maps_a_whole_file),
        FILE_TEST(drops_mapped_pages_from_memory),
        FILE_TEST(maps_an_empty_file),
        FILE_TEST(names_what_it_could_not_open),
        FILE_TEST(does_not_wait_for_a_pipe),
        FILE_TEST(reads_up_to_a_limit),
        FILE_TEST(reads_what_has_no_size),
        FILE_TEST(writes_and_counts),
        FILE_TEST(reports_a_full_disk),
        FILE_TEST(replaces_a_small_file_whole),
        FILE_TEST(a_link_to_a_file_is_written_through),
        FILE_TEST(leaves_nothing_when_replacing_fails),
        FILE_TEST(looks_whether_a_place_can_be_written_to),
        FILE_TEST(copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
