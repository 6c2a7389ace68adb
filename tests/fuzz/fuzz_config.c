/*
 * Any bytes as a config.json: they are refused, or what was read is within its limits, its rotary frequencies are
 * numbers, and what is written back reads the same.
 *
 *   cmake -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DWEFT_FUZZ=ON -DWEFT_SANITIZE=address,undefined
 *   cmake --build build-fuzz --target fuzz_config
 *   build-fuzz/fuzz/fuzz_config -max_total_time=60 tests/fuzz/corpus/config
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int is_true)
{
    if (!is_true)
        abort();
}

static void check_sizes(const weft_config *c)
{
    const int64_t width = (int64_t)1 << 22;
    check(c->vocab_size > 0 && c->hidden_size > 0 && c->n_layers > 0 && c->ffn_size > 0 &&
          c->max_positions > 0);
    check(c->hidden_size <= width && c->ffn_size <= width && c->n_layers <= width &&
          c->vocab_size <= 4 * width);
    check(c->n_heads > 0 && c->head_dim > 0 && c->n_kv_heads > 0 &&
          c->n_heads % c->n_kv_heads == 0);
    check(c->n_heads <= width / c->head_dim);
    check(c->n_eos >= 0 && c->n_eos <= 8);
    check(c->norm_eps >= 0.0 && c->attn_dropout >= 0.0 && c->attn_dropout < 1.0);
}

static void check_frequencies(const weft_config *c)
{
    static double frequencies[4096];
    if (c->family != WEFT_FAMILY_LLAMA || c->head_dim > 8192)
        return;
    const int64_t lengths[] = {1, c->max_positions, 2 * c->max_positions};
    for (int i = 0; i < 3; i++) {
        weft_i_rope_frequencies(&c->rope, c->head_dim, c->max_positions, lengths[i], frequencies);
        for (int64_t j = 0; j < c->head_dim / 2; j++)
            check(isfinite(frequencies[j]) && frequencies[j] >= 0.0);
    }
    check(isfinite(c->rope.attention_factor) && c->rope.attention_factor > 0.0);
}

static void check_written(const weft_hf_config *c, weft_alloc *alloc)
{
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16, WEFT_DTYPE_F16};
    for (int i = 0; i < 3; i++) {
        weft_hf_config again = {.text = NULL};
        weft_config wanted = c->config;
        weft_str out;
        check(weft_i_hf_config_write(c, alloc, dtypes[i], &out) == WEFT_OK);
        check(weft_i_hf_config_parse(&again, alloc, "output", out.text, out.n_bytes) == WEFT_OK);
        wanted.dtype = dtypes[i];
        wanted.has_dtype = true;
        check(wanted.dtype == again.config.dtype && again.config.has_dtype);
        check(wanted.hidden_size == again.config.hidden_size &&
              wanted.family == again.config.family);
        check(memcmp(&wanted.rope.theta, &again.config.rope.theta, sizeof(double)) == 0);
        if (c->config.has_dtype && c->config.dtype == dtypes[i])
            check(out.n_bytes <= strlen(c->text) + 256);
        weft_i_hf_config_fini(&again, alloc);
        weft_i_str_fini(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_hf_config c; /* large for a stack under sanitizers */
    weft_alloc *alloc = NULL;
    weft_alloc_count count;
    memset(&c, 0, sizeof(c));
    check(weft_i_alloc_create(&alloc, false, 0) == WEFT_OK);
    const weft_status st = weft_i_hf_config_parse(&c, alloc, "input", (const char *)data, size);
    if (st == WEFT_OK) {
        check_sizes(&c.config);
        check_frequencies(&c.config);
        check_written(&c, alloc);
        weft_config generation = c.config;
        if (weft_i_hf_config_parse_generation(&generation, "input", (const char *)data, size) ==
            WEFT_OK)
            check(generation.n_eos >= 0 && generation.n_eos <= 8);
    } else {
        check(c.text == NULL && strlen(weft_last_error()) > 0);
    }
    weft_i_hf_config_fini(&c, alloc);
    weft_i_alloc_counts(alloc, WEFT_MEM_CONTROL, &count);
    check(count.now_bytes == 0);
    weft_i_alloc_destroy(alloc);
    return 0;
}
