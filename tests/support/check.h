/*
 * What every unit test includes: cmocka with the headers it needs first, and a few checks that print the values
 * that differ.
 */
#ifndef WEFT_TESTS_CHECK_H
#define WEFT_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "weft/status.h"

/* A call that must succeed; prints its message when it does not. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        const weft_status check_status_ = (call);                                                  \
        if (check_status_ != WEFT_OK)                                                              \
            fail_msg("%s: %s: %s", #call, weft_status_name(check_status_), weft_last_error());     \
    } while (0)

/* A call that must fail with this status, and whose message must hold this text. */
#define CHECK_FAILS(call, expected, text)                                                          \
    do {                                                                                           \
        const weft_status check_status_ = (call);                                                  \
        if (check_status_ != (expected))                                                           \
            fail_msg("%s: %s, expected %s", #call, weft_status_name(check_status_),                \
                     weft_status_name(expected));                                                  \
        if (strstr(weft_last_error(), (text)) == NULL)                                             \
            fail_msg("%s: \"%s\" does not say \"%s\"", #call, weft_last_error(), (text));          \
    } while (0)

/* Two doubles with the same bits (so that -0 and 0 differ and a NaN equals itself). */
#define CHECK_SAME_DOUBLE(a, b)                                                                    \
    do {                                                                                           \
        const double check_a_ = (a), check_b_ = (b);                                               \
        if (memcmp(&check_a_, &check_b_, sizeof(check_a_)) != 0)                                   \
            fail_msg("%s = %.17g (%a), %s = %.17g (%a)", #a, check_a_, check_a_, #b, check_b_,     \
                     check_b_);                                                                    \
    } while (0)

/* |a - b| <= bound. */
#define CHECK_NEAR(a, b, bound)                                                                    \
    do {                                                                                           \
        const double check_a_ = (a), check_b_ = (b);                                               \
        const double check_d_ = check_a_ > check_b_ ? check_a_ - check_b_ : check_b_ - check_a_;   \
        if (!(check_d_ <= (bound)))                                                                \
            fail_msg("%s = %.17g, %s = %.17g: differ by %g, at most %g", #a, check_a_, #b,         \
                     check_b_, check_d_, (double)(bound));                                         \
    } while (0)

#endif
