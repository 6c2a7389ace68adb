/*
 * `weft eval` on several ranks: every target once whatever the ranks, the batch and the method. The oracle is one rank with
 * one window a batch, which test_train_evaluate holds to probes of single windows.
 */
#include "golden.h"
#include "tiny.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "weft/eval.h"
#include "weft/options.h"

static const char text[] = "The quick brown fox jumps over the lazy dog, and then it sleeps.\n"
                           "Nobody knows for how long: perhaps until the next line comes..";

typedef struct setup {
    char folder[512];
    char path[512];
    const char *data[1];
    weft_eval_options options;
} setup;

/* The first n_bytes of the text in windows of seq_length. */
static void make(setup *u, void **state, size_t n_bytes, int64_t seq_length)
{
    const tiny_folder f = {
        .config = tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 260")};

    assert_true(n_bytes < sizeof(text));
    (void)snprintf(u->path, sizeof(u->path), "%s", scratch_file(*state, "text", text, n_bytes));
    u->data[0] = u->path;
    weft_options_init(WEFT_COMMAND_EVAL, &u->options);
    u->options.layout = golden_layout("reference", "");
    u->options.layout.threads_per_rank = 1;
    u->options.model = tiny_write(*state, "m", &f, u->folder);
    u->options.data = u->data;
    u->options.n_data = 1;
    u->options.seq_length = seq_length;
}

/* dp 1, 2, 3, 8 x batches 1, 2, 4 and the default x DDP, ZeRO 1 to 3, DataParallel. */
static void check_layouts(setup *u, double bound, const char *what)
{
    static const int64_t sizes[] = {1, 2, 3, 8};
    weft_eval_result one;
    weft_eval_result r;
    weft_eval_options o = u->options;

    o.layout.micro_batch_size = 1;
    expect_ok(weft_eval_run(&one, &o, NULL, NULL));
    for (int i = 0; i < 4 * 4 * 5; i++) {
        o.layout.dp = sizes[i % 4];
        o.layout.micro_batch_size = i / 4 % 4 == 3 ? 4 : i / 4 % 4;
        o.layout.zero_stage = i / 16 % 4;
        o.layout.strategy = i / 16 == 4 ? "data-parallel" : "";
        expect_ok(weft_eval_run(&r, &o, NULL, NULL));
        assert_int_equal(r.n_targets, one.n_targets);
        assert_int_equal(r.n_tokens, one.n_tokens);
        if (!(fabs(r.loss - one.loss) <= bound * one.loss))
            fail_msg("%s: dp %d, batch %d, stage %d: loss %.9f, on one rank %.9f", what,
                     (int)o.layout.dp, (int)o.layout.micro_batch_size, (int)o.layout.zero_stage,
                     r.loss, one.loss);
        assert_true(fabs(r.bits_per_byte - r.loss / log(2.0)) <= 1e-12 * r.bits_per_byte);
    }
}

/* A24: 5 windows, of which the last is short, and other numbers that nothing divides. */
static void test_train_evaluate_ranks__counts_every_target_once(void **state)
{
    static const struct {
        size_t n_bytes;
        int64_t seq_length;
    } sets[] = {{5 * 7 + 1, 7}, {4 * 7 + 1 + 3, 7}, {127, 16}, {2, 5}, {10, 1}};
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        setup u;
        char what[64];
        make(&u, state, sets[i].n_bytes, sets[i].seq_length);
        (void)snprintf(what, sizeof(what), "%d bytes", (int)sets[i].n_bytes);
        check_layouts(&u, 1e-6, what);
    }
}

/*
 * On the reference backend a window's losses do not depend on its batch, and they are added exactly: the same bits with any
 * ranks and any batch.
 */
static void test_train_evaluate_ranks__sums_are_exact(void **state)
{
    setup u;
    make(&u, state, 127, 7);
    check_layouts(&u, 0.0, "exact");
    u.options.layout.dtype = "bf16";
    check_layouts(&u, 0.0, "exact bf16");
}

/* ---- over the stages of a pipeline ---- */

/* Sanitizers make ranks that are many slow: fewer layouts, and times say nothing. */
#ifdef WEFT_SANITIZED
#define STEP 5
#define TRIES 1
#else
#define STEP 1
#define TRIES 6
#endif

/*
 * pp 2, 3, 4 x dp 1, 2 x tp 1, 2 x batches 1, 2, 3 and the default x all schedules: the bits of one rank on the reference
 * backend; with tp, whose row-parallel sums add in another order, within 1e-6.
 */
static void test_train_evaluate_ranks__stages_have_the_loss_of_one_rank(void **state)
{
    static const char *const schedules[] = {"naive",       "gpipe", "1f1b",
                                            "interleaved", "zb-h1", "zb-h2"};
    setup u;
    weft_eval_result one;
    weft_eval_result r;

    make(&u, state, 127, 7);
    u.options.layout.micro_batch_size = 1;
    expect_ok(weft_eval_run(&one, &u.options, NULL, NULL));
    for (int i = 0; i < 3 * 2 * 2 * 4; i += STEP) {
        weft_eval_options o = u.options;
        o.layout.pp = 2 + i % 3;
        o.layout.dp = 1 + i / 3 % 2;
        o.layout.tp = 1 + i / 6 % 2;
        o.layout.micro_batch_size = i / 12;
        o.layout.pp_schedule = schedules[i % 6 == 3 && o.layout.pp == 4 ? 2 : i / 2 % 6];
        if (o.layout.pp == 4 && strcmp(o.layout.pp_schedule, "interleaved") == 0)
            o.layout.pp = 3; /* 6 layers have no 8 chunks */
        o.layout.zero_stage = i % 4;
        o.layout.sequence_parallel = i % 2 == 0;
        expect_ok(weft_eval_run(&r, &o, NULL, NULL));
        assert_int_equal(r.n_targets, one.n_targets);
        const double bound = o.layout.tp > 1 ? 1e-6 * one.loss : 0.0;
        if (!(fabs(r.loss - one.loss) <= bound))
            fail_msg("pp %d, dp %d, tp %d, batch %d, %s: loss %.12f, on one rank %.12f",
                     (int)o.layout.pp, (int)o.layout.dp, (int)o.layout.tp,
                     (int)o.layout.micro_batch_size, o.layout.pp_schedule, r.loss, one.loss);
    }
}

/*
 * A block takes 8 ms: 8 windows by themselves take 8 x 4 x 8 ms = 256 ms on one rank, and as much on two stages of which one
 * waits for the other. Stages that work at the same time need half of it and one window's half more: 144 ms.
 */
static void test_train_evaluate_ranks__stages_work_at_the_same_time(void **state)
{
    const char pace[] = "{\"block\": {\"forward_ms\": 8, \"input_gradient_ms\": 0, "
                        "\"weight_gradient_ms\": 0}}";
    setup u;
    weft_eval_result r;
    double seconds[2] = {1e9, 1e9};

    make(&u, state, 8 * 7 + 1, 7);
    u.options.layout.pace = scratch_file(*state, "pace.json", pace, sizeof(pace) - 1);
    u.options.layout.pp = 2;
    u.options.layout.micro_batch_size = 1;
    for (int i = 0; i < 2 * TRIES; i++) { /* the quickest: others use the machine too */
        u.options.layout.pp_schedule = i % 2 == 0 ? "1f1b" : "interleaved";
        if (seconds[i % 2] < 0.21)
            continue;
        expect_ok(weft_eval_run(&r, &u.options, NULL, NULL));
        assert_int_equal(r.n_targets, 8 * 7);
        seconds[i % 2] = fmin(seconds[i % 2], r.seconds);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(seconds[i] >= 0.128);
        if (!(seconds[i] < 0.21) && TRIES > 1)
            fail_msg("8 windows took %.3f s with %d chunks", seconds[i], 1 + i);
    }
}

/* ---- callbacks ---- */

typedef struct listener {
    pthread_t thread;
    bool is_called, is_elsewhere;
    int64_t n_polls, stop_after; /* 0: never */
    int64_t n_done, n_targets;
    int n_notes;
} listener;

static void see_thread(listener *l)
{
    l->is_elsewhere =
        l->is_elsewhere || (l->is_called && !pthread_equal(l->thread, pthread_self()));
    l->thread = pthread_self();
    l->is_called = true;
}

static bool on_poll(void *user)
{
    listener *l = user;
    see_thread(l);
    return ++l->n_polls > l->stop_after && l->stop_after > 0;
}

static void on_progress(void *user, int64_t n_done, int64_t n_targets)
{
    listener *l = user;
    see_thread(l);
    l->n_done = n_done > l->n_done ? n_done : -1;
    l->n_targets = n_targets;
}

static void on_note(void *user, const char *line)
{
    listener *l = user;
    (void)line;
    see_thread(l);
    l->n_notes++;
}

/* Rank 0 alone is asked and told; what it says stops all. */
static void test_train_evaluate_ranks__rank_0_speaks_for_all(void **state)
{
    setup u;
    weft_eval_result r;

    make(&u, state, 127, 7);
    u.options.layout.dp = 3;
    u.options.layout.micro_batch_size = 2;
    for (int64_t stage = 0; stage <= 3; stage++) {
        listener l = {.n_polls = 0};
        const weft_eval_callbacks c = {
            .user = &l, .progress = on_progress, .note = on_note, .should_stop = on_poll};
        u.options.layout.zero_stage = stage;
        expect_ok(weft_eval_run(&r, &u.options, NULL, &c));
        assert_int_equal(l.n_done, 126);
        assert_int_equal(l.n_targets, 126);
        assert_int_equal(l.n_notes, 1);
        assert_int_equal(l.n_polls, 3); /* 18 windows, 6 in a pass */
        l = (listener){.stop_after = 2};
        expect_ok(weft_eval_run(&r, &u.options, NULL, &c));
        assert_int_equal(l.n_done, 2 * 6 * 7);
        assert_int_equal(r.n_targets, 2 * 6 * 7);
        assert_false(l.is_elsewhere);
    }
}

/* ---- failures ---- */

static void poison(const char *name, float *v, int64_t n)
{
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        v[(n / 260) * 'j'] = NAN; /* it comes once, in the third window */
}

static void test_train_evaluate_ranks__a_failing_rank_ends_all(void **state)
{
    const tiny_folder f = {.config =
                               tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 260"),
                           .edit = poison};
    setup u;
    weft_eval_result r;

    make(&u, state, 127, 7);
    u.options.model = tiny_write(*state, "poisoned", &f, u.folder);
    u.options.layout.micro_batch_size = 1;
    for (int64_t stage = 0; stage <= 3; stage += 3) {
        u.options.layout.dp = 3;
        u.options.layout.zero_stage = stage;
        expect_failure(weft_eval_run(&r, &u.options, NULL, NULL), WEFT_STATUS_NUMERIC, "rank 2",
                       "not finite", NULL);
        assert_true(weft_last_error_is_of_run());
    }
}

static void test_train_evaluate_ranks__refusals_keep_their_status(void **state)
{
    setup u;
    weft_eval_result r;

    make(&u, state, 1, 7);
    u.options.layout.dp = 4;
    expect_failure(weft_eval_run(&r, &u.options, NULL, NULL), WEFT_STATUS_FORMAT, "at least 2",
                   NULL);
    assert_false(weft_last_error_is_of_run());
    make(&u, state, 100, 7);
    u.options.layout.dp = 4;
    u.options.model = scratch_path(*state, "none");
    expect_failure(weft_eval_run(&r, &u.options, NULL, NULL), WEFT_STATUS_IO, "none", NULL);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_train_evaluate_ranks__##test, scratch_setup,              \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(counts_every_target_once),
        RUN(sums_are_exact),
        RUN(stages_have_the_loss_of_one_rank),
        RUN(stages_work_at_the_same_time),
        RUN(rank_0_speaks_for_all),
        RUN(a_failing_rank_ends_all),
        RUN(refusals_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
