/* Small generations for tests (generate_case.h). */
#include "generate_case.h"

#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weft/options.h"

static const char *const PROMPTS[GENERATE_PROMPTS_MOST] = {
    "5,6,7", "1",   "50,49,48,47,46,45,44,43,42,41,40,39,38",
    "5,6,7", "9,9", "2",
    "3,4",   "8",   "11,12,13,14,15,16,17",
    "20",    "21",  "22,23,24,25"};

void generate_case_prompts(weft_generate_options *o, size_t n)
{
    static const char *order[GENERATE_PROMPTS_MOST]; /* options take no const pointers */
    assert_true(n <= GENERATE_PROMPTS_MOST);
    memcpy(order, PROMPTS, sizeof(order));
    o->ids = order;
    o->n_ids = n;
}

static weft_generate_options options_for(scratch *s, const tiny_folder *f)
{
    static char folder[512];
    weft_generate_options o;
    weft_options_init(WEFT_COMMAND_GENERATE, &o);
    o.layout.backend = "reference";
    o.layout.threads_per_rank = 1;
    o.layout.seed = 3;
    o.model = tiny_write(s, "model", f, folder);
    o.max_new_tokens = 7;
    o.temperature = 1.0;
    return o;
}

weft_generate_options generate_case_options(scratch *s, const char *config, size_t n_prompts)
{
    const tiny_folder f = {.config = config};
    weft_generate_options o = options_for(s, &f);
    generate_case_prompts(&o, n_prompts);
    return o;
}

static void poison(const char *name, float *values, int64_t n)
{
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        values[(n / 53) * 9] = NAN; /* only prompts with id 9 see it */
}

weft_generate_options generate_case_poisoned(scratch *s)
{
    static const char *prompts[] = {"1", "2", "9"};
    const tiny_folder f = {.config = tiny_llama, .edit = poison};
    weft_generate_options o = options_for(s, &f);
    o.ids = prompts;
    o.n_ids = 3;
    return o;
}

/* Callbacks note what is wrong and fail nothing: they may be on another thread, which cmocka cannot leave. */
static void see_thread(generate_answer *a)
{
    if (a->is_called && !pthread_equal(a->thread, pthread_self()))
        a->is_wrong = true;
    a->thread = pthread_self();
    a->is_called = true;
}

static void add_text(generate_answer *a, const char *text, size_t n_bytes)
{
    const size_t n = strlen(a->text);
    (void)snprintf(a->text + n, sizeof(a->text) - n, "%.*s", (int)n_bytes, text);
}

static void on_text(void *user, int64_t prompt, const char *text, size_t n_bytes)
{
    generate_answer *a = user;
    see_thread(a);
    if (prompt == a->n_prompts)
        add_text(a, text, n_bytes);
    else
        a->is_wrong = true;
}

static void on_done(void *user, const weft_generated *g)
{
    generate_answer *a = user;
    see_thread(a);
    if (g->prompt != a->n_prompts || g->prompt >= GENERATE_PROMPTS_MOST ||
        g->n_ids > GENERATE_IDS_MOST) {
        a->is_wrong = true;
        return;
    }
    a->n_ids[g->prompt] = g->n_ids;
    memcpy(a->ids[g->prompt], g->ids, (size_t)g->n_ids * sizeof(int32_t));
    a->finish[g->prompt] = g->finish;
    a->n_prompts++;
    add_text(a, "\n", 1);
}

static bool on_poll(void *user)
{
    generate_answer *a = user;
    see_thread(a);
    return ++a->n_polls > a->stop_after && a->stop_after > 0;
}

weft_status generate_case_run(generate_answer *a, const weft_generate_options *o, bool has_text)
{
    const int64_t stop_after = a->stop_after;
    const weft_generate_callbacks c = {
        .user = a, .text = has_text ? on_text : NULL, .done = on_done, .should_stop = on_poll};
    memset(a, 0, sizeof(*a));
    a->stop_after = stop_after;
    const weft_status st = weft_generate_run(&a->result, o, NULL, &c);
    assert_false(a->is_wrong);
    return st;
}

void generate_case_same(const generate_answer *a, const generate_answer *b, const char *what)
{
    if (a->n_prompts != b->n_prompts)
        fail_msg("%s: %d prompts ended, not %d", what, (int)a->n_prompts, (int)b->n_prompts);
    for (int64_t i = 0; i < b->n_prompts; i++) {
        const size_t n_bytes = (size_t)b->n_ids[i] * sizeof(int32_t);
        if (a->n_ids[i] != b->n_ids[i] || a->finish[i] != b->finish[i] ||
            memcmp(a->ids[i], b->ids[i], n_bytes) != 0)
            fail_msg("%s: prompt %d has another answer than on one rank", what, (int)i);
    }
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->result.n_new_tokens, b->result.n_new_tokens);
    assert_int_equal(a->result.n_prompts, b->result.n_prompts);
    assert_int_equal(a->result.n_prompt_tokens, b->result.n_prompt_tokens);
}

int64_t generate_case_stopped(const generate_answer *a, const generate_answer *free_run)
{
    int64_t n_stopped = 0;
    assert_int_equal(a->n_prompts, free_run->n_prompts);
    for (int64_t i = 0; i < a->n_prompts; i++) {
        assert_true(a->n_ids[i] <= a->stop_after && a->n_ids[i] <= free_run->n_ids[i]);
        assert_memory_equal(a->ids[i], free_run->ids[i], (size_t)a->n_ids[i] * sizeof(int32_t));
        n_stopped += a->finish[i] == WEFT_FINISH_STOPPED;
    }
    assert_int_equal(a->n_polls, a->stop_after + 1);
    return n_stopped;
}
