/*
 * What the control groups of this process leave it: processors and memory. Both versions; a group's limit holds for
 * all below it, so every folder from the process's group up to the root is asked. env.c gives the real paths.
 */
#ifndef WEFT_BASE_CGROUP_H
#define WEFT_BASE_CGROUP_H

#include <stdint.h>

/**
 * @param[in] list   the process's groups, as /proc/self/cgroup
 * @param[in] mount  where the groups are mounted, as /sys/fs/cgroup
 * @return processors, a part counted as a whole one; 0 when nothing limits them
 */
int weft_i_cgroup_processors(const char *list, const char *mount);

/** @return bytes until the tightest limit, file cache not counted as used; UINT64_MAX when nothing limits them */
uint64_t weft_i_cgroup_memory_left_bytes(const char *list, const char *mount);

#endif
