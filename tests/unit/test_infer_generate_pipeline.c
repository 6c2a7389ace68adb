/*
 * `weft generate` over the stages of a pipeline: the ids of one rank in every layout, ends at different tokens, stopping,
 * failing, memory as planned, and stages that work at the same time.
 *
 * Oracles: the same call on one rank, which goldens and test_infer_generate hold to transformers; transformers' ids where a
 * model has them. The reference backend computes a row of a product by itself, so the number of rows in a pass does not matter
 * there: logits of one rank and of a pipeline are the same bits, and so are sampled ids. (With tp row-parallel sums add in
 * another order: logits differ in the last bits, and the ids of these models are far enough from a tie.)
 */
#include "generate_golden.h"
#include "generate_ranks.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ctx.h"
#include "infer/groups.h"
#include "weft/generate.h"

/* Thread sanitizers see locks of oneDNN's as races, and times say nothing under them. */
#ifdef WEFT_SANITIZED
#define FAST_BACKEND "reference"
#define TRIES 1
#else
#define FAST_BACKEND "cpu"
#define TRIES 6
#endif

#define N_PROMPTS 9

/* ---- the same ids ---- */

/* pp 2, 3, 4 x dp 1, 2 x tp 1, 2, greedy and sampled, groups of prompts, ZeRO stages. */
static void check_layouts(void **state, const char *config, const char *dtype)
{
    static generate_answer one;
    static generate_answer many;
    weft_generate_options o = generate_case_options(*state, config, N_PROMPTS);

    o.layout.dtype = dtype;
    for (int is_drawn = 0; is_drawn < 2; is_drawn++) {
        o.temperature = is_drawn == 1 ? 1.0 : 0.0;
        o.layout.pp = o.layout.dp = o.layout.tp = 1;
        o.layout.micro_batch_size = 0;
        o.layout.zero_stage = 0;
        expect_ok(generate_case_run(&one, &o, false));
        assert_int_equal(one.n_prompts, N_PROMPTS);
        for (int i = 0; i < 3 * 2 * 2; i++) {
            char what[96];
            o.layout.pp = 2 + i % 3;
            o.layout.dp = 1 + i / 3 % 2;
            o.layout.tp = 1 + i / 6;
            o.layout.micro_batch_size = i % 5 == 4 ? 0 : 1 + i % 5;
            o.layout.zero_stage = o.layout.dp > 1 ? 3 * (i % 2) : 0;
            (void)snprintf(what, sizeof(what), "pp %d, dp %d, tp %d, %d together, %s",
                           (int)o.layout.pp, (int)o.layout.dp, (int)o.layout.tp,
                           (int)o.layout.micro_batch_size, is_drawn == 1 ? "drawn" : "greedy");
            expect_ok(generate_case_run(&many, &o, false));
            generate_case_same(&many, &one, what);
        }
    }
}

static void test_infer_generate_pipeline__the_ids_of_one_rank_llama(void **state)
{
    check_layouts(state, tiny_llama, "");
}

static void test_infer_generate_pipeline__the_ids_of_one_rank_gpt2(void **state)
{
    check_layouts(state, tiny_gpt2, "");
}

/* What acts on training alone is taken and changes nothing; chunks and their cut too. */
static void test_infer_generate_pipeline__schedules_change_nothing(void **state)
{
    static const struct {
        const char *schedule;
        int64_t n_chunks;
        const char *stage_layers, *rank_order;
    } flags[] = {{"naive", 1, "", "pp-dp-tp"},       {"gpipe", 1, "2,4", "dp-pp-tp"},
                 {"interleaved", 2, "", "pp-tp-dp"}, {"interleaved", 3, "1,1,1,1,1,1", "tp-pp-dp"},
                 {"zb-h1", 1, "5,1", "dp-tp-pp"},    {"zb-h2", 1, "1,5", "tp-dp-pp"}};
    static generate_answer one;
    static generate_answer many;
    weft_generate_options o = generate_case_options(*state, tiny_llama, 5);

    expect_ok(generate_case_run(&one, &o, false));
    o.layout.pp = 2;
    o.layout.dp = 2;
    o.layout.tp = 2;
    o.layout.sequence_parallel = true;
    o.layout.recompute = "full";
    o.layout.zero_stage = 1;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        o.layout.pp_schedule = flags[i].schedule;
        o.layout.pp_chunks = flags[i].n_chunks;
        o.layout.stage_layers = flags[i].stage_layers;
        o.layout.rank_order = flags[i].rank_order;
        expect_ok(generate_case_run(&many, &o, false));
        generate_case_same(&many, &one, flags[i].schedule);
    }
}

/* Every layer a stage of its own: one without a block has no cache, and the last has the head alone. */
static void test_infer_generate_pipeline__a_stage_a_layer(void **state)
{
    static generate_answer one;
    static generate_answer many;
    weft_generate_options o = generate_case_options(*state, tiny_gpt2, N_PROMPTS);

    expect_ok(generate_case_run(&one, &o, false));
    o.layout.pp = 6;
    expect_ok(generate_case_run(&many, &o, false));
    generate_case_same(&many, &one, "6 stages");
}

/* One prompt, two, none that may grow: fewer than stages and than ranks. */
static void test_infer_generate_pipeline__fewer_prompts_than_stages(void **state)
{
    static generate_answer one;
    static generate_answer a;
    weft_generate_options o = generate_case_options(*state, tiny_llama, 1);

    for (int i = 0; i < 2 * 2 * 3; i++) {
        o.n_ids = (size_t)(1 + i % 2);
        o.max_new_tokens = i / 2 % 2 == 0 ? 4 : 0;
        o.layout.pp = o.layout.dp = 1;
        expect_ok(generate_case_run(&one, &o, false));
        o.layout.pp = 2 + i / 4;
        o.layout.dp = 1 + i / 4;
        o.layout.zero_stage = i / 4 == 2 ? 3 : 0;
        expect_ok(generate_case_run(&a, &o, false));
        generate_case_same(&a, &one, "few");
        o.layout.zero_stage = 0;
    }
}

/* transformers' ids, on the backend that is used. */
static void check_golden(void **state, const char *model)
{
    golden g;
    static generate_answer a;
    golden_open(&g, *state, model, "golden.safetensors");
    weft_generate_options o = generate_golden_options(&g, FAST_BACKEND, 3);

    o.layout.threads_per_rank = 1;
    for (int i = 0; i < 3; i++) {
        o.layout.pp = 2 + i % 2;
        o.layout.tp = 1 + i / 2;
        expect_ok(generate_case_run(&a, &o, false));
        generate_golden_same(&a, &g, 3, "on stages");
    }
    golden_close(&g);
}

static void test_infer_generate_pipeline__the_ids_of_transformers(void **state)
{
    static const char *const models[] = {"gpt2",      "gpt2_odd",    "llama",
                                         "llama_odd", "llama3_rope", "rope_dynamic"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        check_golden(state, models[i]);
}

/* ---- ends at different tokens ---- */

/* Ids that came in the middle of answers end them: groups lose sequences at different times and share out what is left. */
static void test_infer_generate_pipeline__ends_at_different_tokens(void **state)
{
    static generate_answer free_run;
    static generate_answer one;
    static generate_answer many;
    char folder[512];
    char eos[96];
    weft_generate_options o = generate_case_options(*state, tiny_llama, N_PROMPTS);

    o.max_new_tokens = 24;
    expect_ok(generate_case_run(&free_run, &o, false));
    (void)snprintf(eos, sizeof(eos), "\"eos_token_id\": [%d, %d, %d, %d]", free_run.ids[0][1],
                   free_run.ids[1][4], free_run.ids[4][9], free_run.ids[7][0]);
    const tiny_folder ending = {.config = tiny_config(tiny_llama, "\"eos_token_id\": null", eos)};
    o.model = tiny_write(*state, "ending", &ending, folder);
    expect_ok(generate_case_run(&one, &o, false));
    int n_lengths = 0;
    bool is_seen[GENERATE_IDS_MOST] = {false};
    for (int i = 0; i < N_PROMPTS; i++) {
        n_lengths += is_seen[one.n_ids[i]] ? 0 : 1;
        is_seen[one.n_ids[i]] = true;
    }
    assert_true(n_lengths >= 4);
    for (int i = 0; i < 3 * 2 * 3; i++) {
        o.layout.pp = 2 + i % 3;
        o.layout.dp = 1 + i / 3 % 2;
        o.layout.micro_batch_size = i / 6 == 0 ? 0 : 2 + i / 6;
        o.layout.zero_stage = i % 2 == 1 ? 3 : 0;
        expect_ok(generate_case_run(&many, &o, false));
        generate_case_same(&many, &one, "ending");
    }
}

/* Groups by hand: who leaves, who moves, and what the cache's rows are then. */
static void test_infer_generate_pipeline__groups_share_out_what_is_left(void **state)
{
    weft_ctx_options c = {.n_threads = 1};
    weft_ctx *ctx = NULL;
    weft_groups g;
    weft_sequence s[7];
    float rows[7] = {0, 1, 2, 3, 4, 5, 6};
    weft_kv whole = {.k = weft_view_make(rows, WEFT_DTYPE_F32, 7, 1),
                     .v = weft_view_make(rows, WEFT_DTYPE_F32, 0, 1),
                     .capacity = 1};
    (void)state;
    whole.v.data = NULL;
    expect_ok(weft_ctx_create(&ctx, &c));
    weft_kv_cache cache = {.ctx = ctx, .whole = &whole, .n_list = 1, .n_seqs = 7, .capacity = 1};
    expect_ok(weft_i_groups_init(&g, ctx->alloc, 7, 3));
    assert_int_equal(g.capacity, 3);
    assert_int_equal(g.group[1].first, 3);
    assert_int_equal(g.group[2].capacity, 2);
    memset(s, 0, sizeof(s));
    for (int i = 0; i < 7; i++) {
        weft_group *of = &g.group[i < 3 ? 0 : i < 5 ? 1 : 2];
        s[i].n_ids = 2; /* one row in the cache */
        of->active[of->n_active++] = &s[i];
    }
    s[0].is_done = s[3].is_done = s[4].is_done = s[5].is_done = true;
    for (int i = 0; i < 3; i++)
        expect_ok(weft_i_group_leave(&g.group[i], &cache));
    assert_int_equal(weft_i_groups_active(&g), 3);
    assert_ptr_equal(g.group[0].active[0], &s[2]);
    assert_ptr_equal(g.group[2].active[0], &s[6]);
    expect_ok(weft_i_groups_balance(&g, 0, &cache)); /* 2, 0, 1 -> 1, 1, 1 */
    for (int i = 0; i < 3; i++)
        assert_int_equal(g.group[i].n_active, 1);
    assert_ptr_equal(g.group[1].active[0], &s[1]);
    assert_true(rows[0] == 2 && rows[3] == 1 && rows[5] == 6);
    expect_ok(weft_i_groups_balance(&g, 1, &cache));
    assert_int_equal(g.group[1].n_active, 1);
    weft_i_groups_fini(&g);
    weft_ctx_destroy(ctx);
}

/* ---- stages that work at the same time ---- */

/*
 * A block takes 8 ms wherever it is. One sequence has the two stages one after the other: 32 ms a token. Two sequences in two
 * groups: each stage has one while the other has the other, so both get their tokens in the time of one; one after another
 * it would be twice that.
 */
static void test_infer_generate_pipeline__keeps_stages_busy(void **state)
{
    static generate_answer a;
    const char pace[] = "{\"block\": {\"forward_ms\": 8, \"input_gradient_ms\": 0, "
                        "\"weight_gradient_ms\": 0}}";
    weft_generate_options o = generate_case_options(*state, tiny_llama, 1);
    double seconds[3] = {0};

    o.layout.pace = scratch_file(*state, "pace.json", pace, sizeof(pace) - 1);
    o.layout.pp = 2;
    o.max_new_tokens = 8;
    for (size_t i = 0; i < 2 * TRIES; i++) { /* the quickest: others use the machine too */
        const size_t n = 1 + i % 2;
        if (i > 2 && seconds[2] < 1.5 * seconds[1])
            break;
        o.n_ids = n;
        expect_ok(generate_case_run(&a, &o, false));
        const double s = a.result.prompt_seconds + a.result.new_seconds;
        seconds[n] = i < 2 ? s : fmin(seconds[n], s);
    }
    assert_true(seconds[1] >= 8 * 4 * 0.008);
    if (!(seconds[2] < 1.5 * seconds[1]) && TRIES > 1)
        fail_msg("one sequence took %.3f s, two took %.3f s", seconds[1], seconds[2]);
}

/* ---- memory ---- */

/* Planned is taken on every rank; a stage has the cache of its own blocks; messages are those of the file comment. */
static void test_infer_generate_pipeline__memory_and_traffic_as_planned(void **state)
{
    generate_ranks c = {.options = generate_case_options(*state, tiny_llama, 4)};

    c.options.layout.pp = 3;
    c.options.layout.tp = 2;
    c.options.layout.stage_layers = "1,3,2";
    generate_ranks_run(&c);
    for (int r = 0; r < 6; r++) {
        const generate_rank *k = &c.rank[r];
        const int stage = r / 2; /* tp-dp-pp */
        const int64_t n_blocks = stage == 0 ? 0 : stage == 1 ? 3 : 1;
        /* 4 sequences of 13 + 7 - 1 tokens, keys and values, one kv head of 8 in float32 */
        assert_int_equal(k->cache_bytes, n_blocks * 4 * 19 * 2 * 8 * 4);
        assert_int_equal(k->taken, k->planned);
        assert_int_equal(k->n_blocks, 0);
        /*
         * Rows of the stream: 3 + 1 + 13 + 3 of prompts, 6 more tokens of 4 sequences. Groups of 2, 1 and 1, a word of 1 + 2
         * ids each turn: 4 for prompts, 1 that there are no more, 3 * 6 for tokens, 3 until all groups are known to be empty.
         */
        const uint64_t n_outputs = (20 + 6 * 4) * 32 * 4, n_words = (4 + 1 + 18 + 3) * 3 * 4;
        assert_int_equal(k->traffic[WEFT_AXIS_PP].sent_bytes[WEFT_COMM_SEND],
                         stage < 2 ? n_outputs + n_words : (4 + 4 * 6) * 4);
    }
}

/* ---- stopping, failing ---- */

/* Rank 0 alone is asked; everybody stops, and every prompt gets its end and no id that a free run has not. */
static void test_infer_generate_pipeline__stops_when_told(void **state)
{
    static generate_answer free_run;
    static generate_answer a;
    weft_generate_options o = generate_case_options(*state, tiny_llama, 7);

    o.max_new_tokens = 40;
    expect_ok(generate_case_run(&free_run, &o, false));
    for (int i = 0; i < 12; i++) {
        o.layout.pp = 2 + i % 3;
        o.layout.dp = 1 + i / 6;
        o.layout.micro_batch_size = i / 3 % 2 == 0 ? 0 : 2;
        a.stop_after = 1 + 3 * i;
        expect_ok(generate_case_run(&a, &o, false));
        assert_int_equal(a.n_prompts, 7);
        assert_true(generate_case_stopped(&a, &free_run) > 0);
    }
    a.stop_after = 0;
}

/* The last stage finds logits that are not finite, and ends all others, which wait for it. */
static void test_infer_generate_pipeline__a_failing_rank_ends_all(void **state)
{
    static generate_answer a;
    weft_generate_options o = generate_case_poisoned(*state);

    for (int i = 0; i < 3; i++) {
        o.layout.pp = 2 + i;
        o.layout.dp = 1 + i % 2;
        expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_NUMERIC, "prompt 2", NULL);
        assert_true(weft_last_error_is_of_run());
    }
}

/*
 * A call of a rank fails, is late, or is lost: the failing rank is named and all end, late ones change nothing, and what is
 * lost is waited for till the deadline and not mistaken for the next of its kind.
 */
static void test_infer_generate_pipeline__faults_end_all_or_change_nothing(void **state)
{
    static generate_answer one;
    static generate_answer a;
    char fault[64];
    char rank[32];
    weft_generate_options o = generate_case_options(*state, tiny_llama, 4);

    expect_ok(generate_case_run(&one, &o, false));
    o.layout.pp = 3;
    o.layout.comm_timeout = 0.3;
    for (int i = 0; i < 3 * 14; i++) {
        const int call = 4 + i / 3 * 2; /* those before are the start's */
        (void)snprintf(fault, sizeof(fault), "%d:fail:%d", i % 3, call);
        (void)snprintf(rank, sizeof(rank), "rank %d failed by injection", i % 3);
        assert_int_equal(setenv("WEFT_FAULT", fault, 1), 0);
        expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_IO, rank, NULL);
        assert_true(weft_last_error_is_of_run());
        (void)snprintf(fault, sizeof(fault), "%d:delay:%d:0.002", i % 3, call);
        assert_int_equal(setenv("WEFT_FAULT", fault, 1), 0);
        expect_ok(generate_case_run(&a, &o, false));
        generate_case_same(&a, &one, fault);
    }
    for (int i = 0; i < 6; i++) { /* a turn's sends of the first stage, of the second */
        (void)snprintf(fault, sizeof(fault), "%d:lose:%d:0.7", i / 3,
                       i / 3 == 0 ? 1 + i % 3 : 3 + i % 3);
        assert_int_equal(setenv("WEFT_FAULT", fault, 1), 0);
        const weft_status st = generate_case_run(&a, &o, false);
        if (st == WEFT_OK)
            generate_case_same(&a, &one, fault); /* a RECV that came late in time */
        else if (strstr(weft_last_error(), "missing") == NULL)
            fail_msg("%s: %s", fault, weft_last_error());
    }
    assert_int_equal(unsetenv("WEFT_FAULT"), 0);
}

static void test_infer_generate_pipeline__refusals_keep_their_status(void **state)
{
    static generate_answer a;
    static const char *beyond[] = {"1", "53"};
    weft_generate_options o = generate_case_options(*state, tiny_llama, 2);

    o.layout.pp = 7;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_LAYOUT, "7", NULL);
    assert_false(weft_last_error_is_of_run());
    o.layout.pp = 2;
    o.ids = beyond;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_MISMATCH, "id 53", NULL);
    assert_false(weft_last_error_is_of_run());
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_infer_generate_pipeline__##test, scratch_setup,           \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(the_ids_of_one_rank_llama),
        RUN(the_ids_of_one_rank_gpt2),
        RUN(schedules_change_nothing),
        RUN(a_stage_a_layer),
        RUN(fewer_prompts_than_stages),
        RUN(the_ids_of_transformers),
        RUN(ends_at_different_tokens),
        RUN(groups_share_out_what_is_left),
        RUN(keeps_stages_busy),
        RUN(memory_and_traffic_as_planned),
        RUN(stops_when_told),
        RUN(a_failing_rank_ends_all),
        RUN(faults_end_all_or_change_nothing),
        RUN(refusals_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
