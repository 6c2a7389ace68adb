/* All wrappers on one transport, as a mesh stacks them: calls go through unchanged, and each wrapper sees its part. */
#include "test_comm_ranks.h"

#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "comm/wrap/wrap.h"

#define N_CALLS 5
#define LATENCY_SECONDS 0.002

typedef struct stack {
    weft_pace_link link;
    weft_comm *counter, *checked, *c; /* the outermost is c */
} stack;

/* trace(count(check(pace(fault(thread))))) */
static weft_status make_stack(stack *s, test_rank *rank, const weft_fault *fault)
{
    const int me = rank->comm->rank;
    weft_comm *duplicate = NULL;
    *s = (stack){.link = {.latency_s = LATENCY_SECONDS}};
    WEFT_TRY(weft_i_thread_comm_create(&s->c, rank->world, rank->ctx, me, NULL, 0, "dp"));
    WEFT_TRY(weft_i_fault_create(&s->c, s->c, fault));
    WEFT_TRY(weft_i_pace_comm_create(&s->c, s->c, &s->link));
    WEFT_TRY(weft_i_thread_comm_create(&duplicate, rank->world, rank->ctx, me, NULL, 0, "check"));
    WEFT_TRY(weft_i_check_create(&s->c, s->c, duplicate));
    s->checked = s->c;
    WEFT_TRY(weft_i_count_create(&s->c, s->c));
    s->counter = s->c;
    return weft_i_trace_comm_create(&s->c, s->c, NULL);
}

/* ZeRO-3's calls in small: gathers and a reduction on their way at once, a sum that goes on, a ring, a control number. */
static weft_status make_calls(weft_comm *c)
{
    const int n = c->size, right = (c->rank + 1) % n, left = (c->rank + n - 1) % n;
    float part[2], whole[16], grad[16], sum[2] = {100.0f, 200.0f}, from_left = 0.0f;
    int64_t largest = c->rank;
    weft_request request[4];
    memset(request, 0, sizeof(request));
    for (int i = 0; i < 2; i++)
        part[i] = (float)(10 * c->rank + i);
    for (int i = 0; i < 2 * n; i++)
        grad[i] = (float)(i + c->rank);
    const weft_message calls[] = {
        {.op = WEFT_COMM_ALL_GATHER, .send = part, .recv = whole, .n_elems = 2 * n, .tensor = "w"},
        {.op = WEFT_COMM_REDUCE_SCATTER,
         .send = grad,
         .recv = sum,
         .n_elems = 2 * n,
         .is_added = true,
         .tensor = "g"},
        {.op = WEFT_COMM_SEND, .send = part, .n_elems = 1, .peer = right, .tag = 7, .tensor = "a"},
        {.op = WEFT_COMM_RECV,
         .recv = &from_left,
         .n_elems = 1,
         .peer = left,
         .tag = 7,
         .tensor = "a"},
    };
    for (int i = 0; i < 4; i++)
        WEFT_TRY(c->ops->start(c, &calls[i], &request[i]));
    for (int i = 0; i < 4; i++) {
        weft_request *const r = &request[(i + 1) % 4];
        WEFT_TRY(c->ops->wait(c, r));
        if (!(r->started_seconds <= r->ready_seconds && r->ready_seconds <= r->ended_seconds))
            WEFT_FAIL(WEFT_STATUS_INTERNAL, "call %d was started %g, ready %g, over %g", i,
                      r->started_seconds, r->ready_seconds, r->ended_seconds);
    }
    const weft_message control = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_I64,
                                  .reduction = WEFT_REDUCTION_MAX,
                                  .send = &largest,
                                  .recv = &largest,
                                  .n_elems = 1,
                                  .is_host = true,
                                  .tensor = "largest"};
    WEFT_TRY(weft_comm_call(c, &control));
    const float expected =
        100.0f + (float)(n * 2 * c->rank) + (float)(n * (n - 1) / 2); /* 100 + sum of 2 me + r */
    if (whole[2 * n - 1] != (float)(10 * (n - 1) + 1) || sum[0] != expected ||
        from_left != (float)(10 * left) || largest != n - 1)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "got %g, %g (not %g), %g, %lld", (double)whole[2 * n - 1],
                  (double)sum[0], (double)expected, (double)from_left, (long long)largest);
    return WEFT_OK;
}

static weft_status check_counts(const stack *s)
{
    const weft_comm_count all = weft_i_count_get(s->counter, WEFT_COMM_OP_COUNT);
    const uint64_t n = (uint64_t)s->c->size;
    /* gather (n-1) 8; scatter 8 n - 8; send 4; the control number's all_reduce over an even cut of 1: 1 n-1, others 1 */
    const uint64_t bytes = 8 * (n - 1) + 8 * (n - 1) + 4 + (s->c->rank == 0 ? 8 * (n - 1) : 8);
    if (all.n_calls != N_CALLS || all.sent_bytes != bytes)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "%llu calls of %llu bytes, not %llu",
                  (unsigned long long)all.n_calls, (unsigned long long)all.sent_bytes,
                  (unsigned long long)bytes);
    /* Four calls of a link, each of the latency alone. */
    const double moving = weft_i_trace_comm_seconds(s->c).moving;
    if (moving < 4 * LATENCY_SECONDS - 1e-6 || moving > 4 * LATENCY_SECONDS + 1e-6)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "moving for %g s", moving);
    if (weft_i_trace_comm_seconds(s->c).exposed > moving + 1e-9)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "more was exposed than moved");
    return WEFT_OK;
}

static weft_status run_stack(test_rank *rank)
{
    const weft_fault *const fault = rank->user, none = {.kind = WEFT_FAULT_NONE};
    stack s;
    weft_status st = make_stack(&s, rank, fault != NULL && rank->comm->rank == 1 ? fault : &none);
    if (st == WEFT_OK)
        st = make_calls(s.c);
    if (st == WEFT_OK)
        st = check_counts(&s);
    if (st == WEFT_OK)
        st = weft_i_check_end_step(s.checked);
    if (st == WEFT_OK && (s.c->rank != rank->comm->rank || s.c->size != rank->comm->size ||
                          !s.c->ops->is_ordered || strcmp(s.c->axis, "dp") != 0))
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "the stack is not like its transport");
    if (st != WEFT_OK && s.c != NULL)
        s.c->ops->abort(s.c, st, weft_last_error());
    weft_comm_destroy(s.c);
    return st;
}

static void test_comm_wrapper__a_whole_stack_changes_no_result(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n += n < 4 ? 1 : 4)
        run_ranks_ok(n, run_stack, NULL);
}

/* A failure or a delay at each call comes through all of it. */
static void test_comm_wrapper__a_fault_comes_through_the_stack(void **state)
{
    (void)state;
    for (int kind = WEFT_FAULT_FAIL; kind <= WEFT_FAULT_DELAY; kind++) {
        for (uint64_t at = 0; at < N_CALLS; at++) {
            weft_fault fault = {.kind = (weft_fault_kind)kind, .at_call = at, .delay_s = 0.01};
            test_rank rank[MAX_TEST_RANKS];
            run_ranks(rank, 3, 30.0, run_stack, &fault);
            for (int r = 0; r < 3; r++) {
                const weft_status expected = kind == WEFT_FAULT_DELAY ? WEFT_OK
                                             : r == 1                 ? WEFT_STATUS_IO
                                                                      : WEFT_STATUS_REMOTE;
                if (rank[r].st != expected)
                    fail_msg("kind %d at %d, rank %d: %s", kind, (int)at, r, rank[r].message);
            }
        }
    }
}

static uint64_t blocks_taken(const test_rank *rank)
{
    weft_alloc_count own, world;
    weft_i_alloc_counts(rank->ctx->alloc, WEFT_MEM_CONTROL, &own);
    weft_i_alloc_counts(rank->world->alloc, WEFT_MEM_CONTROL, &world);
    return own.n_calls + world.n_calls;
}

/* Nothing is taken after the first step, whichever rank is ahead. */
static weft_status take_no_memory(test_rank *rank)
{
    const weft_fault none = {.kind = WEFT_FAULT_NONE};
    const weft_message barrier = {.op = WEFT_COMM_BARRIER};
    const struct timespec moment = {.tv_nsec = 1000000};
    uint64_t n_before = 0;
    stack s;
    weft_status st = make_stack(&s, rank, &none);
    s.link.latency_s = 0.0;
    for (int step = 0; step < 40 && st == WEFT_OK; step++) {
        if (step % rank->comm->size == rank->comm->rank)
            (void)nanosleep(&moment, NULL);
        st = make_calls(s.c);
        if (st == WEFT_OK)
            st = weft_i_check_end_step(s.checked);
        if (st == WEFT_OK && step == 0)
            st = weft_comm_call(rank->comm, &barrier);
        if (step == 0)
            n_before = blocks_taken(rank);
    }
    if (st == WEFT_OK && blocks_taken(rank) != n_before)
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "%llu blocks were taken later",
                              (unsigned long long)(blocks_taken(rank) - n_before));
    weft_comm_destroy(s.c);
    return st;
}

static void test_comm_wrapper__later_steps_take_no_memory(void **state)
{
    (void)state;
    run_ranks_ok(3, take_no_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_wrapper__a_whole_stack_changes_no_result),
        cmocka_unit_test(test_comm_wrapper__a_fault_comes_through_the_stack),
        cmocka_unit_test(test_comm_wrapper__later_steps_take_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
