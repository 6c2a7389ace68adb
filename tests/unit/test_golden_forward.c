/*
 * Logits, token losses, loss, masked loss and the gradient of every tensor against PyTorch's float64 run, through
 * `weft probe`: eleven models, the cpu and the reference set, every spelling of the folder.
 *
 * Bounds: tests/golden/README.md. Where PyTorch's own float32 run is further off than usual (llama_odd, whose logits are
 * large), three times that is allowed.
 */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const BACKENDS[] = {"cpu", "reference"};

static double bound(const golden *g, double readme, const char *key)
{
    const double torch = 3.0 * golden_torch_error(g, key);
    return torch > readme ? torch : readme;
}

static double largest(const weft_st_tensor *t)
{
    double max = 0.0;
    for (int64_t i = 0; i < t->n_elems; i++)
        max = fmax(max, fabs(tensor_at(t, i)));
    return max;
}

static void check_gradients(const golden *g, const weft_st *probe, const char *what)
{
    const double allowed = bound(g, 2e-5, "grad_over_largest_in_tensor");
    int n_grads = 0;

    for (size_t k = 0; k < weft_i_st_count(g->values); k++) {
        const weft_st_tensor *want = weft_i_st_at(g->values, k);
        if (strncmp(want->name, "grad.f64/", 9) != 0)
            continue;
        char name[256];
        (void)snprintf(name, sizeof(name), "grad/%s", want->name + 9);
        const weft_st_tensor *have = tensor_in(probe, name);
        const double max = largest(want);
        assert_int_equal(have->dtype, WEFT_DTYPE_F32);
        assert_true(weft_i_shape_equal(&have->shape, &want->shape));
        for (int64_t i = 0; i < want->n_elems; i++) {
            const double d = fabs(tensor_at(have, i) - tensor_at(want, i));
            if (!(d <= allowed * max) && !golden_is_null(g, want->name + 9, i))
                fail_msg("%s: %s[%lld] is %.9g, should be %.9g: off by %.3g of the largest", what,
                         name, (long long)i, tensor_at(have, i), tensor_at(want, i), d / max);
        }
        n_grads++;
    }
    assert_true(n_grads > 10);
}

static void check_folder(golden *g, const char *folder, const char *backend)
{
    char batch[512];
    char what[768];
    weft_probe_result r;
    weft_probe_options o = {.layout = golden_layout(backend, ""), .model = folder, .grads = true};

    (void)snprintf(what, sizeof(what), "%s on %s", folder, backend);
    o.batch = golden_batch(g, "input_ids", NULL, batch);
    weft_st *probe = golden_probe(g, &o, &r);
    expect_near(what, tensor_in(probe, "logits"), golden_tensor(g, "logits.f64"),
                bound(g, 5e-5, "logits"));
    expect_near(what, tensor_in(probe, "token_loss"), golden_tensor(g, "token_loss.f64"),
                bound(g, 2e-5, "token_loss"));
    expect_near(what, tensor_in(probe, "loss"), golden_tensor(g, "loss.f64"),
                bound(g, 5e-6, "loss"));
    check_gradients(g, probe, what);
    weft_i_st_close(probe);

    o.grads = false;
    o.batch = golden_batch(g, "input_ids", "labels_masked", batch);
    probe = golden_probe(g, &o, &r);
    expect_near(what, tensor_in(probe, "loss"), golden_tensor(g, "loss_masked.f64"),
                bound(g, 5e-6, "loss"));
    weft_i_st_close(probe);
}

static void check_model(void **state, const char *name)
{
    golden g;
    char folder[512];
    int n_folders = 0;

    golden_open(&g, *state, name, "golden.safetensors");
    for (int spelling = 0; spelling < GOLDEN_SPELLINGS; spelling++) {
        if (golden_folder(&g, (golden_spelling)spelling, folder) == NULL)
            continue;
        for (size_t b = 0; b < 2; b++)
            check_folder(&g, folder, BACKENDS[b]);
        n_folders++;
    }
    assert_int_equal(n_folders, strcmp(name, "llama") == 0 ? 3 : 2);
    golden_close(&g);
}

#define TEST(model)                                                                                \
    static void test_golden_forward__##model(void **state)                                         \
    {                                                                                              \
        check_model(state, #model);                                                                \
    }

GOLDEN_MODELS(TEST)

/* The test of the test: another rotary base must be seen. */
static void test_golden_forward__another_config_is_seen(void **state)
{
    golden g;
    char folder[512];
    char path[768];
    char *text = NULL;
    size_t n = 0;
    weft_probe_result r;
    char batch[512];

    golden_open(&g, *state, "llama", "golden.safetensors");
    assert_non_null(golden_folder(&g, GOLDEN_HUB, folder));
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    expect_ok(weft_i_file_read(g.s->alloc, path, 65536, &text, &n));
    char *at = strstr(text, "\"rope_theta\": 10000.0");
    assert_non_null(at);
    memcpy(at, "\"rope_theta\": 10001.0", 21);
    expect_ok(weft_i_file_write(path, text, n));
    weft_i_alloc_put(g.s->alloc, text);
    const weft_probe_options o = {.layout = golden_layout("cpu", ""),
                                  .model = folder,
                                  .batch = golden_batch(&g, "input_ids", NULL, batch)};
    weft_st *probe = golden_probe(&g, &o, &r);
    const weft_st_tensor *have = tensor_in(probe, "logits");
    const weft_st_tensor *want = golden_tensor(&g, "logits.f64");
    double worst = 0.0;
    for (int64_t i = 0; i < have->n_elems; i++)
        worst = fmax(worst, fabs(tensor_at(have, i) - tensor_at(want, i)));
    assert_true(worst > 5e-5);
    weft_i_st_close(probe);
    golden_close(&g);
}

int main(void)
{
#define RUN(model)                                                                                 \
    cmocka_unit_test_setup_teardown(test_golden_forward__##model, scratch_setup, scratch_teardown)
#define AND_RUN(model) , RUN(model)
    const struct CMUnitTest tests[] = {RUN(another_config_is_seen) GOLDEN_MODELS(AND_RUN)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
