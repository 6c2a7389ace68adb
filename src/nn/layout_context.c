/*
 * From the shared layout options to what a rank's context and a layout need, for the commands that run a model: this layer
 * knows files, the parallel methods do not.
 */
#include "nn/layout_context.h"

#include "base/error.h"
#include "base/log.h"
#include "formats/pace_file.h"

#include <inttypes.h>
#include <string.h>

weft_status weft_i_layout_ctx_options(weft_ctx_options *out,
                                      const weft_layout_options *layout,
                                      const weft_ctx_options *options)
{
    weft_ctx_options o = {.backend = WEFT_BACKEND_CPU};
    const char *backend = layout->backend != NULL ? layout->backend : "cpu";

    if (strcmp(backend, "reference") == 0)
        o.backend = WEFT_BACKEND_REFERENCE;
    else if (strcmp(backend, "cpu") != 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "backend \"%s\" is none of cpu, reference", backend);
    if (layout->threads_per_rank < 0 || layout->threads_per_rank > 1024)
        WEFT_FAIL(WEFT_STATUS_ARG, "threads_per_rank %" PRId64 " is not in 0 .. 1024",
                  layout->threads_per_rank);
    o.n_threads = (int)layout->threads_per_rank;
    if (options != NULL) {
        o.log = options->log;
        o.log_user = options->log_user;
        o.log_level = options->log_level;
    }
    *out = o;
    return WEFT_OK;
}

weft_status
weft_i_layout_read_pace(weft_pace *out, const weft_pace **used, const weft_layout_options *layout)
{
    *used = NULL;
    if (layout->pace == NULL || layout->pace[0] == '\0')
        return WEFT_OK;
    WEFT_TRY(weft_i_pace_file_read(out, layout->pace));
    *used = out;
    return WEFT_OK;
}

weft_status weft_i_layout_check_positions(const weft_ctx *ctx,
                                          const weft_config *config,
                                          const char *what,
                                          int64_t n_positions)
{
    if (n_positions <= config->max_positions)
        return WEFT_OK;
    if (config->family == WEFT_FAMILY_GPT2)
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "%s has %" PRId64 " tokens; the model has positions for %" PRId64, what,
                  n_positions, config->max_positions);
    weft_log(ctx, WEFT_LOG_WARN, "nn",
             "%s reaches %" PRId64 " tokens, beyond the %" PRId64
             " positions the config names: rotary positions go on, quality may not",
             what, n_positions, config->max_positions);
    return WEFT_OK;
}
