/* metrics.jsonl: what a line holds, and what is dropped when a run is resumed. */
#include "scratch.h"

#include "check.h"
#include "formats/json.h"
#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>

static weft_train_step make_step(int64_t step)
{
    return (weft_train_step){.step = step,
                             .train_steps = 30,
                             .loss = 1.0 / 3.0,
                             .lr = 0.1,
                             .grad_norm = (double)INFINITY,
                             .seconds = 0.25,
                             .tokens = 64,
                             .total_tokens = 64 * step,
                             .batch_hash = UINT64_C(0xfedcba9876543210),
                             .eval_loss = (double)NAN};
}

static void test_train_metrics__a_line_reads_back(void **state)
{
    char line[1024];
    json_t *o = NULL;
    (void)state;
    weft_train_step step = make_step(7);
    CHECK_OK(weft_i_metrics_line(line, sizeof(line), &step));
    CHECK_OK(weft_i_json_parse(&o, "line", "line", line, strlen(line)));
    assert_int_equal(json_integer_value(json_object_get(o, "step")), 7);
    CHECK_SAME_DOUBLE(json_real_value(json_object_get(o, "loss")), 1.0 / 3.0);
    CHECK_SAME_DOUBLE(json_real_value(json_object_get(o, "lr")), 0.1);
    assert_non_null(strstr(line, "\"lr\": 0.1,")); /* no digits that say nothing */
    assert_string_equal(json_string_value(json_object_get(o, "batch_hash")), "fedcba9876543210");
    assert_null(json_object_get(o, "grad_norm")); /* JSON has no infinity */
    assert_null(json_object_get(o, "eval_loss"));
    json_decref(o);
    step.eval_loss = 2.5;
    step.eval_tokens = 9;
    CHECK_OK(weft_i_metrics_line(line, sizeof(line), &step));
    assert_non_null(strstr(line, "\"eval_loss\": 2.5, \"eval_tokens\": 9,"));
    CHECK_FAILS(weft_i_metrics_line(line, 40, &step), WEFT_STATUS_ARG, "room for 40");
}

static void write_steps(weft_metrics *m, int64_t first, int64_t last)
{
    for (int64_t i = first; i <= last; i++) {
        const weft_train_step step = make_step(i);
        CHECK_OK(weft_i_metrics_write(m, &step));
    }
}

/* The steps of the file's lines, each of which must be whole. */
static int read_steps(const char *path, int64_t *steps)
{
    char line[2048];
    int n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        assert_non_null(strstr(line, "}\n"));
        steps[n++] = strtoll(line + strlen("{\"step\": "), NULL, 10);
    }
    (void)fclose(f);
    return n;
}

static void test_train_metrics__each_step_stands_once(void **state)
{
    scratch *s = *state;
    weft_metrics m;
    int64_t steps[64];
    char path[WEFT_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s", scratch_path(s, "metrics.jsonl"));
    CHECK_OK(weft_i_metrics_open(&m, path, 0));
    write_steps(&m, 1, 12);
    CHECK_OK(weft_i_writer_write(&m.file, "{\"step\": 13, \"lo", 16)); /* killed while writing */
    CHECK_OK(weft_i_metrics_close(&m));
    CHECK_OK(weft_i_metrics_open(&m, path, 12));
    CHECK_OK(weft_i_metrics_close(&m));
    assert_int_equal(read_steps(path, steps), 12);
    CHECK_OK(weft_i_metrics_open(&m, path, 9)); /* 10 to 12 go; 1 and 10 are not mixed up */
    write_steps(&m, 10, 15);
    CHECK_OK(weft_i_metrics_close(&m));
    assert_int_equal(read_steps(path, steps), 15);
    for (int i = 0; i < 15; i++)
        assert_int_equal(steps[i], i + 1);
    CHECK_OK(weft_i_metrics_open(&m, path, 0));
    CHECK_OK(weft_i_metrics_close(&m));
    assert_int_equal(read_steps(path, steps), 0);
    CHECK_FAILS(weft_i_metrics_open(&m, scratch_path(s, "no/metrics.jsonl"), 3), WEFT_STATUS_IO,
                "no/metrics.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_metrics__a_line_reads_back),
        cmocka_unit_test_setup_teardown(test_train_metrics__each_step_stands_once, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
