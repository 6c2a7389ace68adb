/* One group of the whole product of layouts: `matrix --list` names them, `matrix GROUP` runs one (matrix.h). */
#include "matrix.h"

#include "base/clock.h"

#define SAY_SECONDS 20.0

const odd_model *const matrix_models[MATRIX_MODELS] = {
    &odd_llama,        &odd_tied,        &odd_gpt2,  &odd_gpt2_dropout,
    &odd_llama_frozen, &odd_gpt2_frozen, &odd_small, &odd_three};

typedef struct kind {
    const char *name;
    void (*run)(matrix *m, const odd_model *model);
    int n_models; /* the first ones of the list */
} kind;

static void run_golden(matrix *m, const odd_model *model)
{
    (void)model;
    matrix_golden(m);
}

static void run_hybrid(matrix *m, const odd_model *model)
{
    (void)model;
    matrix_hybrid(m);
}

static const kind kinds[] = {
    {"hybrid", run_hybrid, 0},
    {"bits", matrix_bits, MATRIX_MODELS},
    {"reproducible", matrix_reproducible, MATRIX_MODELS},
    {"strips", matrix_strips, 4},
    {"parity", matrix_parity, MATRIX_MODELS},
    {"golden", run_golden, 0},
    {"formulas", matrix_formulas, MATRIX_MODELS},
    {"resume", matrix_resume, 4},
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- counting ---- */

void matrix_count(matrix *m, bool is_right, const char *text, const char *why)
{
    const double now = weft_i_clock_seconds();
    m->n++;
    if (!is_right) {
        m->n_failed++;
        (void)printf("%s: FAILED: %s: %s\n", m->group, text, why);
    }
    if (now - m->said < SAY_SECONDS)
        return;
    m->said = now;
    (void)printf("%s: %lld combinations, %lld failed, %.0f s\n", m->group, (long long)m->n,
                 (long long)m->n_failed, now - m->began);
    (void)fflush(stdout);
}

bool matrix_run(matrix *m, ranks_result *r, const ranks_case *c, const char *text)
{
    const weft_status st = ranks_case_try(r, c);
    if (st != WEFT_OK)
        matrix_count(m, false, text, weft_last_error());
    return st == WEFT_OK;
}

/* ---- the one group ---- */

static const char *wanted;

static void test_matrix__group(void **state)
{
    matrix m = {.s = *state, .group = wanted, .began = weft_i_clock_seconds()};
    char name[64];
    m.said = m.began;
    for (size_t k = 0; k < N_KINDS; k++) {
        for (int i = 0; i < kinds[k].n_models; i++) {
            (void)snprintf(name, sizeof(name), "%s/%s", kinds[k].name, matrix_models[i]->name);
            if (strcmp(name, wanted) == 0)
                kinds[k].run(&m, matrix_models[i]);
        }
        if (kinds[k].n_models == 0 && strcmp(kinds[k].name, wanted) == 0)
            kinds[k].run(&m, NULL);
    }
    (void)printf("%s: done: %lld combinations, %lld failed, %.0f s\n", m.group, (long long)m.n,
                 (long long)m.n_failed, weft_i_clock_seconds() - m.began);
    (void)fflush(stdout);
    assert_true(m.n > 0);
    assert_int_equal(m.n_failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_matrix__group, scratch_setup, scratch_teardown)};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: matrix --list | matrix GROUP\n");
        return 2;
    }
    wanted = argv[1];
    if (strcmp(wanted, "--list") != 0)
        return cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t k = 0; k < N_KINDS; k++) {
        for (int i = 0; i < kinds[k].n_models; i++)
            (void)printf("%s/%s\n", kinds[k].name, matrix_models[i]->name);
        if (kinds[k].n_models == 0)
            (void)printf("%s\n", kinds[k].name);
    }
    return 0;
}
