/*
 * `weft generate` on several ranks: the text of one rank in every layout, prompts that do not divide, ends at different
 * tokens (all ranks run the same passes), stopping, and memory as planned. That one rank is right is test_infer_generate's
 * and the goldens' business.
 */
#include "golden.h"
#include "tiny.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "infer/decode.h"
#include "parallel/ranks.h"
#include "weft/generate.h"
#include "weft/options.h"

#define MAX_PROMPTS 12
#define MAX_IDS 1600
#define MAX_TEXT 4096

static const char *const PROMPTS[MAX_PROMPTS] = {
    "5,6,7", "1",   "50,49,48,47,46,45,44,43,42,41,40,39,38",
    "5,6,7", "9,9", "2",
    "3,4",   "8",   "11,12,13,14,15,16,17",
    "20",    "21",  "22,23,24,25"};

typedef struct answer {
    int64_t n_prompts; /* ended so far, in order */
    int64_t n_ids[MAX_PROMPTS];
    int32_t ids[MAX_PROMPTS][MAX_IDS];
    weft_finish finish[MAX_PROMPTS];
    char text[MAX_TEXT]; /* a line a prompt */
    int64_t stop_after;  /* polls; 0: never */
    int64_t n_polls;
    pthread_t thread; /* that called first */
    bool is_called, is_elsewhere;
    weft_generate_result result;
} answer;

static void see_thread(answer *a)
{
    a->is_elsewhere =
        a->is_elsewhere || (a->is_called && !pthread_equal(a->thread, pthread_self()));
    a->thread = pthread_self();
    a->is_called = true;
}

static void add_text(answer *a, const char *text, size_t n_bytes)
{
    const size_t n = strlen(a->text);
    (void)snprintf(a->text + n, sizeof(a->text) - n, "%.*s", (int)n_bytes, text);
}

static void on_text(void *user, int64_t prompt, const char *text, size_t n_bytes)
{
    answer *a = user;
    see_thread(a);
    if (prompt == a->n_prompts) /* else out of order: it is missing then */
        add_text(a, text, n_bytes);
}

static void on_done(void *user, const weft_generated *g)
{
    answer *a = user;
    see_thread(a);
    if (g->prompt != a->n_prompts || g->n_ids > MAX_IDS)
        return;
    a->n_ids[g->prompt] = g->n_ids;
    memcpy(a->ids[g->prompt], g->ids, (size_t)g->n_ids * sizeof(int32_t));
    a->finish[g->prompt] = g->finish;
    a->n_prompts++;
    add_text(a, "\n", 1);
}

static bool on_poll(void *user)
{
    answer *a = user;
    see_thread(a);
    return ++a->n_polls > a->stop_after && a->stop_after > 0;
}

static weft_generate_options options_for(const char *folder, size_t n_prompts)
{
    static const char *order[MAX_PROMPTS];
    weft_generate_options o;
    memcpy(order, PROMPTS, sizeof(order));
    weft_options_init(WEFT_COMMAND_GENERATE, &o);
    o.layout = golden_layout("reference", "");
    o.layout.threads_per_rank = 1;
    o.layout.seed = 3;
    o.model = folder;
    o.ids = order;
    o.n_ids = n_prompts;
    o.max_new_tokens = 7;
    o.temperature = 1.0;
    return o;
}

static weft_status run(answer *a, const weft_generate_options *o, bool is_text)
{
    const int64_t stop_after = a->stop_after;
    const weft_generate_callbacks c = {
        .user = a, .text = is_text ? on_text : NULL, .done = on_done, .should_stop = on_poll};
    memset(a, 0, sizeof(*a));
    a->stop_after = stop_after;
    const weft_status st = weft_generate_run(&a->result, o, NULL, &c);
    assert_false(a->is_elsewhere);
    return st;
}

static void expect_same(const answer *a, const answer *b, const char *what)
{
    if (a->n_prompts != b->n_prompts)
        fail_msg("%s: %d prompts ended, not %d", what, (int)a->n_prompts, (int)b->n_prompts);
    for (int64_t i = 0; i < b->n_prompts; i++) {
        const size_t n_bytes = (size_t)b->n_ids[i] * sizeof(int32_t);
        if (a->n_ids[i] != b->n_ids[i] || a->finish[i] != b->finish[i] ||
            memcmp(a->ids[i], b->ids[i], n_bytes) != 0)
            fail_msg("%s: prompt %d has another answer than on one rank", what, (int)i);
    }
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->result.n_new_tokens, b->result.n_new_tokens);
    assert_int_equal(a->result.n_prompts, b->result.n_prompts);
    assert_int_equal(a->result.n_prompt_tokens, b->result.n_prompt_tokens);
}

/* ---- the same text ---- */

static void check_layouts(void **state, const char *config, const char *dtype, size_t n_prompts)
{
    static answer one;
    static answer many;
    char folder[512];
    const tiny_folder f = {.config = config};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder), n_prompts);

    o.layout.dtype = dtype;
    expect_ok(run(&one, &o, true));
    assert_int_equal(one.n_prompts, n_prompts);
    assert_true(strlen(one.text) > 5 * n_prompts);
    for (int64_t dp = 2; dp <= 8; dp += dp < 4 ? 1 : 4) {
        for (int64_t group = 0; group <= 2; group++) {
            for (int64_t stage = 0; stage <= 3; stage += stage == 0 ? 2 : 1) {
                char what[96];
                o.layout.dp = dp;
                o.layout.micro_batch_size = group;
                o.layout.zero_stage = stage;
                o.layout.zero_prefetch = group != 1;
                (void)snprintf(what, sizeof(what), "dp %d, groups of %d, stage %d", (int)dp,
                               (int)group, (int)stage);
                expect_ok(run(&many, &o, true));
                expect_same(&many, &one, what);
            }
        }
    }
    o.layout.zero_stage = 0;
    o.layout.strategy = "data-parallel"; /* nothing of it acts here */
    expect_ok(run(&many, &o, true));
    expect_same(&many, &one, "DataParallel");
}

static const char *with_bytes(const char *config)
{
    return tiny_config(config, "\"vocab_size\": 53", "\"vocab_size\": 300");
}

static void test_infer_generate_ranks__the_text_of_one_rank(void **state)
{
    check_layouts(state, with_bytes(tiny_llama), "", 7);
    check_layouts(state, with_bytes(tiny_gpt2), "", 12);
    check_layouts(state, with_bytes(tiny_llama), "bf16", 5);
}

/* One prompt, two, none that may grow: ranks without work join and end. */
static void test_infer_generate_ranks__fewer_prompts_than_ranks(void **state)
{
    static answer a;
    char folder[512];
    const tiny_folder f = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder), 1);

    for (int64_t i = 0; i < 2 * 4 * 2; i++) {
        o.n_ids = (size_t)(1 + i % 2);
        o.layout.dp = 8;
        o.layout.zero_stage = i / 2 % 4;
        o.max_new_tokens = i / 8 == 0 ? 3 : 0;
        expect_ok(run(&a, &o, false));
        assert_int_equal(a.n_prompts, o.n_ids);
        for (int64_t k = 0; k < a.n_prompts; k++) {
            assert_int_equal(a.n_ids[k], o.max_new_tokens);
            assert_int_equal(a.finish[k], WEFT_FINISH_LENGTH);
        }
        assert_int_equal(a.result.n_forwards, o.max_new_tokens);
    }
}

/* More ids than one message carries: 3 prompts of 1500 on rank 1. */
static void test_infer_generate_ranks__long_answers(void **state)
{
    static answer one;
    static answer many;
    char folder[512];
    const tiny_folder f = {
        .config = "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1,\n"
                  " \"num_attention_heads\": 1, \"intermediate_size\": 8, \"vocab_size\": 31,\n"
                  " \"max_position_embeddings\": 4096, \"eos_token_id\": null}\n"};
    static const char *short_prompts[] = {"1", "2", "3", "4", "5", "6"};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder), 6);

    o.ids = short_prompts;
    o.max_new_tokens = 1500;
    expect_ok(run(&one, &o, false));
    o.layout.dp = 2;
    expect_ok(run(&many, &o, false));
    expect_same(&many, &one, "1500 ids");
}

/* ---- ends at different tokens ---- */

/* What every rank of two did. */
typedef struct lockstep {
    const char *folder;
    weft_generate_options options;
    int64_t n_forwards[2];
    int64_t n_ids[2];
    size_t planned[2], taken[2];
    size_t gathered[2]; /* all_gathers started over the run */
} lockstep;

/* Rank r runs prompt r by itself. */
static weft_status run_decoder(lockstep *c, weft_mesh *mesh, weft_source *source, weft_prompts *p)
{
    const weft_config *config = &source->hf.config;
    const int r = mesh->world_rank;
    weft_decoder_options options = {.sampling = {.temperature = c->options.temperature,
                                                 .top_p = 1.0,
                                                 .seed = (uint64_t)c->options.layout.seed},
                                    .n_ids = config->vocab_size,
                                    .n_seqs = 1};
    weft_decoder *d = NULL;
    weft_delivery delivery;
    weft_generate_result result;
    weft_alloc_count count;
    weft_traffic traffic;
    bool is_stopped = false;

    for (int i = 0; i < config->n_eos; i++)
        options.stop[options.n_stop++] = (int32_t)config->eos_ids[i];
    weft_i_delivery_init(&delivery, p, NULL, NULL);
    weft_status st = weft_i_decoder_create(&d, mesh, source, p, &options, 0);
    if (st == WEFT_OK) {
        weft_i_mesh_traffic_reset(mesh);
        st = weft_i_decoder_run(&is_stopped, d, &p->sequence[r], 1, &delivery);
    }
    if (st == WEFT_OK) {
        weft_i_decoder_times(d, &result);
        weft_i_alloc_total(mesh->ctx->alloc, &count);
        weft_i_mesh_traffic(mesh, WEFT_AXIS_DP, &traffic);
        c->n_forwards[r] = result.n_forwards;
        c->n_ids[r] = p->sequence[r].n_ids - p->sequence[r].n_prompt;
        c->planned[r] = weft_i_decoder_memory(d)->total_bytes;
        c->taken[r] = count.peak_bytes;
        c->gathered[r] = (size_t)traffic.n_calls[WEFT_COMM_ALL_GATHER];
    }
    weft_i_decoder_destroy(d);
    weft_i_delivery_fini(&delivery);
    return st;
}

static weft_status run_lockstep(void *user, weft_mesh *mesh)
{
    lockstep *c = user;
    weft_source source;
    weft_prompts prompts;

    WEFT_TRY(weft_i_source_open(&source, mesh->ctx, c->folder, ""));
    weft_status st = weft_i_prompts_init(&prompts, mesh->ctx, &c->options, &source.hf.config, NULL);
    if (st == WEFT_OK)
        st = run_decoder(c, mesh, &source, &prompts);
    if (st == WEFT_OK)
        weft_i_prompts_fini(&prompts);
    weft_i_source_close(&source, mesh->ctx);
    return st;
}

/* Whether ids of two free answers end prompt 0 at token 2 and prompt 1 at token 5 and nothing earlier. */
static bool is_fit(const answer *a)
{
    const int32_t x = a->ids[0][1];
    const int32_t y = a->ids[1][4];
    if (a->ids[0][0] == x || a->ids[0][0] == y)
        return false;
    for (int i = 0; i < 4; i++) {
        if (a->ids[1][i] == x || a->ids[1][i] == y)
            return false;
    }
    return true;
}

/* E06: ends at tokens 2 and 5 of at most 8 under ZeRO-3: forwards [5, 5], lengths [2, 5]; and memory is as planned. */
static void test_infer_generate_ranks__all_ranks_run_the_same_passes(void **state)
{
    static answer a;
    char folder[512];
    char eos[64];
    const tiny_folder plain = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "plain", &plain, folder), 2);

    o.max_new_tokens = 8;
    do {
        o.layout.seed++;
        expect_ok(run(&a, &o, false));
    } while (!is_fit(&a));
    (void)snprintf(eos, sizeof(eos), "\"eos_token_id\": [%d, %d]", a.ids[0][1], a.ids[1][4]);
    const tiny_folder ending = {.config = tiny_config(tiny_llama, "\"eos_token_id\": null", eos)};
    o.model = tiny_write(*state, "ending", &ending, folder);
    o.layout.dp = 2;
    for (int64_t stage = 0; stage <= 3; stage++) {
        lockstep c = {.folder = folder, .options = o};
        weft_layout layout;
        o.layout.zero_stage = stage;
        c.options.layout.zero_stage = stage;
        expect_ok(run(&a, &o, false));
        assert_int_equal(a.n_ids[0], 2);
        assert_int_equal(a.n_ids[1], 5);
        assert_int_equal(a.finish[0], WEFT_FINISH_EOS);
        assert_int_equal(a.finish[1], WEFT_FINISH_EOS);
        assert_int_equal(a.result.n_forwards, 5);
        assert_int_equal(a.result.n_new_tokens, 7);
        expect_ok(weft_i_layout_make(&layout, &o.layout));
        expect_ok(weft_i_ranks_run(&layout, &o.layout, NULL, run_lockstep, &c));
        for (int r = 0; r < 2; r++) {
            assert_int_equal(c.n_forwards[r], 5);
            assert_int_equal(c.n_ids[r], r == 0 ? 2 : 5);
            assert_int_equal(c.taken[r], c.planned[r]);
            /* 6 layers with weights of their own, a segment each */
            assert_int_equal(c.gathered[r], stage == 3 ? 5 * 6 : 0);
        }
    }
}

/* ---- stopping, failing ---- */

/* Rank 0 alone is asked; everybody stops, and every prompt gets its end. */
static void test_infer_generate_ranks__stops_when_told(void **state)
{
    static answer free_run;
    static answer a;
    char folder[512];
    const tiny_folder f = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder), 7);

    o.max_new_tokens = 40;
    expect_ok(run(&free_run, &o, false));
    for (int i = 0; i < 6; i++) {
        o.layout.dp = 2 + i % 3;
        o.layout.zero_stage = i < 3 ? 0 : 3;
        o.layout.micro_batch_size = 1 + i % 2;
        a.stop_after = 1 + 4 * i;
        expect_ok(run(&a, &o, false));
        assert_int_equal(a.n_prompts, 7);
        int64_t n_stopped = 0;
        for (int64_t k = 0; k < 7; k++) {
            assert_memory_equal(a.ids[k], free_run.ids[k], (size_t)a.n_ids[k] * sizeof(int32_t));
            n_stopped += a.finish[k] == WEFT_FINISH_STOPPED;
            assert_true(a.n_ids[k] <= a.stop_after);
        }
        assert_int_equal(n_stopped, 7);
        assert_int_equal(a.n_polls, a.stop_after + 1);
    }
    a.stop_after = 0;
}

static void poison(const char *name, float *v, int64_t n)
{
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        v[(n / 53) * 9] = NAN; /* only prompts with id 9 see it */
}

/* A rank whose logits are not finite ends all others, which wait for it. */
static void test_infer_generate_ranks__a_failing_rank_ends_all(void **state)
{
    static answer a;
    static const char *prompts[] = {"1", "2", "9"};
    char folder[512];
    const tiny_folder f = {.config = tiny_llama, .edit = poison};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder), 3);

    o.ids = prompts;
    o.layout.dp = 3;
    for (int64_t stage = 0; stage <= 3; stage += 3) {
        o.layout.zero_stage = stage;
        expect_failure(run(&a, &o, false), WEFT_STATUS_NUMERIC, "rank 2", "prompt 2", NULL);
        assert_true(weft_last_error_is_of_run());
    }
}

static void test_infer_generate_ranks__refusals_keep_their_status(void **state)
{
    static answer a;
    static const char *beyond[] = {"1", "53"};
    char folder[512];
    const tiny_folder f = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder), 2);

    o.layout.dp = 4;
    o.ids = beyond;
    expect_failure(run(&a, &o, false), WEFT_STATUS_MISMATCH, "id 53", NULL);
    assert_false(weft_last_error_is_of_run());
    o.n_ids = 1;
    o.layout.micro_batch_size = -1;
    expect_failure(run(&a, &o, false), WEFT_STATUS_ARG, "micro_batch_size -1", NULL);
    o.layout.micro_batch_size = 0;
    o.model = scratch_path(*state, "none");
    expect_failure(run(&a, &o, false), WEFT_STATUS_IO, "none", NULL);
    assert_false(weft_last_error_is_of_run());
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_infer_generate_ranks__##test, scratch_setup,              \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(the_text_of_one_rank),
        RUN(fewer_prompts_than_ranks),
        RUN(long_answers),
        RUN(all_ranks_run_the_same_passes),
        RUN(stops_when_told),
        RUN(a_failing_rank_ends_all),
        RUN(refusals_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
