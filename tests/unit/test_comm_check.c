/* The check wrapper: each way two ranks' calls can differ is named on every rank, before any data moves. */
#include "test_comm_ranks.h"

#include "base/error.h"
#include "comm/wrap/wrap.h"

typedef enum odd_kind {
    ODD_NOTHING,
    ODD_OP,
    ODD_DTYPE,
    ODD_LENGTH,
    ODD_REDUCTION,
    ODD_ROOT,
    ODD_SPLIT,
    ODD_TENSOR,
    ODD_BARRIER,
    ODD_ADDED,
    ODD_COUNT
} odd_kind;

/* What every rank's message must hold. */
static const char *const texts[ODD_COUNT][2] = {
    [ODD_OP] = {"operations over dp differ on 1 of 3", "rank 1 made call 1 reduce of wte"},
    [ODD_DTYPE] = {"element types over dp differ",
                   "rank 1 made call 1 reduce_scatter of wte (BF16"},
    [ODD_LENGTH] = {"numbers of elements over dp differ",
                    "rank 1 made call 1 reduce_scatter of wte (F32, 5"},
    [ODD_REDUCTION] = {"reductions over dp differ", "rank 1 made call 1"},
    [ODD_ROOT] = {"roots over dp differ",
                  "rank 1 made call 1 broadcast of wte (F32, 6 elements, root 2"},
    [ODD_SPLIT] = {"splits over dp differ", "rank 1 made call 1"},
    [ODD_TENSOR] = {"tensors over dp differ", "rank 1 made call 1 reduce_scatter of wpe"},
    [ODD_ADDED] = {"starts of the sum (from recv, or not) over dp differ", "rank 1 made call 1"},
    [ODD_BARRIER] = {"operations over dp differ", "rank 1 made call 1 barrier"},
};

typedef struct odd_case {
    odd_kind kind;
    bool has_duplicate;
} odd_case;

static weft_status make_calls(weft_comm *c, odd_kind odd, float *recv)
{
    static const int64_t even[3] = {2, 2, 2}, other[3] = {1, 3, 2};
    float send[6] = {1, 2, 3, 4, 5, 6};
    const bool is_odd = c->rank == 1;
    weft_message m = {.op = odd == ODD_ROOT ? WEFT_COMM_BROADCAST : WEFT_COMM_REDUCE_SCATTER,
                      .send = send,
                      .recv = recv,
                      .n_elems = 6,
                      .tensor = "wte"};
    const weft_message barrier = {.op = WEFT_COMM_BARRIER};
    WEFT_TRY(weft_comm_call(c, &barrier));
    if (is_odd) {
        m.op = odd == ODD_OP ? WEFT_COMM_REDUCE : odd == ODD_BARRIER ? WEFT_COMM_BARRIER : m.op;
        m.dtype = odd == ODD_DTYPE ? WEFT_DTYPE_BF16 : m.dtype;
        m.n_elems = odd == ODD_LENGTH ? 5 : m.n_elems;
        m.reduction = odd == ODD_REDUCTION ? WEFT_REDUCTION_MAX : m.reduction;
        m.peer = odd == ODD_ROOT ? 2 : 0;
        m.counts = odd == ODD_SPLIT    ? other
                   : odd == ODD_LENGTH ? NULL
                                       : even; /* even is as good as none */
        m.is_added = odd == ODD_ADDED;
        m.tensor = odd == ODD_TENSOR ? "wpe" : "wte";
    }
    return weft_comm_call(c, &m);
}

static weft_status check_rank(test_rank *rank)
{
    const odd_case *const t = rank->user;
    const int me = rank->comm->rank;
    weft_comm *inner = NULL, *duplicate = NULL, *checked = NULL, *counted = NULL;
    float recv[6] = {-1, -1, -1, -1, -1, -1};
    WEFT_TRY(weft_i_thread_comm_create(&inner, rank->world, rank->ctx, me, NULL, 0, "dp"));
    if (t->has_duplicate)
        WEFT_TRY(
            weft_i_thread_comm_create(&duplicate, rank->world, rank->ctx, me, NULL, 0, "check"));
    WEFT_TRY(weft_i_count_create(&counted, inner));
    WEFT_TRY(weft_i_check_create(&checked, counted, duplicate));
    weft_status st = make_calls(checked, t->kind, recv);
    const float mine = t->kind == ODD_NOTHING ? (float)(3 * (2 * me + 1)) : -1.0f;
    if (recv[0] != mine)
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "recv is %g, not %g", (double)recv[0],
                              (double)mine);
    weft_comm_destroy(checked);
    return st;
}

static void test_comm_check__a_difference_is_named_on_every_rank(void **state)
{
    (void)state;
    for (int kind = ODD_NOTHING; kind < ODD_COUNT; kind++) {
        for (int d = 0; d < 2; d++) {
            odd_case t = {.kind = (odd_kind)kind, .has_duplicate = d == 1};
            test_rank rank[MAX_TEST_RANKS];
            run_ranks(rank, 3, 30.0, check_rank, &t);
            for (int r = 0; r < 3; r++) {
                if (rank[r].st != (kind == ODD_NOTHING ? WEFT_OK : WEFT_STATUS_MISMATCH))
                    fail_msg("kind %d rank %d: %s", kind, r, rank[r].message);
                for (int i = 0; i < 2 && kind != ODD_NOTHING; i++) {
                    if (strstr(rank[r].message, texts[kind][i]) == NULL)
                        fail_msg("kind %d: \"%s\" does not say \"%s\"", kind, rank[r].message,
                                 texts[kind][i]);
                }
            }
        }
    }
}

/* Ranks 1 and 2 of three, with a broadcast of the one where the other adds up. */
static weft_status part_rank(test_rank *rank)
{
    static const int members[] = {1, 2};
    const int me = rank->comm->rank;
    weft_comm *c = NULL, *duplicate = NULL;
    float x = 0;
    if (me == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_thread_comm_create(&c, rank->world, rank->ctx, me, members, 2, "dp"));
    WEFT_TRY(
        weft_i_thread_comm_create(&duplicate, rank->world, rank->ctx, me, members, 2, "check"));
    WEFT_TRY(weft_i_check_create(&c, c, duplicate));
    const weft_message m = {.op = me == 1 ? WEFT_COMM_ALL_REDUCE : WEFT_COMM_BROADCAST,
                            .send = &x,
                            .recv = &x,
                            .n_elems = 1,
                            .tensor = "wte"};
    const weft_status st = weft_comm_call(c, &m);
    weft_comm_destroy(c);
    return st;
}

/* A rank of a group is called by its number among all. */
static void test_comm_check__ranks_of_a_group_are_named_by_the_world(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    (void)state;
    run_ranks(rank, 3, 30.0, part_rank, NULL);
    for (int r = 1; r < 3; r++) {
        if (rank[r].st != WEFT_STATUS_MISMATCH ||
            strstr(rank[r].message, "rank 2 made call 0 broadcast of wte") == NULL ||
            strstr(rank[r].message, "rank 1 made call 0 all_reduce of wte") == NULL)
            fail_msg("rank %d: %s", r, rank[r].message);
    }
}

/* ---- messages sent and received ---- */

typedef struct step_case {
    bool has_duplicate;
    weft_comm_op op; /* of one more message that rank 2 begins, with rank 0; BARRIER: none */
    const char *text;
} step_case;

/* Two messages around the ring, the second the other way. */
static weft_status send_around(weft_comm *c)
{
    float out[2] = {1, 2}, in[2];
    weft_request request[4];
    memset(request, 0, sizeof(request));
    for (int k = 0; k < 2; k++) {
        const int to = (c->rank + (k == 0 ? 1 : c->size - 1)) % c->size;
        const int from = (c->rank + (k == 0 ? c->size - 1 : 1)) % c->size;
        const weft_message send = {
            .op = WEFT_COMM_SEND, .send = &out[k], .n_elems = 1, .peer = to, .tag = k};
        const weft_message recv = {
            .op = WEFT_COMM_RECV, .recv = &in[k], .n_elems = 1, .peer = from, .tag = k};
        WEFT_TRY(c->ops->start(c, &send, &request[2 * k]));
        WEFT_TRY(c->ops->start(c, &recv, &request[2 * k + 1]));
    }
    for (int i = 0; i < 4; i++)
        WEFT_TRY(c->ops->wait(c, &request[i]));
    return WEFT_OK;
}

static weft_status make_steps(weft_comm *c, const step_case *t)
{
    static float x; /* outlives the call that nobody answers */
    weft_request request = {0};
    const weft_message extra = {.op = t->op, .send = &x, .recv = &x, .n_elems = 1, .tag = 5};
    for (int step = 0; step < 3; step++) {
        WEFT_TRY(send_around(c));
        if (step == 1 && c->rank == 2 && t->op != WEFT_COMM_BARRIER)
            WEFT_TRY(c->ops->start(c, &extra, &request));
        WEFT_TRY(weft_i_check_end_step(c));
    }
    return WEFT_OK;
}

static weft_status step_rank(test_rank *rank)
{
    const step_case *const t = rank->user;
    const int me = rank->comm->rank;
    weft_comm *c = NULL, *duplicate = NULL;
    WEFT_TRY(weft_i_thread_comm_create(&c, rank->world, rank->ctx, me, NULL, 0, "pp"));
    if (t->has_duplicate)
        WEFT_TRY(
            weft_i_thread_comm_create(&duplicate, rank->world, rank->ctx, me, NULL, 0, "check"));
    WEFT_TRY(weft_i_check_create(&c, c, duplicate));
    const weft_status st = make_steps(c, t);
    weft_comm_destroy(c);
    return st;
}

static void test_comm_check__a_step_ends_with_as_many_received_as_sent(void **state)
{
    step_case cases[] = {
        {false, WEFT_COMM_BARRIER, ""},
        {false, WEFT_COMM_SEND,
         "rank 2 sent 2 messages to rank 0 over pp in this step, and rank 0 received 1"},
        {false, WEFT_COMM_RECV,
         "rank 0 sent 1 messages to rank 2 over pp in this step, and rank 2 received 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int d = 0; d < 2; d++) {
            test_rank rank[MAX_TEST_RANKS];
            cases[i].has_duplicate = d == 1;
            run_ranks(rank, 3, 30.0, step_rank, &cases[i]);
            for (int r = 0; r < 3; r++) {
                if (rank[r].st != (cases[i].text[0] == '\0' ? WEFT_OK : WEFT_STATUS_MISMATCH) ||
                    strcmp(rank[r].message, cases[i].text) != 0)
                    fail_msg("case %zu, rank %d: %s", i, r, rank[r].message);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_check__a_difference_is_named_on_every_rank),
        cmocka_unit_test(test_comm_check__ranks_of_a_group_are_named_by_the_world),
        cmocka_unit_test(test_comm_check__a_step_ends_with_as_many_received_as_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
