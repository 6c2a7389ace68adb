/*
 * Inverse frequencies of rotary positions, in double.
 *
 * Source: transformers 5.24 modeling_rope_utils.py (oracle); arXiv:2104.09864 for the plain form, arXiv:2309.00071 for
 * dynamic (section 3.3) and yarn (sections 3.2 and 3.4), the Llama 3.1 model code for llama3.
 *
 * Only `dynamic` depends on the length of the sequence: up to max_positions it is the plain form.
 */
#include "formats/hf_config.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

static void fill_plain(double theta, int64_t head_dim, double *out)
{
    for (int64_t i = 0; i < head_dim / 2; i++)
        out[i] = 1.0 / pow(theta, (double)(2 * i) / (double)head_dim);
}

/* The base grows with the length, so that the longest waves cover it. */
static double
dynamic_theta(const weft_rope *rope, int64_t head_dim, int64_t max_positions, int64_t n_positions)
{
    const double length = (double)WEFT_MAX(n_positions, max_positions);
    const double stretch = rope->factor * length / (double)max_positions - (rope->factor - 1.0);
    return rope->theta * pow(stretch, (double)head_dim / (double)(head_dim - 2));
}

/* Long waves are divided by the factor, short ones kept, those between blended. */
static void scale_llama3(const weft_rope *rope, int64_t n, double *out)
{
    const double original = (double)rope->original_max_positions;
    const double long_wave = original / rope->low_freq_factor;
    const double short_wave = original / rope->high_freq_factor;
    for (int64_t i = 0; i < n; i++) {
        const double wave = two_pi / out[i];
        if (wave > long_wave) {
            out[i] /= rope->factor;
        } else if (!(wave < short_wave)) {
            const double share = (original / wave - rope->low_freq_factor) /
                                 (rope->high_freq_factor - rope->low_freq_factor);
            out[i] = (1.0 - share) * out[i] / rope->factor + share * out[i];
        }
    }
}

/* The dimension whose wave turns `n_turns` times within the original length. */
static double turning_dim(const weft_rope *rope, int64_t head_dim, double n_turns)
{
    return (double)head_dim * log((double)rope->original_max_positions / (n_turns * two_pi)) /
           (2.0 * log(rope->theta));
}

/* Dimensions that turn often are kept, those that turn seldom are divided, with a ramp between. */
static void scale_yarn(const weft_rope *rope, int64_t head_dim, double *out)
{
    double low = turning_dim(rope, head_dim, rope->beta_fast);
    double high = turning_dim(rope, head_dim, rope->beta_slow);
    if (rope->is_truncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(head_dim - 1));
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < head_dim / 2; i++) {
        const double kept = 1.0 - fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        out[i] = out[i] / rope->factor * (1.0 - kept) + out[i] * kept;
    }
}

void weft_i_rope_frequencies(const weft_rope *rope,
                             int64_t head_dim,
                             int64_t max_positions,
                             int64_t n_positions,
                             double *out)
{
    const bool is_dynamic = rope->kind == WEFT_ROPE_DYNAMIC;
    fill_plain(is_dynamic ? dynamic_theta(rope, head_dim, max_positions, n_positions) : rope->theta,
               head_dim, out);
    if (rope->kind == WEFT_ROPE_LINEAR) {
        for (int64_t i = 0; i < head_dim / 2; i++)
            out[i] /= rope->factor;
    } else if (rope->kind == WEFT_ROPE_LLAMA3) {
        scale_llama3(rope, head_dim / 2, out);
    } else if (rope->kind == WEFT_ROPE_YARN) {
        scale_yarn(rope, head_dim, out);
    }
}
