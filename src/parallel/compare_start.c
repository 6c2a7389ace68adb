/*
 * Ranks may read from different disks and run different builds: before the first step or pass what they run, with what and
 * on what must be the same. Everything becomes text, texts are compared by hash, the rank that differs is named.
 *
 * Communication (world): that of weft_i_mesh_agree and weft_i_mesh_compare. One rank: none.
 */
#include "parallel/compare_start.h"

#include "base/ctx.h"
#include "parallel/ranks.h"

#ifndef WEFT_VERSION
#error "WEFT_VERSION is not defined: ranks could not compare it"
#endif

enum { CONFIG, HEADER, OPTIONS, DATA, N_TEXTS };

weft_status weft_i_start_add_ids(weft_str *out, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        WEFT_TRY(weft_i_str_addf(out, "%d%s", (int)ids[i], i + 1 < n ? " " : "\n"));
    return WEFT_OK;
}

static weft_status
fill(weft_str *text, const weft_source *source, weft_start_texts_fn *texts, const void *user)
{
    WEFT_TRY(weft_i_source_describe(source, &text[CONFIG], &text[HEADER]));
    return texts(&text[OPTIONS], &text[DATA], user);
}

static const char *or_nothing(const weft_str *s)
{
    return s->text != NULL ? s->text : "";
}

weft_status weft_i_mesh_compare_start(weft_mesh *m,
                                      const weft_source *source,
                                      weft_start_texts_fn *texts,
                                      const void *user)
{
    weft_str text[N_TEXTS];
    if (m->world_size == 1)
        return WEFT_OK;
    for (int i = 0; i < N_TEXTS; i++)
        weft_i_str_init(&text[i], m->ctx->alloc);
    weft_status st = weft_i_mesh_agree(m, fill(text, source, texts, user));
    if (st == WEFT_OK) {
        const weft_agreed items[] = {{"version", WEFT_VERSION},
                                     {"config", or_nothing(&text[CONFIG])},
                                     {"model header", or_nothing(&text[HEADER])},
                                     {"options", or_nothing(&text[OPTIONS])},
                                     {"data", or_nothing(&text[DATA])}};
        st = weft_i_mesh_compare(m, items, (int)WEFT_COUNT_OF(items));
    }
    for (int i = 0; i < N_TEXTS; i++)
        weft_i_str_fini(&text[i]);
    return st;
}
