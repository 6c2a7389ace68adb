/*
 * Ranks may read from different disks and run different builds: before the first step what they train, with what and on
 * what must be the same. Everything becomes text, texts are compared by hash, the rank that differs is named.
 *
 * Communication (world): that of weft_i_mesh_compare. One rank: none.
 */
#include "train/train_session.h"

#include "base/ctx.h"
#include "parallel/ranks.h"

#ifndef WEFT_VERSION
#define WEFT_VERSION "unknown"
#endif

/* Name, type and shape of every tensor; "fresh weights" without files. */
static weft_status add_header(weft_str *out, const weft_st *file)
{
    char shape[96];
    if (file == NULL)
        return weft_i_str_addf(out, "fresh weights");
    for (size_t i = 0; i < weft_i_st_count(file); i++) {
        const weft_st_tensor *t = weft_i_st_at(file, i);
        WEFT_TRY(weft_i_str_addf(out, "%s %s %s\n", t->name, t->dtype_name,
                                 weft_i_shape_text(&t->shape, shape, sizeof(shape))));
    }
    return WEFT_OK;
}

enum { CONFIG, HEADER, SETTINGS, DATA, N_TEXTS };

static weft_status fill_texts(const weft_train_session *s, weft_str *text)
{
    weft_i_str_fini(&text[CONFIG]); /* the call begins a new one */
    WEFT_TRY(weft_i_hf_config_write(&s->source.hf, s->ctx->alloc, s->source.dtype, &text[CONFIG]));
    WEFT_TRY(add_header(&text[HEADER], s->source.weights));
    WEFT_TRY(weft_i_json_add_value(&text[SETTINGS], s->state.settings));
    return weft_i_json_add_value(&text[DATA], s->state.data);
}

weft_status weft_i_train_compare_ranks(const weft_train_session *s)
{
    weft_str text[N_TEXTS];
    weft_status st = WEFT_OK;
    if (s->mesh->world_size == 1)
        return WEFT_OK;
    for (int i = 0; i < N_TEXTS; i++)
        weft_i_str_init(&text[i], s->ctx->alloc);
    st = weft_i_mesh_agree(s->mesh, fill_texts(s, text));
    if (st == WEFT_OK) {
        const weft_agreed items[] = {{"version", WEFT_VERSION},
                                     {"config", text[CONFIG].text},
                                     {"model header", text[HEADER].text},
                                     {"options", text[SETTINGS].text},
                                     {"data", text[DATA].text}};
        st = weft_i_mesh_compare(s->mesh, items, (int)WEFT_COUNT_OF(items));
    }
    for (int i = 0; i < N_TEXTS; i++)
        weft_i_str_fini(&text[i]);
    return st;
}
