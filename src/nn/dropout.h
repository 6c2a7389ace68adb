/* Where dropout acts: from a layer's probability to the arguments of the operations that drop. */
#ifndef WEFT_NN_DROPOUT_H
#define WEFT_NN_DROPOUT_H

#include "weft/ext/layer.h"

/** Dropout with probability p at a site of the model (families.h) for the rows of the batch; p = 0 outside training. */
weft_dropout weft_i_dropout_at(const weft_layer_io *io, float p, uint32_t site);

/** The same for the rows that the residual stream has here. */
weft_dropout weft_i_dropout_stream(const weft_layer_io *io, float p, uint32_t site);

#endif
