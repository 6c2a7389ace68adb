/*
 * The config.json to save: the text that was read with only the type changed, so that numbers keep their spelling, keys
 * their order, and an unchanged model gives an unchanged file.
 *
 * The text is known to be a JSON object (it was parsed when it was read), so the scanner here only has to find where the
 * top-level values begin and end.
 *
 * Invariant: parsing the result gives the object that was read, but for dtype, torch_dtype and the keys added.
 */
#include "formats/hf_config.h"
#include "formats/hf_config_family.h"
#include "formats/json.h"

#include <string.h>

/* One top-level member of the object, as positions in the text. */
typedef struct member {
    size_t key, key_end; /* with its quotes */
    size_t value, value_end;
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

/* The new values, as JSON, and which of the keys the text has. */
typedef struct new_values {
    char dtype[16], model_type[16];
    char architectures[96];
    bool has_dtype, has_model_type, has_architectures;
    size_t n_members;
} new_values;

/* What stands in place of the member's value; NULL: it stays. A null names nothing, so it is filled in. */
static const char *replacement(const char *t, const member *m, new_values *v)
{
    const bool is_null = strncmp(t + m->value, "null", 4) == 0;
    if (is_key(t, m, "dtype") || is_key(t, m, "torch_dtype")) {
        v->has_dtype = true;
        return v->dtype;
    }
    if (is_key(t, m, "model_type")) {
        v->has_model_type = true;
        return is_null ? v->model_type : NULL;
    }
    if (is_key(t, m, "architectures")) {
        v->has_architectures = true;
        return is_null ? v->architectures : NULL;
    }
    return NULL;
}

/* Copies the text up to the end of the last member, which is put into *end. */
static weft_status copy_members(weft_str *out, const char *t, new_values *v, size_t *end)
{
    member m;
    size_t copied = 0;
    *end = skip_space(t, 0) + 1; /* behind "{" */
    while (next_member(t, *end, &m)) {
        const char *value = replacement(t, &m, v);
        v->n_members++;
        *end = m.value_end;
        if (value == NULL)
            continue;
        WEFT_TRY(weft_i_str_add(out, t + copied, m.value - copied));
        WEFT_TRY(weft_i_str_add(out, value, strlen(value)));
        copied = m.value_end;
    }
    return weft_i_str_add(out, t + copied, *end - copied);
}

static weft_status add_member(weft_str *out, new_values *v, const char *key, const char *value)
{
    return weft_i_str_addf(out, "%s\n  \"%s\": %s", v->n_members++ > 0 ? "," : "", key, value);
}

static weft_status write_text(weft_str *out, const char *t, new_values *v)
{
    size_t end = 0;
    WEFT_TRY(copy_members(out, t, v, &end));
    if (!v->has_architectures)
        WEFT_TRY(add_member(out, v, "architectures", v->architectures));
    if (!v->has_dtype)
        WEFT_TRY(add_member(out, v, "dtype", v->dtype));
    if (!v->has_model_type)
        WEFT_TRY(add_member(out, v, "model_type", v->model_type));
    return weft_i_str_add(out, t + end, strlen(t + end));
}

weft_status
weft_i_hf_config_write(const weft_hf_config *c, weft_alloc *alloc, weft_dtype dtype, weft_str *out)
{
    const weft_family family = c->config.family;
    const char *type = type_text(dtype);
    new_values v = {.has_dtype = false};
    weft_i_str_init(out, alloc);
    if (type == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "a model cannot be saved as %s", weft_dtype_name(dtype));
    WEFT_TRY(weft_i_str_print(v.dtype, sizeof(v.dtype), "\"%s\"", type));
    WEFT_TRY(weft_i_str_print(v.architectures, sizeof(v.architectures), "[\n    \"%s\"\n  ]",
                              weft_i_family_architecture(family)));
    WEFT_TRY(
        weft_i_str_print(v.model_type, sizeof(v.model_type), "\"%s\"", weft_family_name(family)));
    const weft_status st = write_text(out, c->text, &v);
    if (st != WEFT_OK)
        weft_i_str_fini(out);
    return st;
}
