/* Clipping by the norm of all gradients together, and the exact sum that the norm comes from. */
#ifndef WEFT_OPTIM_CLIP_H
#define WEFT_OPTIM_CLIP_H

#include "base/arena.h"
#include "base/sum.h"
#include "weft/ext/backend.h"

/**
 * Adds the square of every element of a gradient (f32) to *sum; exact, so the order of tensors and how they are cut over
 * ranks change no bit.
 */
weft_status
weft_i_clip_add_squares(weft_sum *sum, weft_backend *b, weft_arena *workspace, weft_view grad);

/** Square root of the sum; NaN or infinite when a gradient is not finite. */
double weft_i_clip_norm(const weft_sum *squares);

/** min(1, clip / (norm + 1e-6)), as PyTorch's clip_grad_norm_; 1 when clip is 0 (off). */
double weft_i_clip_scale(double norm, double clip);

#endif
