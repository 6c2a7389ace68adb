/* Strings: growing and bounded ones, patterns, numbers out and in. */
#include "check.h"

#include "base/str.h"

#include <locale.h>
#include <stdlib.h>

static weft_alloc *new_alloc(void)
{
    weft_alloc *a = NULL;
    CHECK_OK(weft_i_alloc_create(&a, false, 0));
    return a;
}

static void test_base_str__grows_and_keeps_every_byte(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc();
    weft_str s;
    weft_i_str_init(&s, a);
    for (int i = 0; i < 500; i++) {
        const char byte = (char)i; /* NUL bytes too */
        CHECK_OK(weft_i_str_add(&s, &byte, 1));
        assert_int_equal(s.text[s.n_bytes], '\0');
    }
    assert_int_equal(s.n_bytes, 500);
    for (int i = 0; i < 500; i++)
        assert_int_equal(s.text[i], (char)i);
    weft_i_str_clear(&s);
    assert_int_equal(s.n_bytes, 0);
    assert_string_equal(s.text, "");
    CHECK_OK(weft_i_str_add(&s, NULL, 0));
    CHECK_OK(weft_i_str_addf(&s, "%d-%s", 7, "x"));
    CHECK_OK(weft_i_str_addf(&s, "%*s", 1000, "y"));
    assert_int_equal(s.n_bytes, 1003);
    assert_int_equal(strlen(s.text), 1003);
    assert_memory_equal(s.text, "7-x   ", 6);
    weft_i_str_fini(&s);
    weft_i_alloc_destroy(a);
}

static void test_base_str__refuses_what_does_not_fit(void **state)
{
    (void)state;
    char out[8];
    CHECK_OK(weft_i_str_print(out, sizeof(out), "%s", "1234567"));
    assert_string_equal(out, "1234567");
    CHECK_FAILS(weft_i_str_print(out, sizeof(out), "%s", "12345678"), WEFT_STATUS_ARG, "8 bytes");
    CHECK_FAILS(weft_i_str_print(out, 0, "%s", ""), WEFT_STATUS_ARG, "");
}

static void test_base_str__copies(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc();
    char text[] = "model.norm.weight";
    char *copy = NULL;
    CHECK_OK(weft_i_str_copy(a, text, &copy));
    text[0] = 'X';
    assert_string_equal(copy, "model.norm.weight");
    weft_i_alloc_put(a, copy);
    weft_i_alloc_destroy(a);
}

static void test_base_str__matches_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        const char *text;
        bool is_match;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"*", "", true},
        {"**", "abc", true},
        {"a*c", "abbbc", true},
        {"a*c", "abbbcd", false},
        {"*.weight", "model.layers.0.weight", true},
        {"*.weight", "model.layers.0.weights", false},
        {"model.layers.[0-3].*", "model.layers.2.mlp.weight", true},
        {"model.layers.[0-3].*", "model.layers.4.mlp.weight", false},
        {"model.layers.[!0-3].*", "model.layers.4.mlp.weight", true},
        {"h.?.attn", "h.1.attn", true},
        {"h.?.attn", "h.11.attn", false},
        {"?", "", false},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[]a]", "]", true},
        {"[a-]", "-", true},
        {"[a-]", "b", false},
        {"[a", "[a", true},
        {"[", "[", true},
        {"*[0-9]", "layer12", true},
        {"a*b*c*d", "axxbyyczzd", true},
        {"a*b*c*d", "axxbyyczz", false},
        {"*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"\xc3\xa9*", "\xc3\xa9t\xc3\xa9", true},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        if (weft_i_str_glob(cases[i].pattern, cases[i].text) != cases[i].is_match)
            fail_msg("\"%s\" on \"%s\" is not %d", cases[i].pattern, cases[i].text,
                     cases[i].is_match);
    }
}

static void test_base_str__writes_numbers_for_people(void **state)
{
    (void)state;
    char out[32];
    assert_string_equal(weft_i_str_thousands(0, out, sizeof(out)), "0");
    assert_string_equal(weft_i_str_thousands(999, out, sizeof(out)), "999");
    assert_string_equal(weft_i_str_thousands(1000, out, sizeof(out)), "1,000");
    assert_string_equal(weft_i_str_thousands(-1234567, out, sizeof(out)), "-1,234,567");
    assert_string_equal(weft_i_str_thousands(INT64_MIN, out, sizeof(out)),
                        "-9,223,372,036,854,775,808");
    assert_string_equal(weft_i_str_bytes(0.0, out, sizeof(out)), "0 B");
    assert_string_equal(weft_i_str_bytes(999.0, out, sizeof(out)), "999 B");
    assert_string_equal(weft_i_str_bytes(1000.0, out, sizeof(out)), "1.0 kB");
    assert_string_equal(weft_i_str_bytes(12345678.0, out, sizeof(out)), "12.3 MB");
    assert_string_equal(weft_i_str_bytes(999.96e6, out, sizeof(out)), "1.0 GB");
    assert_string_equal(weft_i_str_bytes(3.5e12, out, sizeof(out)), "3.5 TB");
    assert_string_equal(weft_i_str_bytes(-2.0e6, out, sizeof(out)), "-2.0 MB");
}

static void test_base_str__reads_whole_integers_only(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_number;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"42", true, 42},
        {"-7", true, -7},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"--1", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"0x10", false, 0},
        {"12a", false, 0},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        int64_t value = -99;
        const bool is_number = weft_i_str_to_int64(cases[i].text, &value);
        if (is_number != cases[i].is_number || value != (is_number ? cases[i].value : -99))
            fail_msg("\"%s\" gave %d, %lld", cases[i].text, is_number, (long long)value);
    }
}

static void check_doubles(void)
{
    static const struct {
        const char *text;
        bool is_number;
        double value;
    } cases[] = {
        {"0", true, 0.0},
        {"-0.0", true, -0.0},
        {"1e-4", true, 1e-4},
        {"6E-5", true, 6e-5},
        {".5", true, 0.5},
        {"5.", true, 5.0},
        {"-12.25", true, -12.25},
        {"1e+2", true, 100.0},
        {"1.7976931348623157e308", true, 1.7976931348623157e308},
        {"4.9406564584124654e-324", true, 0x1p-1074},
        {"1e309", false, 0.0},
        {"-1e309", false, 0.0},
        {"1e-400", false, 0.0},
        {"", false, 0.0},
        {".", false, 0.0},
        {"e5", false, 0.0},
        {"1e", false, 0.0},
        {"1,5", false, 0.0},
        {"+1", false, 0.0},
        {" 1", false, 0.0},
        {"1 ", false, 0.0},
        {"nan", false, 0.0},
        {"inf", false, 0.0},
        {"0x1p3", false, 0.0},
        {"1.2.3", false, 0.0},
        {"1-2", false, 0.0},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        double value = -99.0;
        const bool is_number = weft_i_str_to_double(cases[i].text, &value);
        if (is_number != cases[i].is_number)
            fail_msg("\"%s\" gave %d, %.17g", cases[i].text, is_number, value);
        CHECK_SAME_DOUBLE(value, is_number ? cases[i].value : -99.0);
    }
}

static void test_base_str__reads_decimal_numbers_in_any_locale(void **state)
{
    (void)state;
    check_doubles();
    static const char *const comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8"};
    for (size_t i = 0; i < WEFT_COUNT_OF(comma); i++) {
        if (setlocale(LC_ALL, comma[i]) == NULL) /* installed on few machines */
            continue;
        check_doubles();
        assert_string_equal(setlocale(LC_ALL, NULL), comma[i]); /* the program's own locale stays */
    }
    (void)setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_str__grows_and_keeps_every_byte),
        cmocka_unit_test(test_base_str__refuses_what_does_not_fit),
        cmocka_unit_test(test_base_str__copies),
        cmocka_unit_test(test_base_str__matches_patterns),
        cmocka_unit_test(test_base_str__writes_numbers_for_people),
        cmocka_unit_test(test_base_str__reads_whole_integers_only),
        cmocka_unit_test(test_base_str__reads_decimal_numbers_in_any_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
