/*
 * The files of a checkpoint, written by all ranks at once.
 *
 * Communication, over the world: an agreement before each of the two tensor writers (train/tensor_writer.h) and one after
 * rank 0 wrote the small files.
 *
 * Weights go out under the names that were read, in the type that was asked for: from the fp32 master weights when that
 * type is finer than the model's. Where it is coarser, the optimizer's file keeps the fp32 weights (master/NAME), so that
 * a resumed run goes on exactly. A tied head is one parameter and so one tensor.
 */
#include "train/checkpoint.h"

#include "base/ctx.h"
#include "base/file.h"
#include "train/agree.h"
#include "train/tensor_writer.h"

#include <string.h>

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

bool weft_i_checkpoint_is_kept(const weft_checkpoint *c, weft_state state, const weft_param *p)
{
    const weft_optimizer_options *o = &c->optimizer->options;
    if (p->is_frozen)
        return false;
    switch (state) {
    case WEFT_STATE_MASTER:
        return weft_model_dtype(c->model) != WEFT_DTYPE_F32;
    case WEFT_STATE_EXP_AVG:
    case WEFT_STATE_EXP_AVG_SQ:
        return o->kind == WEFT_OPTIMIZER_ADAMW;
    case WEFT_STATE_MOMENTUM:
        return o->kind == WEFT_OPTIMIZER_SGD && o->momentum > 0.0;
    case WEFT_STATE_COUNT:
        break;
    }
    return false;
}

/* Tensors of one set of files, and which of them a parameter's weights or states are. */
typedef struct tensor_list {
    weft_tensor_item *items;
    size_t n;
    int64_t *number; /* [parameters * WEFT_STATE_COUNT]; -1: not written */
} tensor_list;

/* Where a part of a tensor comes from; not given: the tensor is not written. */
typedef weft_view source_fn(const weft_checkpoint *c, weft_state state, const weft_part *part);

/* Whether the weights' files take the fp32 weights of the optimizer. */
static bool is_finer(const weft_checkpoint *c, const weft_param *p)
{
    return c->save_dtype == WEFT_DTYPE_F32 && weft_i_checkpoint_is_kept(c, WEFT_STATE_MASTER, p);
}

static weft_view weights_of(const weft_checkpoint *c, weft_state state, const weft_part *part)
{
    (void)state;
    if (is_finer(c, part->param))
        return weft_i_optimizer_state(c->optimizer, WEFT_STATE_MASTER, part->state_first, part->n);
    return part->value;
}

/* The fp32 weights of a model whose files keep less of them. */
static bool is_master_of_values(const weft_checkpoint *c, weft_state state)
{
    return state == WEFT_STATE_MASTER && weft_model_dtype(c->model) == WEFT_DTYPE_F32 &&
           c->save_dtype != WEFT_DTYPE_F32;
}

static weft_view state_of(const weft_checkpoint *c, weft_state state, const weft_part *part)
{
    if (is_master_of_values(c, state))
        return part->value;
    return weft_i_optimizer_state(c->optimizer, state, part->state_first, part->n);
}

static weft_status list_weights(const weft_checkpoint *c, tensor_list *list)
{
    char name[WEFT_PARAM_NAME_BYTES];
    for (int64_t i = 0; i < weft_model_param_count(c->model); i++) {
        const weft_param *p = weft_model_param(c->model, i);
        weft_i_weights_file_name(&c->source->names, p, name);
        list->number[i * WEFT_STATE_COUNT] = (int64_t)list->n;
        WEFT_TRY(weft_i_tensor_item_set(&list->items[list->n++], name, c->save_dtype, p));
    }
    return WEFT_OK;
}

static weft_status list_states(const weft_checkpoint *c, tensor_list *list)
{
    char name[WEFT_TENSOR_NAME_BYTES];
    for (int64_t i = 0; i < weft_model_param_count(c->model); i++) {
        const weft_param *p = weft_model_param(c->model, i);
        for (int k = 0; k < WEFT_STATE_COUNT; k++) {
            const weft_state state = (weft_state)k;
            if (!weft_i_checkpoint_is_kept(c, state, p) && !is_master_of_values(c, state))
                continue;
            weft_i_checkpoint_state_name(name, state, &c->source->names, p);
            list->number[i * WEFT_STATE_COUNT + k] = (int64_t)list->n;
            WEFT_TRY(weft_i_tensor_item_set(&list->items[list->n++], name, WEFT_DTYPE_F32, p));
        }
    }
    return WEFT_OK;
}

static weft_status write_part(const weft_checkpoint *c,
                              weft_tensor_writer *w,
                              const tensor_list *list,
                              const weft_part *part,
                              source_fn *source)
{
    for (int k = 0; k < WEFT_STATE_COUNT; k++) {
        const int64_t item = list->number[part->number * WEFT_STATE_COUNT + k];
        if (item < 0)
            continue;
        const weft_view from = source(c, (weft_state)k, part);
        if (from.data == NULL)
            WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s is to be written and is not here",
                      list->items[item].name);
        WEFT_TRY(weft_i_tensor_writer_part(w, (size_t)item, part, from));
    }
    return WEFT_OK;
}

/* The tensors of `list` under DIR/BASE. */
static weft_status write_tensors(const weft_checkpoint *c,
                                 const weft_tensor_writer_options *files,
                                 const tensor_list *list,
                                 source_fn *source)
{
    weft_tensor_writer *w = NULL;
    weft_tensor_writer_options o = *files;
    weft_status st = WEFT_OK;
    o.items = list->items;
    o.n_items = list->n;
    WEFT_TRY(weft_i_tensor_writer_create(&w, &o));
    for (int64_t i = 0; i < c->owned->n && st == WEFT_OK; i++)
        st = write_part(c, w, list, &c->owned->part[i], source);
    return weft_i_tensor_writer_finish(w, st);
}

typedef weft_status list_fn(const weft_checkpoint *c, tensor_list *list);

/* Room for a list, and the list. */
static weft_status make_list(const weft_checkpoint *c, list_fn *fill, tensor_list *list)
{
    const int64_t n = weft_model_param_count(c->model) * WEFT_STATE_COUNT;
    *list = (tensor_list){.n = 0};
    WEFT_TRY(weft_i_alloc_array(c->ctx->alloc, n, sizeof(*list->items), &list->items));
    WEFT_TRY(weft_i_alloc_array(c->ctx->alloc, n, sizeof(*list->number), &list->number));
    for (int64_t i = 0; i < n; i++)
        list->number[i] = -1;
    return fill(c, list);
}

static weft_status write_set(const weft_checkpoint *c,
                             const weft_tensor_writer_options *files,
                             list_fn *fill,
                             source_fn *source)
{
    tensor_list list;
    weft_status st = weft_i_train_agree(c->mesh, make_list(c, fill, &list));
    if (st == WEFT_OK)
        st = write_tensors(c, files, &list, source);
    weft_i_alloc_put(c->ctx->alloc, list.number);
    weft_i_alloc_put(c->ctx->alloc, list.items);
    return st;
}

/* ---- the small files, by rank 0 ---- */

static weft_status
write_text(const char *dir, const char *name, const weft_str *text, weft_checksums *sums)
{
    char path[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_path_join(path, dir, name));
    WEFT_TRY(weft_i_file_write(path, text->text, text->n_bytes));
    return weft_i_checksums_add_file(sums, dir, name);
}

static weft_status write_texts(const weft_checkpoint *c, const char *dir, weft_checksums *sums)
{
    weft_alloc *alloc = c->ctx->alloc;
    weft_str text;
    weft_status st = weft_i_hf_config_write(&c->source->hf, alloc, c->save_dtype, &text);
    if (st == WEFT_OK)
        st = write_text(dir, "config.json", &text, sums);
    weft_i_str_fini(&text);
    WEFT_TRY(st);
    weft_trainer_state state = *c->state;
    if (c->mesh != NULL)
        state.layout = c->mesh->layout;
    weft_i_str_init(&text, alloc);
    st = weft_i_trainer_state_print(&state, &text);
    if (st == WEFT_OK)
        st = write_text(dir, WEFT_TRAINER_STATE_FILE, &text, sums);
    weft_i_str_fini(&text);
    return st;
}

static weft_status write_small(const weft_checkpoint *c, const char *dir, weft_checksums *sums)
{
    WEFT_TRY(write_texts(c, dir, sums));
    if (c->companions != NULL)
        WEFT_TRY(weft_i_companions_write(c->companions, dir, sums));
    return weft_i_checksums_write(sums, dir);
}

weft_status weft_i_checkpoint_write(const weft_checkpoint *c, const char *dir)
{
    weft_checksums sums;
    weft_status st = WEFT_OK;
    weft_tensor_writer_options files = {
        .ctx = c->ctx,
        .mesh = c->mesh,
        .dir = dir,
        .base = "model",
        .shard_bytes = c->shard_bytes,
        .sums = &sums,
    };
    weft_i_checksums_init(&sums, c->ctx->alloc);
    WEFT_TRY_GOTO(st, write_set(c, &files, list_weights, weights_of), out);
    files.base = "optimizer";
    WEFT_TRY_GOTO(st, write_set(c, &files, list_states, state_of), out);
    st = weft_i_train_is_first(c->mesh) ? write_small(c, dir, &sums) : WEFT_OK;
    st = weft_i_train_agree(c->mesh, st);
out:
    weft_i_checksums_fini(&sums);
    return st;
}
