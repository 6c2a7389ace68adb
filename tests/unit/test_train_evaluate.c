/*
 * `weft eval`: every target once, nothing of a batch in a score, bytes counted, short and empty data.
 * The oracle is `weft probe` on the windows, one by one.
 */
#include "golden.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weft/data.h"
#include "weft/eval.h"
#include "weft/options.h"

static const char text[] = "The quick brown fox jumps over the lazy dog, and then it sleeps.\n"
                           "Nobody knows for how long: perhaps until the next line comes..";

static const char *config(void)
{
    return tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 260");
}

static weft_eval_options options_for(const char *folder, const char **data, int64_t seq_length)
{
    weft_eval_options o;
    weft_options_init(WEFT_COMMAND_EVAL, &o);
    o.layout = golden_layout("cpu", "");
    o.model = folder;
    o.data = data;
    o.n_data = 1;
    o.seq_length = seq_length;
    return o;
}

/* Sum of token losses of ids[first .. first + n] by a probe of that window alone. */
static double window_loss(scratch *s, const char *folder, int64_t first, int64_t n)
{
    int64_t ids[256];
    char batch[512];
    weft_probe_result r;
    for (int64_t i = 0; i <= n; i++)
        ids[i] = (unsigned char)text[first + i];
    const weft_probe_options o = {.layout = golden_layout("reference", ""),
                                  .model = folder,
                                  .batch = tiny_batch(s, ids, NULL, 1, n + 1, batch),
                                  .out = scratch_path(s, "o.safetensors")};
    expect_ok(weft_probe_run(&r, &o, NULL));
    assert_int_equal(r.n_targets, n);
    return r.loss * (double)n;
}

/* 126 targets in windows of L, batches of B: always the mean of the same losses. */
static void test_train_evaluate__counts_every_target_once(void **state)
{
    static const int64_t lengths[] = {1, 7, 16, 31, 63, 125, 126, 200};
    static const int64_t batches[] = {1, 2, 3, 4, 100};
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config = config()};
    const int64_t n = (int64_t)sizeof(text) - 2; /* targets: bytes but the first */
    const char *data[] = {path};

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, sizeof(text) - 1));
    assert_int_equal(n, 126);
    for (size_t i = 0; i < 8; i++) {
        const int64_t length = lengths[i];
        double sum = 0.0;
        for (int64_t at = 0; at < n; at += length)
            sum += window_loss(s, folder, at, at + length <= n ? length : n - at);
        for (size_t k = 0; k < 5; k++) {
            weft_eval_options o = options_for(folder, data, length);
            weft_eval_result r;
            o.layout.micro_batch_size = batches[k];
            expect_ok(weft_eval_run(&r, &o, NULL, NULL));
            assert_int_equal(r.n_targets, n);
            assert_int_equal(r.n_tokens, n + 1);
            if (!(fabs(r.loss - sum / (double)n) <= 1e-6 * r.loss))
                fail_msg("windows of %d, %d a batch: loss %.9f, should be %.9f", (int)length,
                         (int)batches[k], r.loss, sum / (double)n);
            assert_true(fabs(r.perplexity - exp(r.loss)) <= 1e-12 * r.perplexity);
            /* A byte a target. */
            assert_true(fabs(r.bits_per_byte - r.loss / log(2.0)) <= 1e-12 * r.bits_per_byte);
        }
    }
}

static void test_train_evaluate__max_tokens_takes_the_start(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config = config()};
    const char *data[] = {path};
    weft_eval_result r;

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, sizeof(text) - 1));
    weft_eval_options o = options_for(folder, data, 16);
    o.max_tokens = 40;
    expect_ok(weft_eval_run(&r, &o, NULL, NULL));
    assert_int_equal(r.n_targets, 40);
    const double sum = window_loss(s, folder, 0, 16) + window_loss(s, folder, 16, 16) +
                       window_loss(s, folder, 32, 8);
    assert_true(fabs(r.loss - sum / 40.0) <= 1e-6 * r.loss);
}

/* Several files are one stream: the first token of the second is a target too. */
static void test_train_evaluate__files_are_one_stream(void **state)
{
    scratch *s = *state;
    char folder[512];
    char whole[512];
    char first[512];
    char second[512];
    const tiny_folder f = {.config = config()};
    const char *one[] = {whole};
    const char *two[] = {first, second};
    weft_eval_result a;
    weft_eval_result b;

    tiny_write(s, "m", &f, folder);
    (void)snprintf(whole, sizeof(whole), "%s", scratch_file(s, "text", text, 127));
    (void)snprintf(first, sizeof(first), "%s", scratch_file(s, "a", text, 50));
    (void)snprintf(second, sizeof(second), "%s", scratch_file(s, "b", text + 50, 77));
    const weft_eval_options x = options_for(folder, one, 20);
    weft_eval_options y = options_for(folder, two, 20);
    y.n_data = 2;
    expect_ok(weft_eval_run(&a, &x, NULL, NULL));
    expect_ok(weft_eval_run(&b, &y, NULL, NULL));
    assert_int_equal(a.n_targets, 126);
    assert_true(a.loss == b.loss && a.n_targets == b.n_targets);
}

/* The end-of-text id stands for no byte. */
static void test_train_evaluate__special_ids_are_no_bytes(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    char tokens[512];
    const tiny_folder f = {.config = config()};
    const char *data[] = {tokens};
    const char *files[] = {path};
    weft_tokenize_result t;
    weft_eval_result r;

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, 41));
    (void)snprintf(tokens, sizeof(tokens), "%s", scratch_path(s, "text.bin"));
    const weft_tokenize_options to = {
        .tokenizer = "byte", .out = tokens, .files = files, .n_files = 1, .append_eos = true};
    expect_ok(weft_tokenize_run(&t, &to));
    assert_int_equal(t.n_tokens, 42);
    const weft_eval_options o = options_for(folder, data, 10);
    expect_ok(weft_eval_run(&r, &o, NULL, NULL));
    assert_int_equal(r.n_targets, 41);
    assert_true(fabs(r.bits_per_byte - r.loss * 41.0 / log(2.0) / 40.0) <= 1e-12 * r.bits_per_byte);
}

/* Ids that the byte tokenizer does not have stand for an unknown number of bytes. */
static void test_train_evaluate__bytes_of_other_tokenizers_are_unknown(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config = config()};
    const char *data[] = {path};
    weft_eval_result r;
    struct {
        char magic[8];
        uint32_t width, zero;
        uint64_t n_ids, n_tokens, highest;
        uint64_t pad[3];
        uint16_t ids[5];
    } file = {.magic = {'W', 'E', 'F', 'T', 'T', 'O', 'K', '1'},
              .width = 2,
              .n_ids = 260,
              .n_tokens = 5,
              .highest = 260,
              .ids = {1, 2, 259, 4, 5}};

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "t.bin", &file, 64 + 10));
    const weft_eval_options o = options_for(folder, data, 8);
    expect_ok(weft_eval_run(&r, &o, NULL, NULL));
    assert_int_equal(r.n_targets, 4);
    assert_true(isfinite(r.loss) && isnan(r.bits_per_byte));
}

static void test_train_evaluate__too_little_data_is_refused(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config = config()};
    const char *data[] = {path};
    weft_eval_result r;

    tiny_write(s, "m", &f, folder);
    for (size_t n = 0; n < 3; n++) {
        (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, n));
        const weft_eval_options o = options_for(folder, data, 8);
        const weft_status st = weft_eval_run(&r, &o, NULL, NULL);
        if (n < 2) {
            expect_failure(st, WEFT_STATUS_FORMAT, path, "at least 2", NULL);
        } else {
            expect_ok(st);
            assert_int_equal(r.n_targets, 1);
        }
    }
}

static void test_train_evaluate__refuses_windows_beyond_learned_positions(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config =
                               tiny_config(tiny_gpt2, "\"vocab_size\": 53", "\"vocab_size\": 257")};
    const char *data[] = {path};
    weft_eval_result r;

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, 127));
    const weft_eval_options o = options_for(folder, data, 65);
    expect_failure(weft_eval_run(&r, &o, NULL, NULL), WEFT_STATUS_MISMATCH,
                   "seq_length has 65 tokens", "positions for 64", NULL);
    const weft_eval_options all = options_for(folder, data, 0); /* min(positions, 256) */
    expect_ok(weft_eval_run(&r, &all, NULL, NULL));
    assert_int_equal(r.n_targets, 126);
}

typedef struct watch {
    int64_t n_calls, last, total;
} watch;

static void on_progress(void *user, int64_t done, int64_t total)
{
    watch *w = user;
    assert_true(done > w->last);
    w->last = done;
    w->total = total;
    w->n_calls++;
}

static bool on_poll(void *user)
{
    return ((watch *)user)->last >= 48;
}

/* Told to stop, it reports what was done. */
static void test_train_evaluate__stops_when_told(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config = config()};
    const char *data[] = {path};
    watch w = {0};
    const weft_eval_callbacks c = {.user = &w, .progress = on_progress, .should_stop = on_poll};
    weft_eval_result r;

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, 127));
    weft_eval_options o = options_for(folder, data, 16);
    o.layout.micro_batch_size = 1;
    expect_ok(weft_eval_run(&r, &o, NULL, &c));
    assert_int_equal(w.n_calls, 3);
    assert_int_equal(w.total, 126);
    assert_int_equal(r.n_targets, 48);
    double sum = 0.0;
    for (int64_t i = 0; i < 3; i++)
        sum += window_loss(s, folder, i * 16, 16);
    assert_true(fabs(r.loss - sum / 48.0) <= 1e-6 * r.loss);
}

/* A loss that is not finite is an error with its place, not a number. */
static void poison(const char *name, float *v, int64_t n)
{
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        v['j' * 32] = INFINITY; /* row of the letter j */
    (void)n;
}

static void test_train_evaluate__names_the_token_that_is_not_finite(void **state)
{
    scratch *s = *state;
    char folder[512];
    char path[512];
    const tiny_folder f = {.config = config(), .edit = poison};
    const char *data[] = {path};
    weft_eval_result r;

    tiny_write(s, "m", &f, folder);
    (void)snprintf(path, sizeof(path), "%s", scratch_file(s, "text", text, 127));
    const weft_eval_options o = options_for(folder, data, 16);
    expect_failure(weft_eval_run(&r, &o, NULL, NULL), WEFT_STATUS_NUMERIC, "not finite", NULL);
    /* "jumps" begins with token 20, in the second window: targets 17 to 32. Its infinity may reach back inside the
     * window (0 times infinity), not beyond. */
    int at = 0;
    const char *number = strstr(weft_last_error(), "token ");
    assert_non_null(number);
    assert_int_equal(sscanf(number, "token %d", &at), 1);
    assert_in_range(at, 17, 21);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_train_evaluate__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(counts_every_target_once),
                                       RUN(max_tokens_takes_the_start),
                                       RUN(files_are_one_stream),
                                       RUN(special_ids_are_no_bytes),
                                       RUN(bytes_of_other_tokenizers_are_unknown),
                                       RUN(too_little_data_is_refused),
                                       RUN(refuses_windows_beyond_learned_positions),
                                       RUN(stops_when_told),
                                       RUN(names_the_token_that_is_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
