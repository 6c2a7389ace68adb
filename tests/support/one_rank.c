/* A mesh of one rank (contract: one_rank.h). */
#include "one_rank.h"

#include "check.h"

#include "weft/context.h"

weft_mesh *one_rank_mesh(weft_ctx *ctx)
{
    weft_layout_options options;
    weft_layout layout;
    weft_mesh *mesh = NULL;
    weft_layout_options_init(&options);
    CHECK_OK(weft_i_layout_make(&layout, &options));
    CHECK_OK(weft_i_mesh_create(&mesh, ctx, &layout, NULL, 0, NULL));
    return mesh;
}

weft_mesh *one_rank_open(void)
{
    const weft_ctx_options options = {.n_threads = 1, .log_level = WEFT_LOG_SILENT};
    weft_ctx *ctx = NULL;
    CHECK_OK(weft_ctx_create(&ctx, &options));
    return one_rank_mesh(ctx);
}

void one_rank_close(weft_mesh *mesh)
{
    weft_ctx *ctx = mesh->ctx;
    weft_i_mesh_destroy(mesh);
    weft_ctx_destroy(ctx);
}
