/* Checkpoints of a trainer that has all of the model: every parameter is one part, whole. */
#include "train/checkpoint.h"

#include "base/ctx.h"

weft_status
weft_i_checkpoint_from_trainer(weft_checkpoint *filled, weft_parts *parts, const weft_checkpoint *c)
{
    weft_trainer *t = c->trainer;
    const int64_t n = weft_model_param_count(t->model);
    *parts = (weft_parts){.n = 0};
    WEFT_TRY(weft_i_alloc_array(t->ctx->alloc, n, sizeof(*parts->part), &parts->part));
    parts->n = n;
    for (int64_t i = 0; i < n; i++) {
        const weft_param *p = weft_model_param(t->model, i);
        parts->part[i] = weft_i_part_whole(t->model, i);
        parts->part[i].state_first = p->is_frozen ? -1 : p->grad_first;
    }
    *filled = *c;
    filled->trainer = NULL;
    filled->ctx = t->ctx;
    filled->model = t->model;
    filled->owned = filled->values = filled->states = parts;
    filled->optimizer = t->optimizer;
    filled->save_dtype = weft_i_train_settings_save_dtype(&t->settings, c->source->dtype);
    return WEFT_OK;
}

weft_status weft_i_checkpoint_read(weft_trainer *t, const weft_source *source, const char *dir)
{
    const weft_checkpoint c = {.trainer = t, .source = source};
    weft_checkpoint filled;
    weft_parts parts;
    WEFT_TRY(weft_i_checkpoint_from_trainer(&filled, &parts, &c));
    const weft_status st = weft_i_checkpoint_restore(&filled, dir);
    weft_i_alloc_put(t->ctx->alloc, parts.part);
    return st;
}
