/*
 * What the machine and the environment say. The only file that reads environment variables.
 *
 * Everything is asked anew at every call: nothing here is kept, so there is no state to go stale.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, pthread_setname_np */
#endif

#include "base/env.h"

#include "base/cgroup.h"
#include "base/compiler.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CGROUP_LIST "/proc/self/cgroup"
#define CGROUP_MOUNT "/sys/fs/cgroup"
#define N_CPU_SETS 16 /* of 1024 processors each */

const char *weft_i_env_get(const char *name)
{
    return getenv(name);
}

int weft_i_env_processors(void)
{
    cpu_set_t sets[N_CPU_SETS];
    memset(sets, 0, sizeof(sets));
    int n = 0;
    if (sched_getaffinity(0, sizeof(sets), sets) == 0)
        n = CPU_COUNT_S(sizeof(sets), sets);
    else
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const int quota = weft_i_cgroup_processors(CGROUP_LIST, CGROUP_MOUNT);
    if (quota > 0 && quota < n)
        n = quota;
    return WEFT_MAX(n, 1);
}

void weft_i_env_name_thread(const char *name)
{
    char cut[16];
    (void)snprintf(cut, sizeof(cut), "%s", name);
    (void)pthread_setname_np(pthread_self(), cut);
}

/* MemAvailable of /proc/meminfo; UINT64_MAX when the system does not say. */
static uint64_t system_memory_available_bytes(void)
{
    FILE *const file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return UINT64_MAX;
    uint64_t kib = UINT64_MAX;
    char line[128];
    while (kib == UINT64_MAX && fgets(line, sizeof(line), file) != NULL) {
        static const char key[] = "MemAvailable:";
        if (strncmp(line, key, sizeof(key) - 1) == 0)
            kib = strtoull(line + sizeof(key) - 1, NULL, 10);
    }
    (void)fclose(file);
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

uint64_t weft_i_env_memory_available_bytes(void)
{
    const uint64_t system = system_memory_available_bytes();
    const uint64_t group = weft_i_cgroup_memory_left_bytes(CGROUP_LIST, CGROUP_MOUNT);
    return WEFT_MIN(system, group);
}

bool weft_i_env_would_give(size_t bytes)
{
    void *const probe =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return probe != MAP_FAILED && munmap(probe, bytes) == 0;
}

int64_t weft_i_env_open_files_max(void)
{
    const long n = sysconf(_SC_OPEN_MAX);
    return n > 0 ? (int64_t)n : INT64_MAX;
}

uint64_t weft_i_env_resident_bytes(void)
{
    FILE *const file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    char line[256] = "";
    const char *const has_line = fgets(line, sizeof(line), file);
    (void)fclose(file);
    const char *const second = has_line != NULL ? strchr(line, ' ') : NULL;
    const long page = sysconf(_SC_PAGESIZE);
    if (second == NULL || page <= 0)
        return 0;
    return strtoull(second + 1, NULL, 10) * (uint64_t)page;
}

/* ---- instruction sets ---- */

#if defined(__x86_64__)

typedef struct cpuid_words {
    unsigned a, b, c, d;
} cpuid_words;

static cpuid_words cpuid(unsigned leaf, unsigned subleaf)
{
    cpuid_words w = {0};
    if (__get_cpuid_count(leaf, subleaf, &w.a, &w.b, &w.c, &w.d) == 0)
        w = (cpuid_words){0};
    return w;
}

static bool has_bit(unsigned word, int bit)
{
    return ((word >> bit) & 1U) != 0;
}

/* All of x86-64-v3, as the compiler may use any of it. The runtime's test of AVX2 includes the system's support. */
static bool has_v3(void)
{
    const unsigned c1 = cpuid(1, 0).c;
    const bool has_float16 = has_bit(c1, 29);
    const bool has_movbe = has_bit(c1, 22);
    const bool has_lzcnt = has_bit(cpuid(0x80000001U, 0).c, 5);
    return WEFT_CPU_SUPPORTS("avx2") && WEFT_CPU_SUPPORTS("fma") && WEFT_CPU_SUPPORTS("bmi") &&
           WEFT_CPU_SUPPORTS("bmi2") && has_float16 && has_movbe && has_lzcnt;
}

static bool has_v4(void)
{
    return has_v3() && WEFT_CPU_SUPPORTS("avx512f") && WEFT_CPU_SUPPORTS("avx512bw") &&
           WEFT_CPU_SUPPORTS("avx512cd") && WEFT_CPU_SUPPORTS("avx512dq") &&
           WEFT_CPU_SUPPORTS("avx512vl");
}

static int processor_isa_level(void)
{
    if (has_v4())
        return 4;
    return has_v3() ? 3 : 0;
}

static bool processor_has_bf16(void)
{
    return has_v4() && has_bit(cpuid(7, 1).a, 5);
}

#else

static int processor_isa_level(void)
{
    return 0;
}

static bool processor_has_bf16(void)
{
    return false;
}

#endif

int weft_i_env_isa_level(void)
{
    const int level = processor_isa_level();
    const char *const most = weft_i_env_get("WEFT_MAX_ISA");
    if (most == NULL)
        return level;
    if (strcmp(most, "0") == 0)
        return 0;
    return strcmp(most, "3") == 0 ? WEFT_MIN(level, 3) : level;
}

bool weft_i_env_has_bf16(void)
{
    const char *const is_off = weft_i_env_get("WEFT_NO_BF16");
    return processor_has_bf16() && weft_i_env_isa_level() == 4 &&
           !(is_off != NULL && strcmp(is_off, "1") == 0);
}
