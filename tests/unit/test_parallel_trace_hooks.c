/* What a rank computes, in its trace: layers, and weight gradients within their backward. */
#include "scratch.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "parallel/trace_hooks.h"
#include "weft/ext/layer.h"

typedef struct fixture {
    weft_ctx *ctx;
    weft_trace *trace;
    weft_hooks *hooks;
    char path[512];
    weft_param params[2];
    weft_param *list[2];
    weft_layer_ops ops;
    weft_layer layer;
    weft_grad_target target;
} fixture;

static void open_fixture(fixture *f, scratch *s, const char *kind, bool is_paced)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    memset(f, 0, sizeof(*f));
    (void)snprintf(f->path, sizeof(f->path), "%.500s", scratch_path(s, "t.json"));
    expect_ok(weft_ctx_create(&f->ctx, &o));
    expect_ok(weft_i_trace_create(&f->trace, f->ctx->alloc, f->path, 0, 1));
    expect_ok(weft_i_trace_hooks_create(&f->hooks, f->ctx, f->trace, is_paced));
    (void)snprintf(f->params[0].name, sizeof(f->params[0].name), "model.layers.17.norm.weight");
    (void)snprintf(f->params[1].name, sizeof(f->params[1].name), "model.layers.17.w2.weight");
    for (int i = 0; i < 2; i++)
        f->list[i] = &f->params[i];
    f->ops.kind = kind;
    f->layer = (weft_layer){.ops = &f->ops, .params = f->list, .n_params = 2, .number = 18};
}

/* The events; the caller's. */
static json_t *close_fixture(fixture *f)
{
    json_error_t error;
    expect_ok(weft_i_trace_finish(f->trace));
    expect_ok(weft_i_trace_join(f->ctx->alloc, f->path, 1));
    json_t *const root = json_load_file(f->path, 0, &error);
    assert_true(json_is_array(root));
    weft_i_trace_hooks_destroy(f->hooks);
    weft_i_trace_destroy(f->trace);
    weft_ctx_destroy(f->ctx);
    return root;
}

static void begin(fixture *f, weft_pass pass)
{
    expect_ok(f->hooks->layer_begin(f->hooks->user, &f->layer, pass));
}

static void end(fixture *f, weft_pass pass)
{
    expect_ok(f->hooks->layer_end(f->hooks->user, &f->layer, pass));
}

static void need(fixture *f, int i)
{
    expect_ok(f->hooks->grad_need(f->hooks->user, f->list[i], &f->target));
}

static void ready(fixture *f, int i)
{
    expect_ok(f->hooks->grad_ready(f->hooks->user, f->list[i]));
}

static const json_t *find(const json_t *events, const char *name, int *n)
{
    const json_t *found = NULL;
    *n = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *const e = json_array_get(events, i);
        if (strcmp(json_string_value(json_object_get(e, "name")), name) == 0) {
            found = e;
            ++*n;
        }
    }
    return found;
}

static double number(const json_t *event, const char *key)
{
    const json_t *const value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_parallel_trace_hooks__layers_and_gradients_are_written(void **state)
{
    fixture f;
    int n;
    open_fixture(&f, *state, "block", false);
    begin(&f, WEFT_PASS_FORWARD);
    end(&f, WEFT_PASS_FORWARD);
    begin(&f, WEFT_PASS_BACKWARD);
    need(&f, 1);
    ready(&f, 1);
    need(&f, 0); /* used by another layer too: not ready here */
    end(&f, WEFT_PASS_BACKWARD);
    json_t *const events = close_fixture(&f);
    assert_non_null(find(events, "forward block 17", &n));
    assert_int_equal(n, 1);
    const json_t *const backward = find(events, "backward block 17", &n);
    assert_int_equal(n, 1);
    static const char *const names[] = {"weight gradient model.layers.17.norm.weight",
                                        "weight gradient model.layers.17.w2.weight"};
    for (int i = 0; i < 2; i++) {
        const json_t *const g = find(events, names[i], &n);
        assert_int_equal(n, 1);
        assert_true(number(g, "ts") >= number(backward, "ts"));
        assert_true(number(g, "ts") + number(g, "dur") <=
                    number(backward, "ts") + number(backward, "dur") + 1e-3);
        assert_int_equal(number(g, "tid"), number(backward, "tid"));
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(g, "args"), "tensor")),
            f.params[i].name);
    }
    json_decref(events);
}

static void test_parallel_trace_hooks__a_paced_run_says_so(void **state)
{
    fixture f;
    int n;
    open_fixture(&f, *state, "head", true);
    begin(&f, WEFT_PASS_FORWARD);
    end(&f, WEFT_PASS_FORWARD);
    json_t *const events = close_fixture(&f);
    assert_non_null(find(events, "paced forward head", &n));
    assert_int_equal(n, 1);
    json_decref(events);
}

static void test_parallel_trace_hooks__nothing_is_taken_while_it_runs(void **state)
{
    fixture f;
    weft_alloc_count before, after;
    open_fixture(&f, *state, "block", false);
    weft_i_alloc_counts(f.ctx->alloc, WEFT_MEM_CONTROL, &before);
    for (int step = 0; step < 1000; step++) {
        begin(&f, WEFT_PASS_BACKWARD);
        need(&f, 0);
        ready(&f, 0);
        end(&f, WEFT_PASS_BACKWARD);
    }
    weft_i_alloc_counts(f.ctx->alloc, WEFT_MEM_CONTROL, &after);
    assert_int_equal(before.n_calls, after.n_calls);
    json_decref(close_fixture(&f));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_parallel_trace_hooks__layers_and_gradients_are_written),
        TEST(test_parallel_trace_hooks__a_paced_run_says_so),
        TEST(test_parallel_trace_hooks__nothing_is_taken_while_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
