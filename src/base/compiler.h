/* The only file with compiler extensions: attributes, SIMD vector types, builtins. Everything else is plain C17. */
#ifndef WEFT_BASE_COMPILER_H
#define WEFT_BASE_COMPILER_H

#include <math.h>
#include <stdint.h>

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

/**
 * A vector of floats as wide as the target's registers, for kernels whose sums must stay in registers (other loops are
 * left to `omp simd`). Loads and stores need no alignment.
 */
#if defined(__AVX512F__)
#include <immintrin.h>
#define WEFT_VEC_FLOATS 16
typedef __m512 weft_vec;
#define WEFT_VEC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define WEFT_VEC_FLOATS 8
typedef __m256 weft_vec;
#define WEFT_VEC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#else
#define WEFT_VEC_FLOATS 4
typedef float weft_vec __attribute__((vector_size(16)));
#define WEFT_VEC_FMA(a, b, c) ((a) * (b) + (c))
#endif

static inline weft_vec weft_vec_fma(weft_vec a, weft_vec b, weft_vec c)
{
    return WEFT_VEC_FMA(a, b, c);
}

static inline weft_vec weft_vec_load(const float *p)
{
    weft_vec v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}

static inline void weft_vec_store(float *p, weft_vec v)
{
    __builtin_memcpy(p, &v, sizeof(v));
}

/** A scalar meets a vector as a vector of copies; x - 0 is x. */
static inline weft_vec weft_vec_set(float x)
{
    return x - (weft_vec){0};
}

/** Writes the transpose of the 4 x 4 floats at `in` to `out`; ld: floats from one row to the next. */
static inline void weft_transpose_4x4(float *out, int64_t ld_out, const float *in, int64_t ld_in)
{
    typedef float four __attribute__((vector_size(16)));
    four r[4];
    for (int i = 0; i < 4; i++)
        __builtin_memcpy(&r[i], in + i * ld_in, sizeof(r[i]));
    const four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const four b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const four d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++)
        __builtin_memcpy(out + i * ld_out, &r[i], sizeof(r[i]));
}

#endif
