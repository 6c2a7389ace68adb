/*
 * The files of a checkpoint.
 *
 * Weights go out under the names that were read, in the type that was asked for: from the fp32 master weights when that
 * type is finer than the model's. Where it is coarser, the optimizer's file keeps the fp32 weights (master/NAME), so that
 * a resumed run goes on exactly. A tied head is one parameter and so one tensor.
 */
#include "train/checkpoint.h"

#include "base/ctx.h"
#include "base/file.h"
#include "train/tensor_writer.h"

#include <string.h>

/* Beside the weights in the folder that was read; copied when there. */
static const char *const COPIED[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
};

void weft_i_checkpoint_state_name(char *out,
                                  weft_state state,
                                  const weft_weight_names *names,
                                  const weft_param *p)
{
    char name[WEFT_PARAM_NAME_BYTES];
    weft_i_weights_file_name(names, p, name);
    (void)weft_i_str_print(out, WEFT_PARAM_NAME_BYTES + 16, "%s/%s", weft_i_state_name(state),
                           name);
}

/* A parameter's own part of a state, in the parameter's shape. */
static weft_view state_of(const weft_optimizer *o, weft_state state, const weft_param *p)
{
    weft_view v = weft_view_none();
    if (!p->is_frozen)
        v = weft_i_optimizer_state(o, state, p->grad_first, p->rows * p->cols);
    return v.data == NULL ? v : weft_view_make(v.data, v.dtype, p->rows, p->cols);
}

static weft_dtype save_dtype(const weft_checkpoint *c)
{
    return weft_i_train_settings_save_dtype(&c->trainer->settings, c->source->dtype);
}

static weft_status write_weights(const weft_checkpoint *c, const char *dir, weft_tensor_item *items)
{
    weft_model *m = c->trainer->model;
    const weft_dtype dtype = save_dtype(c);
    const int64_t n = weft_model_param_count(m);
    for (int64_t i = 0; i < n; i++) {
        const weft_param *p = weft_model_param(m, i);
        const weft_view master = state_of(c->trainer->optimizer, WEFT_STATE_MASTER, p);
        const bool is_finer = dtype == WEFT_DTYPE_F32 && master.data != NULL;
        weft_i_weights_file_name(&c->source->names, p, items[i].name);
        items[i].dtype = dtype;
        items[i].param = p;
        items[i].local = is_finer ? master : p->value;
    }
    return weft_i_tensors_write(c->trainer->ctx->backend, dir, "model", items, (size_t)n,
                                c->shard_bytes);
}

/* The view that a state is written from; not given where there is nothing to write. */
static weft_view source_of(const weft_checkpoint *c, weft_state state, const weft_param *p)
{
    const weft_view kept = state_of(c->trainer->optimizer, state, p);
    if (kept.data == NULL && state == WEFT_STATE_MASTER && p->value.dtype == WEFT_DTYPE_F32 &&
        save_dtype(c) != WEFT_DTYPE_F32)
        return p->value;
    return kept;
}

static weft_status write_state(const weft_checkpoint *c, const char *dir, weft_tensor_item *items)
{
    weft_model *m = c->trainer->model;
    size_t n = 0;
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        for (int k = 0; k < WEFT_STATE_COUNT; k++) {
            const weft_view v = source_of(c, (weft_state)k, p);
            if (v.data == NULL)
                continue;
            weft_i_checkpoint_state_name(items[n].name, (weft_state)k, &c->source->names, p);
            items[n].dtype = WEFT_DTYPE_F32;
            items[n].param = p;
            items[n].local = v;
            n++;
        }
    }
    return weft_i_tensors_write(c->trainer->ctx->backend, dir, "optimizer", items, n,
                                c->shard_bytes);
}

static weft_status write_texts(const weft_checkpoint *c, const char *dir)
{
    weft_alloc *alloc = c->trainer->ctx->alloc;
    char path[WEFT_PATH_MAX];
    weft_str text;
    weft_status st = weft_i_hf_config_write(&c->source->hf, alloc, save_dtype(c), &text);
    if (st == WEFT_OK)
        st = weft_i_path_join(path, dir, "config.json");
    if (st == WEFT_OK)
        st = weft_i_file_write(path, text.text, text.n_bytes);
    weft_i_str_fini(&text);
    WEFT_TRY(st);
    weft_i_str_init(&text, alloc);
    st = weft_i_trainer_state_print(c->state, &text);
    if (st == WEFT_OK)
        st = weft_i_path_join(path, dir, WEFT_TRAINER_STATE_FILE);
    if (st == WEFT_OK)
        st = weft_i_file_write(path, text.text, text.n_bytes);
    weft_i_str_fini(&text);
    return st;
}

static weft_status copy_files(const weft_checkpoint *c, const char *dir)
{
    char from[WEFT_PATH_MAX], to[WEFT_PATH_MAX];
    if (c->source->dir[0] == '\0')
        return WEFT_OK;
    for (size_t i = 0; i < WEFT_COUNT_OF(COPIED); i++) {
        WEFT_TRY(weft_i_path_join(from, c->source->dir, COPIED[i]));
        WEFT_TRY(weft_i_path_join(to, dir, COPIED[i]));
        if (weft_i_file_exists(from))
            WEFT_TRY(weft_i_file_copy(from, to));
    }
    return WEFT_OK;
}

weft_status weft_i_checkpoint_write(const weft_checkpoint *c, const char *dir)
{
    weft_alloc *alloc = c->trainer->ctx->alloc;
    const size_t n_params = (size_t)weft_model_param_count(c->trainer->model);
    void *items = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(
        weft_i_alloc_new(alloc, n_params * WEFT_STATE_COUNT, sizeof(weft_tensor_item), &items));
    WEFT_TRY_GOTO(st, write_weights(c, dir, items), out);
    WEFT_TRY_GOTO(st, write_state(c, dir, items), out);
    WEFT_TRY_GOTO(st, write_texts(c, dir), out);
    WEFT_TRY_GOTO(st, copy_files(c, dir), out);
out:
    weft_i_alloc_put(alloc, items);
    return st;
}
