/*
 * A rank that was started with other things than the rest: train, eval, probe and generate all name it, and what differs,
 * before anything is computed or written. Ranks are threads here, so this program's own open() gives one of them another file.
 */
#include "golden.h"
#include "tiny.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/ctx.h"
#include "parallel/compare_start.h"
#include "parallel/ranks.h"
#include "weft/eval.h"
#include "weft/generate.h"
#include "weft/options.h"

#define N_RANKS 3
#define ODD_RANK "rank 1" /* as its thread is called */

/* What the odd rank opens as `asked_for` is `given`; "": nothing is odd. */
static char asked_for[512], given[512];

int open(const char *path, int flags, ...)
{
    char name[32] = ""; /* of the thread; at most 16 bytes */
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    (void)prctl(PR_GET_NAME, name);
    const bool is_odd = strcmp(name, ODD_RANK) == 0 && strcmp(path, asked_for) == 0;
    return openat(AT_FDCWD, is_odd ? given : path, flags, mode);
}

/* DIR/FILE of one folder stands for that of another; file "": the paths themselves. */
static void swap(const char *usual, const char *odd, const char *file)
{
    const char *slash = file[0] != '\0' ? "/" : "";
    (void)snprintf(asked_for, sizeof(asked_for), "%.400s%s%s", usual, slash, file);
    (void)snprintf(given, sizeof(given), "%.400s%s%s", odd, slash, file);
}

typedef struct setup {
    scratch *s;
    char usual[512], eps[512],
        type[512]; /* folders: the model, with another config, with another type */
    char text[512], odd_text[512];
    char batch[512], odd_batch[512];
    char out[512];
    weft_layout_options layout;
} setup;

static weft_dtype one_is_bf16(const char *name)
{
    return strstr(name, "layers.3.mlp.down_proj") != NULL ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
}

static void make(setup *u, void **state)
{
    static char config[1024];
    int64_t ids[3 * 2048];
    memset(u, 0, sizeof(*u));
    u->s = *state;
    (void)snprintf(config, sizeof(config), "%s",
                   tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 260"));
    const tiny_folder usual = {.config = config}, type = {.config = config, .dtype = one_is_bf16};
    tiny_write(u->s, "usual", &usual, u->usual);
    tiny_write(u->s, "type", &type, u->type);
    const tiny_folder eps = {.config = tiny_config(config, "1e-5", "1e-6")};
    tiny_write(u->s, "eps", &eps, u->eps);
    (void)snprintf(u->text, sizeof(u->text), "%s",
                   scratch_file(u->s, "text", "it was the best of times, it was the worst", 42));
    (void)snprintf(
        u->odd_text, sizeof(u->odd_text), "%s",
        scratch_file(u->s, "odd_text", "it was the best of wines, it was the worst", 42));
    (void)snprintf(u->out, sizeof(u->out), "%s", scratch_path(u->s, "out"));
    /* So long that the place where they differ is far from the start of the text that is compared. */
    tiny_ids(ids, 3 * 2048, 260);
    for (int64_t i = 0; i < 3 * 2048; i++)
        ids[i] = i < 3 * 2047 ? ids[i] : 7;
    tiny_batch(u->s, ids, NULL, 96, 64, u->batch);
    (void)rename(u->batch, scratch_path(u->s, "usual_batch"));
    (void)snprintf(u->batch, sizeof(u->batch), "%s", scratch_path(u->s, "usual_batch"));
    ids[3 * 2047 - 3] = 259;
    ids[3 * 2047 - 2] = 258;
    tiny_batch(u->s, ids, NULL, 96, 64, u->odd_batch);
    u->layout = golden_layout("reference", "fp32");
    u->layout.threads_per_rank = 1;
    u->layout.dp = N_RANKS;
}

static weft_status train(setup *u)
{
    const char *data[] = {u->text};
    weft_train_options o;
    weft_train_options_init(&o);
    o.layout = u->layout;
    o.model = u->usual;
    o.data = data;
    o.n_data = 1;
    o.out = u->out;
    o.seq_length = 8;
    o.layout.micro_batch_size = 1;
    o.train_steps = 1;
    return weft_train_run(&o, NULL, NULL);
}

static weft_status evaluate(setup *u)
{
    const char *data[] = {u->text};
    weft_eval_result r;
    weft_eval_options o;
    weft_options_init(WEFT_COMMAND_EVAL, &o);
    o.layout = u->layout;
    o.model = u->usual;
    o.data = data;
    o.n_data = 1;
    return weft_eval_run(&r, &o, NULL, NULL);
}

static weft_status probe(setup *u)
{
    weft_probe_result r;
    const weft_probe_options o = {
        .layout = u->layout, .model = u->usual, .batch = u->batch, .out = u->out};
    return weft_probe_run(&r, &o, NULL);
}

static weft_status generate(setup *u)
{
    const char *ids[] = {"5,6,7", "8"};
    weft_generate_result r;
    weft_generate_options o;
    weft_options_init(WEFT_COMMAND_GENERATE, &o);
    o.layout = u->layout;
    o.model = u->usual;
    o.ids = ids;
    o.n_ids = 2;
    o.max_new_tokens = 2;
    return weft_generate_run(&r, &o, NULL, NULL);
}

typedef weft_status command(setup *u);
static command *const COMMANDS[] = {train, evaluate, probe, generate};
enum { N_COMMANDS = 4 };

/* The odd rank is named with both values; nothing has begun, and nothing lies where the output would. */
static void
expect_named(setup *u, command *run, const char *what, const char *odd, const char *usual)
{
    char text[96];
    (void)snprintf(text, sizeof(text), ODD_RANK ": the %s differs from the other ranks'", what);
    expect_failure(run(u), WEFT_STATUS_MISMATCH, text, odd, usual, NULL);
    assert_false(weft_last_error_is_of_run());
    assert_null(strchr(weft_last_error(), '\n'));
    assert_false(weft_i_file_exists(u->out));
    assert_false(weft_i_dir_exists(u->out));
}

static void test_parallel_compare_start__names_another_config(void **state)
{
    setup u;
    make(&u, state);
    swap(u.usual, u.eps, "config.json");
    for (int i = 0; i < N_COMMANDS; i++)
        expect_named(&u, COMMANDS[i], "config", "1e-6", "1e-5");
}

/* With --dtype given, weights of another type compute in the same one; only their header tells. */
static void test_parallel_compare_start__names_another_header(void **state)
{
    setup u;
    make(&u, state);
    swap(u.usual, u.type, "model.safetensors");
    for (int i = 0; i < N_COMMANDS; i++)
        expect_named(&u, COMMANDS[i], "model header", "3.mlp.down_proj.weight BF16",
                     "3.mlp.down_proj.weight F32");
}

/* Files of equal length: only what is in them tells. */
static void test_parallel_compare_start__names_other_data(void **state)
{
    setup u;
    make(&u, state);
    swap(u.text, u.odd_text, "");
    expect_named(&u, train, "data", "rank 1 has \"", "\"hash\"");
    expect_named(&u, evaluate, "data", "rank 1 has \"", "\"hash\"");
    swap(u.batch, u.odd_batch, "");
    expect_named(&u, probe, "data", " 259 258 ", "rank 0 \"...");
}

static void test_parallel_compare_start__passes_what_is_alike(void **state)
{
    setup u;
    make(&u, state);
    swap("", "", "");
    u.layout.micro_batch_size = 32;
    for (int i = 0; i < N_COMMANDS; i++) {
        expect_ok(COMMANDS[i](&u));
        (void)remove(u.out); /* the next one's output has this name */
        u.out[strlen(u.out) - 1]++;
    }
}

/* ---- the call itself ---- */

typedef struct started {
    const weft_source *source;
    int odd_options, odd_data; /* the rank whose text differs; -1: none */
    int failing;               /* the rank whose texts cannot be made; -1: none */
    atomic_int n_asked, n_mismatch;
} started;

typedef struct rank_texts {
    started *all;
    int rank;
} rank_texts;

static weft_status add_texts(weft_str *options, weft_str *data, const void *user)
{
    static const int32_t ids[] = {5, 6, 7};
    const rank_texts *const t = user;
    (void)atomic_fetch_add(&t->all->n_asked, 1);
    if (t->rank == t->all->failing)
        WEFT_FAIL(WEFT_STATUS_IO, "the text is not there");
    WEFT_TRY(weft_i_str_addf(options, "top_k 4, seed %d", t->rank == t->all->odd_options ? 2 : 1));
    return weft_i_start_add_ids(data, ids, t->rank == t->all->odd_data ? 2 : 3);
}

static weft_status start(void *user, weft_mesh *m)
{
    started *const all = user;
    const rank_texts t = {.all = all, .rank = m->world_rank};
    const weft_status st = weft_i_mesh_compare_start(m, all->source, add_texts, &t);
    (void)atomic_fetch_add(&all->n_mismatch, st == WEFT_STATUS_MISMATCH ? 1 : 0);
    return st;
}

static weft_status start_ranks(started *all, int n)
{
    weft_layout_options o = golden_layout("reference", "");
    weft_layout layout;
    o.threads_per_rank = 1;
    o.dp = n;
    atomic_store(&all->n_asked, 0);
    atomic_store(&all->n_mismatch, 0);
    expect_ok(weft_i_layout_make(&layout, &o));
    return weft_i_ranks_run(&layout, &o, NULL, start, all);
}

static void test_parallel_compare_start__names_options_and_data_of_a_rank(void **state)
{
    const weft_ctx_options options = {.n_threads = 1};
    weft_source source;
    weft_ctx *ctx = NULL;
    char text[64];
    const char *path = scratch_file(*state, "config.json", tiny_llama, strlen(tiny_llama));
    expect_ok(weft_ctx_create(&ctx, &options));
    expect_ok(weft_i_source_open(&source, ctx, path, "")); /* fresh weights */
    started all = {.source = &source, .odd_options = -1, .odd_data = -1, .failing = -1};
    expect_ok(start_ranks(&all, 1));
    assert_int_equal(atomic_load(&all.n_asked), 0);
    expect_ok(start_ranks(&all, N_RANKS));
    assert_int_equal(atomic_load(&all.n_asked), N_RANKS);
    for (int odd = 0; odd < N_RANKS; odd++) {
        all.odd_options = odd;
        (void)snprintf(text, sizeof(text), "rank %d: the options differs", odd);
        expect_failure(start_ranks(&all, N_RANKS), WEFT_STATUS_MISMATCH, text, "seed 2\"",
                       "seed 1\"", NULL);
        assert_int_equal(atomic_load(&all.n_mismatch), N_RANKS);
        all.odd_options = -1;
        all.odd_data = odd;
        (void)snprintf(text, sizeof(text), "rank %d: the data differs", odd);
        expect_failure(start_ranks(&all, N_RANKS), WEFT_STATUS_MISMATCH, text, "\"5 6 \"",
                       "\"5 6 7 \"", NULL);
        all.odd_data = -1;
        all.failing = odd;
        (void)snprintf(text, sizeof(text), "rank %d: the text is not there", odd);
        expect_failure(start_ranks(&all, N_RANKS), WEFT_STATUS_IO, text, NULL);
        all.failing = -1;
    }
    weft_i_source_close(&source, ctx);
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parallel_compare_start__names_another_config,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_parallel_compare_start__names_another_header,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_parallel_compare_start__names_other_data,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_parallel_compare_start__passes_what_is_alike,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(
            test_parallel_compare_start__names_options_and_data_of_a_rank, scratch_setup,
            scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
