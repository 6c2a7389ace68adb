/*
 * Limits of control groups, versions 1 and 2.
 *
 * Source: Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max, memory.current, memory.stat) and
 * cgroup-v1/{cpuacct,memory}.rst. A file that is missing or not understood limits nothing: these numbers only keep
 * weft from asking for more than it would get. Takes nothing from the counting allocator, which
 * itself asks here.
 */
#include "base/cgroup.h"

#include "base/compiler.h"
#include "base/file.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES (WEFT_PATH_MAX + 128)

/* Numbers of the file DIR/NAME: "max" reads as UINT64_MAX, a negative one too. Returns how many were read. */
static int read_numbers(const char *dir, const char *name, uint64_t *out, int n_max)
{
    char path[WEFT_PATH_MAX];
    if (weft_i_str_print(path, sizeof(path), "%s/%s", dir, name) != WEFT_OK)
        return 0;
    FILE *const file = fopen(path, "re");
    if (file == NULL)
        return 0;
    char line[128] = "";
    const bool has_line = fgets(line, sizeof(line), file) != NULL;
    (void)fclose(file);
    int n = 0;
    for (const char *c = line; has_line && n < n_max; n++) {
        c += strspn(c, " \t\n");
        if (*c == '\0')
            break;
        char *end = NULL;
        const unsigned long long value = strtoull(c, &end, 10);
        const bool is_number = end != c && *c != '-';
        out[n] = is_number ? value : UINT64_MAX;
        c += strcspn(c, " \t\n");
    }
    return n;
}

/* Sum of the lines "KEY NUMBER" of DIR/memory.stat for the two keys of cached files. */
static uint64_t read_file_cache(const char *dir, const char *inactive, const char *active)
{
    char path[WEFT_PATH_MAX];
    if (weft_i_str_print(path, sizeof(path), "%s/memory.stat", dir) != WEFT_OK)
        return 0;
    FILE *const file = fopen(path, "re");
    if (file == NULL)
        return 0;
    uint64_t sum = 0;
    char line[128];
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *const space = strchr(line, ' ');
        if (space == NULL)
            continue;
        const size_t n = (size_t)(space - line);
        const bool is_wanted = (n == strlen(inactive) && memcmp(line, inactive, n) == 0) ||
                               (n == strlen(active) && memcmp(line, active, n) == 0);
        if (is_wanted)
            sum += strtoull(space + 1, NULL, 10);
    }
    (void)fclose(file);
    return sum;
}

/* ---- where the groups are ---- */

/* The group's path for a version 1 controller, or for version 2 when controller is "". */
static bool find_group(const char *list, const char *controller, char *out, size_t size)
{
    FILE *const file = fopen(list, "re");
    if (file == NULL)
        return false;
    bool is_found = false;
    char line[LINE_BYTES];
    while (!is_found && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *const names = strchr(line, ':');
        char *const path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path = '\0';
        /* names + 1 is "cpu,cpuacct" or "" */
        const char *const at = strstr(names + 1, controller);
        const size_t n = strlen(controller);
        if (n == 0)
            is_found = names[1] == '\0';
        else
            is_found =
                at != NULL && (at == names + 1 || at[-1] == ',') && (at[n] == ',' || at[n] == '\0');
        if (is_found && weft_i_str_print(out, size, "%s", path + 1) != WEFT_OK)
            is_found = false;
    }
    (void)fclose(file);
    return is_found;
}

typedef void visit_fn(const char *dir, void *user);

/* Calls visit for the process's group and every group above it, up to the mount itself. */
static void walk_groups(
    const char *list, const char *mount, const char *controller, visit_fn *visit, void *user)
{
    char group[WEFT_PATH_MAX];
    if (!find_group(list, controller, group, sizeof(group)))
        return;
    for (;;) {
        char dir[WEFT_PATH_MAX];
        const char *const slash = controller[0] != '\0' ? "/" : "";
        if (weft_i_str_print(dir, sizeof(dir), "%s%s%s%s", mount, slash, controller, group) ==
            WEFT_OK)
            visit(dir, user);
        char *const last = strrchr(group, '/');
        if (last == NULL || group[1] == '\0')
            return;
        last[last == group ? 1 : 0] = '\0';
    }
}

/* ---- processors ---- */

static void take_quota(uint64_t quota, uint64_t period, int *least)
{
    if (quota == UINT64_MAX || period == 0 || period == UINT64_MAX)
        return;
    const uint64_t n = WEFT_MAX((quota + period - 1) / period, (uint64_t)1);
    if (n < 1000000 && (*least == 0 || (int)n < *least))
        *least = (int)n;
}

static void visit_cpu_v2(const char *dir, void *user)
{
    uint64_t value[2];
    if (read_numbers(dir, "cpu.max", value, 2) == 2)
        take_quota(value[0], value[1], user);
}

static void visit_cpu_v1(const char *dir, void *user)
{
    uint64_t quota, period;
    if (read_numbers(dir, "cpu.cfs_quota_us", &quota, 1) == 1 &&
        read_numbers(dir, "cpu.cfs_period_us", &period, 1) == 1)
        take_quota(quota, period, user);
}

int weft_i_cgroup_processors(const char *list, const char *mount)
{
    int least = 0;
    walk_groups(list, mount, "", visit_cpu_v2, &least);
    walk_groups(list, mount, "cpu", visit_cpu_v1, &least);
    return least;
}

/* ---- memory ---- */

static void take_memory(uint64_t limit, uint64_t used, uint64_t cached, uint64_t *least)
{
    if (limit == UINT64_MAX)
        return;
    const uint64_t held = used > cached ? used - cached : 0;
    *least = WEFT_MIN(*least, limit > held ? limit - held : 0);
}

static void visit_memory_v2(const char *dir, void *user)
{
    uint64_t limit, used;
    if (read_numbers(dir, "memory.max", &limit, 1) == 1 &&
        read_numbers(dir, "memory.current", &used, 1) == 1)
        take_memory(limit, used, read_file_cache(dir, "inactive_file", "active_file"), user);
}

static void visit_memory_v1(const char *dir, void *user)
{
    uint64_t limit, used;
    if (read_numbers(dir, "memory.limit_in_bytes", &limit, 1) == 1 &&
        read_numbers(dir, "memory.usage_in_bytes", &used, 1) == 1)
        take_memory(limit, used, read_file_cache(dir, "total_inactive_file", "total_active_file"),
                    user);
}

uint64_t weft_i_cgroup_memory_left_bytes(const char *list, const char *mount)
{
    uint64_t least = UINT64_MAX;
    walk_groups(list, mount, "", visit_memory_v2, &least);
    walk_groups(list, mount, "memory", visit_memory_v1, &least);
    return least;
}
