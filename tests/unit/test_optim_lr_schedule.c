/* Learning rates against values worked out by hand from the formulas of the header. */
#include "check.h"

#include "optim/lr_schedule.h"

#include <math.h>

static weft_lr_schedule make(weft_lr_kind kind, int64_t warmup, int64_t decay, int64_t train)
{
    return (weft_lr_schedule){.kind = kind,
                              .lr = 1.0,
                              .min_lr = 0.1,
                              .warmup_steps = warmup,
                              .decay_steps = decay,
                              .train_steps = train};
}

/* Warm-up 4, total 20, cosine to 0.1: cosines of multiples of pi / 16 written out. */
static void test_optim_lr_schedule__cosine(void **state)
{
    (void)state;
    static const double cosine[17] = {
        1.0,
        0.98078528040323044913,
        0.92387953251128675613,
        0.83146961230254523708,
        0.70710678118654752440,
        0.55557023301960222474,
        0.38268343236508977173,
        0.19509032201612826785,
        0.0,
        -0.19509032201612826785,
        -0.38268343236508977173,
        -0.55557023301960222474,
        -0.70710678118654752440,
        -0.83146961230254523708,
        -0.92387953251128675613,
        -0.98078528040323044913,
        -1.0,
    };
    const weft_lr_schedule s = make(WEFT_LR_COSINE, 4, 0, 20);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 1), 0.25);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 2), 0.5);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 3), 0.75);
    for (int i = 0; i <= 16; i++)
        CHECK_NEAR(weft_i_lr_schedule_at(&s, 4 + i), 0.1 + 0.45 * (1.0 + cosine[i]), 1e-15);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 21), 0.1, 1e-15);
}

static void test_optim_lr_schedule__linear(void **state)
{
    (void)state;
    const weft_lr_schedule s = make(WEFT_LR_LINEAR, 2, 12, 100);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 1), 0.5);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 2), 1.0);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 3), 0.91, 1e-15);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 7), 0.55, 1e-15);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 12), 0.1, 1e-15);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 100), 0.1, 1e-15);
}

static void test_optim_lr_schedule__wsd(void **state)
{
    (void)state;
    weft_lr_schedule s = make(WEFT_LR_WSD, 2, 0, 100); /* decays over a tenth: 90 to 100 */
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 1), 0.5);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 3), 1.0);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 90), 1.0);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 91), 0.91, 1e-15);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 95), 0.55, 1e-15);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 100), 0.1, 1e-15);
    s.decay_steps = 4;
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 96), 1.0);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 98), 0.55, 1e-15);
    s.decay_steps = 1000; /* longer than what the warm-up leaves: decays from the warm-up on */
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 2), 1.0);
    CHECK_NEAR(weft_i_lr_schedule_at(&s, 51), 0.55, 1e-15);
}

static void test_optim_lr_schedule__constant_and_no_warmup(void **state)
{
    (void)state;
    weft_lr_schedule s = make(WEFT_LR_CONSTANT, 0, 0, 10);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 1), 1.0);
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 10), 1.0);
    s.warmup_steps = 100; /* longer than the run: only the warm-up */
    CHECK_OK(weft_i_lr_schedule_check(&s));
    CHECK_SAME_DOUBLE(weft_i_lr_schedule_at(&s, 10), 0.1);
}

static void test_optim_lr_schedule__bad_numbers_are_refused(void **state)
{
    (void)state;
    weft_lr_kind kind;
    CHECK_OK(weft_i_lr_kind_from_name(&kind, "wsd"));
    assert_int_equal(kind, WEFT_LR_WSD);
    CHECK_FAILS(weft_i_lr_kind_from_name(&kind, "cosin"), WEFT_STATUS_ARG, "cosin");
    weft_lr_schedule s = make(WEFT_LR_COSINE, 4, 4, 20);
    CHECK_FAILS(weft_i_lr_schedule_check(&s), WEFT_STATUS_ARG, "lr_decay_steps 4");
    s = make(WEFT_LR_COSINE, 4, 0, 20);
    CHECK_OK(weft_i_lr_schedule_check(&s));
    s.min_lr = 2.0;
    CHECK_FAILS(weft_i_lr_schedule_check(&s), WEFT_STATUS_ARG, "min_lr 2");
    s.min_lr = 0.0;
    s.lr = (double)NAN;
    CHECK_FAILS(weft_i_lr_schedule_check(&s), WEFT_STATUS_ARG, "finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optim_lr_schedule__cosine),
        cmocka_unit_test(test_optim_lr_schedule__linear),
        cmocka_unit_test(test_optim_lr_schedule__wsd),
        cmocka_unit_test(test_optim_lr_schedule__constant_and_no_warmup),
        cmocka_unit_test(test_optim_lr_schedule__bad_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
