/*
 * The order in which windows of a stream are drawn.
 *
 * Source: a balanced Feistel network is a permutation of [0, 2^(2h)) whatever its round function (Luby and Rackoff
 * 1988); walking along its cycle until the value is below n (Black and Rogaway 2002, "cycle walking") makes it one of
 * [0, n). The round function is Philox (base/rng.h) with the round and the epoch in the counter.
 *
 * Invariants: window numbers depend on (seed, n_windows, sample) alone; within an epoch every window comes once. The
 * domain is less than 4 n, so a walk has fewer than four steps on average.
 */
#include "data/dataset.h"

#include "base/rng.h"

#define N_ROUNDS 8

weft_status weft_i_sampler_init(weft_sampler *s,
                                const weft_dataset *data,
                                int64_t first,
                                int64_t n_tokens,
                                int64_t seq_length,
                                uint64_t seed,
                                bool is_shuffled)
{
    if (seq_length < 1)
        WEFT_FAIL(WEFT_STATUS_ARG, "a sequence length of %lld is not possible",
                  (long long)seq_length);
    if (first < 0 || n_tokens < 0 || first > weft_i_dataset_tokens(data) - n_tokens)
        WEFT_FAIL(WEFT_STATUS_ARG, "tokens %lld to %lld were asked of a stream of %lld",
                  (long long)first, (long long)first + (long long)n_tokens - 1,
                  (long long)weft_i_dataset_tokens(data));
    if (n_tokens < seq_length + 1)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "the data (%s) gave %lld tokens, need at least %lld (sequence length + 1); give "
                  "more text or a "
                  "smaller --seq-length",
                  weft_i_dataset_first_path(data), (long long)n_tokens, (long long)seq_length + 1);
    *s = (weft_sampler){
        .data = data,
        .first = first,
        .n_tokens = n_tokens,
        .seq_length = seq_length,
        .n_windows = (n_tokens - 1) / seq_length,
        .seed = seed,
        .is_shuffled = is_shuffled,
    };
    return WEFT_OK;
}

/* One pass through the network on 2 * half_bits bits. */
static uint64_t feistel(weft_rng_key key, uint64_t epoch, int half_bits, uint64_t x)
{
    const uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = x >> half_bits;
    uint64_t right = x & mask;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        const weft_rng_block counter = {
            {(uint32_t)right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)}};
        const uint64_t mixed = left ^ (weft_i_rng_philox(key, counter).word[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits | right;
}

int64_t weft_i_sampler_window(const weft_sampler *s, int64_t sample)
{
    WEFT_ASSERT(sample >= 0);
    const int64_t place = sample % s->n_windows;
    if (!s->is_shuffled)
        return place;
    int half_bits = 1;
    while (half_bits < 31 && (INT64_C(1) << (2 * half_bits)) < s->n_windows)
        half_bits++;
    const weft_rng_key key = weft_i_rng_key(s->seed, "data/order");
    uint64_t x = (uint64_t)place;
    do {
        x = feistel(key, (uint64_t)(sample / s->n_windows), half_bits, x);
    } while (x >= (uint64_t)s->n_windows);
    return (int64_t)x;
}

weft_status weft_i_sampler_read(const weft_sampler *s, int64_t sample, int32_t *out)
{
    const int64_t window = weft_i_sampler_window(s, sample);
    return weft_i_dataset_read(s->data, s->first + window * s->seq_length, s->seq_length + 1, out);
}
