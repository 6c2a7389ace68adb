/* Parity with one rank, and with PyTorch, over the whole product (matrix.h). */
#include "matrix.h"
#include "ranks_golden.h"

#define STEPS 5

static const char *const recomputes[] = {"none", "selective", "full"};
static const int sizes[] = {2, 3, 4, 8};

/* One rank's results, for a type, an optimizer and a batch; then every layout of it. */
static void check_all_layouts(matrix *m, ranks_case *c, const char *about)
{
    static const ranks_layout alone = {.dp = 1};
    const bool is_sgd = strcmp(c->options.optimizer, "sgd") == 0;
    ranks_result one, r;
    char text[300], layout[128], why[256];
    ranks_case_apply(c, &alone);
    if (!matrix_run(m, &one, c, about))
        return;
    for (int i = 0; i < 4 * 4 * 3; i++) {
        const ranks_layout l = {
            .dp = sizes[i / 12], .stage = i / 3 % 4, .recompute = recomputes[i % 3]};
        ranks_case_apply(c, &l);
        (void)snprintf(text, sizeof(text), "%s, %s", about, ranks_layout_text(&l, layout));
        if (!matrix_run(m, &r, c, text))
            continue;
        const bool is_right = ranks_near_gradients(&one, &r, RANKS_GRADIENT_BOUND, why) &&
                              ranks_all_moved(&r, why) &&
                              (is_sgd ? ranks_near_sgd(&one, &r, why)
                                      : ranks_near_adamw(&one, &r, c->options.lr, why));
        matrix_count(m, is_right, text, why);
        ranks_result_fini(&r);
    }
    ranks_result_fini(&one);
}

void matrix_parity(matrix *m, const odd_model *model)
{
    /* a micro-batch a rank or less; several; the last one smaller */
    static const int64_t batches[][2] = {{4, 1}, {9, 1}, {7, 2}};
    for (int i = 0; i < 2 * 2 * 3; i++) {
        const bool is_bf16 = i / 6 == 1, is_sgd = i / 3 % 2 == 1;
        ranks_case c;
        char about[128];
        ranks_case_init(&c, m->s, model);
        c.options.layout.dtype = is_bf16 ? "bf16" : "fp32";
        c.options.layout.micro_batch_size = batches[i % 3][1];
        c.options.weight_decay = 0.1;
        if (is_sgd) {
            c.options.optimizer = "sgd";
            c.options.lr = 0.01;
            c.options.clip_grad = 0.0;
        }
        ranks_case_batches(&c, model->vocab, batches[i % 3][0], STEPS, 5);
        (void)snprintf(about, sizeof(about), "%s, %s, %d sequences in %d",
                       is_bf16 ? "bf16" : "fp32", is_sgd ? "sgd" : "adamw", (int)batches[i % 3][0],
                       (int)batches[i % 3][1]);
        check_all_layouts(m, &c, about);
        ranks_case_fini(&c);
    }
}

static void check_golden(matrix *m, const char *name, const char *ids, bool is_training)
{
    golden g;
    ranks_case c;
    ranks_result r;
    char text[256], layout[128], why[256];
    ranks_golden_init(&c, &g, m->s, name, ids);
    for (int i = 0; i < 4 * 4 * 3; i++) {
        const ranks_layout l = {
            .dp = sizes[i / 12], .stage = i / 3 % 4, .recompute = recomputes[i % 3]};
        ranks_case_apply(&c, &l);
        (void)snprintf(text, sizeof(text), "%s %s, %s", name, is_training ? "trained" : "gradients",
                       ranks_layout_text(&l, layout));
        if (!matrix_run(m, &r, &c, text))
            continue;
        matrix_count(m,
                     is_training ? ranks_golden_training(&g, &r, why)
                                 : ranks_golden_gradients(&g, &r, why),
                     text, why);
        ranks_result_fini(&r);
    }
    ranks_case_fini(&c);
    golden_close(&g);
}

void matrix_golden(matrix *m)
{
    static const char *const names[] = {"gpt2",        "llama",       "gpt2_odd",  "llama_odd",
                                        "gpt2_other",  "llama_bias",  "rope_yarn", "llama3_rope",
                                        "rope_linear", "rope_dynamic"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_golden(m, names[i], "input_ids", false);
    check_golden(m, "gpt2", "train.input_ids", true);
    check_golden(m, "llama", "train.input_ids", true);
}
