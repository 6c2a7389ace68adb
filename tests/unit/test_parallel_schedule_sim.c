/*
 * Schedules against published figures: lengths and micro-batches in flight of small cases, and every value of tables 5
 * and 6 of arXiv:2401.10241 for 1F1B, ZB-H1, ZB-H2 (exact to the four digits printed) and interleaved 1F1B (within 4 % of
 * the simulated share: the program measured there overlaps a part of its sends, so the simulation is above it).
 */
#include "check.h"

#include "parallel/schedule_sim.h"

#include <math.h>

static weft_alloc *alloc;

static int set_up(void **state)
{
    (void)state;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weft_i_alloc_destroy(alloc);
    return 0;
}

static void simulate(weft_sim *out, weft_schedule_shape shape, weft_sim_times times)
{
    CHECK_OK(weft_i_sim_run(out, alloc, &shape, &times, 1));
}

/* Makespan and in flight, in the units of the case. */
typedef struct small_case {
    weft_schedule_shape shape;
    weft_sim_times times;
    double makespan, span;
    bool is_input; /* in flight until the input gradient */
    int in_flight[8];
} small_case;

static void test_parallel_schedule_sim__small_cases(void **state)
{
    static const small_case cases[] = {
        {{WEFT_SCHEDULE_1F1B, 4, 8, 1}, {1, 1, 1, 0}, 33, 33, false, {4, 3, 2, 1}},
        {{WEFT_SCHEDULE_1F1B, 8, 16, 1}, {1, 1, 1, 0}, 69, 69, false, {8, 7, 6, 5, 4, 3, 2, 1}},
        {{WEFT_SCHEDULE_1F1B, 4, 2, 1}, {1, 1, 1, 0}, 15, 15, false, {2, 2, 2, 1}},
        {{WEFT_SCHEDULE_GPIPE, 4, 8, 1}, {1, 1, 1, 0}, 33, 33, false, {8, 8, 8, 8}},
        {{WEFT_SCHEDULE_NAIVE, 4, 3, 1}, {1, 1, 1, 0}, 36, 36, false, {1, 1, 1, 1}},
        {{WEFT_SCHEDULE_INTERLEAVED, 4, 8, 2}, {1, 1, 1, 0}, 28.5, 28.5, false, {11, 9, 7, 5}},
        {{WEFT_SCHEDULE_INTERLEAVED, 4, 8, 4}, {1, 1, 1, 0}, 26.25, 26.25, false, {19, 17, 15, 13}},
        {{WEFT_SCHEDULE_INTERLEAVED, 8, 16, 2},
         {1, 1, 1, 0},
         58.5,
         58.5,
         false,
         {23, 21, 19, 17, 15, 13, 11, 9}},
        {{WEFT_SCHEDULE_INTERLEAVED, 2, 4, 2}, {1, 1, 1, 0}, 13.5, 13.5, false, {5, 3}},
        {{WEFT_SCHEDULE_ZB_H1, 4, 8, 1}, {1, 1, 1, 0}, 27, 27, false, {4, 4, 4, 4}},
        {{WEFT_SCHEDULE_ZB_H2, 4, 8, 1}, {1, 1, 1, 0}, 27, 24, true, {7, 5, 3, 1}},
        {{WEFT_SCHEDULE_ZB_H2, 8, 24, 1}, {1, 1, 1, 0}, 79, 72, true, {15, 13, 11, 9, 7, 5, 3, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const small_case *c = &cases[i];
        weft_sim sim;
        simulate(&sim, c->shape, c->times);
        if (fabs(sim.makespan - c->makespan) > 1e-9 || fabs(sim.span - c->span) > 1e-9)
            fail_msg("case %zu, %s: makespan %g, span %g, should be %g, %g", i,
                     weft_i_schedule_name(c->shape.kind), sim.makespan, sim.span, c->makespan,
                     c->span);
        for (int r = 0; r < c->shape.n_stages; r++) {
            const int n = c->is_input ? sim.rank[r].in_flight_input : sim.rank[r].in_flight;
            if (n != c->in_flight[r])
                fail_msg("case %zu, %s, rank %d: %d in flight, should be %d", i,
                         weft_i_schedule_name(c->shape.kind), r, n, c->in_flight[r]);
        }
        weft_i_sim_fini(&sim);
    }
}

typedef struct published {
    int p, m;
    weft_sim_times times;
    double one_f_one_b, interleaved;
    int chunks;
    double h1, h2;
} published;

static const published table[] = {
    {8, 24, {18.522, 18.086, 9.337, 0.601}, .2431, .1055, 3, .1585, .1083},
    {8, 32, {18.513, 18.086, 9.331, 0.626}, .1985, .0818, 3, .1242, .0837},
    {8, 64, {18.546, 18.097, 9.321, 0.762}, .1240, .0443, 3, .0674, .0444},
    {8, 24, {29.718, 29.444, 19.927, 0.527}, .2347, .0808, 4, .1323, .0698},
    {8, 32, {29.802, 29.428, 19.530, 0.577}, .1898, .0628, 4, .1045, .0559},
    {8, 64, {29.935, 29.621, 19.388, 0.535}, .1091, .0320, 4, .0554, .0294},
    {16, 48, {11.347, 11.248, 8.132, 0.377}, .2552, .1104, 3, .1397, .0672},
    {16, 64, {11.307, 11.254, 8.101, 0.379}, .2082, .0852, 3, .1088, .0516},
    {16, 128, {11.325, 11.308, 8.109, 0.378}, .1251, .0445, 3, .0576, .0266},
    {32, 96, {10.419, 10.207, 7.715, 0.408}, .2646, .1493, 2, .1421, .0641},
    {32, 128, {10.408, 10.204, 7.703, 0.408}, .2168, .1164, 2, .1106, .0490},
    {32, 256, {10.402, 10.248, 7.698, 0.460}, .1352, .0624, 2, .0594, .0257},
};

static void expect_idle(const published *row, weft_schedule_kind kind, int chunks, double idle)
{
    const bool is_exact = kind != WEFT_SCHEDULE_INTERLEAVED;
    weft_sim sim;
    simulate(&sim, (weft_schedule_shape){kind, row->p, row->m, chunks}, row->times);
    const double off = fabs(sim.idle_of_total - idle);
    if (is_exact ? off > 0.5001e-4 : off > 0.04 * sim.idle_of_total)
        fail_msg("%s, p %d, m %d: idle %.6f of the total, published %.4f",
                 weft_i_schedule_name(kind), row->p, row->m, sim.idle_of_total, idle);
    weft_i_sim_fini(&sim);
}

static void test_parallel_schedule_sim__published_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        expect_idle(&table[i], WEFT_SCHEDULE_1F1B, 1, table[i].one_f_one_b);
        expect_idle(&table[i], WEFT_SCHEDULE_ZB_H1, 1, table[i].h1);
        expect_idle(&table[i], WEFT_SCHEDULE_ZB_H2, 1, table[i].h2);
        expect_idle(&table[i], WEFT_SCHEDULE_INTERLEAVED, table[i].chunks, table[i].interleaved);
    }
}

/* Every schedule ends, runs each pass of each micro-batch and chunk once, and I before W. */
static void check_complete(const weft_sim *sim, weft_schedule_shape shape)
{
    const bool is_split = weft_i_schedule_is_split(shape.kind);
    const int n = shape.n_micro_batches * shape.n_chunks;
    for (int r = 0; r < sim->n_ranks; r++) {
        int count[4] = {0};
        for (int64_t i = 0; i < sim->rank[r].n_events; i++) {
            const weft_action a = sim->rank[r].event[i].action;
            assert_in_range(a.micro_batch, 0, shape.n_micro_batches - 1);
            assert_in_range(a.chunk, 0, shape.n_chunks - 1);
            count[a.kind]++;
        }
        assert_int_equal(count[WEFT_ACTION_FORWARD], n);
        assert_int_equal(count[WEFT_ACTION_BACKWARD], is_split ? 0 : n);
        assert_int_equal(count[WEFT_ACTION_INPUT], is_split ? n : 0);
        assert_int_equal(count[WEFT_ACTION_WEIGHT], is_split ? n : 0);
    }
}

static void test_parallel_schedule_sim__never_deadlocks(void **state)
{
    (void)state;
    for (int kind = 0; kind < WEFT_SCHEDULE_COUNT; kind++) {
        for (int p = 1; p <= 6; p++) {
            for (int m = 1; m <= 14; m++) {
                for (int v = 1; v <= (kind == WEFT_SCHEDULE_INTERLEAVED ? 4 : 1); v++) {
                    const weft_schedule_shape shape = {(weft_schedule_kind)kind, p, m, v};
                    weft_sim sim;
                    simulate(&sim, shape, (weft_sim_times){1, 1, 1, 0.1});
                    check_complete(&sim, shape);
                    weft_i_sim_fini(&sim);
                }
            }
        }
    }
}

static void test_parallel_schedule_sim__refuses(void **state)
{
    (void)state;
    weft_sim sim;
    const weft_sim_times times = {1, 1, 1, 0};
    const weft_schedule_shape chunks = {WEFT_SCHEDULE_1F1B, 4, 8, 2};
    CHECK_FAILS(weft_i_sim_run(&sim, alloc, &chunks, &times, 1), WEFT_STATUS_ARG, "interleaved");
    const weft_schedule_shape none = {WEFT_SCHEDULE_GPIPE, 4, 0, 1};
    CHECK_FAILS(weft_i_sim_run(&sim, alloc, &none, &times, 1), WEFT_STATUS_ARG, "4, 0, 1");
    const weft_schedule_shape interleaved = {WEFT_SCHEDULE_INTERLEAVED, 4, 8, 2};
    CHECK_FAILS(weft_i_sim_run(&sim, alloc, &interleaved, &times, 2), WEFT_STATUS_ARG,
                "2 times were given for 4 stages of 2 chunks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parallel_schedule_sim__small_cases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parallel_schedule_sim__published_tables, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_parallel_schedule_sim__never_deadlocks, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_parallel_schedule_sim__refuses, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
