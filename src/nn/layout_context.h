/* From the layout options that every command shares to the context of this rank. */
#ifndef WEFT_NN_LAYOUT_CONTEXT_H
#define WEFT_NN_LAYOUT_CONTEXT_H

#include "base/pace_spec.h"
#include "weft/train.h"

/**
 * The layout's backend and threads (0: as many as there are processors) and the caller's log.
 *
 * @param[in] options  log, log_user and log_level are used; NULL: no log
 * @return    WEFT_OK | ARG no such backend, threads out of range
 */
weft_status weft_i_layout_ctx_options(weft_ctx_options *out,
                                      const weft_layout_options *layout,
                                      const weft_ctx_options *options);

/**
 * What --pace states, read into *out; *used points to it then, else it is NULL (weft_layout.pace).
 *
 * @return WEFT_OK | IO | FORMAT naming file, key and value | NOMEM
 */
weft_status
weft_i_layout_read_pace(weft_pace *out, const weft_pace **used, const weft_layout_options *layout);

/**
 * Whether the model has positions for sequences of `n_positions`: with learned ones there are no more than the table has
 * rows; rotary ones go on (and are warned about: what the model was never trained on).
 *
 * @return WEFT_OK | MISMATCH naming `what`, the length and the model's positions
 */
weft_status weft_i_layout_check_positions(const weft_ctx *ctx,
                                          const weft_config *config,
                                          const char *what,
                                          int64_t n_positions);

#endif
