/*
 * From a path a user gives (--model) to a model with weights.
 *
 * A folder is its config.json and its safetensors: without weights it is refused, fresh ones are drawn only for a config
 * given alone. Names, shapes and types of the weights are checked when the source is opened, before any memory of the
 * model is taken.
 */
#include "nn/models/load.h"

#include "base/ctx.h"
#include "base/log.h"

#include <string.h>

static weft_status choose_dtype(weft_dtype *out, const weft_source *s, const char *name)
{
    if (strcmp(name, "fp32") == 0) {
        *out = WEFT_DTYPE_F32;
    } else if (strcmp(name, "bf16") == 0) {
        *out = WEFT_DTYPE_BF16;
    } else if (strcmp(name, "") != 0) {
        WEFT_FAIL(WEFT_STATUS_ARG, "dtype \"%s\" is none of fp32, bf16", name);
    } else if (s->weights != NULL) {
        *out = weft_i_weights_dtype(s->weights);
    } else {
        const weft_config *c = &s->hf.config;
        *out = c->has_dtype && c->dtype == WEFT_DTYPE_BF16 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
    }
    return WEFT_OK;
}

/* Finds out how the file spells its names and refuses what cannot be loaded, by a model without memory. */
static weft_status check_weights(weft_source *s, weft_ctx *ctx)
{
    weft_model *m = NULL;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_model_from_config(&m, ctx, &s->hf.config, s->dtype));
    WEFT_TRY_GOTO(st, weft_i_weights_names(&s->names, m, s->weights), out);
    WEFT_TRY_GOTO(st, weft_i_weights_check(m, s->weights, &s->names), out);
out:
    weft_model_destroy(m);
    return st;
}

weft_status
weft_i_source_open(weft_source *out, weft_ctx *ctx, const char *path, const char *dtype_name)
{
    weft_source s = {.weights = NULL};
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY(weft_i_hf_config_read(&s.hf, ctx->alloc, path));
    if (weft_i_dir_exists(path)) {
        WEFT_TRY_GOTO(st, weft_i_str_print(s.dir, sizeof(s.dir), "%s", path), out);
        WEFT_TRY_GOTO(st, weft_i_st_open_folder(&s.weights, ctx->alloc, path, "model"), out);
    }
    WEFT_TRY_GOTO(st, choose_dtype(&s.dtype, &s, dtype_name), out);
    if (s.weights != NULL)
        WEFT_TRY_GOTO(st, check_weights(&s, ctx), out);
out:
    if (st == WEFT_OK)
        *out = s;
    else
        weft_i_source_close(&s, ctx);
    return st;
}

weft_status weft_i_source_describe(const weft_source *s, weft_str *config, weft_str *header)
{
    char shape[96];
    WEFT_TRY(weft_i_hf_config_write(&s->hf, config->alloc, s->dtype, config));
    if (s->weights == NULL)
        return weft_i_str_addf(header, "fresh weights");
    for (size_t i = 0; i < weft_i_st_count(s->weights); i++) {
        const weft_st_tensor *t = weft_i_st_at(s->weights, i);
        WEFT_TRY(weft_i_str_addf(header, "%s %s %s\n", t->name, t->dtype_name,
                                 weft_i_shape_text(&t->shape, shape, sizeof(shape))));
    }
    return WEFT_OK;
}

void weft_i_source_unmap(weft_source *s)
{
    weft_i_st_close(s->weights);
    s->weights = NULL;
}

void weft_i_source_warn_tokenizer(const weft_source *s, const weft_ctx *ctx)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
    char path[WEFT_PATH_MAX];
    for (size_t i = 0; i < WEFT_COUNT_OF(names) && s->dir[0] != '\0'; i++) {
        if (weft_i_path_join(path, s->dir, names[i]) != WEFT_OK || !weft_i_file_exists(path))
            continue;
        weft_log(
            ctx, WEFT_LOG_WARN, "nn",
            "%s is not read by this version: text becomes bytes, which is not what the model was "
            "trained on. Give ids instead (generate --ids; token files as data)",
            path);
        return;
    }
}

void weft_i_source_close(weft_source *s, weft_ctx *ctx)
{
    weft_i_source_unmap(s);
    weft_i_hf_config_fini(&s->hf, ctx->alloc);
    memset(s, 0, sizeof(*s));
}

weft_status weft_i_source_fill(
    const weft_source *s, weft_model *m, const weft_part *parts, int64_t n, uint64_t seed)
{
    weft_ctx *ctx = weft_model_ctx(m);

    if (weft_i_alloc_is_dry(ctx->alloc))
        return WEFT_OK;
    if (s->weights != NULL)
        return weft_i_weights_load_parts(m, s->weights, &s->names, parts, n);
    if (s->dir[0] != '\0') /* a folder's model never gets random weights */
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "the weights of %s are unmapped already", s->dir);
    for (int64_t i = 0; i < n; i++)
        WEFT_TRY(weft_i_part_init(ctx->backend, &parts[i], parts[i].value, seed));
    return WEFT_OK;
}

weft_status weft_i_source_model(
    weft_model **out, const weft_source *s, weft_ctx *ctx, bool is_training, uint64_t seed)
{
    weft_model *m = NULL;
    weft_part *parts = NULL;
    weft_status st = WEFT_OK;

    *out = NULL;
    WEFT_TRY(weft_model_from_config(&m, ctx, &s->hf.config, s->dtype));
    WEFT_TRY_GOTO(st, weft_model_allocate(m, is_training), out);
    WEFT_TRY_GOTO(st, weft_i_part_list(&parts, m), out);
    WEFT_TRY_GOTO(st, weft_i_source_fill(s, m, parts, weft_model_param_count(m), seed), out);
out:
    weft_i_alloc_put(ctx->alloc, parts);
    if (st == WEFT_OK)
        *out = m;
    else
        weft_model_destroy(m);
    return st;
}
