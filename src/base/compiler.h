/* The only file with compiler extensions: attributes, SIMD vector types, builtins. Everything else is plain C17. */
#ifndef WEFT_BASE_COMPILER_H
#define WEFT_BASE_COMPILER_H

#include <math.h>

#if defined(__GNUC__)
#define WEFT_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#define WEFT_NORETURN __attribute__((noreturn))
#define WEFT_NOINLINE __attribute__((noinline))
#define WEFT_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#error "weft is built with gcc or clang"
#endif

/* Tells the processor that this is a waiting loop. */
#if defined(__x86_64__) || defined(__i386__)
#define WEFT_CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define WEFT_CPU_RELAX() __asm__ volatile("yield")
#else
#define WEFT_CPU_RELAX() ((void)0)
#endif

/* Whether the processor we run on, and its system, have a named x86 feature; 0 on other machines. */
#if defined(__x86_64__)
#define WEFT_CPU_SUPPORTS(feature) (__builtin_cpu_supports(feature) != 0)
#else
#define WEFT_CPU_SUPPORTS(feature) 0
#endif

#define WEFT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define WEFT_MAX(a, b) ((a) > (b) ? (a) : (b))
#define WEFT_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/** a * b + c in one rounding where the target has it: one rule for every build (-ffp-contract=off). */
static inline float weft_fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

#endif
