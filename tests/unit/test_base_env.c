/* The environment and the machine, control groups from folders made for the test, and the clock. */
#include "check.h"
#include "tmpdir.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/file.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char dir[TMPDIR_PATH_BYTES];
static char list[TMPDIR_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    tmpdir_make(dir);
    tmpdir_join(list, dir, "list");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tmpdir_remove(dir);
    return 0;
}

/* Makes DIR/GROUP and writes NAME in it. */
static void put(const char *group, const char *name, const char *text)
{
    char folder[TMPDIR_PATH_BYTES], path[TMPDIR_PATH_BYTES];
    CHECK_OK(weft_i_dir_make(tmpdir_join(folder, dir, group)));
    tmpdir_write(tmpdir_join(path, folder, name), text, strlen(text));
}

static void test_base_env__reads_variables(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEFT_TEST_VARIABLE", "value", 1), 0);
    assert_string_equal(weft_i_env_get("WEFT_TEST_VARIABLE"), "value");
    assert_int_equal(unsetenv("WEFT_TEST_VARIABLE"), 0);
    assert_null(weft_i_env_get("WEFT_TEST_VARIABLE"));
}

static void test_base_env__reports_a_sane_machine(void **state)
{
    (void)state;
    assert_in_range(weft_i_env_processors(), 1, sysconf(_SC_NPROCESSORS_CONF));
    const uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(weft_i_env_memory_available_bytes(), 1, total);
    const uint64_t before = weft_i_env_resident_bytes();
    assert_in_range(before, 1, total);
    const size_t size = (size_t)64 << 20;
    char *const bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 1, size);
    const uint64_t after = weft_i_env_resident_bytes();
    assert_true(bytes[size - 1] == 1 && after >= before + size / 2);
    free(bytes);
}

static void test_base_env__lowers_the_instruction_set_on_request(void **state)
{
    (void)state;
    (void)unsetenv("WEFT_MAX_ISA");
    (void)unsetenv("WEFT_NO_BF16");
    const int level = weft_i_env_isa_level();
    const bool has_bf16 = weft_i_env_has_bf16();
    assert_true(level == 0 || level == 3 || level == 4);
    assert_true(!has_bf16 || level == 4);
    (void)setenv("WEFT_MAX_ISA", "3", 1);
    assert_int_equal(weft_i_env_isa_level(), level < 3 ? level : 3);
    assert_false(weft_i_env_has_bf16());
    (void)setenv("WEFT_MAX_ISA", "0", 1);
    assert_int_equal(weft_i_env_isa_level(), 0);
    (void)setenv("WEFT_MAX_ISA", "4", 1);
    assert_int_equal(weft_i_env_isa_level(), level);
    (void)unsetenv("WEFT_MAX_ISA");
    (void)setenv("WEFT_NO_BF16", "1", 1);
    assert_false(weft_i_env_has_bf16());
    (void)unsetenv("WEFT_NO_BF16");
}

/* The kernel's own list of features is the oracle. */
static void test_base_env__agrees_with_the_kernel_on_the_processor(void **state)
{
    (void)state;
    static char text[1 << 16];
    const size_t n = tmpdir_read("/proc/cpuinfo", text, sizeof(text) - 1);
    text[n] = '\0';
    if (strstr(text, " avx2 ") != NULL && strstr(text, " fma ") != NULL)
        assert_true(weft_i_env_isa_level() >= 3);
    if (strstr(text, " avx2 ") == NULL)
        assert_int_equal(weft_i_env_isa_level(), 0);
    assert_int_equal(strstr(text, " avx512vl ") != NULL, weft_i_env_isa_level() == 4);
    assert_int_equal(strstr(text, " avx512_bf16 ") != NULL, weft_i_env_has_bf16());
}

static void test_base_cgroup__limits_nothing_when_nothing_is_there(void **state)
{
    (void)state;
    assert_int_equal(weft_i_cgroup_processors(list, dir), 0);
    assert_true(weft_i_cgroup_memory_left_bytes(list, dir) == UINT64_MAX);
    tmpdir_write(list, "garbage\n::\n0::/\n", 16);
    put("", "cpu.max", "max 100000\n");
    put("", "memory.max", "max\n");
    put("", "memory.current", "1000\n");
    assert_int_equal(weft_i_cgroup_processors(list, dir), 0);
    assert_true(weft_i_cgroup_memory_left_bytes(list, dir) == UINT64_MAX);
}

static void test_base_cgroup__takes_the_tightest_of_all_levels_of_version_2(void **state)
{
    (void)state;
    tmpdir_write(list, "0::/user/job\n", 13);
    put("user/job", "cpu.max", "max 100000\n");
    put("user", "cpu.max", "250000 100000\n"); /* two and a half */
    put("", "cpu.max", "800000 100000\n");
    assert_int_equal(weft_i_cgroup_processors(list, dir), 3);
    put("user/job", "cpu.max", "10000 100000\n");
    assert_int_equal(weft_i_cgroup_processors(list, dir), 1);
    put("user/job", "memory.max", "5000\n");
    put("user/job", "memory.current", "1000\n");
    put("user", "memory.max", "9000\n");
    put("user", "memory.current", "7000\n");
    assert_int_equal(weft_i_cgroup_memory_left_bytes(list, dir), 2000);
    put("user", "memory.stat", "anon 1\ninactive_file 700\nactive_file 300\nfile 5000\n");
    assert_int_equal(weft_i_cgroup_memory_left_bytes(list, dir),
                     3000); /* cached files can be dropped */
    put("user", "memory.current", "99999\n");
    assert_int_equal(weft_i_cgroup_memory_left_bytes(list, dir), 0);
}

static void test_base_cgroup__reads_version_1(void **state)
{
    (void)state;
    static const char groups[] = "5:memory:/job\n4:cpuset:/job\n3:cpu,cpuacct:/job\n0::/\n";
    tmpdir_write(list, groups, sizeof(groups) - 1);
    put("cpu/job", "cpu.cfs_quota_us", "200000\n");
    put("cpu/job", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_i_cgroup_processors(list, dir), 2);
    put("cpu/job", "cpu.cfs_quota_us", "-1\n");
    assert_int_equal(weft_i_cgroup_processors(list, dir), 0);
    put("memory/job", "memory.limit_in_bytes", "9000\n");
    put("memory/job", "memory.usage_in_bytes", "8000\n");
    put("memory/job", "memory.stat", "total_inactive_file 500\ntotal_active_file 0\n");
    assert_int_equal(weft_i_cgroup_memory_left_bytes(list, dir), 1500);
}

static void test_base_clock__goes_forward_in_seconds(void **state)
{
    (void)state;
    const double before = weft_i_clock_seconds();
    const struct timespec pause = {.tv_nsec = 20000000};
    (void)nanosleep(&pause, NULL);
    const double passed = weft_i_clock_seconds() - before;
    assert_true(passed >= 0.02 && passed < 5.0);
}

int main(void)
{
#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(test_base_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_env__reads_variables),
        cmocka_unit_test(test_base_env__reports_a_sane_machine),
        cmocka_unit_test(test_base_env__lowers_the_instruction_set_on_request),
        cmocka_unit_test(test_base_env__agrees_with_the_kernel_on_the_processor),
        FOLDER_TEST(cgroup__limits_nothing_when_nothing_is_there),
        FOLDER_TEST(cgroup__takes_the_tightest_of_all_levels_of_version_2),
        FOLDER_TEST(cgroup__reads_version_1),
        cmocka_unit_test(test_base_clock__goes_forward_in_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
