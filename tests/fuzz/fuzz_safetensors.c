/*
 * Any bytes as a safetensors file: they are refused, or every tensor can be read to its last byte and found by name.
 *
 *   cmake -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DWEFT_FUZZ=ON -DWEFT_SANITIZE=address,undefined
 *   cmake --build build-fuzz --target fuzz_safetensors
 *   build-fuzz/fuzz/fuzz_safetensors -max_total_time=60 tests/fuzz/corpus/safetensors
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int is_true)
{
    if (!is_true)
        abort();
}

/* What is read must be inside the input and must tile it. */
static void check_tensors(const weft_st *s, const uint8_t *data, size_t size)
{
    size_t sum = 0;
    unsigned total = 0;
    for (size_t i = 0; i < weft_i_st_count(s); i++) {
        const weft_st_tensor *t = weft_i_st_at(s, i);
        const uint8_t *bytes = t->data;
        int64_t n = -1;
        check(weft_i_st_find(s, t->name) == t);
        check(i == 0 || strcmp(weft_i_st_at(s, i - 1)->name, t->name) < 0);
        check(bytes >= data && t->n_bytes <= size && bytes + t->n_bytes <= data + size);
        check(weft_i_shape_count(&t->shape, &n) == WEFT_OK && n == t->n_elems);
        check(t->dtype == WEFT_DTYPE_OTHER || (size_t)n * weft_dtype_bytes(t->dtype) == t->n_bytes);
        for (size_t j = 0; j < t->n_bytes; j++)
            total += bytes[j];
        sum += t->n_bytes;
    }
    for (size_t i = 0; i < weft_i_st_meta_count(s); i++)
        total += (unsigned)strlen(weft_i_st_meta_at(s, i).key) +
                 (unsigned)strlen(weft_i_st_meta_at(s, i).value);
    check(sum + 8 <= size && total < UINT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_alloc *alloc = NULL;
    weft_st *s = NULL;
    check(weft_i_alloc_create(&alloc, false, 0) == WEFT_OK);
    const weft_status st = weft_i_st_parse(&s, alloc, "input", data, size);
    if (st == WEFT_OK)
        check_tensors(s, data, size);
    else
        check(s == NULL && strlen(weft_last_error()) > 0);
    weft_i_st_close(s);
    weft_alloc_count count;
    weft_i_alloc_counts(alloc, WEFT_MEM_CONTROL, &count);
    check(count.now_bytes == 0);
    weft_i_alloc_destroy(alloc);
    return 0;
}
