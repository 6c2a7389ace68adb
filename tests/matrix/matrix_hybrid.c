/*
 * Every product of the axes of 4 and 8 ranks that a model allows, with every ZeRO stage, schedule, recompute mode and
 * sequence parallelism on and off, against one rank (matrix.h); a choice of these is in test_parallel_hybrid.c.
 */
#include "matrix.h"
#include "ranks_golden.h"
#include "ranks_parity.h"

#define MOST_RANKS 8

static const struct {
    const char *name;
    int chunks;
} schedules[] = {{"1f1b", 1},        {"naive", 1}, {"gpipe", 1},
                 {"interleaved", 2}, {"zb-h1", 1}, {"zb-h2", 1}};

#define N_SCHEDULES 6
#define N_STAGES 4
#define N_RECOMPUTES 3
#define N_PER_MESH (N_SCHEDULES * N_STAGES * N_RECOMPUTES * 2)

/* What a golden or an odd model is run as, and how it is compared. */
typedef struct subject {
    const ranks_case *c;
    const ranks_result *one; /* NULL: compared with PyTorch */
    const golden *g;
    int64_t n_layers, n_heads;
    const char *about;
} subject;

static void check_layout(matrix *m, const subject *s, const ranks_layout *l)
{
    ranks_case c = *s->c;
    char text[256], layout[128], why[256] = "";
    bool is_right = false;
    ranks_case_apply(&c, l);
    (void)snprintf(text, sizeof(text), "%s, %s", s->about, ranks_layout_text(l, layout));
    if (s->one != NULL) {
        is_right = ranks_parity_near(&c, s->one, why);
    } else {
        ranks_result r;
        if (!matrix_run(m, &r, &c, text))
            return;
        is_right = ranks_golden_gradients(s->g, &r, why);
        ranks_result_fini(&r);
    }
    matrix_count(m, is_right, text, why);
}

/* dp, pp, tp given, all that goes with them. */
static void check_mesh(matrix *m, const subject *s, const int mesh[3])
{
    static const char *const recomputes[] = {"none", "selective", "full"};
    for (int i = 0; i < N_PER_MESH; i++) {
        const int schedule = i % N_SCHEDULES, stage = i / N_SCHEDULES % N_STAGES;
        const int rest = i / N_SCHEDULES / N_STAGES;
        const ranks_layout l = {.dp = mesh[0],
                                .pp = mesh[1],
                                .tp = mesh[2],
                                .stage = stage,
                                .schedule = schedules[schedule].name,
                                .chunks = schedules[schedule].chunks,
                                .is_sequence_parallel = rest / N_RECOMPUTES == 1,
                                .recompute = recomputes[rest % N_RECOMPUTES]};
        if ((l.pp == 1 && schedule > 0) || (l.tp == 1 && l.is_sequence_parallel) ||
            l.pp * l.chunks > s->n_layers + 2 || l.tp > s->n_heads)
            continue;
        check_layout(m, s, &l);
    }
}

static void check_meshes(matrix *m, const subject *s)
{
    for (int n = 4; n <= MOST_RANKS; n *= 2) {
        for (int dp = 1; dp <= n; dp *= 2) {
            for (int pp = 1; dp * pp <= n; pp *= 2) {
                const int mesh[3] = {dp, pp, n / dp / pp};
                check_mesh(m, s, mesh);
            }
        }
    }
}

static void check_odd(matrix *m, const odd_model *model, int number)
{
    static const ranks_layout alone = {.dp = 1};
    static const int64_t batches[][2] = {{5, 1}, {7, 2}, {3, 1}, {8, 1}};
    const bool is_sgd = number % 2 == 0;
    ranks_case c;
    ranks_result one;
    char about[64];
    (void)snprintf(about, sizeof(about), "%s %s", model->name, is_sgd ? "sgd" : "adamw");
    ranks_parity_init(&c, m->s, model, is_sgd);
    ranks_case_batches(&c, model->vocab, batches[number % 4][0], RANKS_PARITY_STEPS, 5);
    c.options.layout.micro_batch_size = batches[number % 4][1];
    ranks_case_apply(&c, &alone);
    if (matrix_run(m, &one, &c, about)) {
        const subject s = {.c = &c,
                           .one = &one,
                           .n_layers = model->n_layers,
                           .n_heads = model->n_heads,
                           .about = about};
        check_meshes(m, &s);
        ranks_result_fini(&one);
    }
    ranks_case_fini(&c);
}

/* Of 2 layers and 4 heads each. */
static void check_golden(matrix *m, const char *name)
{
    golden g;
    ranks_case c;
    ranks_golden_init(&c, &g, m->s, name, "input_ids");
    const subject s = {.c = &c, .g = &g, .n_layers = 2, .n_heads = 4, .about = name};
    check_meshes(m, &s);
    ranks_case_fini(&c);
    golden_close(&g);
}

void matrix_hybrid(matrix *m)
{
    static const odd_model *const models[] = {&odd_llama, &odd_tied, &odd_gpt2_dropout, &odd_deep};
    for (int i = 0; i < 4; i++)
        check_odd(m, models[i], i);
    check_golden(m, "gpt2");
    check_golden(m, "llama");
}
