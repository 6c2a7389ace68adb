/*
 * What is not finite, on several ranks: all stop at the same step, before the update, with the same words as one rank; the
 * tensor is named, whichever rank holds the element; the last checkpoint is whole.
 */
#include "tiny.h"
#include "train_case.h"

#include "train/checkpoint.h"
#include "train/trainer_state.h"

#include <math.h>

#define BAD_NAME "model.layers.2.mlp.down_proj.weight"
#define BAD_ROW 31
#define BAD_COLUMN 63
#define FFN 64

static void make_bad(const char *name, float *values, int64_t n)
{
    if (strcmp(name, BAD_NAME) == 0) {
        assert_int_equal(n, (BAD_ROW + 1) * FFN); /* the last element: the last rank's under ZeRO */
        values[BAD_ROW * FFN + BAD_COLUMN] = NAN;
    }
}

static void lay_out(train_case *c, int64_t dp, int64_t stage)
{
    weft_layout_options *const l = &c->options.layout;
    l->backend = "reference"; /* whose code the thread sanitizer sees */
    l->dp = dp;
    l->zero_stage = stage;
    l->micro_batch_size = 1;
    l->global_batch_size = 6;
    l->bucket_size_mb = 0.02;
    l->comm_timeout = 20;
}

static void test_parallel_faults_numeric__a_bad_weight_is_named(void **state)
{
    char folder[512], name[32];
    const tiny_folder f = {.config = tiny_llama, .edit = make_bad};
    (void)tiny_write(*state, "bad", &f, folder);
    for (int i = 0; i < 6; i++) {
        train_case c;
        train_record r = {0};
        const int64_t dp = i == 0 ? 1 : 3;
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        (void)snprintf(name, sizeof(name), "out-%d", i);
        train_case_out(&c, name);
        c.options.model = folder;
        lay_out(&c, dp, i == 0 ? 0 : i % 4);
        c.options.layout.reproducible = i == 5;
        CHECK_FAILS(train_case_run(&c, &r), WEFT_STATUS_NUMERIC,
                    "the first tensor that is not: weight " BAD_NAME " at [31, 63]");
        assert_true(weft_last_error_is_of_run());
        /* All have met it alike: it is no rank's own. */
        assert_int_equal(strncmp(weft_last_error(), "step 1: the loss was not finite", 31), 0);
        assert_int_equal(r.n_steps, 0);
        char latest[WEFT_PATH_MAX];
        CHECK_OK(weft_i_checkpoint_latest(c.s->alloc, c.out, latest));
        assert_int_equal(latest[0], '\0');
    }
}

/* The checkpoint of the last good step is there, and nothing half written. */
static void check_saved(const train_case *c, int64_t step)
{
    char latest[WEFT_PATH_MAX];
    char **names = NULL;
    size_t n = 0;
    weft_trainer_state s;
    CHECK_OK(weft_i_checkpoint_latest(c->s->alloc, c->out, latest));
    CHECK_OK(weft_i_trainer_state_read(&s, c->s->alloc, latest));
    assert_int_equal(s.step, step);
    weft_i_trainer_state_fini(&s);
    CHECK_OK(weft_i_dir_list(c->s->alloc, c->out, &names, &n));
    for (size_t i = 0; i < n; i++) {
        if (strncmp(names[i], "tmp-", 4) == 0)
            fail_msg("%s was left over", names[i]);
    }
    weft_i_names_free(c->s->alloc, names, n);
}

/* Weights that grow until bf16 has no room: at the same step and place on any number of ranks, in any stage. */
static void test_parallel_faults_numeric__a_run_that_blows_up_stops_everywhere(void **state)
{
    char right[1024] = "", name[32];
    for (int i = 0; i < 6; i++) {
        train_case c;
        train_record r = {0};
        train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
        (void)snprintf(name, sizeof(name), "out-%d", i);
        train_case_out(&c, name);
        lay_out(&c, i == 0 ? 1 : 2, i == 0 ? 0 : i % 4);
        c.options.layout.reproducible = i == 5;
        c.options.layout.dtype = "bf16";
        c.options.lr = 1e22;
        c.options.lr_schedule = "constant";
        c.options.save_interval = 1;
        const weft_status st = train_case_run(&c, &r);
        if (st != WEFT_STATUS_NUMERIC)
            fail_msg("layout %d: %s after %d steps", i, weft_status_name(st), r.n_steps);
        assert_true(weft_last_error_is_of_run());
        assert_true(r.n_steps >= 1);
        if (i == 0)
            (void)snprintf(right, sizeof(right), "%s", weft_last_error());
        assert_string_equal(weft_last_error(), right);
        check_saved(&c, r.n_steps);
        /* Going on meets the same. */
        train_record again = {0};
        c.options.resume = "";
        CHECK_FAILS(train_case_run(&c, &again), WEFT_STATUS_NUMERIC, right);
        assert_int_equal(again.n_steps, 0);
        check_saved(&c, r.n_steps);
    }
    print_message("%s\n", right);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_faults_numeric__##name, scratch_setup,           \
                                    scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_bad_weight_is_named),
        TEST(a_run_that_blows_up_stops_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
