/* The layouts that one rank can take: all of them trivial. */
#ifndef WEFT_FORMATS_LAYOUT_ONE_RANK_H
#define WEFT_FORMATS_LAYOUT_ONE_RANK_H

#include "weft/train.h"

/**
 * Refuses what needs more than one rank. Options that have nothing to act on with one rank pass.
 *
 * @collective  none
 * @return      WEFT_OK | ARG stage_layers that is no list of counts | UNSUPPORTED
 */
weft_status weft_i_layout_check_one_rank(const weft_layout_options *o);

#endif
