/*
 * trainer_state.json: where a run stands, what it was told, what it was trained on.
 *
 * What a run was told is one flat object whose keys are names of options; the run that resumes builds the same object
 * from its own options, and the two are compared key by key. One table says what a difference means.
 *
 * Invariants
 *  1. Integers are written whole, reals so that they read back to the same bits.
 *  2. The position in the data is one number, that of the next sample: the sampler keeps no state.
 */
#include "train/trainer_state.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define HASHED_TOKENS ((int64_t)65536) /* at each of three places */
#define HASHED_AT_ONCE 1024

/* What it means when a setting is not the one the checkpoint was trained with. */
typedef enum meaning { REFUSED, NOTED, HARMLESS } meaning;

static const struct setting {
    const char *name;
    meaning meaning;
} table[] = {
    {"dtype", REFUSED},
    {"optimizer", REFUSED},
    {"seq_length", REFUSED},
    {"global_batch_size", REFUSED},
    {"seed", REFUSED},
    {"shuffle", REFUSED},
    {"freeze", REFUSED},
    {"train_steps", NOTED},
    {"lr", NOTED},
    {"min_lr", NOTED},
    {"lr_schedule", NOTED},
    {"lr_warmup_steps", NOTED},
    {"lr_decay_steps", NOTED},
    {"weight_decay", NOTED},
    {"adam_beta1", NOTED},
    {"adam_beta2", NOTED},
    {"adam_eps", NOTED},
    {"sgd_momentum", NOTED},
    {"clip_grad", NOTED},
    {"embd_dropout", NOTED},
    {"resid_dropout", NOTED},
    {"attn_dropout", NOTED},
    {"micro_batch_size", HARMLESS},
    {"save_dtype", HARMLESS},
};

/* ---- building ---- */

static json_t *text_or_mark(const char *text)
{
    json_t *s = json_string(text);
    return s != NULL ? s : json_string("(a name that is no UTF-8)");
}

/* Takes `value` over; a failure is remembered in *is_ok. */
static void put(json_t *object, const char *key, json_t *value, bool *is_ok)
{
    if (value == NULL || json_object_set_new(object, key, value) != 0)
        *is_ok = false;
}

static weft_status finish(json_t **out, json_t *object, bool is_ok)
{
    if (!is_ok) {
        json_decref(object);
        WEFT_FAIL(WEFT_STATUS_NOMEM, "memory for the state of the trainer ran out");
    }
    *out = object;
    return WEFT_OK;
}

static void put_schedule(json_t *o, const weft_lr_schedule *s, bool *ok)
{
    static const char *const names[] = {"constant", "linear", "cosine", "wsd"};
    put(o, "lr", json_real(s->lr), ok);
    put(o, "min_lr", json_real(s->min_lr), ok);
    put(o, "lr_schedule", json_string(names[s->kind]), ok);
    put(o, "lr_warmup_steps", json_integer(s->warmup_steps), ok);
    put(o, "lr_decay_steps", json_integer(s->decay_steps), ok);
}

static void put_optimizer(json_t *o, const weft_optimizer_options *s, bool *ok)
{
    put(o, "optimizer", json_string(weft_i_optimizer_name(s->kind)), ok);
    put(o, "weight_decay", json_real(s->weight_decay), ok);
    if (s->kind == WEFT_OPTIMIZER_ADAMW) {
        put(o, "adam_beta1", json_real(s->beta1), ok);
        put(o, "adam_beta2", json_real(s->beta2), ok);
        put(o, "adam_eps", json_real(s->eps), ok);
    } else {
        put(o, "sgd_momentum", json_real(s->momentum), ok);
    }
}

weft_status
weft_i_trainer_state_settings(json_t **out, const weft_train_settings *settings, weft_dtype dtype)
{
    const weft_train_settings *s = settings;
    bool ok = true;
    json_t *o = json_object();
    json_t *globs = json_array();
    put(o, "dtype", json_string(dtype == WEFT_DTYPE_BF16 ? "bf16" : "fp32"), &ok);
    put(o, "seed", json_integer((json_int_t)s->seed), &ok);
    put(o, "seq_length", json_integer(s->seq_length), &ok);
    put(o, "micro_batch_size", json_integer(s->micro_batch), &ok);
    put(o, "global_batch_size", json_integer(s->global_batch), &ok);
    put(o, "train_steps", json_integer(s->train_steps), &ok);
    put(o, "shuffle", json_boolean(s->is_shuffled), &ok);
    put_optimizer(o, &s->optimizer, &ok);
    put_schedule(o, &s->schedule, &ok);
    put(o, "clip_grad", json_real(s->clip_grad), &ok);
    put(o, "embd_dropout", json_real(s->embd_dropout), &ok);
    put(o, "resid_dropout", json_real(s->resid_dropout), &ok);
    put(o, "attn_dropout", json_real(s->attn_dropout), &ok);
    put(o, "save_dtype", json_string(s->save_dtype), &ok);
    for (size_t i = 0; i < s->n_freeze; i++)
        ok = json_array_append_new(globs, text_or_mark(s->freeze[i])) == 0 && ok;
    put(o, "freeze", globs, &ok);
    return finish(out, o, ok);
}

/* FNV-1a 64 over the ids [first, first + n) of the stream. */
static weft_status hash_tokens(const weft_dataset *d, int64_t first, int64_t n, uint64_t *hash)
{
    int32_t ids[HASHED_AT_ONCE];
    for (int64_t done = 0; done < n; done += HASHED_AT_ONCE) {
        const int64_t now = WEFT_MIN(n - done, (int64_t)HASHED_AT_ONCE);
        WEFT_TRY(weft_i_dataset_read(d, first + done, now, ids));
        for (int64_t i = 0; i < now; i++)
            *hash = (*hash ^ (uint64_t)(uint32_t)ids[i]) * UINT64_C(0x100000001b3);
    }
    return WEFT_OK;
}

static weft_status hash_stream(const weft_dataset *d, uint64_t *hash)
{
    const int64_t n_tokens = weft_i_dataset_tokens(d);
    const int64_t n = WEFT_MIN(n_tokens, HASHED_TOKENS);
    *hash = UINT64_C(0xcbf29ce484222325);
    WEFT_TRY(hash_tokens(d, 0, n, hash));
    WEFT_TRY(hash_tokens(d, (n_tokens - n) / 2, n, hash));
    return hash_tokens(d, n_tokens - n, n, hash);
}

weft_status weft_i_trainer_state_data(json_t **out,
                                      const char **files,
                                      size_t n_files,
                                      const weft_dataset *data,
                                      int64_t train_tokens)
{
    bool ok = true;
    uint64_t hash = 0;
    char text[32];
    WEFT_TRY(hash_stream(data, &hash));
    WEFT_TRY(weft_i_str_print(text, sizeof(text), "%016llx", (unsigned long long)hash));
    json_t *o = json_object();
    json_t *list = json_array();
    for (size_t i = 0; i < n_files; i++) {
        uint64_t n_bytes = 0;
        (void)weft_i_file_size(files[i], &n_bytes); /* a pipe has none: 0 */
        json_t *file = json_object();
        put(file, "path", text_or_mark(files[i]), &ok);
        put(file, "bytes", json_integer((json_int_t)n_bytes), &ok);
        ok = json_array_append_new(list, file) == 0 && ok;
    }
    put(o, "files", list, &ok);
    put(o, "tokens", json_integer(weft_i_dataset_tokens(data)), &ok);
    if (train_tokens >= 0)
        put(o, "train_tokens", json_integer(train_tokens), &ok);
    put(o, "hash", json_string(text), &ok);
    return finish(out, o, ok);
}

static int add_bytes(const char *bytes, size_t n_bytes, void *user)
{
    return weft_i_str_add(user, bytes, n_bytes) == WEFT_OK ? 0 : -1;
}

static void put_layout(json_t *o, const weft_layout *l, bool *ok)
{
    json_t *layout = json_object();
    put(layout, "ranks", json_integer(WEFT_MAX(l->n_ranks, 1)), ok);
    put(layout, "dp", json_integer(WEFT_MAX(l->dp, 1)), ok);
    put(layout, "tp", json_integer(WEFT_MAX(l->tp, 1)), ok);
    put(layout, "pp", json_integer(WEFT_MAX(l->pp, 1)), ok);
    put(layout, "zero_stage", json_integer(l->zero_stage), ok);
    put(layout, "strategy", json_string(l->is_data_parallel ? "data-parallel" : ""), ok);
    put(o, "written_by_layout", layout, ok);
}

weft_status weft_i_trainer_state_print(const weft_trainer_state *s, weft_str *text)
{
    bool ok = true;
    json_t *o = json_object();
    put(o, "format_version", json_integer(WEFT_TRAINER_STATE_VERSION), &ok);
    put(o, "step", json_integer(s->step), &ok);
    put(o, "total_tokens", json_integer(s->total_tokens), &ok);
    put(o, "next_sample", json_integer(s->next_sample), &ok);
    put(o, "settings", json_incref(s->settings), &ok);
    put(o, "data", json_incref(s->data), &ok);
    put_layout(o, &s->layout, &ok);
    ok = ok && json_dump_callback(o, add_bytes, text, JSON_INDENT(2)) == 0;
    json_decref(o);
    if (!ok)
        WEFT_FAIL(WEFT_STATUS_NOMEM, "memory for the state of the trainer ran out");
    return weft_i_str_add(text, "\n", 1);
}

/* ---- reading ---- */

static weft_status get_integer(const json_t *root, const char *path, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(root, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: \"%s\" is missing or no whole number from 0", path, key);
    *out = (int64_t)json_integer_value(value);
    return WEFT_OK;
}

static weft_status get_object(const json_t *root, const char *path, const char *key, json_t **out)
{
    json_t *value = json_object_get(root, key);
    if (!json_is_object(value))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: \"%s\" is missing or no object {...}", path, key);
    *out = json_incref(value);
    return WEFT_OK;
}

/* Nothing hangs on it, so what is not there is not said. */
static void get_layout(const json_t *root, weft_layout *out)
{
    const json_t *layout = json_object_get(root, "written_by_layout");
    const char *strategy = json_string_value(json_object_get(layout, "strategy"));
    const struct {
        const char *key;
        int *to;
    } number[] = {
        {"ranks", &out->n_ranks},         {"dp", &out->dp}, {"tp", &out->tp}, {"pp", &out->pp},
        {"zero_stage", &out->zero_stage},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(number); i++) {
        const json_int_t value = json_integer_value(json_object_get(layout, number[i].key));
        *number[i].to = value >= 0 && value <= INT32_MAX ? (int)value : 0;
    }
    out->is_data_parallel = strategy != NULL && strcmp(strategy, "data-parallel") == 0;
}

static weft_status read_root(weft_trainer_state *s, const json_t *root, const char *path)
{
    int64_t version = 0;
    WEFT_TRY(get_integer(root, path, "format_version", &version));
    if (version != WEFT_TRAINER_STATE_VERSION)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "%s: its format_version is %lld, this weft reads %d",
                  path, (long long)version, WEFT_TRAINER_STATE_VERSION);
    WEFT_TRY(get_integer(root, path, "step", &s->step));
    WEFT_TRY(get_integer(root, path, "total_tokens", &s->total_tokens));
    WEFT_TRY(get_integer(root, path, "next_sample", &s->next_sample));
    get_layout(root, &s->layout);
    WEFT_TRY(get_object(root, path, "settings", &s->settings));
    return get_object(root, path, "data", &s->data);
}

weft_status weft_i_trainer_state_read(weft_trainer_state *out, weft_alloc *alloc, const char *dir)
{
    char path[WEFT_PATH_MAX];
    char *text = NULL;
    size_t n_bytes = 0;
    json_t *root = NULL;
    weft_status st = WEFT_OK;
    weft_trainer_state s = {.settings = NULL};
    WEFT_TRY(weft_i_path_join(path, dir, WEFT_TRAINER_STATE_FILE));
    WEFT_TRY(weft_i_file_read(alloc, path, MAX_FILE_BYTES, &text, &n_bytes));
    WEFT_TRY_GOTO(st, weft_i_json_parse(&root, path, "state", text, n_bytes), out);
    WEFT_TRY_GOTO(st, read_root(&s, root, path), out);
    *out = s;
out:
    json_decref(root);
    weft_i_alloc_put(alloc, text);
    if (st != WEFT_OK)
        weft_i_trainer_state_fini(&s);
    return st;
}

void weft_i_trainer_state_fini(weft_trainer_state *s)
{
    json_decref(s->settings);
    json_decref(s->data);
    *s = (weft_trainer_state){.settings = NULL};
}

const char *weft_i_trainer_state_text(const weft_trainer_state *s, const char *key)
{
    const char *text = json_string_value(json_object_get(s->settings, key));
    return text != NULL ? text : "";
}

int64_t weft_i_trainer_state_number(const weft_trainer_state *s, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(s->settings, key);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

/* ---- comparing ---- */

/* A value as it stands in the file; a missing one is said to be. */
static const char *shown(const json_t *value, char *out, size_t size)
{
    if (value == NULL)
        return "not given";
    return weft_i_json_text(value, out, size);
}

static weft_status compare_settings(const weft_trainer_state *saved,
                                    const weft_trainer_state *now,
                                    const char *dir,
                                    const weft_note_sink *notes)
{
    char a[128], b[128], line[512];
    for (size_t i = 0; i < WEFT_COUNT_OF(table); i++) {
        const char *name = table[i].name;
        const json_t *before = json_object_get(saved->settings, name);
        const json_t *after = json_object_get(now->settings, name);
        if (before == after || json_equal(before, after) || table[i].meaning == HARMLESS)
            continue;
        if (table[i].meaning == REFUSED)
            WEFT_FAIL(WEFT_STATUS_MISMATCH,
                      "%s was trained with %s %s, this run has %s; give the same one, or start "
                      "anew without --resume",
                      dir, name, shown(before, a, sizeof(a)), shown(after, b, sizeof(b)));
        (void)snprintf(line, sizeof(line), "resume: %s was %s, is now %s", name,
                       shown(before, a, sizeof(a)), shown(after, b, sizeof(b)));
        if (notes->line != NULL)
            notes->line(notes->user, line);
    }
    return WEFT_OK;
}

static weft_status compare_files(const json_t *before, const json_t *after, const char *dir)
{
    const size_t n_before = json_array_size(before);
    const size_t n_after = json_array_size(after);
    if (n_before != n_after)
        WEFT_FAIL(WEFT_STATUS_MISMATCH, "%s was trained on %zu data files, this run has %zu", dir,
                  n_before, n_after);
    for (size_t i = 0; i < n_before; i++) {
        const json_t *a = json_array_get(before, i);
        const json_t *b = json_array_get(after, i);
        const long long n_a = json_integer_value(json_object_get(a, "bytes"));
        const long long n_b = json_integer_value(json_object_get(b, "bytes"));
        if (n_a == n_b)
            continue;
        const char *path_a = json_string_value(json_object_get(a, "path"));
        const char *path_b = json_string_value(json_object_get(b, "path"));
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "%s was trained on other data: file %zu was %s with %lld bytes, is now %s with "
                  "%lld bytes",
                  dir, i + 1, path_a != NULL ? path_a : "?", n_a, path_b != NULL ? path_b : "?",
                  n_b);
    }
    return WEFT_OK;
}

static weft_status compare_data(const json_t *before, const json_t *after, const char *dir)
{
    static const struct {
        const char *key;
        const char *what;
    } number[] = {
        {"tokens", "tokens of the data"},
        {"train_tokens", "tokens of its training part (the rest is held out for evaluation)"},
        {"hash", "hash of the data's tokens"},
    };
    char a[64], b[64];
    WEFT_TRY(compare_files(json_object_get(before, "files"), json_object_get(after, "files"), dir));
    for (size_t i = 0; i < WEFT_COUNT_OF(number); i++) {
        const json_t *x = json_object_get(before, number[i].key);
        const json_t *y = json_object_get(after, number[i].key);
        if (!json_equal(x, y))
            WEFT_FAIL(WEFT_STATUS_MISMATCH,
                      "%s was trained on other data: the %s was %s, is now %s", dir, number[i].what,
                      shown(x, a, sizeof(a)), shown(y, b, sizeof(b)));
    }
    return WEFT_OK;
}

weft_status weft_i_trainer_state_compare(const weft_trainer_state *saved,
                                         const weft_trainer_state *now,
                                         const char *dir,
                                         const weft_note_sink *notes)
{
    WEFT_TRY(compare_settings(saved, now, dir, notes));
    return compare_data(saved->data, now->data, dir);
}
