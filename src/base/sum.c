/*
 * Exact sums: a superaccumulator.
 *
 * Source: U. Kulisch, W. Miranker, "The arithmetic of the digital computer: a new approach", SIAM Review 28, 1986:
 * one fixed-point number wide enough for every double, so that no addition rounds.
 *
 * The number is sum of bin[i] * 2^(32 i - 1074). A bin has 64 bits for a 32-bit digit, so about 2^31 additions fit
 * before carries must be passed on. Squares of floats go faster: (m 2^e)^2 = m^2 2^2e with m^2 < 2^48, so squares
 * are first added as integers in a table indexed by the exponent field, and the 254 table entries are added to the
 * bins once a block. Several tables in turn keep neighbours of equal exponent from waiting for each other's store.
 *
 * Invariants: 1. |bin[i]| <= (n_pending + 1) * 2^32 for all bins but the last. 2. after normalise all bins but the
 * last are in [0, 2^32); the last carries the sign. So equal sums are equal bytes.
 */
#include "base/sum.h"

#include "base/compiler.h"

#include <math.h>
#include <string.h>

#define DIGIT_BITS 32
#define DIGIT_MASK UINT64_C(0xFFFFFFFF)
#define LOWEST_EXPONENT (-1074) /* of the unit of bin 0 */
#define MAX_PENDING (INT64_C(1) << 30)

#define N_TABLES 4
#define N_EXPONENTS 256
#define BLOCK_ELEMS 32768 /* 2^15 squares of 48 bits: one block's total fits 63 bits */
#define TABLE_FROM_ELEMS 512

static void pass_carries(weft_sum *s)
{
    int64_t carry = 0;
    for (int i = 0; i < WEFT_SUM_BINS - 1; i++) {
        const int64_t value = s->bin[i] + carry;
        const int64_t digit = (int64_t)((uint64_t)value & DIGIT_MASK);
        s->bin[i] = digit;
        carry = (value - digit) /
                (INT64_C(1) << DIGIT_BITS); /* exact: rounds nowhere, also below zero */
    }
    s->bin[WEFT_SUM_BINS - 1] += carry;
    s->n_pending = 0;
}

/* Adds (is_negative ? -1 : 1) * value * 2^(offset - 1074). */
static void add_integer(weft_sum *s, uint64_t value, int offset, bool is_negative)
{
    if (s->n_pending >= MAX_PENDING)
        pass_carries(s);
    const int first = offset / DIGIT_BITS;
    const int shift = offset % DIGIT_BITS;
    const uint64_t low = value << shift;
    const uint64_t high = shift == 0 ? 0 : value >> (64 - shift);
    const int64_t part[3] = {
        (int64_t)(low & DIGIT_MASK),
        (int64_t)(low >> DIGIT_BITS),
        (int64_t)high,
    };
    for (int i = 0; i < 3; i++) /* first + 2 <= 65, for the greatest double */
        s->bin[first + i] += is_negative ? -part[i] : part[i];
    s->n_pending++;
}

void weft_i_sum_init(weft_sum *s)
{
    *s = (weft_sum){0};
}

void weft_i_sum_add(weft_sum *s, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const int exponent = (int)((bits >> 52) & 0x7FF);
    uint64_t mantissa = bits & UINT64_C(0xFFFFFFFFFFFFF);
    if (exponent == 0x7FF) {
        s->n_nonfinite++;
        return;
    }
    if (exponent != 0)
        mantissa |= UINT64_C(1) << 52;
    add_integer(s, mantissa, exponent == 0 ? 0 : exponent - 1, (bits >> 63) != 0);
}

/* ---- floats by tables ---- */

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* The 24-bit integer of a float whose exponent field is `exponent`. */
static uint32_t float_mantissa(uint32_t bits, uint32_t exponent)
{
    return (bits & 0x7FFFFFU) | ((uint32_t)(exponent != 0) << 23);
}

/* A float with exponent field e is its integer times 2^(max(e, 1) - 150). */
static int float_offset(int exponent)
{
    return WEFT_MAX(exponent, 1) - 150 - LOWEST_EXPONENT;
}

static int64_t count_nonfinite(const float *x, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += (float_bits(x[i]) & 0x7F800000U) == 0x7F800000U;
    return count;
}

static void tabulate_squares(uint64_t table[N_TABLES][N_EXPONENTS], const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits(x[i]);
        const uint32_t exponent = (bits >> 23) & 0xFFU;
        const uint64_t m = float_mantissa(bits, exponent);
        table[i % N_TABLES][exponent] += m * m;
    }
}

static void add_squares_block(weft_sum *s, const float *x, int64_t n)
{
    uint64_t table[N_TABLES][N_EXPONENTS] = {{0}};
    tabulate_squares(table, x, n);
    for (int e = 0; e < N_EXPONENTS; e++) {
        uint64_t total = 0;
        for (int t = 0; t < N_TABLES; t++)
            total += table[t][e];
        if (total == 0)
            continue;
        if (e == N_EXPONENTS - 1)
            s->n_nonfinite += count_nonfinite(x, n);
        else
            add_integer(s, total, 2 * float_offset(e) + LOWEST_EXPONENT, false);
    }
}

void weft_i_sum_add_squares(weft_sum *s, const float *x, int64_t n)
{
    if (n < TABLE_FROM_ELEMS) {
        for (int64_t i = 0; i < n; i++)
            weft_i_sum_add(s, (double)x[i] * (double)x[i]);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK_ELEMS)
        add_squares_block(s, x + i, WEFT_MIN(n - i, (int64_t)BLOCK_ELEMS));
}

static void tabulate_floats(int64_t table[N_TABLES][N_EXPONENTS], const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits(x[i]);
        const uint32_t exponent = (bits >> 23) & 0xFFU;
        const int64_t m = (int64_t)float_mantissa(bits, exponent);
        const int64_t minus = -(int64_t)(bits >> 31); /* 0 or all ones */
        table[i % N_TABLES][exponent] += (m ^ minus) - minus;
    }
}

static void add_floats_block(weft_sum *s, const float *x, int64_t n)
{
    int64_t table[N_TABLES][N_EXPONENTS] = {{0}};
    tabulate_floats(table, x, n);
    for (int e = 0; e < N_EXPONENTS - 1; e++) {
        int64_t total = 0;
        for (int t = 0; t < N_TABLES; t++)
            total += table[t][e];
        if (total != 0)
            add_integer(s, (uint64_t)(total < 0 ? -total : total), float_offset(e), total < 0);
    }
    s->n_nonfinite += count_nonfinite(x, n); /* infinities of both signs may cancel in the table */
}

void weft_i_sum_add_floats(weft_sum *s, const float *x, int64_t n)
{
    if (n < TABLE_FROM_ELEMS) {
        for (int64_t i = 0; i < n; i++)
            weft_i_sum_add(s, (double)x[i]);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK_ELEMS)
        add_floats_block(s, x + i, WEFT_MIN(n - i, (int64_t)BLOCK_ELEMS));
}

/* ---- results ---- */

void weft_i_sum_merge(weft_sum *s, const weft_sum *other)
{
    weft_sum addend = *other;
    if (addend.n_pending + s->n_pending >= MAX_PENDING - 1) {
        pass_carries(&addend);
        pass_carries(s);
    }
    for (int i = 0; i < WEFT_SUM_BINS; i++)
        s->bin[i] += addend.bin[i];
    s->n_pending += addend.n_pending + 1;
    s->n_nonfinite += addend.n_nonfinite;
}

void weft_i_sum_normalise(weft_sum *s)
{
    pass_carries(s);
}

/* Bit `position` of the digits, 0 below the lowest. */
static uint64_t bit_at(const weft_sum *s, int position)
{
    if (position < 0)
        return 0;
    return ((uint64_t)s->bin[position / DIGIT_BITS] >> (position % DIGIT_BITS)) & 1U;
}

static bool has_bits_below(const weft_sum *s, int position)
{
    if (position <= 0)
        return false;
    const int last = position / DIGIT_BITS;
    for (int i = 0; i < last; i++) {
        if (s->bin[i] != 0)
            return true;
    }
    const uint64_t mask = (UINT64_C(1) << (position % DIGIT_BITS)) - 1;
    return ((uint64_t)s->bin[last] & mask) != 0;
}

/* Position of the highest set bit of a normalised sum >= 0, or -1. */
static int highest_bit(const weft_sum *s)
{
    int i = WEFT_SUM_BINS - 1;
    while (i >= 0 && s->bin[i] == 0)
        i--;
    if (i < 0)
        return -1;
    int position = i * DIGIT_BITS - 1;
    for (uint64_t digit = (uint64_t)s->bin[i]; digit != 0; digit >>= 1)
        position++;
    return position;
}

double weft_i_sum_value(const weft_sum *s)
{
    if (s->n_nonfinite != 0)
        return (double)NAN;
    weft_sum digits = *s;
    pass_carries(&digits);
    const bool is_negative = digits.bin[WEFT_SUM_BINS - 1] < 0;
    if (is_negative) {
        for (int i = 0; i < WEFT_SUM_BINS; i++)
            digits.bin[i] = -digits.bin[i];
        pass_carries(&digits);
    }
    const int highest = highest_bit(&digits);
    if (highest >= WEFT_SUM_BINS * DIGIT_BITS)
        return is_negative ? -(double)INFINITY : (double)INFINITY;
    const int lowest =
        WEFT_MAX(highest - 52, 0); /* 53 bits, fewer among the subnormals, where all is exact */
    uint64_t mantissa = 0;
    for (int p = highest; p >= lowest; p--)
        mantissa = (mantissa << 1) | bit_at(&digits, p);
    const bool is_half = bit_at(&digits, lowest - 1) != 0;
    if (is_half && ((mantissa & 1U) != 0 || has_bits_below(&digits, lowest - 1)))
        mantissa++;
    const double magnitude = ldexp((double)mantissa, lowest + LOWEST_EXPONENT);
    return is_negative ? -magnitude : magnitude;
}
