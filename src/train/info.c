/*
 * What a model is (weft/inspect.h): its config counted, and the headers of its weights held against the parameters that
 * the config makes. The parameters come from the same code that trains, built on a dry context: nothing is taken.
 */
#include "weft/inspect.h"

#include "base/ctx.h"
#include "base/str.h"
#include "formats/hf_config.h"
#include "formats/json.h"
#include "nn/models/weights.h"
#include "weft/options.h"

#include <string.h>

#define CONFIG_MAX_BYTES ((size_t)16 << 20)

/* A list of texts, each in CONTROL memory. */
typedef struct name_list {
    char **names;
    size_t n;
    size_t capacity;
} name_list;

typedef struct info_store {
    weft_info info; /* first, so that the object is found from it */
    weft_alloc *alloc;
    weft_str unsupported;
    weft_str dtypes;
    weft_str fault;
    weft_str model_type;
    name_list missing, extra, misshapen;
} info_store;

static weft_status add_name(name_list *l, weft_alloc *alloc, const char *text)
{
    void *memory = l->names;
    WEFT_TRY(weft_i_alloc_grow(alloc, l->n + 1, sizeof(char *), &l->capacity, &memory));
    l->names = memory;
    WEFT_TRY(weft_i_str_copy(alloc, text, &l->names[l->n]));
    l->n++;
    return WEFT_OK;
}

static void free_names(name_list *l, weft_alloc *alloc)
{
    for (size_t i = 0; i < l->n; i++)
        weft_i_alloc_put(alloc, l->names[i]);
    weft_i_alloc_put(alloc, l->names);
}

/* ---- the config ---- */

static weft_status read_model_type(info_store *s, const char *path)
{
    char file[WEFT_PATH_MAX];
    if (weft_i_dir_exists(path))
        WEFT_TRY(weft_i_path_join(file, path, "config.json"));
    else
        WEFT_TRY(weft_i_str_print(file, sizeof(file), "%s", path));
    char *text = NULL;
    size_t n_bytes = 0;
    WEFT_TRY(weft_i_file_read(s->alloc, file, CONFIG_MAX_BYTES, &text, &n_bytes));
    json_t *root = NULL;
    weft_status st = weft_i_json_parse(&root, file, "config", text, n_bytes);
    weft_i_alloc_put(s->alloc, text);
    if (st != WEFT_OK)
        return st;
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (type != NULL)
        st = weft_i_str_add(&s->model_type, type, strlen(type));
    json_decref(root);
    return st;
}

static weft_status read_config(info_store *s, const char *path)
{
    WEFT_TRY(weft_i_hf_config_unsupported(path, s->alloc, &s->unsupported));
    WEFT_TRY(read_model_type(s, path));
    if (s->unsupported.n_bytes > 0)
        return WEFT_OK;
    weft_hf_config hf;
    WEFT_TRY(weft_i_hf_config_read(&hf, s->alloc, path));
    s->info.config = hf.config;
    weft_i_hf_config_fini(&hf, s->alloc);
    WEFT_TRY(weft_config_count(&s->info.params, &s->info.config));
    s->info.is_readable = true;
    return WEFT_OK;
}

/* ---- the weights ---- */

static weft_status list_types(info_store *s, const weft_st *file)
{
    bool is_seen[WEFT_DTYPE_COUNT] = {false};
    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const weft_st_tensor *t = weft_i_st_at(file, i);
        is_seen[t->dtype] = true;
        s->info.n_bytes += t->n_bytes;
        s->info.n_file_elems += t->n_elems;
    }
    for (int k = 0; k < WEFT_DTYPE_COUNT; k++) {
        if (is_seen[k])
            WEFT_TRY(weft_i_str_addf(&s->dtypes, "%s%s", s->dtypes.n_bytes > 0 ? ", " : "",
                                     weft_dtype_name((weft_dtype)k)));
    }
    return WEFT_OK;
}

static weft_status check_param(info_store *s, const weft_param *p, const weft_st_tensor *t)
{
    const weft_shape shape = p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                            : weft_i_shape_2d(p->full_rows, p->full_cols);
    if (weft_i_shape_equal(&shape, &t->shape))
        return WEFT_OK;
    char wanted[80], found[80], text[512];
    WEFT_TRY(weft_i_str_print(text, sizeof(text), "%.250s is %s, the config makes it %s", t->name,
                              weft_i_shape_text(&t->shape, found, sizeof(found)),
                              weft_i_shape_text(&shape, wanted, sizeof(wanted))));
    return add_name(&s->misshapen, s->alloc, text);
}

static weft_status compare_names(info_store *s, weft_model *m, const weft_st *file)
{
    weft_weight_names names;
    WEFT_TRY(weft_i_weights_names(&names, m, file));
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        char name[WEFT_PARAM_NAME_BYTES];
        weft_i_weights_file_name(&names, p, name);
        const weft_st_tensor *t = weft_i_st_find(file, name);
        WEFT_TRY(t == NULL ? add_name(&s->missing, s->alloc, name) : check_param(s, p, t));
    }
    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const char *name = weft_i_st_at(file, i)->name;
        if (weft_i_weights_role(m, &names, name) == WEFT_WEIGHT_UNKNOWN)
            WEFT_TRY(add_name(&s->extra, s->alloc, name));
    }
    return WEFT_OK;
}

static weft_status compare_with_config(info_store *s, const weft_st *file)
{
    const weft_ctx_options options = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_status st;
    WEFT_TRY_GOTO(st, weft_ctx_create(&ctx, &options), out);
    WEFT_TRY_GOTO(st, weft_model_from_config(&m, ctx, &s->info.config, WEFT_DTYPE_F32), out);
    WEFT_TRY_GOTO(st, compare_names(s, m, file), out);
out:
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
    return st;
}

/* Whether a folder means to hold weights: any model*.safetensors, or the index of some. */
static weft_status look_for_weights(info_store *s, const char *dir)
{
    char **names = NULL;
    size_t n_names = 0;
    WEFT_TRY(weft_i_dir_list(s->alloc, dir, &names, &n_names));
    for (size_t i = 0; i < n_names; i++) {
        if (strncmp(names[i], "model", 5) == 0 && strstr(names[i], ".safetensors") != NULL)
            s->info.has_weights = true;
    }
    weft_i_names_free(s->alloc, names, n_names);
    return WEFT_OK;
}

static weft_status read_weights(info_store *s, const char *path)
{
    if (!weft_i_dir_exists(path))
        return WEFT_OK;
    WEFT_TRY(look_for_weights(s, path));
    if (!s->info.has_weights)
        return WEFT_OK;
    weft_st *file = NULL;
    weft_status st = weft_i_st_open_folder(&file, s->alloc, path, "model");
    if (st == WEFT_STATUS_NOMEM)
        return st;
    if (st != WEFT_OK) /* what is wrong is part of what was asked */
        return weft_i_str_addf(&s->fault, "%s", weft_last_error());
    s->info.n_files = weft_i_st_file_count(file);
    s->info.n_tensors = weft_i_st_count(file);
    st = list_types(s, file);
    if (st == WEFT_OK && s->info.is_readable)
        st = compare_with_config(s, file);
    weft_i_st_close(file);
    return st;
}

/* ---- the object ---- */

static const char *text_of(const weft_str *s)
{
    return s->text == NULL ? "" : s->text;
}

static void lend(info_store *s)
{
    weft_info *i = &s->info;
    i->model_type = text_of(&s->model_type);
    i->unsupported = text_of(&s->unsupported);
    i->weights_fault = text_of(&s->fault);
    i->dtypes = text_of(&s->dtypes);
    i->missing = (const char *const *)s->missing.names;
    i->n_missing = s->missing.n;
    i->extra = (const char *const *)s->extra.names;
    i->n_extra = s->extra.n;
    i->misshapen = (const char *const *)s->misshapen.names;
    i->n_misshapen = s->misshapen.n;
}

weft_status weft_info_create(weft_info **out, const weft_info_options *options)
{
    *out = NULL;
    WEFT_TRY(weft_options_check(WEFT_COMMAND_INFO, options));
    weft_alloc *alloc = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    void *memory = NULL;
    weft_status st = weft_i_alloc_new(alloc, 1, sizeof(info_store), &memory);
    if (st != WEFT_OK) {
        weft_i_alloc_destroy(alloc);
        return st;
    }
    info_store *s = memory;
    s->alloc = alloc;
    weft_i_str_init(&s->unsupported, alloc);
    weft_i_str_init(&s->dtypes, alloc);
    weft_i_str_init(&s->fault, alloc);
    weft_i_str_init(&s->model_type, alloc);
    WEFT_TRY_GOTO(st, read_config(s, options->model), failed);
    WEFT_TRY_GOTO(st, read_weights(s, options->model), failed);
    lend(s);
    *out = &s->info;
    return WEFT_OK;
failed:
    weft_info_destroy(&s->info);
    return st;
}

void weft_info_destroy(weft_info *info)
{
    if (info == NULL)
        return;
    info_store *s = (info_store *)info;
    weft_alloc *alloc = s->alloc;
    free_names(&s->misshapen, alloc);
    free_names(&s->extra, alloc);
    free_names(&s->missing, alloc);
    weft_i_str_fini(&s->model_type);
    weft_i_str_fini(&s->fault);
    weft_i_str_fini(&s->dtypes);
    weft_i_str_fini(&s->unsupported);
    weft_i_alloc_put(alloc, s);
    weft_i_alloc_destroy(alloc);
}
