/* Records of a step: times of actions, events as far as there is room, nothing outside a step. */
#include "check.h"

#include "base/step_record.h"

static void test_base_step_record__adds_up_actions_and_keeps_events(void **state)
{
    weft_alloc *alloc = NULL;
    weft_step_record r = {0};
    (void)state;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    CHECK_OK(weft_i_step_record_reserve(&r, alloc, 3));
    weft_i_step_record_begin(&r);
    weft_i_step_record_end(&r, WEFT_STEP_FORWARD, 7, 1); /* no step yet */
    assert_int_equal(r.n + r.n_lost, 0);
    weft_i_step_record_reset(&r);
    weft_i_step_record_begin(&r);
    weft_i_step_record_end(&r, WEFT_STEP_FORWARD, 4, 1);
    weft_i_step_record_add(&r, WEFT_STEP_MESSAGE, 2.0, 2.5);
    weft_i_step_record_begin(&r);
    weft_i_step_record_end(&r, WEFT_STEP_BACKWARD, 4, 1);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.events[0].micro_batch, 4);
    assert_int_equal(r.events[0].chunk, 1);
    assert_int_equal(r.events[1].kind, WEFT_STEP_MESSAGE);
    assert_int_equal(r.events[1].micro_batch, -1);
    assert_int_equal(r.events[1].end_ns - r.events[1].start_ns, 500000000);
    assert_int_equal(r.first_ns, r.events[0].start_ns);
    assert_int_equal(r.last_ns, r.events[2].end_ns);
    assert_int_equal(r.chunk_ns[1][WEFT_STEP_BACKWARD], r.events[2].end_ns - r.events[2].start_ns);
    assert_int_equal(r.chunk_ns[0][WEFT_STEP_BACKWARD], 0);
    weft_i_step_record_add(&r, WEFT_STEP_OPTIMIZER, 3.0, 4.0); /* no room */
    assert_int_equal(r.n_lost, 1);
    weft_i_step_record_close(&r);
    weft_i_step_record_add(&r, WEFT_STEP_REDUCTION, 3.0, 4.0); /* none of the step */
    assert_int_equal(r.n + r.n_lost, 4);
    weft_i_step_record_reset(&r);
    assert_int_equal(r.n + r.n_lost + r.n_actions[WEFT_STEP_FORWARD], 0);
    weft_i_step_record_fini(&r);
    weft_i_alloc_destroy(alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_step_record__adds_up_actions_and_keeps_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
