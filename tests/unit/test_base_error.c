/* The thread's error text, the flow macros, the names of statuses, and log lines. */
#include "check.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/log.h"

#include <pthread.h>

static void test_base_error__keeps_one_line_per_thread(void **state)
{
    (void)state;
    assert_int_equal(weft_i_error_set(WEFT_STATUS_FORMAT, "%s: line\n%d", "file", 3),
                     WEFT_STATUS_FORMAT);
    assert_string_equal(weft_last_error(), "file: line 3");
    char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)weft_i_error_set(WEFT_STATUS_IO, "%s", text);
    assert_int_equal(strlen(weft_last_error()), 1023);
}

static void test_base_error__may_quote_the_message_it_replaces(void **state)
{
    (void)state;
    (void)weft_i_error_set(WEFT_STATUS_IO, "first");
    (void)weft_i_error_set(WEFT_STATUS_IO, "second after %s", weft_last_error());
    assert_string_equal(weft_last_error(), "second after first");
}

static void test_base_error__puts_prefixes_before(void **state)
{
    (void)state;
    (void)weft_i_error_set(WEFT_STATUS_IO, "truncated");
    assert_int_equal(weft_i_error_prefix(WEFT_STATUS_FORMAT, "tensor %s", "wte"),
                     WEFT_STATUS_FORMAT);
    assert_string_equal(weft_last_error(), "tensor wte: truncated");
    char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)weft_i_error_prefix(WEFT_STATUS_IO, "%s", text);
    assert_int_equal(strlen(weft_last_error()), 1023);
}

static void *fail_in_thread(void *user)
{
    char *const seen = user;
    seen[0] = weft_last_error()[0]; /* nothing yet in this thread */
    (void)weft_i_error_set(WEFT_STATUS_NUMERIC, "theirs");
    return NULL;
}

static void test_base_error__belongs_to_its_thread(void **state)
{
    (void)state;
    (void)weft_i_error_set(WEFT_STATUS_IO, "mine");
    pthread_t thread;
    char seen = 'x';
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen, '\0');
    assert_string_equal(weft_last_error(), "mine");
}

static void test_base_error__names_every_status(void **state)
{
    (void)state;
    assert_string_equal(weft_status_name(WEFT_OK), "OK");
    for (int i = WEFT_STATUS_INTERNAL; i < WEFT_OK; i++) {
        assert_string_not_equal(weft_status_name((weft_status)i), "UNKNOWN");
        for (int j = WEFT_STATUS_INTERNAL; j < i; j++)
            assert_string_not_equal(weft_status_name((weft_status)i),
                                    weft_status_name((weft_status)j));
    }
    assert_string_equal(weft_status_name(WEFT_STATUS_FORMAT), "FORMAT");
    assert_string_equal(weft_status_name((weft_status)1), "UNKNOWN");
    assert_string_equal(weft_status_name((weft_status)-13), "UNKNOWN");
}

static weft_status try_twice(int *n, weft_status first)
{
    weft_status st = WEFT_OK;
    WEFT_TRY_GOTO(st, first, out);
    (*n)++;
    WEFT_TRY(weft_i_error_set(WEFT_STATUS_ARG, "second"));
    (*n)++;
out:
    *n += 10;
    return st;
}

static void test_base_error__macros_stop_at_the_first_failure(void **state)
{
    (void)state;
    int n = 0;
    assert_int_equal(try_twice(&n, WEFT_STATUS_IO), WEFT_STATUS_IO);
    assert_int_equal(n, 10);
    n = 0;
    assert_int_equal(try_twice(&n, WEFT_OK), WEFT_STATUS_ARG);
    assert_int_equal(n, 1);
}

typedef struct seen_line {
    int n;
    weft_log_level level;
    char text[4000];
} seen_line;

static void see(void *user, weft_log_level level, const char *line)
{
    seen_line *const seen = user;
    seen->n++;
    seen->level = level;
    (void)snprintf(seen->text, sizeof(seen->text), "%s", line);
}

static void test_base_log__passes_lines_at_or_above_the_threshold(void **state)
{
    (void)state;
    seen_line seen = {0};
    weft_ctx ctx = {.log = see, .log_user = &seen, .log_level = WEFT_LOG_WARN};
    weft_log(&ctx, WEFT_LOG_INFO, "train", "step %d", 1);
    assert_int_equal(seen.n, 0);
    weft_log(&ctx, WEFT_LOG_WARN, "train", "step %d\nloss %s", 2, "nan");
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.level, WEFT_LOG_WARN);
    assert_string_equal(seen.text, "train: step 2 loss nan");
    weft_log(&ctx, WEFT_LOG_ERROR, "formats", "x");
    assert_int_equal(seen.n, 2);
    ctx.log_level = WEFT_LOG_SILENT;
    weft_log(&ctx, WEFT_LOG_ERROR, "formats", "x");
    weft_log(&ctx, WEFT_LOG_SILENT, "formats", "x");
    assert_int_equal(seen.n, 2);
    ctx.log = NULL;
    ctx.log_level = WEFT_LOG_DEBUG;
    weft_log(&ctx, WEFT_LOG_ERROR, "formats", "no sink");
    weft_log(NULL, WEFT_LOG_ERROR, "formats", "no context");
}

static void test_base_log__marks_a_line_it_cut(void **state)
{
    (void)state;
    seen_line seen = {0};
    const weft_ctx ctx = {.log = see, .log_user = &seen};
    weft_log(&ctx, WEFT_LOG_INFO, "area", "%*s", 3000, "end");
    assert_int_equal(strlen(seen.text), 2047);
    assert_string_equal(seen.text + 2044, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_error__keeps_one_line_per_thread),
        cmocka_unit_test(test_base_error__may_quote_the_message_it_replaces),
        cmocka_unit_test(test_base_error__puts_prefixes_before),
        cmocka_unit_test(test_base_error__belongs_to_its_thread),
        cmocka_unit_test(test_base_error__names_every_status),
        cmocka_unit_test(test_base_error__macros_stop_at_the_first_failure),
        cmocka_unit_test(test_base_log__passes_lines_at_or_above_the_threshold),
        cmocka_unit_test(test_base_log__marks_a_line_it_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
