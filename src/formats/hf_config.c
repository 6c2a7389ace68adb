/*
 * config.json and generation_config.json of Hugging Face folders (formats/hf_config.h, weft/config.h).
 *
 * Source: transformers 5.24 configuration_utils.py for what is common to families: model_type, dtype and its old name
 * torch_dtype (dtype wins where both stand), token ids; generation/configuration_utils.py for eos_token_id.
 *
 * Order of reading: JSON, family, the family's keys (hf_config_family.c, hf_config_rope.c), common keys, refusals. The
 * file's own text is kept beside, because what is saved is that text with the type changed.
 */
#include "formats/hf_config.h"

#include "base/ctx.h"
#include "base/file.h"
#include "formats/hf_config_family.h"

#include <string.h>

#define CONFIG_MAX_BYTES ((size_t)16 << 20)
#define EOS_MAX 8

typedef struct family_name {
    const char *model_type;
    const char *architecture;
    weft_family family;
} family_name;

static const family_name families[] = {
    {"gpt2", "GPT2LMHeadModel", WEFT_FAMILY_GPT2},
    {"llama", "LlamaForCausalLM", WEFT_FAMILY_LLAMA},
};

typedef struct type_name {
    const char *name;
    weft_dtype dtype;
} type_name;

static const type_name type_names[] = {
    {"float32", WEFT_DTYPE_F32}, {"float", WEFT_DTYPE_F32}, {"bfloat16", WEFT_DTYPE_BF16},
    {"float16", WEFT_DTYPE_F16}, {"half", WEFT_DTYPE_F16},
};

const char *weft_family_name(weft_family family)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(families); i++) {
        if (families[i].family == family)
            return families[i].model_type;
    }
    return "unknown";
}

const char *weft_i_family_architecture(weft_family family)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(families); i++) {
        if (families[i].family == family)
            return families[i].architecture;
    }
    return "unknown";
}

/* Files older than model_type name a class only. */
static const char *first_architecture(const weft_reader *r)
{
    return json_string_value(json_array_get(weft_i_reader_find(r, "architectures"), 0));
}

static weft_status read_family(const weft_reader *r, weft_family *out, bool *is_known)
{
    const char *type = NULL;
    *is_known = false;
    WEFT_TRY(weft_i_reader_string(r, "model_type", NULL, &type));
    const char *architecture = first_architecture(r);
    for (size_t i = 0; i < WEFT_COUNT_OF(families); i++) {
        if (type != NULL
                ? strcmp(type, families[i].model_type) == 0
                : architecture != NULL && strcmp(architecture, families[i].architecture) == 0) {
            *out = families[i].family;
            *is_known = true;
            return WEFT_OK;
        }
    }
    if (type != NULL)
        return weft_i_reader_reject(r, WEFT_STATUS_UNSUPPORTED,
                                    "model_type = \"%.100s\": weft has the families gpt2 and llama",
                                    type);
    if (architecture != NULL)
        return weft_i_reader_reject(
            r, WEFT_STATUS_UNSUPPORTED,
            "architectures = [\"%.100s\"] and no model_type: weft has the families gpt2 "
            "(GPT2LMHeadModel) and llama (LlamaForCausalLM)",
            architecture);
    return weft_i_reader_reject(
        r, WEFT_STATUS_FORMAT,
        "no model_type: add \"model_type\": \"gpt2\" or \"llama\", the families weft has");
}

static weft_status read_dtype(const weft_reader *r, weft_config *c)
{
    const char *key = weft_i_reader_find(r, "dtype") != NULL ? "dtype" : "torch_dtype";
    const char *name = NULL;
    c->dtype = WEFT_DTYPE_F32;
    WEFT_TRY(weft_i_reader_string(r, key, NULL, &name));
    if (name == NULL)
        return WEFT_OK;
    for (size_t i = 0; i < WEFT_COUNT_OF(type_names); i++) {
        if (strcmp(name, type_names[i].name) == 0) {
            c->dtype = type_names[i].dtype;
            c->has_dtype = true;
            return WEFT_OK;
        }
    }
    return weft_i_reader_reject(r, WEFT_STATUS_UNSUPPORTED,
                                "%s = \"%.100s\": weft has float32, bfloat16 and float16", key,
                                name);
}

/* One id, a list or null; negative ids stand for none. */
static weft_status read_eos_value(const weft_reader *r, const json_t *value, weft_config *c)
{
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    char text[160];
    c->n_eos = 0;
    if (json_is_null(value))
        return WEFT_OK;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id) || json_integer_value(id) < INT32_MIN ||
            json_integer_value(id) > INT32_MAX)
            return weft_i_reader_reject(
                r, WEFT_STATUS_FORMAT,
                "eos_token_id = %s: must be a token id, a list of them or null",
                weft_i_json_text(value, text, sizeof(text)));
        if (json_integer_value(id) < 0)
            continue;
        if (c->n_eos == EOS_MAX)
            return weft_i_reader_reject(r, WEFT_STATUS_UNSUPPORTED,
                                        "eos_token_id = %s: weft takes up to %d ids",
                                        weft_i_json_text(value, text, sizeof(text)), EOS_MAX);
        c->eos_ids[c->n_eos++] = json_integer_value(id);
    }
    return WEFT_OK;
}

static weft_status read_eos(const weft_reader *r, weft_config *c)
{
    const json_t *value = json_object_get(r->root, "eos_token_id");
    if (value != NULL)
        return read_eos_value(r, value, c);
    c->eos_ids[0] = c->family == WEFT_FAMILY_GPT2 ? 50256 : 2;
    c->n_eos = 1;
    return WEFT_OK;
}

static weft_status read_config(const weft_reader *r, weft_config *c)
{
    bool is_known = false;
    WEFT_TRY(read_family(r, &c->family, &is_known));
    if (!is_known)
        return WEFT_OK;
    if (c->family == WEFT_FAMILY_GPT2)
        WEFT_TRY(weft_i_config_gpt2(r, c));
    else
        WEFT_TRY(weft_i_config_llama(r, c));
    WEFT_TRY(read_dtype(r, c));
    WEFT_TRY(read_eos(r, c));
    return weft_i_config_refuse(r, c);
}

static weft_status copy_text(weft_alloc *alloc, const char *text, size_t n_bytes, char **out)
{
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, n_bytes + 1, 1, &block));
    memcpy(block, text, n_bytes);
    *out = block;
    return WEFT_OK;
}

weft_status weft_i_hf_config_parse(
    weft_hf_config *out, weft_alloc *alloc, const char *path, const char *text, size_t n_bytes)
{
    weft_config c = {.n_eos = 0};
    json_t *root = NULL;
    char *kept = NULL;
    WEFT_TRY(weft_i_json_parse(&root, path, "config", text, n_bytes));
    const weft_reader r = {path, root, "", NULL};
    weft_status st = read_config(&r, &c);
    json_decref(root);
    WEFT_TRY(st);
    if (strlen(path) >= sizeof(out->path))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s: the path is too long", path);
    WEFT_TRY(copy_text(alloc, text, n_bytes, &kept));
    memcpy(out->path, path, strlen(path) + 1);
    out->config = c;
    out->text = kept;
    return WEFT_OK;
}

weft_status weft_i_hf_config_parse_generation(weft_config *config,
                                              const char *path,
                                              const char *text,
                                              size_t n_bytes)
{
    json_t *root = NULL;
    weft_config changed = *config;
    WEFT_TRY(weft_i_json_parse(&root, path, "generation config", text, n_bytes));
    const weft_reader r = {path, root, "", NULL};
    const json_t *eos = weft_i_reader_find(&r, "eos_token_id");
    const weft_status st = eos == NULL ? WEFT_OK : read_eos_value(&r, eos, &changed);
    json_decref(root);
    if (st == WEFT_OK)
        *config = changed;
    return st;
}

static weft_status read_generation(weft_config *config, weft_alloc *alloc, const char *dir)
{
    char path[WEFT_PATH_MAX];
    char *text = NULL;
    size_t n_bytes = 0;
    WEFT_TRY(weft_i_path_join(path, dir, "generation_config.json"));
    if (!weft_i_file_exists(path))
        return WEFT_OK;
    WEFT_TRY(weft_i_file_read(alloc, path, CONFIG_MAX_BYTES, &text, &n_bytes));
    const weft_status st = weft_i_hf_config_parse_generation(config, path, text, n_bytes);
    weft_i_alloc_put(alloc, text);
    return st;
}

/* The JSON file that `path`, a folder or a file, stands for. The --out of a run is a likely slip. */
static weft_status find_file(char *out, const char *path)
{
    char latest[WEFT_PATH_MAX];
    if (!weft_i_dir_exists(path))
        return weft_i_str_print(out, WEFT_PATH_MAX, "%s", path);
    WEFT_TRY(weft_i_path_join(out, path, "config.json"));
    WEFT_TRY(weft_i_path_join(latest, path, "latest"));
    if (!weft_i_file_exists(out) && weft_i_dir_exists(latest))
        WEFT_FAIL(
            WEFT_STATUS_IO,
            "%s: has no config.json; it is the folder of a run, whose newest checkpoint is %s",
            path, latest);
    return WEFT_OK;
}

weft_status weft_i_hf_config_read(weft_hf_config *out, weft_alloc *alloc, const char *path)
{
    char file[WEFT_PATH_MAX];
    char *text = NULL;
    size_t n_bytes = 0;
    weft_hf_config c = {.text = NULL};
    WEFT_TRY(find_file(file, path));
    WEFT_TRY(weft_i_file_read(alloc, file, CONFIG_MAX_BYTES, &text, &n_bytes));
    weft_status st = weft_i_hf_config_parse(&c, alloc, file, text, n_bytes);
    weft_i_alloc_put(alloc, text);
    if (st == WEFT_OK && weft_i_dir_exists(path))
        st = read_generation(&c.config, alloc, path);
    if (st != WEFT_OK) {
        weft_i_hf_config_fini(&c, alloc);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

void weft_i_hf_config_fini(weft_hf_config *c, weft_alloc *alloc)
{
    weft_i_alloc_put(alloc, c->text);
    c->text = NULL;
}

weft_status weft_i_hf_config_unsupported(const char *path, weft_alloc *alloc, weft_str *out)
{
    char file[WEFT_PATH_MAX];
    char *text = NULL;
    size_t n_bytes = 0;
    json_t *root = NULL;
    weft_config c = {.n_eos = 0};
    weft_i_str_init(out, alloc);
    WEFT_TRY(find_file(file, path));
    WEFT_TRY(weft_i_file_read(alloc, file, CONFIG_MAX_BYTES, &text, &n_bytes));
    weft_status st = weft_i_json_parse(&root, file, "config", text, n_bytes);
    weft_i_alloc_put(alloc, text);
    WEFT_TRY(st);
    const weft_reader r = {file, root, "", out};
    st = read_config(&r, &c);
    json_decref(root);
    return st;
}

weft_status weft_config_read(weft_config *out, weft_ctx *ctx, const char *path)
{
    weft_hf_config c = {.text = NULL};
    WEFT_TRY(weft_i_hf_config_read(&c, ctx->alloc, path));
    *out = c.config;
    weft_i_hf_config_fini(&c, ctx->alloc);
    return WEFT_OK;
}
