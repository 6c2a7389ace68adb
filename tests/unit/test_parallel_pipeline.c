/*
 * Pipelines against one rank, each schedule alone at 2, 3 and 4 ranks, on models that divide by nothing; and which of them
 * give the same bits.
 *
 * Untied models add every gradient's micro-batches in order on one rank, whatever the schedule: all schedules are one rank,
 * bit for bit. A tied table is the sum of two sums (tied.c): within the bound, and with --reproducible the same bits.
 * The two copies of the table, as all replicas, are compared after each step (ranks_case.is_watching).
 */
#include "ranks_parity.h"

#define STEPS 10

static const struct {
    const char *name;
    int chunks;
} schedules[] = {{"naive", 1},       {"gpipe", 1}, {"1f1b", 1},
                 {"interleaved", 2}, {"zb-h1", 1}, {"zb-h2", 1}};

#define N_SCHEDULES ((int)WEFT_COUNT_OF(schedules))

static ranks_layout layout_of(int pp, int schedule)
{
    return (ranks_layout){
        .pp = pp, .schedule = schedules[schedule].name, .chunks = schedules[schedule].chunks};
}

/* ---- against one rank ---- */

static void check_alone(scratch *s, int pp, bool is_sgd)
{
    static const odd_model *const models[] = {&odd_llama, &odd_tied, &odd_gpt2_dropout};
    static const char *const recomputes[] = {"none", "selective", "full"};
    for (int i = pp % RANKS_STRIDE; i < N_SCHEDULES; i += RANKS_STRIDE) {
        /* 7 items make at most 7 chunks; the deep model has 9 */
        const bool is_deep = pp * schedules[i].chunks > 7;
        ranks_variant v = {.model = is_deep ? &odd_deep : models[(i + pp + (is_sgd ? 1 : 0)) % 3],
                           .layout = layout_of(pp, i),
                           .n_seqs = 5,
                           .micro_batch = 1};
        v.layout.recompute = recomputes[(i + pp) % 3];
        ranks_parity_check(s, &v, is_sgd);
    }
}

static void test_parallel_pipeline__every_schedule_on_2_3_and_4_ranks(void **state)
{
    for (int pp = 2; pp <= 4; pp++) {
        check_alone(*state, pp, true);
        check_alone(*state, pp, false);
    }
}

/* Fewer micro-batches than stages, last ones smaller, one alone; frozen layers; cuts as asked; as many stages as items. */
static void test_parallel_pipeline__uneven(void **state)
{
    static const ranks_variant variants[] = {
        {&odd_llama, {.pp = 4}, 1, 1},
        {&odd_tied, {.pp = 4, .schedule = "zb-h2"}, 2, 1},
        {&odd_tied, {.pp = 3, .schedule = "interleaved", .chunks = 2}, 2, 1},
        {&odd_tied, {.pp = 4, .schedule = "interleaved", .chunks = 1}, 5, 1},
        {&odd_gpt2_dropout, {.pp = 3, .schedule = "gpipe"}, 5, 2},
        {&odd_gpt2, {.pp = 2, .schedule = "zb-h1"}, 7, 3},
        {&odd_llama, {.pp = 2, .schedule = "interleaved", .chunks = 3}, 5, 1},
        {&odd_llama, {.pp = 7}, 4, 1},
        {&odd_tied, {.pp = 7, .schedule = "zb-h1"}, 3, 1},
        {&odd_llama, {.pp = 3, .stage_layers = "1,5,1"}, 4, 1},
        {&odd_tied, {.pp = 3, .stage_layers = "4,2,1", .schedule = "zb-h2"}, 4, 1},
        {&odd_llama,
         {.pp = 2, .stage_layers = "1,1,4,1", .schedule = "interleaved", .chunks = 2},
         4,
         1},
        {&odd_llama_frozen, {.pp = 3}, 3, 1},
        {&odd_llama_frozen, {.pp = 2, .dp = 2, .schedule = "zb-h1", .stage = 3}, 3, 1},
        {&odd_gpt2_frozen, {.pp = 2, .schedule = "interleaved", .chunks = 2}, 3, 1},
        {&odd_small, {.pp = 6, .schedule = "gpipe"}, 3, 1},
        {&odd_three, {.pp = 2, .dp = 4, .stage = 2}, 5, 1},
        /* ranks that have a micro-batch less, or none */
        {&odd_llama, {.pp = 2, .dp = 3, .stage = 3}, 4, 1},
        {&odd_tied, {.pp = 2, .dp = 4, .stage = 1, .schedule = "gpipe"}, 5, 1},
        {&odd_tied, {.pp = 4, .dp = 2, .stage = 2, .schedule = "zb-h1"}, 1, 1},
        {&odd_tied, {.pp = 2, .dp = 3, .schedule = "interleaved", .chunks = 2}, 1, 1},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(variants); i += RANKS_STRIDE)
        ranks_parity_check(*state, &variants[i], i % 2 == 0);
}

/* ---- the same bits ---- */

static void run(ranks_result *r, ranks_case *c, const ranks_layout *l)
{
    ranks_case_apply(c, l);
    ranks_case_run(r, c);
}

static void check_bits(ranks_case *c, const ranks_result *one, const ranks_layout *l)
{
    ranks_result r;
    char why[256], text[128];
    run(&r, c, l);
    if (!ranks_same_bits(one, &r, why))
        fail_msg("%s %s: %s", c->options.layout.dtype, ranks_layout_text(l, text), why);
    ranks_result_fini(&r);
}

static void test_parallel_pipeline__untied_schedules_are_one_rank(void **state)
{
    static const char *const types[] = {"fp32", "bf16"};
    for (int t = 0; t < 2; t++) {
        const ranks_layout alone = {.dp = 1};
        ranks_case c;
        ranks_result one;
        ranks_parity_init(&c, *state, &odd_llama, false);
        c.options.layout.dtype = types[t];
        ranks_case_batches(&c, odd_llama.vocab, 5, STEPS, 9);
        run(&one, &c, &alone);
        for (int i = t % RANKS_STRIDE; i < 2 * N_SCHEDULES; i += RANKS_STRIDE) {
            ranks_layout l = layout_of(i < N_SCHEDULES ? 2 : 3, i % N_SCHEDULES);
            l.recompute = i % 4 == 1 ? "full" : i % 4 == 2 ? "selective" : "none";
            check_bits(&c, &one, &l);
        }
        ranks_result_fini(&one);
        ranks_case_fini(&c);
    }
}

/* Every (dp, pp, schedule, stage), a tied model and one with dropout; more stages and ranks than micro-batches, too. */
static void test_parallel_pipeline__reproducible_is_one_rank(void **state)
{
    static const odd_model *const models[] = {&odd_tied, &odd_gpt2_dropout, &odd_llama};
    static const int meshes[][2] = {{1, 2}, {1, 3}, {2, 2}, {3, 2}, {2, 3}, {2, 4}};
    int number = 0;
    for (int k = 0; k < 3; k++) {
        const ranks_layout alone = {.dp = 1, .is_reproducible = true};
        ranks_case c;
        ranks_result one;
        ranks_parity_init(&c, *state, models[k], false);
        ranks_case_batches(&c, models[k]->vocab, 5, STEPS, 11);
        run(&one, &c, &alone);
        for (int i = k % RANKS_STRIDE; i < 6 * N_SCHEDULES; i += RANKS_STRIDE) {
            const int *mesh = meshes[i % 6];
            ranks_layout l = layout_of(mesh[1], i / 6);
            if (mesh[1] * l.chunks > 7 || (k == 2 && i % 4 != 0))
                continue;
            l.dp = mesh[0];
            l.stage = number++ % 4;
            l.is_reproducible = true;
            check_bits(&c, &one, &l);
        }
        ranks_result_fini(&one);
        ranks_case_fini(&c);
    }
}

/* 20 steps: the copies are equal after each (is_watching), the loss is one rank's. */
static void test_parallel_pipeline__tied_copies_do_not_drift(void **state)
{
    static const ranks_layout layouts[] = {
        {.pp = 2},
        {.pp = 4, .schedule = "zb-h1"},
        {.pp = 2, .dp = 2, .stage = 1},
        {.pp = 2, .dp = 2, .stage = 3, .schedule = "interleaved", .chunks = 2}};
    const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one, r;
    ranks_parity_init(&c, *state, &odd_gpt2, false);
    ranks_case_batches(&c, odd_gpt2.vocab, 4, RANKS_STEPS, 13);
    run(&one, &c, &alone);
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        run(&r, &c, &layouts[i]);
        for (int k = 0; k < RANKS_STEPS; k++) {
            CHECK_NEAR(r.outcome[k].loss / one.outcome[k].loss, 1.0, 1e-5);
            CHECK_NEAR(r.outcome[k].grad_norm / one.outcome[k].grad_norm, 1.0, 1e-4);
        }
        ranks_result_fini(&r);
    }
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* ---- normalisation ---- */

/* The norm before clipping and the weights are one rank's for any number of stages and micro-batches, under plain SGD. */
static void test_parallel_pipeline__gradients_do_not_depend_on_stages_or_micro_batches(void **state)
{
    static const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one, r;
    char why[256];
    ranks_parity_init(&c, *state, &odd_llama, true);
    ranks_case_batches(&c, odd_llama.vocab, 8, 1, 17);
    c.options.layout.micro_batch_size = 8;
    run(&one, &c, &alone);
    for (int m = 1; m <= 8; m *= 2) {
        for (int pp = 1; pp <= 4; pp *= 2) {
            const ranks_layout l = {.pp = pp};
            c.options.layout.micro_batch_size = 8 / m;
            run(&r, &c, &l);
            CHECK_NEAR(r.outcome[0].grad_norm / one.outcome[0].grad_norm, 1.0, 1e-5);
            CHECK_NEAR(r.outcome[0].loss / one.outcome[0].loss, 1.0, 1e-6);
            if (!ranks_near_sgd(&one, &r, why))
                fail_msg("pp %d, %d micro-batches: %s", pp, m, why);
            ranks_result_fini(&r);
        }
    }
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* ---- what is refused ---- */

static void test_parallel_pipeline__more_stages_than_items_are_refused(void **state)
{
    static const struct {
        ranks_layout layout;
        const char *said;
    } wrong[] = {
        {{.pp = 8}, "8 stages (times chunks) cannot share 7 items"},
        {{.pp = 4, .schedule = "interleaved", .chunks = 2}, "cannot share 7 items"},
        {{.pp = 2, .stage_layers = "3,3"}, "names 2 parts with 6 items"},
        {{.pp = 2, .stage_layers = "1,8"}, "--stage-layers 1,8 is not possible with 7 items"},
        {{.pp = 3, .stage_layers = "3,4"}, "names 2 parts, but there are 3"},
        {{.pp = 2, .schedule = "1f1b", .chunks = 2}, "needs --pp-schedule interleaved"},
    };
    ranks_case c;
    ranks_result r;
    ranks_parity_init(&c, *state, &odd_llama, true);
    ranks_case_batches(&c, odd_llama.vocab, 2, 1, 1);
    for (size_t i = 0; i < WEFT_COUNT_OF(wrong); i++) {
        ranks_case_apply(&c, &wrong[i].layout);
        const weft_status st = ranks_case_try(&r, &c);
        if (st != WEFT_STATUS_LAYOUT || strstr(weft_last_error(), wrong[i].said) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", weft_status_name(st), weft_last_error(),
                     wrong[i].said);
    }
    ranks_case_fini(&c);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_pipeline__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(every_schedule_on_2_3_and_4_ranks),
        RUN(uneven),
        RUN(untied_schedules_are_one_rank),
        RUN(reproducible_is_one_rank),
        RUN(tied_copies_do_not_drift),
        RUN(gradients_do_not_depend_on_stages_or_micro_batches),
        RUN(more_stages_than_items_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
