/*
 * bf16 against the float64 run of the same rounded weights, measured by PyTorch's own bf16 run of them. Bounds and their
 * derivation: tests/golden/README.md, "bfloat16".
 */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Root of the mean square of a - b, leaving out null gradients. */
static double
rms(const golden *g, const char *param, const weft_st_tensor *a, const weft_st_tensor *b)
{
    double sum = 0.0;
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_elems; i++) {
        if (param != NULL && golden_is_null(g, param, i))
            continue;
        const double d = tensor_at(a, i) - (b != NULL ? tensor_at(b, i) : 0.0);
        sum += d * d;
        n++;
    }
    return n > 0 ? sqrt(sum / (double)n) : 0.0;
}

static void check_output(const golden *g, const weft_st *probe, const char *name)
{
    char torch[64];
    char exact[64];
    (void)snprintf(torch, sizeof(torch), "%s.bf16", name);
    (void)snprintf(exact, sizeof(exact), "%s.f64", name);
    const weft_st_tensor *want = golden_tensor(g, exact);
    const double yardstick = rms(g, NULL, golden_tensor(g, torch), want);
    const double error = rms(g, NULL, tensor_in(probe, name), want);
    if (!(error <= 1.25 * yardstick))
        fail_msg("%s of %s: error %.3g, PyTorch's own is %.3g", name, g->name, error, yardstick);
}

static void check_gradients(const golden *g, const weft_st *probe)
{
    double all = 0.0;
    double all_torch = 0.0;

    for (size_t k = 0; k < weft_i_st_count(g->values); k++) {
        const weft_st_tensor *want = weft_i_st_at(g->values, k);
        if (strncmp(want->name, "grad.f64/", 9) != 0)
            continue;
        const char *param = want->name + 9;
        char name[256];
        (void)snprintf(name, sizeof(name), "grad.bf16/%s", param);
        const double yardstick = rms(g, param, golden_tensor(g, name), want);
        (void)snprintf(name, sizeof(name), "grad/%s", param);
        const double error = rms(g, param, tensor_in(probe, name), want);
        if (!(error <= 2.0 * yardstick))
            fail_msg("%s of %s: error %.3g, PyTorch's own is %.3g", name, g->name, error,
                     yardstick);
        const double n = (double)want->n_elems;
        all += error * error * n;
        all_torch += yardstick * yardstick * n;
    }
    if (!(sqrt(all) <= 1.25 * sqrt(all_torch)))
        fail_msg("gradients of %s: error %.3g, PyTorch's %.3g", g->name, sqrt(all),
                 sqrt(all_torch));
}

static void check_model(void **state, const char *name, const char *backend)
{
    golden g;
    char folder[512];
    char batch[512];
    weft_probe_result r;

    golden_open(&g, *state, name, "golden_bf16.safetensors");
    const weft_probe_options o = {.layout = golden_layout(backend, "bf16"),
                                  .model = golden_folder(&g, GOLDEN_NEW, folder),
                                  .batch = golden_batch(&g, "input_ids", NULL, batch),
                                  .grads = true};
    weft_st *probe = golden_probe(&g, &o, &r);
    check_output(&g, probe, "logits");
    check_output(&g, probe, "token_loss");
    check_gradients(&g, probe);

    /* The mean over N tokens of errors that are independent: three standard deviations. */
    const weft_st_tensor *tokens = golden_tensor(&g, "token_loss.f64");
    const double spread = rms(&g, NULL, golden_tensor(&g, "token_loss.bf16"), tokens);
    expect_near(name, tensor_in(probe, "loss"), golden_tensor(&g, "loss.f64"),
                3.0 * spread / sqrt((double)tokens->n_elems));

    /* The test of the test: it is bf16 that ran. An fp32 run is far closer than any bf16 run can be. */
    const double moved = rms(&g, NULL, tensor_in(probe, "logits"), golden_tensor(&g, "logits.f64"));
    assert_true(moved > 1e-3 * rms(&g, NULL, golden_tensor(&g, "logits.f64"), NULL));
    weft_i_st_close(probe);
    golden_close(&g);
}

static void test_golden_bf16__gpt2_on_cpu(void **state)
{
    check_model(state, "gpt2", "cpu");
}

static void test_golden_bf16__gpt2_on_reference(void **state)
{
    check_model(state, "gpt2", "reference");
}

static void test_golden_bf16__llama_on_cpu(void **state)
{
    check_model(state, "llama", "cpu");
}

static void test_golden_bf16__llama_on_reference(void **state)
{
    check_model(state, "llama", "reference");
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_golden_bf16__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(gpt2_on_cpu), RUN(gpt2_on_reference), RUN(llama_on_cpu),
                                       RUN(llama_on_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
