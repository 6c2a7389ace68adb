/* Paced layers: a layer takes what was stated, its gradients come spread over it, and nothing else is held back. */
#include "check.h"

#include <time.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "parallel/pace.h"
#include "weft/ext/layer.h"

#define SLACK_SECONDS 0.5 /* a machine may be busy; what is too early is always wrong */

static const weft_pace stated = {
    .block = {.forward_ms = 40, .input_gradient_ms = 50, .weight_gradient_ms = 40},
    .head = {.forward_ms = 0, .input_gradient_ms = 0, .weight_gradient_ms = 60},
};

typedef struct fixture {
    weft_ctx *ctx;
    weft_hooks *hooks;
    weft_param params[4];
    weft_param *list[4];
    weft_layer_ops ops;
    weft_layer layer;
} fixture;

static void open_fixture(fixture *f, const char *kind)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    memset(f, 0, sizeof(*f));
    CHECK_OK(weft_ctx_create(&f->ctx, &o));
    CHECK_OK(weft_i_pace_hooks_create(&f->hooks, f->ctx, &stated));
    for (int i = 0; i < 4; i++)
        f->list[i] = &f->params[i];
    f->params[1].is_frozen = true;
    f->ops.kind = kind;
    f->layer.ops = &f->ops;
    f->layer.params = f->list;
    f->layer.n_params = 4;
}

static void close_fixture(fixture *f)
{
    weft_i_pace_hooks_destroy(f->hooks);
    weft_ctx_destroy(f->ctx);
}

static void begin(fixture *f, weft_pass pass)
{
    CHECK_OK(f->hooks->layer_begin(f->hooks->user, &f->layer, pass));
}

static void end(fixture *f, weft_pass pass)
{
    CHECK_OK(f->hooks->layer_end(f->hooks->user, &f->layer, pass));
}

static void check_took(double since, double seconds)
{
    const double took = weft_i_clock_seconds() - since;
    if (took < seconds - 1e-4 || took > seconds + SLACK_SECONDS)
        fail_msg("it took %.4f s, stated were %.4f", took, seconds);
}

static void test_parallel_pace__passes_take_what_was_stated(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "block");
    double since = weft_i_clock_seconds();
    begin(&f, WEFT_PASS_FORWARD);
    end(&f, WEFT_PASS_FORWARD);
    check_took(since, 0.04);
    since = weft_i_clock_seconds();
    begin(&f, WEFT_PASS_BACKWARD);
    end(&f, WEFT_PASS_BACKWARD); /* no gradient came (frozen, or idle): the time is the same */
    check_took(since, 0.09);
    close_fixture(&f);
}

static void test_parallel_pace__gradients_are_spread_over_a_backward(void **state)
{
    (void)state;
    static const int order[] = {2, 0, 3};
    fixture f;
    open_fixture(&f, "block");
    const double since = weft_i_clock_seconds();
    begin(&f, WEFT_PASS_BACKWARD);
    for (int k = 0; k < 3; k++) {
        CHECK_OK(f.hooks->grad_ready(f.hooks->user, f.list[order[k]]));
        check_took(since, 0.09 * (k + 1) / 3);
    }
    end(&f, WEFT_PASS_BACKWARD);
    check_took(since, 0.09);
    close_fixture(&f);
}

static void test_parallel_pace__a_slow_layer_is_not_held_back(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 60000000};
    fixture f;
    open_fixture(&f, "block");
    begin(&f, WEFT_PASS_FORWARD);
    (void)nanosleep(&pause, NULL);
    const double since = weft_i_clock_seconds();
    end(&f, WEFT_PASS_FORWARD);
    assert_true(weft_i_clock_seconds() - since < 0.02);
    close_fixture(&f);
}

static void test_parallel_pace__kinds_have_their_own_times(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        double forward_s, backward_s;
    } cases[] = {{"head", 0, 0.06}, {"embedding", 0, 0}, {"a layer of the user's", 0, 0}};
    for (int i = 0; i < 3; i++) {
        fixture f;
        open_fixture(&f, cases[i].kind);
        double since = weft_i_clock_seconds();
        begin(&f, WEFT_PASS_FORWARD);
        end(&f, WEFT_PASS_FORWARD);
        check_took(since, cases[i].forward_s);
        since = weft_i_clock_seconds();
        begin(&f, WEFT_PASS_BACKWARD);
        end(&f, WEFT_PASS_BACKWARD);
        check_took(since, cases[i].backward_s);
        close_fixture(&f);
    }
}

static weft_status gone(void *user)
{
    (void)user;
    return WEFT_STATUS_REMOTE;
}

static void test_parallel_pace__a_failure_ends_the_wait(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "block");
    begin(&f, WEFT_PASS_BACKWARD);
    f.ctx->alive = gone;
    assert_int_equal(f.hooks->layer_end(f.hooks->user, &f.layer, WEFT_PASS_BACKWARD),
                     WEFT_STATUS_REMOTE);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_pace__passes_take_what_was_stated),
        cmocka_unit_test(test_parallel_pace__gradients_are_spread_over_a_backward),
        cmocka_unit_test(test_parallel_pace__a_slow_layer_is_not_held_back),
        cmocka_unit_test(test_parallel_pace__kinds_have_their_own_times),
        cmocka_unit_test(test_parallel_pace__a_failure_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
