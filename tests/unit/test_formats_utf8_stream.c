/* Whole characters only. Expected replacements: Unicode 15, section 3.9 (and Python's "replace", which follows it). */
#include "scratch.h"

#include "formats/tokenizer.h"

#include <string.h>

#define BAD "\xEF\xBF\xBD"

/* Feeds `bytes` one at a time, ends, compares. */
static void expect_shown(scratch *s, const char *bytes, size_t n_bytes, const char *shown)
{
    weft_utf8_stream stream = {0};
    weft_str out;
    weft_i_str_init(&out, s->alloc);
    for (size_t i = 0; i < n_bytes; i++)
        expect_ok(weft_i_utf8_stream_add(&stream, bytes + i, 1, &out));
    expect_ok(weft_i_utf8_stream_end(&stream, &out));
    assert_string_equal(out.text == NULL ? "" : out.text, shown);
    weft_i_str_fini(&out);
}

static void test_formats_utf8_stream__a_character_appears_with_its_last_byte(void **state)
{
    scratch *s = *state;
    const char thumb[] = "\xF0\x9F\x91\x8D"; /* 240 159 145 141 */
    weft_utf8_stream stream = {0};
    weft_str out;
    weft_i_str_init(&out, s->alloc);
    for (int i = 0; i < 3; i++) {
        expect_ok(weft_i_utf8_stream_add(&stream, thumb + i, 1, &out));
        assert_int_equal(out.n_bytes, 0);
    }
    expect_ok(weft_i_utf8_stream_add(&stream, thumb + 3, 1, &out));
    assert_string_equal(out.text, thumb);
    expect_ok(weft_i_utf8_stream_end(&stream, &out));
    assert_string_equal(out.text, thumb);
    weft_i_str_fini(&out);
}

static void test_formats_utf8_stream__an_incomplete_tail_is_one_replacement(void **state)
{
    expect_shown(*state, "\xF0\x9F\x91", 3, BAD);
    expect_shown(*state, "x\xE2\x82", 3, "x" BAD);
}

static void test_formats_utf8_stream__garbage_does_not_stall(void **state)
{
    expect_shown(*state, "\xF0\x9F a", 4, BAD " a");              /* 240 159 32 97 */
    expect_shown(*state, "\xC0\x80", 2, BAD BAD);                 /* overlong */
    expect_shown(*state, "\xED\xA0\x80", 3, BAD BAD BAD);         /* a surrogate */
    expect_shown(*state, "\x80", 1, BAD);                         /* alone */
    expect_shown(*state, "\xFF\xFEz", 3, BAD BAD "z");            /* never in UTF-8 */
    expect_shown(*state, "\xF4\x90\x80\x80", 4, BAD BAD BAD BAD); /* over U+10FFFF */
    expect_shown(*state, "\xE0\x80\x80", 3, BAD BAD BAD);         /* overlong */
    expect_shown(*state, "\xF0\x80\x80\x80", 4, BAD BAD BAD BAD); /* overlong */
    expect_shown(*state, "\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 12,
                 BAD BAD BAD "b" BAD "c" BAD BAD "d"); /* the standard's table 3-8 */
    expect_shown(*state, "\xE2\x82\xE2\x82\xAC", 5, BAD "\xE2\x82\xAC"); /* cut, then whole */
}

static void test_formats_utf8_stream__whole_characters_pass_unchanged(void **state)
{
    const char text[] = "a\xC3\xA9\xE2\x82\xAC\xEF\xBF\xBF\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80"
                        "\xF4\x8F\xBF\xBF\x7F\r\n";
    expect_shown(*state, text, sizeof(text) - 1, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_formats_utf8_stream__a_character_appears_with_its_last_byte, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(
            test_formats_utf8_stream__an_incomplete_tail_is_one_replacement, scratch_setup,
            scratch_teardown),
        cmocka_unit_test_setup_teardown(test_formats_utf8_stream__garbage_does_not_stall,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_formats_utf8_stream__whole_characters_pass_unchanged,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
