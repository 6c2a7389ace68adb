/* Sleeping on a context: as long as asked, with signs of life, and no longer once the world has failed. */
#include "check.h"

#include "base/clock.h"
#include "base/ctx.h"

typedef struct pulse {
    int n;
    int n_good; /* signs of life before the world fails */
} pulse;

static weft_status count_pulse(void *user)
{
    pulse *const p = user;
    return ++p->n > p->n_good ? WEFT_STATUS_REMOTE : WEFT_OK;
}

static void test_base_ctx__sleeps_as_long_as_asked_and_shows_life(void **state)
{
    pulse p = {.n_good = 1000};
    const weft_ctx ctx = {.alive = count_pulse, .alive_user = &p};
    const double begin = weft_i_clock_seconds();
    (void)state;
    CHECK_OK(weft_i_ctx_sleep_until(&ctx, begin - 1.0));
    assert_int_equal(p.n, 0);
    CHECK_OK(weft_i_ctx_sleep_until(&ctx, begin + 0.12));
    assert_true(weft_i_clock_seconds() >= begin + 0.12);
    assert_true(p.n >= 1);
    assert_true(p.n <= 4);
}

static void test_base_ctx__ends_its_sleep_when_the_world_failed(void **state)
{
    pulse p = {.n_good = 0};
    const weft_ctx ctx = {.alive = count_pulse, .alive_user = &p};
    const double begin = weft_i_clock_seconds();
    (void)state;
    assert_int_equal(weft_i_ctx_sleep_until(&ctx, begin + 600.0), WEFT_STATUS_REMOTE);
    assert_true(weft_i_clock_seconds() < begin + 300.0);
    assert_int_equal(p.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_ctx__sleeps_as_long_as_asked_and_shows_life),
        cmocka_unit_test(test_base_ctx__ends_its_sleep_when_the_world_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
