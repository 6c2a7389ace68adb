/* What the machine and the environment say: the only file that reads environment variables. */
#ifndef WEFT_BASE_ENV_H
#define WEFT_BASE_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** NULL when not set. Borrowed from the environment. */
const char *weft_i_env_get(const char *name);

/** Processors this process may use: the affinity mask, cut by the cgroup's cpu quota (v1 and v2), at least 1. */
int weft_i_env_processors(void);

/** Names the calling thread for debuggers and `top -H`; cut to 15 bytes. */
void weft_i_env_name_thread(const char *name);

/** Bytes this process could still take: the smaller of MemAvailable and what the cgroup leaves. */
uint64_t weft_i_env_memory_available_bytes(void);

/**
 * Whether the system would give so much more memory now; it is given back at once. For libraries that do not bear a refusal.
 * Limits (ulimit -v, ulimit -d, a strict commit limit) refuse; memory that is promised and not there is not found out.
 */
bool weft_i_env_would_give(size_t bytes);

/** How many files this process may have open at once (RLIMIT_NOFILE); INT64_MAX when the system sets no limit. */
int64_t weft_i_env_open_files_max(void);

/** Resident bytes of this process now (/proc/self/statm). */
uint64_t weft_i_env_resident_bytes(void);

/** Instruction sets, on x86-64: 0 baseline, 3 = AVX2 + FMA + F16C, 4 = AVX-512 F/BW/DQ/VL; elsewhere 0.
 *  The variable WEFT_MAX_ISA (0, 3 or 4) lowers it, for tests. */
int weft_i_env_isa_level(void);

/** The processor has AVX-512 BF16 products. False under WEFT_NO_BF16=1, for tests. */
bool weft_i_env_has_bf16(void);

#endif
