/* The mesh: places on the axes, groups, traffic, the same mesh dry, and a paced one. */
#include "check.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "parallel/ranks.h"

static weft_layout shape(int dp, int tp, int pp, const char *order)
{
    weft_layout l = {.dp = dp, .tp = tp, .pp = pp, .n_ranks = dp * tp * pp, .trace = ""};
    l.comm_timeout_s = 30;
    (void)snprintf(l.rank_order, sizeof(l.rank_order), "%s", order);
    return l;
}

static weft_layout_options options(void)
{
    weft_layout_options o;
    weft_layout_options_init(&o);
    o.backend = "reference";
    o.threads_per_rank = 1;
    return o;
}

/* Places written out by hand: (dp, tp, pp) of ranks 0 .. 11 of dp 2, tp 3, pp 2. */
static void test_parallel_mesh__ranks_stand_where_the_order_says(void **state)
{
    (void)state;
    static const struct {
        const char *order;
        int place[12][3];
    } cases[] = {
        {"tp-dp-pp",
         {{0, 0, 0},
          {0, 1, 0},
          {0, 2, 0},
          {1, 0, 0},
          {1, 1, 0},
          {1, 2, 0},
          {0, 0, 1},
          {0, 1, 1},
          {0, 2, 1},
          {1, 0, 1},
          {1, 1, 1},
          {1, 2, 1}}},
        {"dp-tp-pp",
         {{0, 0, 0},
          {1, 0, 0},
          {0, 1, 0},
          {1, 1, 0},
          {0, 2, 0},
          {1, 2, 0},
          {0, 0, 1},
          {1, 0, 1},
          {0, 1, 1},
          {1, 1, 1},
          {0, 2, 1},
          {1, 2, 1}}},
        {"pp-dp-tp",
         {{0, 0, 0},
          {0, 0, 1},
          {1, 0, 0},
          {1, 0, 1},
          {0, 1, 0},
          {0, 1, 1},
          {1, 1, 0},
          {1, 1, 1},
          {0, 2, 0},
          {0, 2, 1},
          {1, 2, 0},
          {1, 2, 1}}},
    };
    for (size_t i = 0; i < 3; i++) {
        const weft_layout l = shape(2, 3, 2, cases[i].order);
        for (int r = 0; r < 12; r++) {
            int coord[WEFT_AXIS_COUNT];
            weft_i_mesh_place(&l, r, coord);
            assert_int_equal(coord[WEFT_AXIS_DP], cases[i].place[r][0]);
            assert_int_equal(coord[WEFT_AXIS_TP], cases[i].place[r][1]);
            assert_int_equal(coord[WEFT_AXIS_PP], cases[i].place[r][2]);
        }
    }
}

static void test_parallel_mesh__every_place_has_one_rank(void **state)
{
    (void)state;
    static const char *const orders[] = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp",
                                         "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"};
    static const int shapes[][3] = {{1, 1, 1}, {5, 1, 1}, {2, 3, 4}, {3, 1, 2}, {1, 4, 2}};
    for (size_t o = 0; o < 6; o++) {
        for (size_t s = 0; s < 5; s++) {
            const weft_layout l = shape(shapes[s][0], shapes[s][1], shapes[s][2], orders[o]);
            for (int r = 0; r < l.n_ranks; r++) {
                int coord[WEFT_AXIS_COUNT];
                weft_i_mesh_place(&l, r, coord);
                assert_in_range(coord[WEFT_AXIS_DP], 0, l.dp - 1);
                assert_in_range(coord[WEFT_AXIS_TP], 0, l.tp - 1);
                assert_in_range(coord[WEFT_AXIS_PP], 0, l.pp - 1);
                assert_int_equal(weft_i_mesh_rank_at(&l, coord), r);
            }
        }
    }
}

/* ---- groups ---- */

typedef struct gathered {
    int64_t of[WEFT_AXIS_COUNT][16][16]; /* [axis][rank][place in the group] = world rank */
    int size[WEFT_AXIS_COUNT][16];
    weft_traffic traffic[WEFT_AXIS_COUNT][16], dry_traffic[WEFT_AXIS_COUNT][16];
} gathered;

static weft_status gather_ranks(weft_mesh *m, weft_axis axis, int64_t *out)
{
    weft_comm *const c = m->comm[axis];
    int64_t mine = m->world_rank;
    const weft_message message = {.op = WEFT_COMM_ALL_GATHER,
                                  .dtype = WEFT_DTYPE_I64,
                                  .send = &mine,
                                  .recv = out,
                                  .n_elems = c->size,
                                  .is_host = true,
                                  .tensor = "ranks"};
    if (c->rank != m->coord[axis] || c->size != m->size[axis])
        return WEFT_STATUS_INTERNAL;
    return weft_comm_call(c, &message);
}

static weft_status gather_all(void *user, weft_mesh *m)
{
    gathered *const g = user;
    const weft_ctx_options dry_options = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    weft_ctx *dry_ctx = NULL;
    weft_mesh *dry = NULL;
    int64_t ignored[16] = {0};
    WEFT_TRY(weft_ctx_create(&dry_ctx, &dry_options));
    weft_status st = weft_i_mesh_create_dry(&dry, dry_ctx, m);
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT && st == WEFT_OK; a++) {
        g->size[a][m->world_rank] = m->size[a];
        st = gather_ranks(m, a, g->of[a][m->world_rank]);
        if (st == WEFT_OK)
            st = gather_ranks(dry, a, ignored);
        weft_i_mesh_traffic(m, a, &g->traffic[a][m->world_rank]);
        if (dry != NULL)
            weft_i_mesh_traffic(dry, a, &g->dry_traffic[a][m->world_rank]);
    }
    if (st == WEFT_OK) {
        weft_traffic none;
        weft_i_mesh_traffic_reset(m);
        weft_i_mesh_traffic(m, WEFT_AXIS_DP, &none);
        if (none.n_calls[WEFT_COMM_ALL_GATHER] != 0 ||
            weft_i_mesh_seconds(m, WEFT_AXIS_DP).blocked > 0)
            st = weft_i_error_set(WEFT_STATUS_INTERNAL, "the reset left something");
    }
    weft_i_mesh_destroy(dry);
    weft_ctx_destroy(dry_ctx);
    return st;
}

static void check_groups(const weft_layout *l, const gathered *g)
{
    for (int r = 0; r < l->n_ranks; r++) {
        int coord[WEFT_AXIS_COUNT];
        weft_i_mesh_place(l, r, coord);
        for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++) {
            for (int i = 0; i < g->size[a][r]; i++) {
                int at[WEFT_AXIS_COUNT];
                memcpy(at, coord, sizeof(at));
                at[a] = i;
                assert_int_equal(g->of[a][r][i],
                                 a == WEFT_AXIS_WORLD ? i : weft_i_mesh_rank_at(l, at));
            }
            const weft_traffic *const t = &g->traffic[a][r];
            assert_int_equal(t->n_calls[WEFT_COMM_ALL_GATHER], 1);
            assert_int_equal(t->sent_bytes[WEFT_COMM_ALL_GATHER], 8 * (g->size[a][r] - 1));
            assert_memory_equal(t, &g->dry_traffic[a][r], sizeof(*t));
        }
    }
}

static void test_parallel_mesh__groups_differ_in_one_axis_and_dry_counts_the_same(void **state)
{
    (void)state;
    static const struct {
        int dp, tp, pp;
        const char *order;
    } cases[] = {{2, 2, 2, "tp-dp-pp"},
                 {3, 2, 2, "pp-dp-tp"},
                 {1, 3, 1, "tp-dp-pp"},
                 {4, 1, 1, "tp-dp-pp"},
                 {1, 1, 1, "tp-dp-pp"}};
    for (size_t i = 0; i < 5; i++) {
        const weft_layout l = shape(cases[i].dp, cases[i].tp, cases[i].pp, cases[i].order);
        const weft_layout_options o = options();
        static gathered g;
        memset(&g, 0, sizeof(g));
        CHECK_OK(weft_i_ranks_run(&l, &o, NULL, gather_all, &g));
        check_groups(&l, &g);
    }
}

/* ---- paced ---- */

#define PACED_ELEMS 1000

static weft_status reduce_paced(void *user, weft_mesh *m)
{
    double *const seconds = user;
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_get(m->ctx->alloc, WEFT_MEM_GRADIENTS, PACED_ELEMS * sizeof(float),
                              "gradients", &block));
    const weft_message message = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_F32,
                                  .send = block,
                                  .recv = block,
                                  .n_elems = PACED_ELEMS,
                                  .tensor = "wte"};
    const double begin = weft_i_clock_seconds();
    const weft_status st = weft_comm_call(m->comm[WEFT_AXIS_DP], &message);
    seconds[m->world_rank] = weft_i_clock_seconds() - begin;
    if (m->world_rank == 0)
        seconds[4] = weft_i_mesh_seconds(m, WEFT_AXIS_DP).exposed;
    weft_i_alloc_put(m->ctx->alloc, block);
    return st;
}

static void test_parallel_mesh__a_paced_one_holds_messages_back(void **state)
{
    (void)state;
    /* all_reduce of 4000 bytes over 4 ranks: 2 * 3/4 * 4000 = 6000 sent, at 60 kB/s: 0.1 s, and 0.05 s latency */
    const weft_pace pace = {.latency_s = 0.05, .bytes_per_s = 60e3};
    weft_layout l = shape(4, 1, 1, "tp-dp-pp");
    const weft_layout_options o = options();
    double seconds[5] = {0};
    l.pace = &pace;
    CHECK_OK(weft_i_ranks_run(&l, &o, NULL, reduce_paced, seconds));
    for (int r = 0; r < 4; r++)
        assert_true(seconds[r] >= 0.149 && seconds[r] < 1.0);
    assert_true(seconds[4] >= 0.149 && seconds[4] < 1.0);
    l.pace = NULL;
    CHECK_OK(weft_i_ranks_run(&l, &o, NULL, reduce_paced, seconds));
    for (int r = 0; r < 4; r++)
        assert_true(seconds[r] < 0.149);
}

static void test_parallel_mesh__a_rank_outside_is_refused(void **state)
{
    (void)state;
    const weft_layout l = shape(2, 1, 1, "tp-dp-pp");
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    weft_ctx *ctx = NULL;
    weft_mesh *m = NULL;
    CHECK_OK(weft_ctx_create(&ctx, &o));
    CHECK_FAILS(weft_i_mesh_create(&m, ctx, &l, NULL, 0, NULL), WEFT_STATUS_ARG, "rank 0 of 2");
    CHECK_FAILS(weft_i_mesh_create(&m, ctx, &l, NULL, 2, NULL), WEFT_STATUS_ARG, "rank 2 of 2");
    assert_null(m);
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_mesh__ranks_stand_where_the_order_says),
        cmocka_unit_test(test_parallel_mesh__every_place_has_one_rank),
        cmocka_unit_test(test_parallel_mesh__groups_differ_in_one_axis_and_dry_counts_the_same),
        cmocka_unit_test(test_parallel_mesh__a_paced_one_holds_messages_back),
        cmocka_unit_test(test_parallel_mesh__a_rank_outside_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
