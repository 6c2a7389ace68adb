/*
 * The config.json to save: the text that was read with only the type changed, so that numbers keep their spelling, keys
 * their order, and an unchanged model gives an unchanged file.
 *
 * The text is known to be a JSON object (it was parsed when it was read), so the scanner here only has to find where the
 * top-level values begin and end.
 *
 * Invariant: parsing the result gives the object that was read, but for dtype, torch_dtype and the keys added.
 */
#include <string.h>

#include "formats/hf_config.h"
#include "formats/json.h"

/* One top-level member of the object, as positions in the text. */
typedef struct member {
    size_t key, key_end;     /* with its quotes */
    size_t value, value_end; /* */
} member;

static size_t skip_space(const char *t, size_t at)
{
    while (t[at] == ' ' || t[at] == '\n' || t[at] == '\r' || t[at] == '\t')
        at++;
    return at;
}

static size_t skip_string(const char *t, size_t at)
{
    at++;
    while (t[at] != '"' && t[at] != '\0')
        at += t[at] == '\\' && t[at + 1] != '\0' ? 2 : 1;
    return t[at] == '"' ? at + 1 : at;
}

static size_t skip_value(const char *t, size_t at)
{
    int depth = 0;
    do {
        const char c = t[at];
        if (c == '"') {
            at = skip_string(t, at);
        } else if (c == '{' || c == '[') {
            depth++;
            at++;
        } else if (c == '}' || c == ']') {
            depth--;
            at++;
        } else {
            at += strcspn(t + at, depth > 0 ? "\"{}[]" : ",}] \n\r\t");
        }
    } while (depth > 0 && t[at] != '\0');
    return at;
}

/* The member at or after `at` (behind "{" or ","); false at the end of the object. */
static bool next_member(const char *t, size_t at, member *out)
{
    at = skip_space(t, at);
    if (t[at] == ',')
        at = skip_space(t, at + 1);
    if (t[at] != '"')
        return false;
    out->key = at;
    out->key_end = skip_string(t, at);
    at = skip_space(t, out->key_end);
    out->value = skip_space(t, at + 1); /* behind the colon */
    out->value_end = skip_value(t, out->value);
    return true;
}

/* Does the key, which may be written with escapes, read `name`? */
static bool is_key(const char *t, const member *m, const char *name)
{
    json_t *key = json_loadb(t + m->key, m->key_end - m->key, JSON_DECODE_ANY, NULL);
    const bool is_same = key != NULL && strcmp(json_string_value(key), name) == 0;
    json_decref(key);
    return is_same;
}

static const char *type_text(weft_dtype dtype)
{
    switch ((int)dtype) {
    case WEFT_DTYPE_F32:
        return "float32";
    case WEFT_DTYPE_BF16:
        return "bfloat16";
    case WEFT_DTYPE_F16:
        return "float16";
    default:
        return NULL;
    }
}

typedef struct keys_seen {
    bool dtype, model_type, architectures;
    size_t n_members;
} keys_seen;

static weft_status
add_missing(weft_str *out, const weft_config *c, const char *type, const keys_seen *seen)
{
    const bool is_gpt2 = c->family == WEFT_FAMILY_GPT2;
    const char *before = seen->n_members > 0 ? "," : "";
    if (!seen->architectures) {
        WEFT_TRY(weft_i_str_addf(out, "%s\n  \"architectures\": [\n    \"%s\"\n  ]", before,
                                 is_gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM"));
        before = ",";
    }
    if (!seen->dtype) {
        WEFT_TRY(weft_i_str_addf(out, "%s\n  \"dtype\": \"%s\"", before, type));
        before = ",";
    }
    if (!seen->model_type)
        WEFT_TRY(weft_i_str_addf(out, "%s\n  \"model_type\": \"%s\"", before,
                                 is_gpt2 ? "gpt2" : "llama"));
    return WEFT_OK;
}

/* Copies the text up to the end of the last member, with new values for the type's keys. */
static weft_status
copy_members(weft_str *out, const char *t, const char *type, keys_seen *seen, size_t *at)
{
    member m;
    size_t copied = 0;
    size_t next = skip_space(t, 0) + 1; /* behind "{" */
    *at = next;
    while (next_member(t, next, &m)) {
        const bool is_null = strncmp(t + m.value, "null", 4) == 0;
        const bool is_type = is_key(t, &m, "dtype") || is_key(t, &m, "torch_dtype");
        seen->n_members++;
        seen->dtype = seen->dtype || is_type;
        seen->model_type = seen->model_type || (is_key(t, &m, "model_type") && !is_null);
        seen->architectures = seen->architectures || (is_key(t, &m, "architectures") && !is_null);
        if (is_type) {
            WEFT_TRY(weft_i_str_add(out, t + copied, m.value - copied));
            WEFT_TRY(weft_i_str_addf(out, "\"%s\"", type));
            copied = m.value_end;
        }
        next = m.value_end;
        *at = next;
    }
    return weft_i_str_add(out, t + copied, *at - copied);
}

weft_status
weft_i_hf_config_write(const weft_hf_config *c, weft_alloc *alloc, weft_dtype dtype, weft_str *out)
{
    weft_status st = WEFT_OK;
    keys_seen seen = {.dtype = false};
    size_t at = 0;
    const char *type = type_text(dtype);
    weft_i_str_init(out, alloc);
    if (type == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "a model cannot be saved as %s", weft_dtype_name(dtype));
    WEFT_TRY_GOTO(st, copy_members(out, c->text, type, &seen, &at), out);
    WEFT_TRY_GOTO(st, add_missing(out, &c->config, type, &seen), out);
    st = weft_i_str_add(out, c->text + at, strlen(c->text + at));
out:
    if (st != WEFT_OK)
        weft_i_str_fini(out);
    return st;
}
