/* Layouts that agree bit for bit after ten clipped steps, over the whole product (matrix.h). */
#include "matrix.h"

#define STEPS 10
#define CLIP 0.1 /* acts in every model */

static const char *const recomputes[] = {"none", "selective", "full"};
static const int sizes[] = {2, 3, 4, 5, 8};

static void setup(ranks_case *c, matrix *m, const odd_model *model, bool is_bf16, int64_t micro)
{
    ranks_case_init(c, m->s, model);
    c->options.layout.dtype = is_bf16 ? "bf16" : "fp32";
    c->options.layout.micro_batch_size = micro;
    c->options.clip_grad = CLIP;
}

/* A layout that must do what `first` did; the first of its kind makes it. */
static void check_layout(matrix *m,
                         ranks_case *c,
                         const ranks_layout *l,
                         ranks_result *first,
                         bool *has_first,
                         const char *about)
{
    ranks_result r;
    char text[300], layout[128], why[256] = "";
    ranks_case_apply(c, l);
    (void)snprintf(text, sizeof(text), "%s, %s", about, ranks_layout_text(l, layout));
    if (!matrix_run(m, &r, c, text))
        return;
    if (!*has_first) {
        *first = r;
        *has_first = true;
        return;
    }
    matrix_count(m, ranks_same_bits(first, &r, why), text, why);
    ranks_result_fini(&r);
}

/*
 * All that must not matter, in the stages that add alike: DDP and ZeRO-1; ZeRO-2 and ZeRO-3; all with a micro-batch a rank.
 * Buckets do nothing in ZeRO-3, prefetch only there. Recomputing goes with the threads.
 */
static void
check_family(matrix *m, ranks_case *c, int dp, int first_stage, int last_stage, const char *about)
{
    static const double buckets[] = {0, 0.1, 0.0001};
    ranks_result first;
    bool has_first = false;
    for (int stage = first_stage; stage <= last_stage; stage++) {
        for (int i = 0; i < 3 * 2 * 3; i++) {
            const int variant = i / 6;
            ranks_layout l = {.dp = dp,
                              .stage = stage,
                              .is_not_overlapped = i / 3 % 2 == 1,
                              .n_threads = i % 3 + 1,
                              .recompute = recomputes[i % 3]};
            if (stage == 3 && variant == 2)
                continue;
            if (stage == 3)
                l.has_no_prefetch = variant == 1;
            else
                l.bucket_mb = buckets[variant];
            check_layout(m, c, &l, &first, &has_first, about);
            if (i == 0) /* the same command once more */
                check_layout(m, c, &l, &first, &has_first, about);
        }
    }
    if (has_first)
        ranks_result_fini(&first);
}

void matrix_bits(matrix *m, const odd_model *model)
{
    char about[128];
    for (int i = 0; i < 2 * 5; i++) {
        const bool is_bf16 = i / 5 == 1;
        const int dp = sizes[i % 5];
        const int64_t batches[][2] = {{dp, 1}, {2 * dp + 1, 1}, {3 * dp - 1, 2}};
        for (int b = 0; b < 3; b++) {
            ranks_case c;
            setup(&c, m, model, is_bf16, batches[b][1]);
            ranks_case_batches(&c, model->vocab, batches[b][0], STEPS, 11);
            (void)snprintf(about, sizeof(about), "%s, %d sequences in %d",
                           is_bf16 ? "bf16" : "fp32", (int)batches[b][0], (int)batches[b][1]);
            if (b == 0) {
                check_family(m, &c, dp, 0, 3, about);
            } else {
                check_family(m, &c, dp, 0, 1, about);
                check_family(m, &c, dp, 2, 3, about);
            }
            ranks_case_fini(&c);
        }
    }
}

void matrix_reproducible(matrix *m, const odd_model *model)
{
    static const int64_t batches[][2] = {{1, 1}, {5, 1}, {7, 2}, {8, 1}, {13, 3}, {17, 1}};
    static const int all_sizes[] = {1, 2, 3, 4, 5, 8};
    char about[128];
    for (int i = 0; i < 2 * 6; i++) {
        const bool is_bf16 = i / 6 == 1;
        const int64_t *batch = batches[i % 6];
        ranks_case c;
        ranks_result first;
        bool has_first = false;
        setup(&c, m, model, is_bf16, batch[1]);
        ranks_case_batches(&c, model->vocab, batch[0], STEPS, 12);
        (void)snprintf(about, sizeof(about), "%s, %d sequences in %d", is_bf16 ? "bf16" : "fp32",
                       (int)batch[0], (int)batch[1]);
        for (int k = 0; k < 6 * 4; k++) {
            const ranks_layout l = {.dp = all_sizes[k / 4],
                                    .stage = k % 4,
                                    .is_reproducible = true,
                                    .n_threads = k % 3 + 1,
                                    .recompute = recomputes[(k + i) % 3],
                                    .bucket_mb = k % 2 == 0 ? 0 : 0.05,
                                    .is_not_overlapped = k % 5 == 0,
                                    .has_no_prefetch = k % 7 == 0};
            check_layout(m, &c, &l, &first, &has_first, about);
        }
        if (has_first)
            ranks_result_fini(&first);
        ranks_case_fini(&c);
    }
}

/* Every dp x pp x tp of up to 8 ranks, one schedule after another. */
static void check_products(matrix *m, ranks_case *c, int strips, const char *about)
{
    static const char *const schedules[] = {"1f1b",        "naive", "gpipe",
                                            "interleaved", "zb-h1", "zb-h2"};
    ranks_result first;
    bool has_first = false;
    int k = 0;
    for (int tp = 1; tp <= strips; tp++) {
        for (int pp = 1; pp * tp <= 8; pp++) {
            for (int dp = 1; dp * pp * tp <= 8; dp++) {
                for (int stage = 0; stage < 4; stage++, k++) {
                    const char *const schedule = schedules[k % 6];
                    const bool is_interleaved = strcmp(schedule, "interleaved") == 0;
                    const ranks_layout l = {
                        .dp = dp,
                        .pp = pp,
                        .tp = tp,
                        .strips = strips,
                        .stage = stage,
                        .schedule = pp == 1 || (is_interleaved && pp > 3) ? "1f1b" : schedule,
                        .chunks = pp > 1 && is_interleaved && pp <= 3 ? 2 : 1,
                        .is_reproducible = true,
                        .n_threads = k % 2 + 1,
                        .recompute = recomputes[k % 3]};
                    if (pp <= 7)
                        check_layout(m, c, &l, &first, &has_first, about);
                }
            }
        }
    }
    if (has_first)
        ranks_result_fini(&first);
}

void matrix_strips(matrix *m, const odd_model *model)
{
    char about[128];
    for (int i = 0; i < 2 * 2; i++) {
        const int most = (int)model->n_kv_heads;
        const int strips = i / 2 == 0 ? most : WEFT_MAX(most - 1, 1);
        ranks_case c;
        setup(&c, m, model, i % 2 == 1, 2);
        ranks_case_batches(&c, model->vocab, 9, STEPS, 13);
        (void)snprintf(about, sizeof(about), "%s, %d strips", i % 2 == 1 ? "bf16" : "fp32", strips);
        check_products(m, &c, strips, about);
        ranks_case_fini(&c);
    }
}
