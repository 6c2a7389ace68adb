/* Memory and traffic of every rank against the closed forms, over the whole product (matrix.h). */
#include "matrix.h"

static const int sizes[] = {2, 3, 4, 5, 7, 8};

/* Every setting that a formula knows, for one size, stage and type. */
static void check_settings(matrix *m, ranks_case *c, const odd_model *model, ranks_layout l)
{
    static const char *const optimizers[] = {"adamw", "sgd", "momentum"};
    static const double buckets[] = {0, 0.05, 0.0001};
    ranks_result r;
    char text[256], layout[128], why[256];
    for (int i = 0; i < 2 * 2 * 3 * 2; i++) {
        const int optimizer = (i + l.dp) % 3;
        l.is_reproducible = i / 12 == 1;
        l.is_not_overlapped = i / 6 % 2 == 1;
        l.has_no_prefetch = (i + l.dp) % 2 == 1;
        l.bucket_mb = buckets[i / 2 % 3];
        ranks_case_batches(c, model->vocab, i % 2 == 0 ? l.dp : 2 * l.dp + 1, 2, 3);
        c->options.optimizer = optimizer == 0 ? "adamw" : "sgd";
        c->options.sgd_momentum = optimizer == 2 ? 0.9 : 0.0;
        ranks_case_apply(c, &l);
        (void)snprintf(text, sizeof(text), "%s, %s, %s, %d sequences", c->options.layout.dtype,
                       optimizers[optimizer], ranks_layout_text(&l, layout),
                       (int)c->options.layout.global_batch_size);
        if (!matrix_run(m, &r, c, text))
            continue;
        const zero_case z = ranks_case_formula(c, model);
        matrix_count(m, ranks_as_formulas(&r, &z, why), text, why);
        ranks_result_fini(&r);
    }
}

void matrix_formulas(matrix *m, const odd_model *model)
{
    for (int i = 0; i < 2 * 6 * 4; i++) {
        const ranks_layout l = {.dp = sizes[i / 4 % 6], .stage = i % 4};
        ranks_case c;
        ranks_case_init(&c, m->s, model);
        c.options.layout.dtype = i / 24 == 0 ? "fp32" : "bf16";
        check_settings(m, &c, model, l);
        ranks_case_fini(&c);
    }
}
