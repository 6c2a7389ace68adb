/* The joined trace is the JSON that viewers read: events and names of all ranks, whatever bytes a text has. */
#include "check.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/trace.h"
#include "tmpdir.h"

static weft_alloc *alloc;
static char dir[TMPDIR_PATH_BYTES], path[TMPDIR_PATH_BYTES];

static int open_dir(void **state)
{
    (void)state;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    tmpdir_make(dir);
    (void)tmpdir_join(path, dir, "trace.json");
    return 0;
}

static int close_dir(void **state)
{
    (void)state;
    tmpdir_remove(dir);
    weft_i_alloc_destroy(alloc);
    return 0;
}

static json_t *load(void)
{
    json_error_t error;
    json_t *const root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("line %d: %s", error.line, error.text);
    assert_true(json_is_array(root));
    return root;
}

static const char *text_of(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_string(value) ? json_string_value(value) : "";
}

static int int_of(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return (int)json_integer_value(value);
}

/* The k-th object with this phase and name (NULL: any) of this rank (-1: any); NULL. */
static const json_t *find(const json_t *root, const char *phase, const char *name, int pid, int k)
{
    size_t i = 0;
    json_t *e = NULL;
    json_array_foreach(root, i, e)
    {
        if (strcmp(text_of(e, "ph"), phase) == 0 &&
            (name == NULL || strcmp(text_of(e, "name"), name) == 0) &&
            (pid < 0 || int_of(e, "pid") == pid) && k-- == 0)
            return e;
    }
    return NULL;
}

/* The name of line `tid` of rank `pid`. */
static const char *line_name(const json_t *root, int pid, int tid)
{
    for (int k = 0;; k++) {
        const json_t *const e = find(root, "M", "thread_name", pid, k);
        if (e == NULL || int_of(e, "tid") == tid)
            return e == NULL ? "" : text_of(json_object_get(e, "args"), "name");
    }
}

static void test_base_trace__the_ranks_events_come_in_one_array(void **state)
{
    weft_trace *t[3];
    (void)state;
    tmpdir_write(path, "an earlier run", 14);
    CHECK_OK(weft_i_trace_prepare(path));
    assert_false(weft_i_file_exists(path)); /* what is there is this run's, or nothing is */
    for (int r = 0; r < 3; r++)
        CHECK_OK(weft_i_trace_create(&t[r], alloc, path, r, 3));
    for (int r = 0; r < 3; r++) {
        const weft_trace_event compute = {.name = "forward block 3",
                                          .line = "compute",
                                          .start_s = 1000.25 + r,
                                          .end_s = 1000.5 + r,
                                          .bytes = -1};
        const weft_trace_event call = {.name = "reduce_scatter",
                                       .line = "dp",
                                       .start_s = 1000.3 + r,
                                       .end_s = 1000.300001 + r,
                                       .tensor = "h.3.mlp.c_fc.weight",
                                       .axis = "dp",
                                       .bytes = 9000000000};
        weft_i_trace_add(t[r], &compute);
        weft_i_trace_add(t[r], &call);
        CHECK_OK(weft_i_trace_finish(t[r]));
        weft_i_trace_destroy(t[r]);
    }
    CHECK_OK(weft_i_trace_join(alloc, path, 3));
    json_t *const root = load();
    for (int r = 0; r < 3; r++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "rank %d of 3", r);
        const json_t *const process = find(root, "M", "process_name", r, 0);
        assert_string_equal(text_of(json_object_get(process, "args"), "name"), name);
        const json_t *const compute = find(root, "X", "forward block 3", r, 0);
        const json_t *const call = find(root, "X", "reduce_scatter", r, 0);
        assert_true(compute != NULL && call != NULL);
        assert_null(find(root, "X", NULL, r, 2));
        CHECK_NEAR(json_number_value(json_object_get(compute, "ts")), 1000.25e6 + 1e6 * r, 1e-3);
        CHECK_NEAR(json_number_value(json_object_get(compute, "dur")), 0.25e6, 1e-3);
        CHECK_NEAR(json_number_value(json_object_get(call, "dur")), 1.0, 1e-2);
        assert_string_equal(line_name(root, r, int_of(compute, "tid")), "compute");
        assert_string_equal(line_name(root, r, int_of(call, "tid")), "dp");
        const json_t *const args = json_object_get(call, "args");
        assert_string_equal(text_of(args, "tensor"), "h.3.mlp.c_fc.weight");
        assert_string_equal(text_of(args, "axis"), "dp");
        assert_true(json_integer_value(json_object_get(args, "bytes")) == 9000000000);
        assert_int_equal(json_object_size(json_object_get(compute, "args")), 0);
    }
    json_decref(root);
    char of_rank[TMPDIR_PATH_BYTES + 8];
    (void)snprintf(of_rank, sizeof(of_rank), "%s.rank-1", path);
    assert_false(weft_i_file_exists(of_rank));
}

static void test_base_trace__any_bytes_become_a_text(void **state)
{
    static const struct {
        const char *in, *out;
    } texts[] = {
        {"a \"quoted\" \\ name", "a \"quoted\" \\ name"},
        {"line\nbreak\ttab\x01", "line\nbreak\ttab\x01"},
        {"sch\xc3\xb6n \xe2\x82\xac \xf0\x9f\x98\x80",
         "sch\xc3\xb6n \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"broken \xff \xc3 \xe2\x82 \xc0\x80 \xed\xa0\x80.", "broken ? ? ?? ?? ???."},
        {"", ""},
        {"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
         "89012345678",
         "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
         "89012345"}, /* 96 of 99 */
        {"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
         "8901234\xc3\xb6",
         "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
         "8901234?"}, /* cut within a character */
    };
    const int n = (int)(sizeof(texts) / sizeof(texts[0]));
    weft_trace *t = NULL;
    (void)state;
    CHECK_OK(weft_i_trace_create(&t, alloc, path, 0, 1));
    for (int i = 0; i < n; i++) {
        const weft_trace_event e = {.name = texts[i].in,
                                    .line = "a \"line\"",
                                    .start_s = i,
                                    .end_s = i + 1,
                                    .tensor = texts[i].in,
                                    .axis = texts[i].in,
                                    .bytes = 0};
        weft_i_trace_add(t, &e);
    }
    /* 96 bytes that become six each, three times in one event */
    char worst[97];
    memset(worst, 2, 96);
    worst[96] = '\0';
    for (int i = 0; i < 100; i++) {
        const weft_trace_event e = {.name = worst,
                                    .line = "a \"line\"",
                                    .start_s = 1e9 + i,
                                    .end_s = 1e9 + i + 0.5,
                                    .tensor = worst,
                                    .axis = worst,
                                    .bytes = INT64_MAX};
        weft_i_trace_add(t, &e);
    }
    CHECK_OK(weft_i_trace_finish(t));
    weft_i_trace_destroy(t);
    CHECK_OK(weft_i_trace_join(alloc, path, 1));
    json_t *const root = load();
    for (int i = 0; i < n; i++) {
        const json_t *const e = find(root, "X", NULL, 0, i);
        assert_string_equal(text_of(e, "name"), texts[i].out);
        assert_string_equal(text_of(json_object_get(e, "args"), "tensor"), texts[i].out);
    }
    for (int i = 0; i < 100; i++)
        assert_string_equal(text_of(find(root, "X", NULL, 0, n + i), "name"), worst);
    json_decref(root);
}

/* Events of one line that overlap in part are drawn apart; one within another stays with it. */
static void test_base_trace__a_line_has_lanes(void **state)
{
    static const struct {
        double start, end;
        const char *lane;
    } events[] = {
        {10, 20, "dp"},   {15, 25, "dp 2"},
        {17, 30, "dp 3"}, {21, 24, "dp"},
        {12, 13, "dp"},   /* within the first */ {5, 40, "dp"}, /* around all of the lane's */
        {26, 28, "dp"},   {38, 50, "dp 2"},
    };
    const int n = (int)(sizeof(events) / sizeof(events[0]));
    weft_trace *t = NULL;
    (void)state;
    CHECK_OK(weft_i_trace_create(&t, alloc, path, 0, 1));
    for (int i = 0; i < n; i++) {
        const weft_trace_event e = {.name = "call",
                                    .line = "dp",
                                    .start_s = events[i].start,
                                    .end_s = events[i].end,
                                    .bytes = -1};
        weft_i_trace_add(t, &e);
    }
    CHECK_OK(weft_i_trace_finish(t));
    weft_i_trace_destroy(t);
    CHECK_OK(weft_i_trace_join(alloc, path, 1));
    json_t *const root = load();
    for (int i = 0; i < n; i++) {
        const json_t *const e = find(root, "X", NULL, 0, i);
        assert_string_equal(line_name(root, 0, int_of(e, "tid")), events[i].lane);
    }
    json_decref(root);
}

#define N_THREADS 4
#define N_EVENTS 3000

static void *add_many(void *argument)
{
    static const char *const lines[] = {"compute", "dp", "world"};
    for (int i = 0; i < N_EVENTS; i++) {
        const double now = weft_i_clock_seconds();
        const weft_trace_event e = {
            .name = "many", .line = lines[i % 3], .start_s = now, .end_s = now, .bytes = i};
        weft_i_trace_add(argument, &e);
    }
    return NULL;
}

/* More than the buffer holds, from several threads, and no memory is taken for it. */
static void test_base_trace__adding_takes_no_memory(void **state)
{
    weft_trace *t = NULL;
    weft_alloc_count before, after;
    pthread_t thread[N_THREADS];
    (void)state;
    CHECK_OK(weft_i_trace_create(&t, alloc, path, 0, 1));
    weft_i_alloc_counts(alloc, WEFT_MEM_CONTROL, &before);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_many, t), 0);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    weft_i_alloc_counts(alloc, WEFT_MEM_CONTROL, &after);
    assert_int_equal(after.n_calls, before.n_calls);
    CHECK_OK(weft_i_trace_finish(t));
    CHECK_OK(weft_i_trace_finish(t)); /* once is enough */
    weft_i_trace_destroy(t);
    CHECK_OK(weft_i_trace_join(alloc, path, 1));
    json_t *const root = load();
    int n = 0;
    size_t i = 0;
    json_t *e = NULL;
    json_array_foreach(root, i, e) n += strcmp(text_of(e, "ph"), "X") == 0 ? 1 : 0;
    assert_int_equal(n, N_THREADS * N_EVENTS);
    json_decref(root);
}

static void test_base_trace__what_cannot_be_written_is_reported(void **state)
{
    char missing[TMPDIR_PATH_BYTES];
    weft_trace *t = NULL;
    (void)state;
    (void)tmpdir_join(missing, dir, "no/such/folder.json");
    CHECK_FAILS(weft_i_trace_prepare(missing), WEFT_STATUS_IO, "folder.json");
    CHECK_FAILS(weft_i_trace_prepare(dir), WEFT_STATUS_IO, "is a folder");
    assert_true(weft_i_dir_exists(dir));
    CHECK_FAILS(weft_i_trace_create(&t, alloc, missing, 0, 1), WEFT_STATUS_IO,
                "folder.json.rank-0");
    assert_null(t);
    CHECK_OK(weft_i_trace_create(&t, alloc, path, 0, 2));
    CHECK_OK(weft_i_trace_finish(t));
    weft_i_trace_destroy(t);
    CHECK_FAILS(weft_i_trace_join(alloc, path, 2), WEFT_STATUS_IO, "trace.json.rank-1");
    assert_false(weft_i_file_exists(path)); /* no half of a trace */
    weft_i_trace_add(NULL, &(weft_trace_event){.name = "nobody", .line = "traces"});
    weft_i_trace_destroy(NULL);
}

/* A full disk: /dev/full takes no byte. */
static void test_base_trace__a_full_disk_is_reported_at_the_end(void **state)
{
    char of_rank[TMPDIR_PATH_BYTES + 8];
    weft_trace *t = NULL;
    (void)state;
    (void)snprintf(of_rank, sizeof(of_rank), "%s.rank-0", path);
    CHECK_OK(weft_i_link_replace("/dev/full", of_rank));
    CHECK_OK(weft_i_trace_create(&t, alloc, path, 0, 1));
    (void)add_many(t);
    CHECK_FAILS(weft_i_trace_finish(t), WEFT_STATUS_IO, "trace.json.rank-0");
    weft_i_trace_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_base_trace__the_ranks_events_come_in_one_array,
                                        open_dir, close_dir),
        cmocka_unit_test_setup_teardown(test_base_trace__any_bytes_become_a_text, open_dir,
                                        close_dir),
        cmocka_unit_test_setup_teardown(test_base_trace__a_line_has_lanes, open_dir, close_dir),
        cmocka_unit_test_setup_teardown(test_base_trace__adding_takes_no_memory, open_dir,
                                        close_dir),
        cmocka_unit_test_setup_teardown(test_base_trace__what_cannot_be_written_is_reported,
                                        open_dir, close_dir),
        cmocka_unit_test_setup_teardown(test_base_trace__a_full_disk_is_reported_at_the_end,
                                        open_dir, close_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
