/* The file of --pace: what is read, and what is refused by name. */
#include "scratch.h"

#include <string.h>

#include "formats/pace_file.h"

static const char *path_with(scratch *s, const char *text)
{
    return scratch_file(s, "pace.json", text, strlen(text));
}

static void test_formats_pace_file__numbers_are_read(void **state)
{
    scratch *const s = *state;
    weft_pace p;
    expect_ok(weft_i_pace_file_read(
        &p, path_with(s, "{\"block\": {\"forward_ms\": 1.5, \"input_gradient_ms\": 2, "
                         "\"weight_gradient_ms\": 0.25}, \"head\": {\"forward_ms\": 3, "
                         "\"input_gradient_ms\": 0, \"weight_gradient_ms\": 0}, \"message\": "
                         "{\"latency_us\": 20, \"bandwidth_gb_per_s\": 1.5}}")));
    assert_true(p.block.forward_ms == 1.5 && p.block.input_gradient_ms == 2.0 &&
                p.block.weight_gradient_ms == 0.25);
    assert_true(p.head.forward_ms == 3.0 && p.embedding.forward_ms == 0.0);
    assert_true(p.latency_s > 19.999e-6 && p.latency_s < 20.001e-6);
    assert_true(p.bytes_per_s == 1.5e9);
    expect_ok(weft_i_pace_file_read(&p, path_with(s, "{}")));
    assert_true(p.block.forward_ms == 0.0 && p.latency_s == 0.0 && p.bytes_per_s == 0.0);
}

static void test_formats_pace_file__what_is_wrong_is_named(void **state)
{
    scratch *const s = *state;
    static const struct {
        const char *text, *first, *second;
    } cases[] = {
        {"[]", "pace.json", "no object"},
        {"{\"blok\": {}}", "no key \"blok\"", "block, embedding"},
        {"{\"block\": 3}", "block is 3", "object"},
        {"{\"block\": {\"forward_ms\": 1}}", "block lacks input_gradient_ms", "pace.json"},
        {"{\"block\": {\"forwards_ms\": 1}}", "block has no key \"forwards_ms\"", "forward_ms"},
        {"{\"message\": {\"latency_us\": -1, \"bandwidth_gb_per_s\": 1}}",
         "message.latency_us is -1", ">= 0"},
        {"{\"message\": {\"latency_us\": 1, \"bandwidth_gb_per_s\": 0}}",
         "message.bandwidth_gb_per_s is 0", ">= 1e-06"},
        {"{\"message\": {\"latency_us\": 1, \"bandwidth_gb_per_s\": 1e-300}}",
         "message.bandwidth_gb_per_s is 1e-300", ">= 1e-06"},
        {"{\"message\": {\"latency_us\": \"fast\", \"bandwidth_gb_per_s\": 1}}",
         "message.latency_us is \"fast\"", "a number"},
        {"{\"message\": {\"latency_us\": 1e300, \"bandwidth_gb_per_s\": 1}}",
         "message.latency_us is", "at most"},
        {"{\"message\": {}, \"message\": {}}", "pace.json", "twice"},
        {"{\"message\": {\"latency_us\": 1", "pace.json", "JSON"},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        weft_pace p;
        expect_failure(weft_i_pace_file_read(&p, path_with(s, cases[i].text)), WEFT_STATUS_FORMAT,
                       cases[i].first, cases[i].second, NULL);
    }
}

static void test_formats_pace_file__a_missing_file_is_named(void **state)
{
    scratch *const s = *state;
    weft_pace p;
    expect_failure(weft_i_pace_file_read(&p, scratch_path(s, "none.json")), WEFT_STATUS_IO,
                   "none.json", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_formats_pace_file__numbers_are_read, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_formats_pace_file__what_is_wrong_is_named,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_formats_pace_file__a_missing_file_is_named,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
