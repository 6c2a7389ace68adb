/*
 * Rotary settings of config.json in both spellings: rope_parameters {rope_type, rope_theta, ...} as transformers 5 writes,
 * and rope_theta beside rope_scaling {type or rope_type, ...} as older files have.
 *
 * Source: transformers 5.24 modeling_rope_utils.py (standardize_rope_params, convert_rope_params_to_dict) for names,
 * defaults and which spelling wins; there a contradiction or a key it does not know passes with a warning at most, here it
 * is refused, because the loss of a wrong base is silent.
 */
#include "formats/hf_config_family.h"

#include "formats/hf_config.h"

#include <math.h>
#include <string.h>

#define THETA_DEFAULT 10000.0
#define TEXT_BYTES 160

typedef struct rope_name {
    const char *name;
    weft_rope_kind kind;
} rope_name;

static const rope_name rope_names[] = {
    {"default", WEFT_ROPE_DEFAULT}, {"linear", WEFT_ROPE_LINEAR}, {"dynamic", WEFT_ROPE_DYNAMIC},
    {"llama3", WEFT_ROPE_LLAMA3},   {"yarn", WEFT_ROPE_YARN},
};

/* Keys transformers knows in the object; a kind that does not use one ignores it, as there. `finetuned` stands in the files
 * of YaRN's authors and says how the weights came about. */
static const char *const known_keys[] = {
    "rope_type",       "type",         "rope_theta",     "partial_rotary_factor",
    "factor",          "beta_fast",    "beta_slow",      "original_max_position_embeddings",
    "low_freq_factor", "mscale",       "mscale_all_dim", "high_freq_factor",
    "truncate",        "short_factor", "long_factor",    "attention_factor",
    "mrope_section",   "finetuned",
};

static const weft_real_range factor_range = {0.0, 1e-6, 1e9};

const char *weft_i_hf_rope_name(weft_rope_kind kind)
{
    size_t i = 0;
    while (i + 1 < WEFT_COUNT_OF(rope_names) && rope_names[i].kind != kind)
        i++;
    return rope_names[i].name;
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(known_keys); i++) {
        if (strcmp(key, known_keys[i]) == 0)
            return true;
    }
    return false;
}

/* The object under `key`; NULL when absent, null or empty. */
static weft_status find_object(const weft_reader *r, const char *key, json_t **out)
{
    json_t *value = json_object_get(r->root, key);
    char text[TEXT_BYTES];
    *out = NULL;
    if (value == NULL || json_is_null(value))
        return WEFT_OK;
    if (!json_is_object(value))
        return weft_i_reader_reject(r, WEFT_STATUS_FORMAT, "%s = %s: must be an object or null",
                                    key, weft_i_json_text(value, text, sizeof(text)));
    if (json_object_size(value) > 0)
        *out = value;
    return WEFT_OK;
}

static bool is_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) != 0;
}

static weft_status reject_conflict(
    const weft_reader *r, const char *name_a, const json_t *a, const char *name_b, const json_t *b)
{
    char text_a[TEXT_BYTES];
    char text_b[TEXT_BYTES];
    return weft_i_reader_reject(r, WEFT_STATUS_FORMAT, "%s = %s and %s = %s contradict each other",
                                name_a, weft_i_json_text(a, text_a, sizeof(text_a)), name_b,
                                weft_i_json_text(b, text_b, sizeof(text_b)));
}

static const json_t *find_type(const json_t *object)
{
    const json_t *type = json_object_get(object, "rope_type");
    return type == NULL || json_is_null(type) ? json_object_get(object, "type") : type;
}

/* Where both spellings stand in one file they must say the same; only rope_theta may be in one alone. */
static weft_status compare_objects(const weft_reader *r, json_t *scaling, json_t *parameters)
{
    char name_a[TEXT_BYTES];
    char name_b[TEXT_BYTES];
    for (size_t i = 0; i < WEFT_COUNT_OF(known_keys); i++) {
        const char *key = known_keys[i];
        const bool is_type = strcmp(key, "rope_type") == 0;
        const json_t *a = is_type ? find_type(scaling) : json_object_get(scaling, key);
        const json_t *b = is_type ? find_type(parameters) : json_object_get(parameters, key);
        a = json_is_null(a) ? NULL : a;
        b = json_is_null(b) ? NULL : b;
        if (strcmp(key, "type") == 0 || strcmp(key, "rope_theta") == 0 || (a == NULL && b == NULL))
            continue;
        if (a == NULL || b == NULL || !is_equal(a, b)) {
            WEFT_TRY(weft_i_str_print(name_a, sizeof(name_a), "rope_scaling.%s", key));
            WEFT_TRY(weft_i_str_print(name_b, sizeof(name_b), "rope_parameters.%s", key));
            return reject_conflict(r, name_a, a, name_b, b);
        }
    }
    return WEFT_OK;
}

static weft_status check_keys(const weft_reader *r, const char *name, json_t *object)
{
    const char *key;
    json_t *value;
    char text[TEXT_BYTES];
    json_object_foreach(object, key, value)
    {
        if (!is_known(key))
            WEFT_TRY(weft_i_reader_reject(r, WEFT_STATUS_UNSUPPORTED,
                                          "%s.%.100s = %s: no rotary setting weft knows", name, key,
                                          weft_i_json_text(value, text, sizeof(text))));
    }
    return WEFT_OK;
}

/* rope_theta may stand beside the object or in it; every place that has one must have the same. */
static weft_status
read_theta(const weft_reader *r, const weft_reader *objects, int n_objects, double *out)
{
    const weft_real_range range = {THETA_DEFAULT, 1.0, 1e18};
    const json_t *seen = weft_i_reader_find(r, "rope_theta");
    const char *seen_in = "rope_theta";
    char name[2][TEXT_BYTES];
    WEFT_TRY(weft_i_reader_real(r, "rope_theta", range, out));
    for (int i = 0; i < n_objects; i++) {
        const json_t *theta = weft_i_reader_find(&objects[i], "rope_theta");
        if (theta == NULL)
            continue;
        WEFT_TRY(weft_i_str_print(name[i], sizeof(name[i]), "%srope_theta", objects[i].within));
        if (seen != NULL && !is_equal(seen, theta))
            return reject_conflict(r, seen_in, seen, name[i], theta);
        WEFT_TRY(weft_i_reader_real(&objects[i], "rope_theta", range, out));
        seen = theta;
        seen_in = name[i];
    }
    return WEFT_OK;
}

static weft_status check_partial(const weft_reader *r)
{
    const json_t *partial = weft_i_reader_find(r, "partial_rotary_factor");
    char text[TEXT_BYTES];
    if (partial == NULL || (json_is_number(partial) && json_number_value(partial) == 1.0))
        return WEFT_OK;
    return weft_i_reader_reject(r, WEFT_STATUS_UNSUPPORTED,
                                "%spartial_rotary_factor = %s: weft turns whole heads only (1.0)",
                                r->within, weft_i_json_text(partial, text, sizeof(text)));
}

static weft_status read_kind(const weft_reader *o, weft_rope_kind *out)
{
    const char *name = NULL;
    const json_t *old = weft_i_reader_find(o, "type");
    const json_t *new = weft_i_reader_find(o, "rope_type");
    if (old != NULL && new != NULL && !json_equal(old, new))
        return reject_conflict(o, "type", old, "rope_type", new);
    WEFT_TRY(weft_i_reader_string(o, new != NULL ? "rope_type" : "type", NULL, &name));
    if (name == NULL && weft_i_reader_find(o, "factor") != NULL)
        return weft_i_reader_reject(o, WEFT_STATUS_FORMAT,
                                    "%sfactor is given but no %srope_type says of what", o->within,
                                    o->within);
    for (size_t i = 0; i < WEFT_COUNT_OF(rope_names) && name != NULL; i++) {
        if (strcmp(name, rope_names[i].name) == 0) {
            *out = rope_names[i].kind;
            return WEFT_OK;
        }
    }
    if (name == NULL)
        return WEFT_OK;
    return weft_i_reader_reject(
        o, WEFT_STATUS_UNSUPPORTED,
        "%srope_type = \"%.100s\": weft has default, linear, dynamic, llama3 and yarn", o->within,
        name);
}

/* A number that must be there. */
static weft_status read_needed(
    const weft_reader *o, const char *kind, const char *key, weft_real_range range, double *out)
{
    if (weft_i_reader_find(o, key) == NULL)
        return weft_i_reader_reject(o, WEFT_STATUS_FORMAT, "%s%s is missing: rope_type %s needs it",
                                    o->within, key, kind);
    return weft_i_reader_real(o, key, range, out);
}

/* Beside the object it wins over inside it, as in transformers; else the model's own length. */
static weft_status
read_original(const weft_reader *r, const weft_reader *o, const weft_config *c, int64_t *out)
{
    const weft_int_range range = {c->max_positions, 1, WEFT_CONFIG_POSITIONS_MAX};
    const char *key = "original_max_position_embeddings";
    return weft_i_reader_int(weft_i_reader_find(r, key) != NULL ? r : o, key, range, out);
}

static weft_status read_llama3(const weft_reader *r, const weft_reader *o, weft_config *c)
{
    weft_rope *rope = &c->rope;
    rope->low_freq_factor = 1.0;
    rope->high_freq_factor = 4.0;
    WEFT_TRY(read_needed(o, "llama3", "factor", factor_range, &rope->factor));
    WEFT_TRY(read_needed(o, "llama3", "low_freq_factor", factor_range, &rope->low_freq_factor));
    WEFT_TRY(read_needed(o, "llama3", "high_freq_factor", factor_range, &rope->high_freq_factor));
    WEFT_TRY(read_original(r, o, c, &rope->original_max_positions));
    if (!(rope->high_freq_factor > rope->low_freq_factor))
        return weft_i_reader_reject(
            r, WEFT_STATUS_FORMAT,
            "%shigh_freq_factor = %.12g must be greater than low_freq_factor = %.12g", o->within,
            rope->high_freq_factor, rope->low_freq_factor);
    return WEFT_OK;
}

/* arXiv:2309.00071 section 3.4; with both mscale keys DeepSeek's ratio. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static weft_status read_yarn_attention(const weft_reader *o, weft_rope *rope)
{
    const weft_real_range range = {0.0, 0.0, 1e9};
    const weft_real_range given = {0.0, 1e-9, 1e9};
    double mscale = 0.0;
    double mscale_all_dim = 0.0;
    WEFT_TRY(weft_i_reader_real(o, "attention_factor", given, &rope->attention_factor));
    WEFT_TRY(weft_i_reader_real(o, "mscale", range, &mscale));
    WEFT_TRY(weft_i_reader_real(o, "mscale_all_dim", range, &mscale_all_dim));
    if (rope->attention_factor > 0.0)
        return WEFT_OK;
    if (mscale > 0.0 && mscale_all_dim > 0.0)
        rope->attention_factor =
            yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all_dim);
    else
        rope->attention_factor = yarn_mscale(rope->factor, 1.0);
    return WEFT_OK;
}

/* As in transformers a null factor is the ratio of the lengths, and a null truncate is false. */
static weft_status read_yarn(const weft_reader *r, const weft_reader *o, weft_config *c)
{
    weft_rope *rope = &c->rope;
    const weft_real_range beta = {0.0, 0.0, 1e9};
    WEFT_TRY(read_original(r, o, c, &rope->original_max_positions));
    if (json_is_null(json_object_get(o->root, "factor")))
        rope->factor = (double)c->max_positions / (double)rope->original_max_positions;
    else
        WEFT_TRY(read_needed(o, "yarn", "factor", factor_range, &rope->factor));
    WEFT_TRY(weft_i_reader_real(o, "beta_fast", beta, &rope->beta_fast));
    WEFT_TRY(weft_i_reader_real(o, "beta_slow", beta, &rope->beta_slow));
    rope->beta_fast =
        rope->beta_fast > 0.0 ? rope->beta_fast : 32.0; /* 0 means the default there too */
    rope->beta_slow = rope->beta_slow > 0.0 ? rope->beta_slow : 1.0;
    WEFT_TRY(weft_i_reader_bool(o, "truncate", json_object_get(o->root, "truncate") == NULL,
                                &rope->is_truncated));
    if (rope->beta_fast < rope->beta_slow)
        WEFT_TRY(weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                      "%sbeta_fast = %.12g must not be below beta_slow = %.12g",
                                      o->within, rope->beta_fast, rope->beta_slow));
    if (!(rope->theta > 1.0))
        WEFT_TRY(weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                      "rope_theta = %.12g: yarn needs more than 1", rope->theta));
    return read_yarn_attention(o, rope);
}

static weft_status read_settings(const weft_reader *r, const weft_reader *o, weft_config *c)
{
    weft_rope *rope = &c->rope;
    switch (rope->kind) {
    case WEFT_ROPE_DEFAULT:
        break;
    case WEFT_ROPE_LINEAR:
        return read_needed(o, "linear", "factor", factor_range, &rope->factor);
    case WEFT_ROPE_DYNAMIC:
        rope->original_max_positions = c->max_positions;
        WEFT_TRY(read_needed(o, "dynamic", "factor", factor_range, &rope->factor));
        if (c->head_dim <= 2)
            return weft_i_reader_reject(r, WEFT_STATUS_FORMAT,
                                        "head_dim = %d: dynamic rotary scaling needs over 2",
                                        (int)c->head_dim);
        break;
    case WEFT_ROPE_LLAMA3:
        return read_llama3(r, o, c);
    case WEFT_ROPE_YARN:
        return read_yarn(r, o, c);
    }
    return WEFT_OK;
}

weft_status weft_i_config_rope(const weft_reader *r, weft_config *c)
{
    json_t *scaling = NULL;
    json_t *parameters = NULL;
    weft_reader objects[2];
    int n_objects = 0;
    c->rope =
        (weft_rope){.kind = WEFT_ROPE_DEFAULT, .theta = THETA_DEFAULT, .attention_factor = 1.0};
    WEFT_TRY(find_object(r, "rope_scaling", &scaling));
    WEFT_TRY(find_object(r, "rope_parameters", &parameters));
    if (scaling != NULL)
        objects[n_objects++] = (weft_reader){r->path, scaling, "rope_scaling.", r->reasons};
    if (parameters != NULL)
        objects[n_objects++] = (weft_reader){r->path, parameters, "rope_parameters.", r->reasons};
    WEFT_TRY(check_keys(r, "rope_scaling", scaling));
    WEFT_TRY(check_keys(r, "rope_parameters", parameters));
    if (n_objects == 2)
        WEFT_TRY(compare_objects(r, scaling, parameters));
    WEFT_TRY(read_theta(r, objects, n_objects, &c->rope.theta));
    WEFT_TRY(check_partial(r));
    for (int i = 0; i < n_objects; i++)
        WEFT_TRY(check_partial(&objects[i]));
    if (n_objects == 0)
        return WEFT_OK;
    WEFT_TRY(read_kind(&objects[0], &c->rope.kind));
    return read_settings(r, &objects[0], c);
}
