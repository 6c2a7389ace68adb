/*
 * One call of one rank fails, comes late or is lost, at every call of a run in turn: all ranks end in time, the first cause is
 * named, what was saved is whole, and the run goes on from it to the very bits of a run without a fault.
 *
 * Every case is a process of its own with a limit. WEFT_TEST_ALL=1 tries every call, else a choice of them.
 */
#include "forks.h"
#include "train_case.h"

#include "base/clock.h"
#include "train/checkpoint.h"

#include <stdlib.h>
#include <unistd.h>

#define MOST_CALLS 1000
#define N_STEPS 2
#define AT_ONCE 8
#define LIMIT_SECONDS 60.0
#define BOUND_SECONDS 10.0
#define TIMEOUT_SECONDS 1.0
#define LOST_SECONDS "2.2" /* longer than the timeout and than the others need to notice */
#define LATE_SECONDS "0.05"

/* How a run is laid out, and what it is a run of. */
typedef struct plan {
    const char *name;
    int64_t dp, stage;
    weft_family family;
    bool is_reproducible, is_evaluating;
    const char *recompute;
    const char *strategy;
    int64_t tp; /* 0: 1 */
    bool is_sequence_parallel;
    int64_t pp; /* 0: 1 */
    const char *schedule;
    int64_t chunks;
} plan;

/* Two rounds of micro-batches, in the second of which a rank has none; saves after each step. */
static const plan plans[] = {
    {"ddp 2", 2, 0, WEFT_FAMILY_LLAMA, false, true, "none", "", 0, false, 0, NULL, 0},
    {"ddp 3 reproducible", 3, 0, WEFT_FAMILY_GPT2, true, false, "none", "", 0, false, 0, NULL, 0},
    {"zero1 3", 3, 1, WEFT_FAMILY_LLAMA, false, true, "none", "", 0, false, 0, NULL, 0},
    {"zero1 2", 2, 1, WEFT_FAMILY_GPT2, false, false, "full", "", 0, false, 0, NULL, 0},
    {"zero2 2", 2, 2, WEFT_FAMILY_GPT2, false, true, "none", "", 0, false, 0, NULL, 0},
    {"zero2 3", 3, 2, WEFT_FAMILY_LLAMA, false, false, "selective", "", 0, false, 0, NULL, 0},
    {"zero3 2", 2, 3, WEFT_FAMILY_GPT2, false, true, "none", "", 0, false, 0, NULL, 0},
    {"zero3 3 recompute", 3, 3, WEFT_FAMILY_LLAMA, true, false, "full", "", 0, false, 0, NULL, 0},
    {"data-parallel 3", 3, 0, WEFT_FAMILY_LLAMA, false, true, "none", "data-parallel", 0, false, 0,
     NULL, 0},
    {"tp 2", 1, 0, WEFT_FAMILY_LLAMA, false, true, "none", "", 2, false, 0, NULL, 0},
    {"tp 2 zero3 2", 2, 3, WEFT_FAMILY_GPT2, false, true, "full", "", 2, true, 0, NULL, 0},
    {"pp 2 dp 2", 2, 0, WEFT_FAMILY_GPT2, false, true, "none", "", 0, false, 2, "1f1b", 1},
    {"pp 2 dp 2 zero3", 2, 3, WEFT_FAMILY_LLAMA, false, false, "none", "", 0, false, 2, "zb-h1", 1},
    {"pp 2 dp 2 chunks", 2, 1, WEFT_FAMILY_GPT2, true, true, "none", "", 0, false, 2, "interleaved",
     2},
};

/* What a case found out. */
typedef struct result {
    weft_status st;
    bool is_of_run;
    char message[1024];
    double seconds;
    int n_threads;        /* after the run */
    int64_t last_step;    /* that was reported; 0: none */
    weft_status st_after; /* of the run that goes on */
    char message_after[1024];
    int64_t first_after; /* step of the run that goes on; 0: none was left */
} result;

typedef struct sweep {
    train_case c;
    const plan *plan;
    const char *kind; /* "fail", "delay", "lose" */
    const char *seconds;
    const char *check; /* WEFT_COMM_CHECK */
    double timeout_s;
    int rank;
    int first_call, stride;
    bool is_going_on;
    result *results; /* [MOST_CALLS], shared */
} sweep;

static bool is_all(void)
{
    const char *const text = getenv("WEFT_TEST_ALL");
    return text != NULL && strcmp(text, "1") == 0;
}

/* ---- a case, in its own process ---- */

static int call_of(const sweep *s, int i)
{
    return s->first_call + i * s->stride;
}

static void on_step(void *user, const weft_train_step *step)
{
    int64_t *const steps = user; /* first and last */
    steps[0] = steps[0] == 0 ? step->step : steps[0];
    steps[1] = step->step;
}

static weft_status train(const weft_train_options *o, int64_t steps[2])
{
    const weft_train_callbacks callbacks = {.user = steps, .step = on_step};
    steps[0] = steps[1] = 0;
    return weft_train_run(o, NULL, &callbacks);
}

static void keep(char *out, weft_status st)
{
    (void)snprintf(out, 1024, "%s", st == WEFT_OK ? "" : weft_last_error());
}

static void out_of(const sweep *s, int i, char *out, size_t size)
{
    (void)snprintf(out, size, "%s-%d", s->c.out, i);
}

static void run_case(void *user, int i)
{
    const sweep *const s = user;
    result *const r = &s->results[i];
    char fault[64], out[1100];
    int64_t steps[2];
    weft_train_options o = s->c.options;
    out_of(s, i, out, sizeof(out));
    o.out = out;
    o.layout.comm_timeout = s->timeout_s;
    (void)snprintf(fault, sizeof(fault), "%d:%s:%d:%s", s->rank, s->kind, call_of(s, i),
                   s->seconds);
    if (setenv("WEFT_FAULT", fault, 1) != 0 || setenv("WEFT_COMM_CHECK", s->check, 1) != 0)
        exit(3);
    const double begin = weft_i_clock_seconds();
    r->st = train(&o, steps);
    r->seconds = weft_i_clock_seconds() - begin;
    keep(r->message, r->st);
    r->is_of_run = weft_last_error_is_of_run();
    r->n_threads = forks_count_threads();
    r->last_step = steps[1];
    if (!s->is_going_on || r->st == WEFT_OK)
        return;
    char latest[WEFT_PATH_MAX] = "";
    (void)unsetenv("WEFT_FAULT");
    o.layout.comm_timeout = 120;
    r->st_after = weft_i_checkpoint_latest(s->c.s->alloc, out, latest);
    o.resume = latest[0] != '\0' ? "" : NULL;
    if (r->st_after == WEFT_OK)
        r->st_after = train(&o, steps);
    keep(r->message_after, r->st_after);
    r->first_after = steps[0];
}

static void name_case(void *user, int i, char *out, size_t size)
{
    const sweep *const s = user;
    (void)snprintf(out, size, "%s, check %s, fault %d:%s:%d", s->plan->name, s->check, s->rank,
                   s->kind, call_of(s, i));
}

/* ---- sweeps ---- */

static void use_plan(sweep *s, const plan *p, scratch *dir)
{
    static const char config[] =
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"vocab_size\": 53, "
        "\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"intermediate_size\": 24, \"max_position_embeddings\": 64, "
        "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
        "\"tie_word_embeddings\": false, \"n_embd\": 16, \"n_layer\": 2, \"n_head\": 2, "
        "\"n_positions\": 64, \"resid_pdrop\": 0.1, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";
    char text[1024];
    const bool is_llama = p->family == WEFT_FAMILY_LLAMA;
    train_case_init(&s->c, dir, p->family, 0.0);
    (void)snprintf(text, sizeof(text), config, is_llama ? "LlamaForCausalLM" : "GPT2LMHeadModel",
                   is_llama ? "llama" : "gpt2");
    if (!is_llama) /* tied, as GPT-2 is */
        memcpy(strstr(text, "\"tie_word_embeddings\": false"), "\"tie_word_embeddings\": true ",
               strlen("\"tie_word_embeddings\": true "));
    (void)scratch_file(dir, "config.json", text, strlen(text));
    train_case_out(&s->c, p->name);
    s->plan = p;
    weft_train_options *const o = &s->c.options;
    o->layout.dp = p->dp;
    o->layout.tp = WEFT_MAX(p->tp, 1);
    o->layout.sequence_parallel = p->is_sequence_parallel;
    o->layout.pp = WEFT_MAX(p->pp, 1);
    o->layout.pp_chunks = WEFT_MAX(p->chunks, 1);
    o->layout.pp_schedule = p->schedule != NULL ? p->schedule : "1f1b";
    o->layout.zero_stage = p->stage;
    o->layout.strategy = p->strategy;
    o->layout.reproducible = p->is_reproducible;
    o->layout.recompute = p->recompute;
    o->layout.micro_batch_size = 1;
    o->layout.global_batch_size = 2 * p->dp - 1;
    o->layout.bucket_size_mb = 0.004;
    o->layout.backend = "reference";
    o->seq_length = 8;
    o->train_steps = N_STEPS;
    o->save_interval = 1;
    if (p->is_evaluating) {
        o->eval_interval = 1;
        o->eval_max_tokens = 40;
    }
}

static void run_sweep(const sweep *s, int first, int n)
{
    const forks f = {.run = run_case,
                     .name = name_case,
                     .user = (void *)(uintptr_t)s,
                     .n_at_once = AT_ONCE,
                     .limit_s = LIMIT_SECONDS};
    forks_run(&f, first, n);
}

static const char *case_name(const sweep *s, int i)
{
    static char name[256];
    name_case((void *)(uintptr_t)s, i, name, sizeof(name));
    return name;
}

static void remove_out(const sweep *s, int i)
{
    char out[1100];
    out_of(s, i, out, sizeof(out));
    CHECK_OK(weft_i_dir_remove(out));
}

/* The last checkpoint is that of `right`, a finished run's folder. */
static void check_bits(const sweep *s, int i, const char *right)
{
    char out[1100], a[WEFT_PATH_MAX], b[WEFT_PATH_MAX];
    out_of(s, i, out, sizeof(out));
    (void)snprintf(a, sizeof(a), "%s/checkpoint-%d", out, N_STEPS);
    (void)snprintf(b, sizeof(b), "%s/checkpoint-%d", right, N_STEPS);
    train_case_same_checkpoint(a, b);
}

/* A run without a fault: its folder. A late first call is no fault. */
static void run_right(sweep *s, char *right, size_t size)
{
    sweep calm = *s;
    calm.kind = "delay";
    calm.seconds = "0";
    calm.first_call = 0;
    calm.timeout_s = 120;
    calm.check = "global";
    train_case_out(&calm.c, "right");
    run_sweep(&calm, 0, 1);
    if (s->results[0].st != WEFT_OK)
        fail_msg("%s without a fault: %s", s->plan->name, s->results[0].message);
    assert_int_equal(s->results[0].last_step, N_STEPS);
    out_of(&calm, 0, right, size);
}

/* "OP of TENSOR over AXIS" of the call that a failed case names. */
static void call_text(const sweep *s, int i, char *out, size_t size)
{
    const char *const message = s->results[i].message;
    const char *const open = strchr(message, '(');
    const char *const close = strrchr(message, ')');
    if (open == NULL || close == NULL)
        fail_msg("%s: \"%s\" does not name the call", case_name(s, i), message);
    (void)snprintf(out, size, "%.*s", (int)(close - open - 1), open + 1);
}

/* The text of the calls that were met, in their order: what a lost one is to be called. */
typedef struct calls {
    char text[MOST_CALLS][192];
    bool is_begun[MOST_CALLS];
    int n;
} calls;

static void check_going_on(const sweep *s, int i, const char *right)
{
    const result *const r = &s->results[i];
    if (r->st_after != WEFT_OK)
        fail_msg("%s: going on: %s", case_name(s, i), r->message_after);
    /* At most one save back; with everything done there is nothing left. */
    if (r->first_after != r->last_step && r->first_after != r->last_step + 1 &&
        !(r->last_step <= 1 && r->first_after == 1) &&
        !(r->last_step == N_STEPS && r->first_after == 0))
        fail_msg("%s: after step %d it went on with step %d", case_name(s, i), (int)r->last_step,
                 (int)r->first_after);
    check_bits(s, i, right);
}

static void check_failed(const sweep *s, int i, const char *right, calls *met)
{
    const result *const r = &s->results[i];
    char text[96];
    const size_t n_rank = strlen("rank 0"); /* first of all, even where a caller said more */
    (void)snprintf(text, sizeof(text), "rank %d failed by injection at call %d (", s->rank,
                   call_of(s, i));
    if (r->st != WEFT_STATUS_IO || strncmp(r->message, text, n_rank) != 0 ||
        strstr(r->message, text) == NULL)
        fail_msg("%s: %s \"%s\", not \"%s\"", case_name(s, i), weft_status_name(r->st), r->message,
                 text);
    if (r->seconds > BOUND_SECONDS)
        fail_msg("%s: took %g s to end", case_name(s, i), r->seconds);
    if (r->n_threads != 1)
        fail_msg("%s: left %d threads", case_name(s, i), r->n_threads - 1);
    if (!r->is_of_run && met->n > 0 && met->is_begun[met->n - 1])
        fail_msg("%s: is said to be before the first step", case_name(s, i));
    if (!r->is_of_run && r->last_step > 0)
        fail_msg("%s: step %d was done, and it is not the run's", case_name(s, i),
                 (int)r->last_step);
    met->is_begun[met->n] = r->is_of_run;
    call_text(s, i, met->text[met->n++], sizeof(met->text[0]));
    check_going_on(s, i, right);
}

/* Fails one call after another until a run meets its fault no more. */
static void sweep_failures(sweep *s, const char *right, calls *met)
{
    const int n_most = MOST_CALLS / s->stride;
    bool is_over = false;
    met->n = 0;
    for (int i = 0; i < n_most && !is_over; i += AT_ONCE) {
        run_sweep(s, i, AT_ONCE);
        for (int k = i; k < i + AT_ONCE; k++) {
            if (s->results[k].st == WEFT_OK) {
                is_over = true;
                check_bits(s, k, right);
            } else if (is_over) {
                fail_msg("%s: met a call after the last one", case_name(s, k));
            } else {
                check_failed(s, k, right, met);
            }
            remove_out(s, k);
        }
    }
    assert_true(is_over);
    assert_in_range(met->n * s->stride, 30, MOST_CALLS);
    assert_false(met->is_begun[0]);
    assert_true(met->is_begun[met->n - 1]);
}

/* Late calls change nothing. The first n calls that failures met. */
static void sweep_delays(sweep *s, const char *right, int n)
{
    run_sweep(s, 0, n);
    for (int i = 0; i < n; i++) {
        const result *const r = &s->results[i];
        if (r->st != WEFT_OK)
            fail_msg("%s: %s", case_name(s, i), r->message);
        check_bits(s, i, right);
        remove_out(s, i);
    }
}

/*
 * With two axes a rank that waits over another axis may lose patience first: it misses the silent rank in a call of its own,
 * and perhaps one that waits for it. That rank is named all the same.
 */
static bool is_named(const sweep *s, const result *r)
{
    char number[16], ranks[64] = "";
    (void)snprintf(number, sizeof(number), " %d,", s->rank);
    (void)snprintf(ranks, sizeof(ranks), "%.60s", r->message);
    char *const missing = strstr(ranks, " missing from ");
    if (WEFT_MAX(s->plan->tp, s->plan->pp) < 2 || s->plan->dp < 2 || r->st != WEFT_STATUS_TIMEOUT ||
        missing == NULL)
        return false;
    missing[0] = ',';
    missing[1] = '\0';
    return strncmp(ranks, "rank", 4) == 0 && strstr(ranks, number) != NULL;
}

/*
 * A rank whose SEND was lost goes on, and in the end waits for those that wait for the message, over any axis: a
 * circle, in which the one that has waited longest names its neighbour and the call that this one began last.
 */
static bool is_in_circle(const result *r, const char *op)
{
    return strcmp(op, "send") == 0 && r->st == WEFT_STATUS_TIMEOUT &&
           strncmp(r->message, "rank", 4) == 0 && strstr(r->message, " missing from ") != NULL &&
           strstr(r->message, " last began ") != NULL;
}

/* "all_reduce of wte over dp" in "... missing from all_reduce 7 of wte over dp: ...". */
static void check_lost(const sweep *s, int i, const char *right, const char *call)
{
    const result *const r = &s->results[i];
    char begin[64], op[32];
    const char *const of = strstr(call, " of ");
    (void)snprintf(op, sizeof(op), "%.*s", (int)(of - call), call);
    (void)snprintf(begin, sizeof(begin), "rank %d missing from %s ", s->rank, op);
    char rest[192];
    (void)snprintf(rest, sizeof(rest), "%s: rank ", of);
    if ((r->st != WEFT_STATUS_TIMEOUT || strncmp(r->message, begin, strlen(begin)) != 0 ||
         strstr(r->message, rest) == NULL) &&
        !is_named(s, r) && !is_in_circle(r, op))
        fail_msg("%s: %s \"%s\", not \"%s...%s\"", case_name(s, i), weft_status_name(r->st),
                 r->message, begin, rest);
    if (r->seconds < s->timeout_s || r->seconds > BOUND_SECONDS)
        fail_msg("%s: ended after %g s, the timeout is %g", case_name(s, i), r->seconds,
                 s->timeout_s);
    if (r->n_threads != 1)
        fail_msg("%s: left %d threads", case_name(s, i), r->n_threads - 1);
    check_going_on(s, i, right);
}

static void sweep_lost(sweep *s, const char *right, const calls *met, int step)
{
    for (int i = 0; i * step < met->n; i++)
        assert_non_null(strstr(met->text[i * step], " of "));
    run_sweep(s, 0, (met->n + step - 1) / step);
    for (int i = 0; i * step < met->n; i++) {
        check_lost(s, i, right, met->text[i * step]);
        remove_out(s, i);
    }
}

/* The faults of one rank at a choice of calls, or at all. */
static void sweep_rank(sweep *s, const char *right, size_t number)
{
    static calls met;
    s->stride = is_all() ? 1 : 7; /* odd, since calls often come in pairs */
    s->first_call = is_all() ? 0 : (int)number % s->stride;
    s->kind = "fail";
    s->seconds = "0";
    s->check = s->rank > 0 ? "local" : "global";
    s->timeout_s = 60;
    s->is_going_on = true;
    sweep_failures(s, right, &met);
    s->kind = "delay";
    s->seconds = LATE_SECONDS;
    s->timeout_s = 5;
    sweep_delays(s, right, met.n);
    s->kind = "lose";
    s->seconds = LOST_SECONDS;
    s->check = "local";
    s->timeout_s = TIMEOUT_SECONDS;
    const int step = is_all() ? 1 : (met.n + AT_ONCE - 1) / AT_ONCE; /* they take their time */
    s->stride *= step;
    sweep_lost(s, right, &met, step);
    print_message("%s, rank %d: %d calls failed, %d late, %d lost\n", s->plan->name, s->rank, met.n,
                  met.n, (met.n + step - 1) / step);
}

static void sweep_plan(scratch *dir, size_t number)
{
    const plan *const p = &plans[number];
    const size_t n_bytes = MOST_CALLS * sizeof(result);
    char right[1100];
    sweep s = {.plan = p, .results = forks_share(n_bytes)};
    use_plan(&s, p, dir);
    run_right(&s, right, sizeof(right));
    for (int last = 0; last < 2; last++) {
        s.rank = last != 0 ? (int)(p->dp * WEFT_MAX(p->tp, 1) * WEFT_MAX(p->pp, 1)) - 1 : 0;
        if (is_all() || (size_t)last == number % 2)
            sweep_rank(&s, right, number);
    }
    forks_unshare(s.results, n_bytes);
}

/* ---- a rank that is left behind ---- */

#define LATE_CALLS 8
#define LATE_STRIDE 9
#define STUCK_SECONDS 11 /* longer than the timeout and the 8 s after it */

/* Stands still, is left, and wakes up while the process does something else: no harm is done, and it takes its memory along. */
static void run_late(void *user, int i)
{
    const sweep *const s = user;
    result *const r = &s->results[i];
    const double begin = weft_i_clock_seconds();
    char out[1100];
    int64_t steps[2];
    run_case(user, i);
    (void)unsetenv("WEFT_FAULT");
    weft_train_options o = s->c.options;
    (void)snprintf(out, sizeof(out), "%s-after", s->c.out);
    (void)snprintf(out + strlen(out), sizeof(out) - strlen(out), "-%d", i);
    o.out = out;
    r->st_after = train(&o, steps);
    keep(r->message_after, r->st_after);
    while (forks_count_threads() != 1 && weft_i_clock_seconds() - begin < STUCK_SECONDS + 10)
        continue; /* which waits a second */
    r->n_threads = forks_count_threads();
}

static void test_parallel_faults__a_rank_that_was_left_wakes_up(void **state)
{
    const size_t n_bytes = MOST_CALLS * sizeof(result);
    sweep s = {.plan = &plans[6], .results = forks_share(n_bytes)};
    use_plan(&s, s.plan, *state);
    s.kind = "delay";
    s.seconds = "11";
    s.check = "local";
    s.timeout_s = 0.5;
    s.rank = 1;
    s.first_call = 4;
    s.stride = LATE_STRIDE;
    const forks f = {.run = run_late,
                     .name = name_case,
                     .user = &s,
                     .n_at_once = LATE_CALLS,
                     .limit_s = LIMIT_SECONDS};
    forks_run(&f, 0, LATE_CALLS);
    for (int i = 0; i < LATE_CALLS; i++) {
        const result *const r = &s.results[i];
        if (r->st != WEFT_STATUS_TIMEOUT || strstr(r->message, "rank 1 missing from ") == NULL)
            fail_msg("%s: %s \"%s\"", case_name(&s, i), weft_status_name(r->st), r->message);
        if (r->seconds > BOUND_SECONDS)
            fail_msg("%s: took %g s to end", case_name(&s, i), r->seconds);
        if (r->st_after != WEFT_OK)
            fail_msg("%s: the run after it: %s", case_name(&s, i), r->message_after);
        if (r->n_threads != 1)
            fail_msg("%s: %d threads never ended", case_name(&s, i), r->n_threads - 1);
    }
    forks_unshare(s.results, n_bytes);
}

#define PLAN(number)                                                                               \
    static void test_parallel_faults__plan_##number(void **state)                                  \
    {                                                                                              \
        sweep_plan(*state, number);                                                                \
    }
PLAN(0)
PLAN(1)
PLAN(2)
PLAN(3)
PLAN(4)
PLAN(5)
PLAN(6)
PLAN(7)
PLAN(8)
PLAN(9)
PLAN(10)
PLAN(11)
PLAN(12)
PLAN(13)

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_faults__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plan_0),  TEST(plan_1),  TEST(plan_2),
        TEST(plan_3),  TEST(plan_4),  TEST(plan_5),
        TEST(plan_6),  TEST(plan_7),  TEST(plan_8),
        TEST(plan_9),  TEST(plan_10), TEST(plan_11),
        TEST(plan_12), TEST(plan_13), TEST(a_rank_that_was_left_wakes_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
