/* The byte tokenizer: every byte string comes back; sizes; refusals. */
#include "scratch.h"

#include "formats/tokenizer.h"

#include <string.h>

static void test_formats_tokenizer__every_byte_string_comes_back(void **state)
{
    scratch *s = *state;
    weft_tokenizer *t = NULL;
    expect_ok(weft_i_tokenizer_open(&t, s->alloc, "byte"));
    /* All 256 bytes, then what is no UTF-8: an overlong NUL, a surrogate, a lone continuation. */
    char text[256 + 6];
    for (int i = 0; i < 256; i++)
        text[i] = (char)(unsigned char)i;
    memcpy(text + 256, "\xC0\x80\xED\xA0\x80\x80", 6);
    int32_t ids[sizeof(text)];
    size_t n_ids = 0;
    expect_ok(weft_i_tokenizer_encode(t, text, sizeof(text), ids, &n_ids));
    assert_int_equal(n_ids, sizeof(text));
    weft_str back;
    weft_i_str_init(&back, s->alloc);
    for (size_t i = 0; i < n_ids; i++) {
        assert_int_equal(ids[i], (unsigned char)text[i]);
        expect_ok(weft_i_tokenizer_decode(t, ids[i], &back));
    }
    assert_int_equal(back.n_bytes, sizeof(text));
    assert_memory_equal(back.text, text, sizeof(text));
    weft_i_str_fini(&back);
    weft_i_tokenizer_close(t);
}

static void test_formats_tokenizer__end_of_text_is_256_and_stands_for_nothing(void **state)
{
    scratch *s = *state;
    weft_tokenizer *t = NULL;
    expect_ok(weft_i_tokenizer_open(&t, s->alloc, "byte"));
    assert_int_equal(weft_i_tokenizer_size(t), 257);
    assert_int_equal(weft_i_tokenizer_eos(t), 256);
    weft_str out;
    weft_i_str_init(&out, s->alloc);
    expect_ok(weft_i_tokenizer_decode(t, 256, &out));
    assert_int_equal(out.n_bytes, 0);
    expect_failure(weft_i_tokenizer_decode(t, 257, &out), WEFT_STATUS_ARG, "257", NULL);
    expect_failure(weft_i_tokenizer_decode(t, -1, &out), WEFT_STATUS_ARG, "-1", NULL);
    weft_i_str_fini(&out);
    weft_i_tokenizer_close(t);
}

static void test_formats_tokenizer__another_name_is_refused(void **state)
{
    scratch *s = *state;
    weft_tokenizer *t = NULL;
    expect_failure(weft_i_tokenizer_open(&t, s->alloc, "model/tokenizer.json"),
                   WEFT_STATUS_UNSUPPORTED, "model/tokenizer.json", "byte", NULL);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_formats_tokenizer__every_byte_string_comes_back,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(
            test_formats_tokenizer__end_of_text_is_256_and_stands_for_nothing, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(test_formats_tokenizer__another_name_is_refused,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
