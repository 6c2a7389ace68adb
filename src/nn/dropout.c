/*
 * Dropout of a layer (contract: dropout.h). The mask is a function of (key of seed and step, site, sample, position,
 * element), so nothing is kept for backward: it asks again. Communication: none.
 */
#include "nn/dropout.h"

weft_dropout weft_i_dropout_at(const weft_layer_io *io, float p, uint32_t site)
{
    weft_dropout d = {0};
    if (!io->exec->is_training || p <= 0.0f)
        return d;
    d.p = p;
    d.key[0] = io->exec->dropout_key[0];
    d.key[1] = io->exec->dropout_key[1];
    d.site = site;
    d.position = io->batch->positions;
    d.sample = io->batch->samples;
    return d;
}

weft_dropout weft_i_dropout_stream(const weft_layer_io *io, float p, uint32_t site)
{
    weft_dropout d = weft_i_dropout_at(io, p, site);
    if (d.p > 0.0f) {
        d.position = weft_view_rows(d.position, io->shape.first_row, io->shape.rows_stream);
        d.sample = weft_view_rows(d.sample, io->shape.first_row, io->shape.rows_stream);
    }
    return d;
}
