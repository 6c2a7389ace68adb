/* JSON in and out: what is refused and how it is said, escapes, values in messages. */
#include "check.h"
#include "scratch.h"

#include "formats/json.h"

static void refuses(const char *text, size_t n_bytes, const char *message)
{
    json_t *root = NULL;
    expect_failure(weft_i_json_parse(&root, "f.json", "config", text, n_bytes), WEFT_STATUS_FORMAT,
                   "f.json: the config", message, NULL);
    assert_null(root);
}

static void test_formats_json__refuses_what_is_not_one_clean_object(void **state)
{
    (void)state;
    refuses("", 0, "no valid JSON");
    refuses("[1]", 3, "no object");
    refuses("3", 1, "no valid JSON");
    refuses("{\"a\":1}}", 8, "no valid JSON");
    refuses("{\"a\":1,\"a\":2}", 13, "a key twice");
    refuses("{\"a\":{\"b\":1,\"b\":2}}", 19, "\"b\"");
    refuses("{\"a\":\"\\u0000\"}", 14, "NUL character");
    refuses("{\"a\":1\0}", 8, "byte 6 is NUL"); /* jansson alone would take this */
    refuses("{\"a\":NaN}", 9, "no valid JSON");
    refuses("{\"a\":1e999}", 11, "real number overflow");
    refuses("{\"a\":99999999999999999999}", 26, "too big integer");
    refuses("{\n\"a\": 1,\n}", 11, "line 3");
}

static void test_formats_json__escapes_strings(void **state)
{
    scratch *s = *state;
    weft_str out;
    weft_i_str_init(&out, s->alloc);
    CHECK_OK(weft_i_json_add_string(&out, "a\"b\\c\n\x01\xc3\xa9\xf0\x9f\x98\x80/"));
    assert_string_equal(out.text, "\"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9\xf0\x9f\x98\x80/\"");
    weft_i_str_fini(&out);
}

static void test_formats_json__refuses_what_is_not_utf8(void **state)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\xaf",
                                      "\xc3",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xff",
                                      "\xf0\x9f\x98"};
    scratch *s = *state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        weft_str out;
        weft_i_str_init(&out, s->alloc);
        if (weft_i_json_add_string(&out, bad[i]) != WEFT_STATUS_ARG)
            fail_msg("case %zu was accepted", i);
        weft_i_str_fini(&out);
    }
}

static void test_formats_json__shows_values_in_messages(void **state)
{
    (void)state;
    char text[16];
    json_t *root =
        json_loads("{\"a\":[1,2.5,1e-05,\"x\"],\"b\":\"abcdefghijklmnopqrstuvwxyz\"}", 0, NULL);
    char wide[64];
    assert_string_equal(weft_i_json_text(json_object_get(root, "a"), wide, sizeof(wide)),
                        "[1, 2.5, 1e-5, \"x\"]");
    const char *cut = weft_i_json_text(json_object_get(root, "b"), text, sizeof(text));
    assert_true(strlen(cut) < sizeof(text));
    assert_non_null(strstr(cut, "..."));
    assert_string_equal(weft_i_json_text(NULL, text, sizeof(text)), "nothing");
    json_decref(root);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_formats_json__refuses_what_is_not_one_clean_object),
        WITH_SCRATCH(test_formats_json__escapes_strings),
        WITH_SCRATCH(test_formats_json__refuses_what_is_not_utf8),
        WITH_SCRATCH(test_formats_json__shows_values_in_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
