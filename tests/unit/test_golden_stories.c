/*
 * A small model that was really trained (stories260K): token losses and 200 greedy ids against transformers'. The weights
 * are not in the repository: WEFT_SHARED, or ../shared beside it, must hold models/stories260K; else the test is skipped.
 */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/generate.h"
#include "weft/options.h"

static char folder[512];
static json_t *expected;

static double number(const char *key, size_t i)
{
    const json_t *v = json_array_get(json_object_get(expected, key), i);
    if (!json_is_number(v))
        fail_msg("expected.json: no number %zu of %s", i, key);
    return json_number_value(v);
}

static void check_losses(void **state, const char *backend)
{
    scratch *s = *state;
    golden g = {.s = s};
    const int64_t n = (int64_t)json_array_size(json_object_get(expected, "ids"));
    const weft_st_plan plan = {
        .name = "input_ids", .dtype = WEFT_DTYPE_I64, .shape = weft_i_shape_2d(1, n)};
    char batch[512];
    weft_st_writer *w = NULL;
    weft_probe_result r;

    (void)snprintf(batch, sizeof(batch), "%s", scratch_path(s, "ids.safetensors"));
    expect_ok(weft_i_st_create(&w, s->alloc, batch, &plan, 1, NULL, 0));
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = (int64_t)number("ids", (size_t)i);
        expect_ok(weft_i_st_append(w, &id, sizeof(id)));
    }
    expect_ok(weft_i_st_finish(w));
    const weft_probe_options o = {
        .layout = golden_layout(backend, ""), .model = folder, .batch = batch, .grads = true};
    weft_st *probe = golden_probe(&g, &o, &r);
    const weft_st_tensor *losses = tensor_in(probe, "token_loss");
    assert_int_equal(losses->n_elems, n - 1);
    for (int64_t i = 0; i < n - 1; i++) {
        const double d = fabs(tensor_at(losses, i) - number("token_loss.f64", (size_t)i));
        if (!(d <= 2e-5))
            fail_msg("token %lld: loss off by %.3g", (long long)i, d);
    }
    weft_i_st_close(probe);
}

static void test_golden_stories__token_losses(void **state)
{
    check_losses(state, "cpu");
    check_losses(state, "reference");
}

static void check_done(void *user, const weft_generated *g)
{
    int *n_checked = user;
    assert_int_equal(g->n_ids + 1,
                     json_array_size(json_object_get(expected, "greedy_ids_from_bos")));
    for (int64_t i = 0; i < g->n_ids; i++) {
        const int want = (int)number("greedy_ids_from_bos", (size_t)i + 1);
        if (g->ids[i] != want)
            fail_msg("new id %lld is %d, should be %d", (long long)i, g->ids[i], want);
    }
    (*n_checked)++;
}

static void test_golden_stories__greedy_ids(void **state)
{
    static const char *const backends[] = {"cpu", "reference"};
    const char *prompts[] = {"1"};
    int n_checked = 0;
    const weft_generate_callbacks callbacks = {.user = &n_checked, .done = check_done};
    weft_generate_options o;
    weft_generate_result r;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weft_options_init(WEFT_COMMAND_GENERATE, &o);
        o.layout = golden_layout(backends[i], "");
        o.model = folder;
        o.ids = prompts;
        o.n_ids = 1;
        o.max_new_tokens = 200;
        o.ignore_eos = true;
        expect_ok(weft_generate_run(&r, &o, NULL, &callbacks));
    }
    assert_int_equal(n_checked, 2);
}

int main(void)
{
    const char *shared = getenv("WEFT_SHARED");
    char path[640];
    json_error_t error;

    (void)snprintf(folder, sizeof(folder), "%s/models/stories260K",
                   shared != NULL ? shared : WEFT_SOURCE_DIR "/../shared");
    (void)snprintf(path, sizeof(path), "%s/expected.json", folder);
    expected = json_load_file(path, 0, &error);
    if (expected == NULL) {
        (void)printf("skipped: %s (set WEFT_SHARED to the folder that holds models/)\n",
                     error.text);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden_stories__token_losses, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_golden_stories__greedy_ids, scratch_setup,
                                        scratch_teardown)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(expected);
    return failed;
}
