/*
 * Loading a model keeps no second copy of it resident: at most 1.2 times its size, where the file is as large as the
 * model and half of that is one tensor. And a source whose weights are unmapped never gives random ones.
 */
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ctx.h"
#include "nn/models/load.h"

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 256, \"num_hidden_layers\": 2,\n"
    " \"num_attention_heads\": 4, \"intermediate_size\": 512, \"vocab_size\": 40000,\n"
    " \"max_position_embeddings\": 64, \"tie_word_embeddings\": false}\n";

/* Highest resident bytes of this process so far. */
static double peak_bytes(void)
{
    char line[256];
    double kb = 0.0;
    FILE *f = fopen("/proc/self/status", "r");
    if (f == NULL)
        return 0.0;
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtod(line + 6, NULL);
    }
    (void)fclose(f);
    return kb * 1024.0;
}

/* A folder whose weights are a sparse file of zeros: making it takes no memory. */
static double write_folder(scratch *s, char folder[512])
{
    const weft_ctx_options dry = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    char path[640];
    weft_st_plan plan[32];
    weft_ctx *ctx = NULL;
    weft_source source;
    weft_model *m = NULL;
    weft_str header;
    double n_bytes = 0.0;

    (void)snprintf(folder, 512, "%.400s/m", s->dir);
    expect_ok(weft_i_dir_make(folder));
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    expect_ok(weft_i_file_write(path, config, sizeof(config) - 1));
    expect_ok(weft_ctx_create(&ctx, &dry));
    expect_ok(weft_i_source_open(&source, ctx, path, "fp32"));
    expect_ok(weft_i_source_model(&m, &source, ctx, false, 0));
    const size_t n = (size_t)weft_model_param_count(m);
    assert_true(n <= 32);
    for (size_t i = 0; i < n; i++) {
        const weft_param *p = weft_model_param(m, (int64_t)i);
        plan[i] =
            (weft_st_plan){.name = p->name,
                           .dtype = WEFT_DTYPE_F32,
                           .shape = p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                                   : weft_i_shape_2d(p->full_rows, p->full_cols)};
        n_bytes += 4.0 * (double)p->full_rows * (double)p->full_cols;
    }
    weft_i_str_init(&header, s->alloc);
    expect_ok(weft_i_st_header(&header, plan, n, NULL, 0));
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    expect_ok(weft_i_file_write(path, header.text, header.n_bytes));
    assert_int_equal(truncate(path, (off_t)((double)header.n_bytes + n_bytes)), 0);
    weft_i_str_fini(&header);
    weft_model_destroy(m);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
    return n_bytes;
}

static void test_nn_load__keeps_no_second_copy(void **state)
{
    const weft_ctx_options o = {.n_threads = 1};
    char folder[512];
    weft_ctx *ctx = NULL;
    weft_source source;
    weft_model *m = NULL;
    const double n_bytes = write_folder(*state, folder);

    assert_true(n_bytes > 80e6);
    expect_ok(weft_ctx_create(&ctx, &o));
    const double before = peak_bytes();
    expect_ok(weft_i_source_open(&source, ctx, folder, ""));
    expect_ok(weft_i_source_model(&m, &source, ctx, false, 0));
    const double taken = peak_bytes() - before;
#ifndef WEFT_SANITIZED /* whose shadow memory counts too */
    if (before > 0.0 && !(taken < 1.2 * n_bytes))
        fail_msg("%.1f MB resident for a model of %.1f MB", taken / 1e6, n_bytes / 1e6);
    assert_true(before == 0.0 || taken > 0.9 * n_bytes); /* the test of the test */
#endif
    (void)taken;
    weft_model_destroy(m);

    weft_i_source_unmap(&source);
    expect_failure(weft_i_source_model(&m, &source, ctx, false, 0), WEFT_STATUS_INTERNAL,
                   "unmapped", NULL);
    assert_null(m);
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        test_nn_load__keeps_no_second_copy, scratch_setup, scratch_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
