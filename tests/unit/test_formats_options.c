/* The option tables: defaults, command line, run configuration, refusals, help and manual pages. */
#include "scratch.h"

#include "formats/option.h"

#include <stdio.h>
#include <string.h>

/* One parse; `values` is of the size of the largest options struct. */
typedef struct parsed {
    weft_options *options;
    bool is_help;
    union {
        weft_train_options train;
        weft_generate_options generate;
        weft_tokenize_options tokenize;
        weft_diff_options diff;
        weft_info_options info;
    } values;
} parsed;

#define MAX_ARGS 32

static weft_status parse(parsed *p, weft_command command, ...)
{
    const char *argv[MAX_ARGS];
    int argc = 0;
    va_list args;
    va_start(args, command);
    while ((argv[argc] = va_arg(args, const char *)) != NULL)
        argc++;
    va_end(args);
    return weft_options_parse(&p->options, &p->values, &p->is_help, command, argc, argv);
}

#define TRAIN_NEEDS "--model", "m", "--data", "d", "--out", "o"

/* ---- defaults ---- */

static void test_formats_options__defaults_are_those_of_the_headers(void **state)
{
    (void)state;
    weft_train_options o;
    memset(&o, 0xA5, sizeof(o));
    weft_train_options_init(&o);
    assert_null(o.model);
    assert_null(o.data);
    assert_int_equal(o.n_data, 0);
    assert_string_equal(o.tokenizer, "byte");
    assert_int_equal(o.seq_length, 0);
    assert_int_equal(o.train_steps, 100);
    assert_string_equal(o.optimizer, "adamw");
    assert_true(o.lr == 3e-4 && o.min_lr == 0 && o.weight_decay == 0.1 && o.adam_beta1 == 0.9);
    assert_true(o.adam_beta2 == 0.95 && o.adam_eps == 1e-8 && o.sgd_momentum == 0 &&
                o.clip_grad == 1);
    assert_string_equal(o.lr_schedule, "cosine");
    assert_true(o.dropout == -1 && o.eval_fraction == 0.05 && o.max_minutes == 0);
    assert_true(o.shuffle);
    assert_int_equal(o.keep_checkpoints, 2);
    assert_string_equal(o.save_dtype, "model");
    assert_null(o.resume);
    assert_int_equal(o.log_interval, 1);
    const weft_layout_options *l = &o.layout;
    assert_string_equal(l->strategy, "");
    assert_int_equal(l->dp + l->tp + l->pp + l->ranks + l->zero_stage, 0);
    assert_true(l->zero_prefetch && l->overlap_grad_reduce && !l->sequence_parallel &&
                !l->reproducible);
    assert_string_equal(l->pp_schedule, "1f1b");
    assert_string_equal(l->rank_order, "tp-dp-pp");
    assert_string_equal(l->recompute, "none");
    assert_string_equal(l->dtype, "");
    assert_string_equal(l->backend, "cpu");
    assert_string_equal(l->stage_layers, "");
    assert_int_equal(l->pp_chunks, 0); /* as the schedule has it */
    assert_true(l->bucket_size_mb == 25);
    assert_int_equal(l->seed, 1234);
    assert_int_equal(l->micro_batch_size + l->global_batch_size + l->threads_per_rank, 0);

    weft_layout_options alone;
    memset(&alone, 0x5A, sizeof(alone));
    weft_layout_options_init(&alone);
    assert_int_equal(alone.seed, 1234);
    assert_string_equal(alone.pp_schedule, "1f1b");
    assert_true(alone.zero_prefetch);

    weft_generate_options g;
    weft_options_init(WEFT_COMMAND_GENERATE, &g);
    assert_int_equal(g.max_new_tokens, 64);
    assert_true(g.temperature == 0 && g.top_p == 1 && g.top_k == 0);
    assert_string_equal(g.output, "text");
}

/* Every row's default is one that weft_options_check takes, and every command has one name. */
static void test_formats_options__tables_agree_with_themselves(void **state)
{
    (void)state;
    for (int c = 0; c < WEFT_COMMAND_COUNT; c++) {
        const weft_option_spec *spec = weft_i_option_spec((weft_command)c);
        assert_int_equal(weft_command_from_name(spec->name), c);
        size_t base = 0;
        const weft_option *o;
        for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
            assert_true(strlen(o->name) < 64);
            assert_true(o->help != NULL && o->help[strlen(o->help) - 1] == '.');
            assert_true(o->type != WEFT_OPTION_CHOICE ||
                        (o->choices != NULL && o->fallback != NULL));
            if (o->type == WEFT_OPTION_CHOICE && o->fallback[0] != '\0')
                assert_true(weft_i_option_is_choice(o, o->fallback));
            if (o->type == WEFT_OPTION_SWITCH && o->fallback != NULL)
                assert_true(strcmp(o->fallback, "on") == 0 || strcmp(o->fallback, "off") == 0);
            for (size_t k = 0; k < i; k++) {
                size_t other_base = 0;
                assert_string_not_equal(weft_i_option_at(spec, k, &other_base)->name, o->name);
            }
        }
    }
    assert_int_equal(weft_command_from_name("frobnicate"), WEFT_COMMAND_COUNT);
    assert_string_equal(weft_command_nearest("trian"), "train");
    assert_string_equal(weft_command_nearest("tokenise"), "tokenize");
    assert_null(weft_command_nearest("frobnicate"));
}

/* ---- the command line ---- */

static void test_formats_options__every_form_of_the_command_line(void **state)
{
    (void)state;
    parsed p;
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, "--model=a=b", "--data", "x", "y", "--out", "o", "--lr",
                    "1e-3", "--shuffle", "off", "--reproducible", "--data", "z", "--data=--odd",
                    "--dropout=0.25", "--seed", "0", "--sequence-parallel", "on", "--lr-schedule",
                    "wsd", "--dp", "1", NULL));
    const weft_train_options *o = &p.values.train;
    assert_string_equal(o->model, "a=b");
    assert_int_equal(o->n_data, 4);
    assert_string_equal(o->data[0], "x");
    assert_string_equal(o->data[1], "y");
    assert_string_equal(o->data[2], "z");
    assert_string_equal(o->data[3], "--odd");
    assert_true(o->lr == 1e-3 && o->dropout == 0.25);
    assert_false(o->shuffle);
    assert_true(o->layout.reproducible && o->layout.sequence_parallel);
    assert_int_equal(o->layout.seed, 0);
    assert_int_equal(o->layout.dp, 1);
    assert_string_equal(o->lr_schedule, "wsd");
    assert_true(weft_options_is_given(p.options, "lr"));
    assert_true(weft_options_is_given(p.options, "dp"));
    assert_false(weft_options_is_given(p.options, "min-lr"));
    assert_false(weft_options_is_given(p.options, "no-such"));
    weft_options_destroy(p.options);

    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--lr", "1", "--lr", "2", NULL));
    assert_true(p.values.train.lr == 2); /* the last one counts */
    weft_options_destroy(p.options);
}

static void test_formats_options__resume_needs_no_value(void **state)
{
    (void)state;
    parsed p;
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, "--resume", TRAIN_NEEDS, NULL));
    assert_string_equal(p.values.train.resume, "");
    weft_options_destroy(p.options);
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--resume", NULL));
    assert_string_equal(p.values.train.resume, "");
    weft_options_destroy(p.options);
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--resume", "dir", NULL));
    assert_string_equal(p.values.train.resume, "dir");
    weft_options_destroy(p.options);
}

static void test_formats_options__positional_arguments(void **state)
{
    (void)state;
    parsed p;
    expect_ok(parse(&p, WEFT_COMMAND_DIFF, "one", "--exact", "two", NULL));
    assert_string_equal(p.values.diff.a, "one");
    assert_string_equal(p.values.diff.b, "two");
    assert_true(p.values.diff.exact);
    weft_options_destroy(p.options);
    expect_failure(parse(&p, WEFT_COMMAND_DIFF, "one", "two", "three", NULL), WEFT_STATUS_ARG,
                   "three", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_DIFF, "one", NULL), WEFT_STATUS_ARG, "needs B", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_DIFF, NULL), WEFT_STATUS_ARG, "needs A", NULL);
    expect_ok(parse(&p, WEFT_COMMAND_TOKENIZE, "--out", "o", "a", "-", "--", "--b", NULL));
    assert_int_equal(p.values.tokenize.n_files, 3);
    assert_string_equal(p.values.tokenize.files[1], "-");
    assert_string_equal(p.values.tokenize.files[2], "--b");
    weft_options_destroy(p.options);
    expect_ok(parse(&p, WEFT_COMMAND_INFO, "m", NULL));
    assert_string_equal(p.values.info.model, "m");
    weft_options_destroy(p.options);
    expect_ok(parse(&p, WEFT_COMMAND_INFO, "--model", "m", NULL));
    assert_string_equal(p.values.info.model, "m");
    weft_options_destroy(p.options);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--lr", "1", "stray", NULL),
                   WEFT_STATUS_ARG, "stray", NULL);
}

static void test_formats_options__prompts_are_one_each(void **state)
{
    (void)state;
    parsed p;
    expect_ok(parse(&p, WEFT_COMMAND_GENERATE, "--model", "m", "--prompt", "a b", "--prompt", "",
                    "--prompt=--c", NULL));
    assert_int_equal(p.values.generate.n_prompt, 3);
    assert_string_equal(p.values.generate.prompt[0], "a b");
    assert_string_equal(p.values.generate.prompt[1], "");
    assert_string_equal(p.values.generate.prompt[2], "--c");
    weft_options_destroy(p.options);
    expect_failure(parse(&p, WEFT_COMMAND_GENERATE, "--model", "m", "--prompt", "a", "b", NULL),
                   WEFT_STATUS_ARG, "\"b\"", NULL);
}

static void test_formats_options__wrong_values_name_what_is_allowed(void **state)
{
    (void)state;
    parsed p;
    const struct {
        const char *name, *value, *allowed;
    } wrong[] = {
        {"--lr", "abc", "a number >= 0"},
        {"--lr", "-1", "a number >= 0"},
        {"--lr", "nan", "a number >= 0"},
        {"--lr", "inf", "a number >= 0"},
        {"--lr", "1e-3x", "a number >= 0"},
        {"--lr", "", "a number >= 0"},
        {"--adam-beta1", "1", ">= 0 and < 1"},
        {"--adam-eps", "0", "a number > 0"},
        {"--dropout", "1", ">= 0 and < 1"},
        {"--dropout", "-1", ">= 0 and < 1"}, /* the default, but not to be written */
        {"--train-steps", "0", "a whole number >= 1"},
        {"--train-steps", "1.5", "a whole number >= 1"},
        {"--train-steps", "99999999999999999999", "a whole number >= 1"},
        {"--dp", "0", "a whole number >= 1"},
        {"--zero-stage", "4", "a whole number >= 0 and <= 3"},
        {"--seed", "-1", "a whole number >= 0"},
        {"--pp-schedule", "1f", "one of naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2"},
        {"--pp-schedule", "naive|gpipe", "one of naive"},
        {"--pp-schedule", "", "one of naive"},
        {"--strategy", "ddp", "data-parallel"},
        {"--dtype", "fp16", "one of fp32, bf16"},
        {"--optimizer", "adam", "one of adamw, sgd"},
        {"--recompute", "ful", "one of none, selective, full"},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(wrong); i++) {
        expect_failure(
            parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, wrong[i].name, wrong[i].value, NULL),
            WEFT_STATUS_ARG, wrong[i].name, wrong[i].value, wrong[i].allowed, NULL);
        assert_null(p.options);
    }
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--shuffle=maybe", NULL),
                   WEFT_STATUS_ARG, "--shuffle maybe", "on or off", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--lr", NULL), WEFT_STATUS_ARG,
                   "--lr needs a value", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, "--lr", "--min-lr", "0", NULL),
                   WEFT_STATUS_ARG, "--lr needs a value", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, "--data", "--model", "m", NULL), WEFT_STATUS_ARG,
                   "--data needs a value", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, "--model", "m", "--data", "d", NULL),
                   WEFT_STATUS_ARG, "needs --out DIR", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, "--model", "", "--data", "d", "--out", "o", NULL),
                   WEFT_STATUS_ARG, "--model", NULL);
}

static void test_formats_options__unknown_options_suggest_the_nearest(void **state)
{
    (void)state;
    parsed p;
    const char *const pairs[][2] = {
        {"--seq-lenght", "nearest is --seq-length"},
        {"--seq_length", "nearest is --seq-length"},
        {"--learning-rate", "nearest is --lr"},
        {"--lr-warmup-step", "nearest is --lr-warmup-steps"},
        {"--batch-size", "nearest is --micro-batch-size"},
        {"--zero-stge=3", "there is no option --zero-stge; the nearest is --zero-stage"},
        {"--frobnicate", "`weft train --help` lists them"},
        {"-x", "there is no option -x"},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(pairs); i++)
        expect_failure(parse(&p, WEFT_COMMAND_TRAIN, TRAIN_NEEDS, pairs[i][0], "1", NULL),
                       WEFT_STATUS_ARG, pairs[i][1], NULL);
    assert_int_equal(weft_i_option_distance("kitten", "sitting"), 3);
    assert_int_equal(weft_i_option_distance("", "abc"), 3);
    assert_int_equal(weft_i_option_distance("a_b", "A-b"), 0);
}

static void test_formats_options__help_wins_over_everything(void **state)
{
    (void)state;
    parsed p;
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, "--nonsense", "--help", NULL));
    assert_true(p.is_help);
    weft_options_destroy(p.options);
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, "-h", NULL));
    assert_true(p.is_help);
    weft_options_destroy(p.options);
    expect_ok(parse(&p, WEFT_COMMAND_TOKENIZE, "--out", "o", "--", "--help", NULL));
    assert_false(p.is_help);
    weft_options_destroy(p.options);
}

/* ---- the run configuration ---- */

static const char *run_file(scratch *s, const char *text)
{
    return scratch_file(s, "run.json", text, strlen(text));
}

static void test_formats_options__a_run_file_gives_what_options_give(void **state)
{
    scratch *s = *state;
    const char *path =
        run_file(s, "{\"model\": \"m\", \"data\": [\"d1\", \"d2\"], \"out\": \"o\", \"lr\": 1,"
                    "\"seq_length\": 64, \"shuffle\": false, \"resume\": true, \"freeze\": \"w*\","
                    "\"zero_stage\": 2, \"pp_schedule\": \"gpipe\", \"min_lr\": null}");
    parsed p;
    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, path, "--lr", "0.5", "--data", "x", "--data", "y", "z",
                    NULL));
    const weft_train_options *o = &p.values.train;
    assert_string_equal(o->model, "m");
    assert_int_equal(o->n_data, 3); /* the command line's list replaces the file's */
    assert_string_equal(o->data[0], "x");
    assert_string_equal(o->data[2], "z");
    assert_true(o->lr == 0.5);
    assert_int_equal(o->seq_length, 64);
    assert_false(o->shuffle);
    assert_string_equal(o->resume, "");
    assert_int_equal(o->n_freeze, 1);
    assert_string_equal(o->freeze[0], "w*");
    assert_int_equal(o->layout.zero_stage, 2);
    assert_string_equal(o->layout.pp_schedule, "gpipe");
    assert_true(weft_options_is_given(p.options, "seq-length"));
    assert_false(weft_options_is_given(p.options, "min-lr"));
    weft_options_destroy(p.options);

    expect_ok(parse(&p, WEFT_COMMAND_TRAIN, path, NULL));
    assert_int_equal(p.values.train.n_data, 2);
    assert_string_equal(p.values.train.data[1], "d2");
    weft_options_destroy(p.options);
}

static void test_formats_options__wrong_run_files_are_refused(void **state)
{
    scratch *s = *state;
    parsed p;
    const struct {
        const char *text;
        weft_status code;
        const char *message;
    } wrong[] = {
        {"{\"lr\": \"1\"}", WEFT_STATUS_ARG, "\"lr\": \"1\" is not possible: a number >= 0"},
        {"{\"lr\": -1}", WEFT_STATUS_ARG, "\"lr\": -1 is not possible"},
        {"{\"train_steps\": 1.5}", WEFT_STATUS_ARG,
         "\"train_steps\": 1.5 is not possible: a whole number"},
        {"{\"shuffle\": 1}", WEFT_STATUS_ARG, "\"shuffle\": 1 is not possible: true or false"},
        {"{\"shuffle\": \"on\"}", WEFT_STATUS_ARG,
         "\"shuffle\": \"on\" is not possible: true or false"},
        {"{\"dtype\": \"fp8\"}", WEFT_STATUS_ARG, "one of fp32, bf16"},
        {"{\"dtype\": 3}", WEFT_STATUS_ARG, "\"dtype\": 3 is not possible"},
        {"{\"data\": [\"a\", 3]}", WEFT_STATUS_ARG, "\"data\": 3 is not possible"},
        {"{\"data\": {}}", WEFT_STATUS_ARG, "\"data\": a value of another type"},
        {"{\"seq-length\": 3}", WEFT_STATUS_ARG,
         "no key \"seq-length\"; the nearest is \"seq_length\""},
        {"{\"learning_rate\": 3}", WEFT_STATUS_ARG, "nearest is \"lr\""},
        {"{\"frobnicate\": 3}", WEFT_STATUS_ARG, "no key \"frobnicate\""},
        {"{\"lr\": 1, \"lr\": 2}", WEFT_STATUS_FORMAT, "run.json:1:"},
        {"{\"lr\": ", WEFT_STATUS_FORMAT, "run.json:1:"},
        {"[1]", WEFT_STATUS_FORMAT, "JSON object"},
        {"", WEFT_STATUS_FORMAT, "run.json:1:"},
        {"{}", WEFT_STATUS_ARG, "needs --model"},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(wrong); i++)
        expect_failure(parse(&p, WEFT_COMMAND_TRAIN, run_file(s, wrong[i].text), NULL),
                       wrong[i].code, wrong[i].message, NULL);
    expect_failure(parse(&p, WEFT_COMMAND_TRAIN, scratch_path(s, "none.json"), NULL),
                   WEFT_STATUS_IO, "none.json", NULL);
    expect_failure(parse(&p, WEFT_COMMAND_GENERATE, run_file(s, "{}"), NULL), WEFT_STATUS_ARG,
                   "run.json", NULL);
}

/* ---- checks of a struct filled in by hand ---- */

static void test_formats_options__structs_are_checked_too(void **state)
{
    (void)state;
    weft_train_options o;
    weft_train_options_init(&o);
    const char *data[] = {"d"};
    expect_failure(weft_options_check(WEFT_COMMAND_TRAIN, &o), WEFT_STATUS_ARG, "--model", NULL);
    o.model = "m";
    expect_failure(weft_options_check(WEFT_COMMAND_TRAIN, &o), WEFT_STATUS_ARG, "--data", NULL);
    o.data = data;
    o.n_data = 1;
    o.out = "o";
    expect_ok(weft_options_check(WEFT_COMMAND_TRAIN, &o));
    o.layout.zero_stage = 9;
    expect_failure(weft_options_check(WEFT_COMMAND_TRAIN, &o), WEFT_STATUS_ARG, "--zero-stage 9",
                   NULL);
    o.layout.zero_stage = 0;
    o.lr = (double)NAN;
    expect_failure(weft_options_check(WEFT_COMMAND_TRAIN, &o), WEFT_STATUS_ARG, "--lr", NULL);
    o.lr = 1;
    o.lr_schedule = "step";
    expect_failure(weft_options_check(WEFT_COMMAND_TRAIN, &o), WEFT_STATUS_ARG,
                   "--lr-schedule step", NULL);
    o.lr_schedule = NULL;
    expect_failure(weft_options_check(WEFT_COMMAND_TRAIN, &o), WEFT_STATUS_ARG, "--lr-schedule",
                   NULL);
}

/* ---- help and manual pages ---- */

typedef struct lines {
    weft_str all;
    size_t longest;
} lines;

static void keep_line(void *user, const char *line)
{
    lines *l = user;
    l->longest = WEFT_MAX(l->longest, strlen(line));
    expect_ok(weft_i_str_addf(&l->all, "%s\n", line));
}

static void test_formats_options__help_names_every_option_and_default(void **state)
{
    scratch *s = *state;
    for (int c = 0; c < WEFT_COMMAND_COUNT; c++) {
        for (int columns = 60; columns <= 140; columns += 40) {
            lines l = {0};
            weft_i_str_init(&l.all, s->alloc);
            weft_options_help((weft_command)c, columns, keep_line, &l);
            if (columns >= 100)
                assert_in_range(l.longest, 40, (size_t)columns);
            const weft_option_spec *spec = weft_i_option_spec((weft_command)c);
            size_t base = 0;
            const weft_option *o;
            for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
                char name[80];
                (void)snprintf(name, sizeof(name), "\n  %s%s", o->is_positional ? "" : "--",
                               o->is_positional ? weft_i_option_argument(o) : o->name);
                if (strstr(l.all.text, name) == NULL)
                    fail_msg("help of %s lacks %s", spec->name, name);
                if (o->fallback != NULL && o->shown == NULL && o->type != WEFT_OPTION_SWITCH) {
                    (void)snprintf(name, sizeof(name), "[%s]", o->fallback);
                    if (strstr(l.all.text, name) == NULL)
                        fail_msg("help of %s lacks the default of %s, %s", spec->name, o->name,
                                 name);
                }
            }
            weft_i_str_fini(&l.all);
        }
    }
}

static void test_formats_options__manual_pages_name_every_option(void **state)
{
    scratch *s = *state;
    for (int c = 0; c <= WEFT_COMMAND_COUNT; c++) {
        lines l = {0};
        weft_i_str_init(&l.all, s->alloc);
        weft_options_man((weft_command)c, keep_line, &l);
        assert_non_null(strstr(l.all.text, ".Sh EXAMPLES"));
        const weft_option_spec *spec = weft_i_option_spec((weft_command)c);
        size_t base = 0;
        const weft_option *o;
        for (size_t i = 0; spec != NULL && (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
            weft_str name;
            weft_i_str_init(&name, s->alloc);
            expect_ok(weft_i_str_addf(&name, ".It %s", o->is_positional ? "Ar " : "Fl \\-"));
            for (const char *n = o->is_positional ? o->argument : o->name; *n != '\0'; n++)
                expect_ok(weft_i_str_addf(&name, *n == '-' ? "\\%c" : "%c", *n));
            if (strstr(l.all.text, name.text) == NULL)
                fail_msg("the manual page of %s lacks %s", spec->name, name.text);
            weft_i_str_fini(&name);
        }
        weft_i_str_fini(&l.all);
    }
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_options__defaults_are_those_of_the_headers),
        cmocka_unit_test(test_formats_options__tables_agree_with_themselves),
        cmocka_unit_test(test_formats_options__every_form_of_the_command_line),
        cmocka_unit_test(test_formats_options__resume_needs_no_value),
        cmocka_unit_test(test_formats_options__positional_arguments),
        cmocka_unit_test(test_formats_options__prompts_are_one_each),
        cmocka_unit_test(test_formats_options__wrong_values_name_what_is_allowed),
        cmocka_unit_test(test_formats_options__unknown_options_suggest_the_nearest),
        cmocka_unit_test(test_formats_options__help_wins_over_everything),
        WITH_SCRATCH(test_formats_options__a_run_file_gives_what_options_give),
        WITH_SCRATCH(test_formats_options__wrong_run_files_are_refused),
        cmocka_unit_test(test_formats_options__structs_are_checked_too),
        WITH_SCRATCH(test_formats_options__help_names_every_option_and_default),
        WITH_SCRATCH(test_formats_options__manual_pages_name_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
