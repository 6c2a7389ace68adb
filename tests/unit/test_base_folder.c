/* Folders, links, renames, lists and paths. */
#include "check.h"
#include "tmpdir.h"

#include "base/file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[TMPDIR_PATH_BYTES];
static char a_path[TMPDIR_PATH_BYTES];
static char b_path[TMPDIR_PATH_BYTES];
static weft_alloc *alloc;

static int set_up(void **state)
{
    (void)state;
    tmpdir_make(dir);
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tmpdir_remove(dir);
    weft_i_alloc_destroy(alloc);
    return 0;
}

static void test_base_folder__makes_parents(void **state)
{
    (void)state;
    CHECK_OK(weft_i_dir_make(tmpdir_join(a_path, dir, "x/y//z/")));
    assert_true(weft_i_dir_exists(tmpdir_join(a_path, dir, "x/y/z")));
    CHECK_OK(weft_i_dir_make(a_path)); /* there already */
    tmpdir_write(tmpdir_join(b_path, dir, "x/file"), "1", 1);
    CHECK_FAILS(weft_i_dir_make(b_path), WEFT_STATUS_IO, b_path);
    CHECK_FAILS(weft_i_dir_make(tmpdir_join(a_path, dir, "x/file/deeper")), WEFT_STATUS_IO,
                "x/file");
    CHECK_FAILS(weft_i_dir_make(""), WEFT_STATUS_IO, "");
    assert_false(weft_i_dir_exists(b_path));
    CHECK_OK(weft_i_dir_sync(dir));
    CHECK_FAILS(weft_i_dir_sync(b_path), WEFT_STATUS_IO, b_path);
}

static void test_base_folder__removes_a_tree_but_not_what_links_point_to(void **state)
{
    (void)state;
    char kept[TMPDIR_PATH_BYTES];
    CHECK_OK(weft_i_dir_make(tmpdir_join(a_path, dir, "kept")));
    tmpdir_write(tmpdir_join(kept, dir, "kept/file"), "1", 1);
    CHECK_OK(weft_i_dir_make(tmpdir_join(a_path, dir, "tree/a/b/c")));
    for (int i = 0; i < 300; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "tree/a/file-%d", i);
        tmpdir_write(tmpdir_join(a_path, dir, name), "1", 1);
    }
    assert_int_equal(symlink("../../kept", tmpdir_join(a_path, dir, "tree/a/link")), 0);
    assert_int_equal(symlink("tree", tmpdir_join(b_path, dir, "tree-link")), 0);
    CHECK_OK(weft_i_dir_remove(b_path)); /* the link alone */
    assert_true(weft_i_dir_exists(tmpdir_join(a_path, dir, "tree")));
    CHECK_OK(weft_i_dir_remove(a_path));
    assert_false(weft_i_file_exists(a_path));
    assert_true(weft_i_file_exists(kept));
    CHECK_OK(weft_i_dir_remove(a_path)); /* a missing one is fine */
    CHECK_OK(weft_i_dir_remove(kept));   /* so is a file */
    assert_false(weft_i_file_exists(kept));
}

static void test_base_folder__renames_and_names_both_on_failure(void **state)
{
    (void)state;
    tmpdir_write(tmpdir_join(a_path, dir, "a"), "1", 1);
    tmpdir_join(b_path, dir, "b");
    CHECK_OK(weft_i_file_rename(a_path, b_path));
    assert_false(weft_i_file_exists(a_path));
    assert_true(weft_i_file_exists(b_path));
    CHECK_FAILS(weft_i_file_rename(a_path, b_path), WEFT_STATUS_IO, a_path);
    assert_non_null(strstr(weft_last_error(), b_path));
    assert_true(weft_i_file_exists(b_path));
}

static void test_base_folder__replaces_links(void **state)
{
    (void)state;
    char target[64];
    tmpdir_join(a_path, dir, "latest");
    tmpdir_write(tmpdir_join(b_path, dir, "latest.tmp"), "left by a killed run", 20);
    static const char *const name[] = {"checkpoint-1", "checkpoint-20"};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_i_link_replace(name[i], a_path));
        const ssize_t n = readlink(a_path, target, sizeof(target) - 1);
        assert_true(n > 0);
        target[n] = '\0';
        assert_string_equal(target, name[i]);
        assert_false(weft_i_file_exists(b_path));
    }
    CHECK_OK(weft_i_dir_make(tmpdir_join(b_path, dir, "folder")));
    CHECK_FAILS(weft_i_link_replace("x", b_path), WEFT_STATUS_IO, b_path);
    assert_true(weft_i_dir_exists(b_path));
}

static void test_base_folder__says_beforehand_whether_a_link_can_be_made(void **state)
{
    (void)state;
    tmpdir_join(a_path, dir, "link");
    CHECK_OK(weft_i_link_check_place(a_path));
    CHECK_OK(weft_i_link_replace("target", a_path));
    CHECK_OK(weft_i_link_check_place(a_path)); /* the one that is there stays */
    assert_int_equal(readlink(a_path, b_path, sizeof(b_path)), (ssize_t)strlen("target"));
    assert_int_equal(lstat(tmpdir_join(b_path, dir, "link.tmp"), &(struct stat){0}), -1);
    CHECK_OK(weft_i_dir_make(tmpdir_join(b_path, dir, "folder")));
    CHECK_FAILS(weft_i_link_check_place(b_path), WEFT_STATUS_IO, b_path);
    CHECK_FAILS(weft_i_link_check_place("/proc/self/link"), WEFT_STATUS_IO, "/proc/self/link");
}

static void test_base_folder__lists_names_sorted_by_bytes(void **state)
{
    (void)state;
    char **names = NULL;
    size_t n = 99;
    CHECK_OK(weft_i_dir_list(alloc, dir, &names, &n));
    assert_int_equal(n, 0);
    weft_i_names_free(alloc, names, n);
    static const char *const name[] = {".hidden", "B", "a", "a-10", "a-9", "\xc3\xa9"};
    for (size_t i = WEFT_COUNT_OF(name); i-- > 0;)
        tmpdir_write(tmpdir_join(a_path, dir, name[i]), "", 0);
    CHECK_OK(weft_i_dir_list(alloc, dir, &names, &n));
    assert_int_equal(n, WEFT_COUNT_OF(name));
    for (size_t i = 0; i < n; i++)
        assert_string_equal(names[i], name[i]);
    weft_i_names_free(alloc, names, n);
    names = NULL;
    CHECK_FAILS(weft_i_dir_list(alloc, a_path, &names, &n), WEFT_STATUS_IO, a_path);
    assert_null(names);
}

static void test_base_folder__joins_paths(void **state)
{
    (void)state;
    char out[WEFT_PATH_MAX];
    CHECK_OK(weft_i_path_join(out, "dir", "name"));
    assert_string_equal(out, "dir/name");
    CHECK_OK(weft_i_path_join(out, "/", "name"));
    assert_string_equal(out, "/name");
    CHECK_OK(weft_i_path_join(out, "", "name"));
    assert_string_equal(out, "name");
    static char longest[WEFT_PATH_MAX];
    memset(longest, 'x', sizeof(longest) - 1);
    CHECK_FAILS(weft_i_path_join(out, "dir", longest), WEFT_STATUS_ARG, "");
    longest[WEFT_PATH_MAX - 5] = '\0';
    CHECK_OK(weft_i_path_join(out, "dir", longest));
    assert_int_equal(strlen(out), WEFT_PATH_MAX - 1);
}

int main(void)
{
#define FOLDER_TEST(name)                                                                          \
    cmocka_unit_test_setup_teardown(test_base_folder__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(makes_parents),
        FOLDER_TEST(removes_a_tree_but_not_what_links_point_to),
        FOLDER_TEST(renames_and_names_both_on_failure),
        FOLDER_TEST(replaces_links),
        FOLDER_TEST(says_beforehand_whether_a_link_can_be_made),
        FOLDER_TEST(lists_names_sorted_by_bytes),
        FOLDER_TEST(joins_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
