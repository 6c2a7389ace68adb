/* Text as it comes: whole characters only, prompts in order, nothing lost. */
#include "scratch.h"

#include <stdio.h>
#include <string.h>

#include "infer/deliver.h"

typedef struct seen {
    char text[256]; /* each piece ended by '|', each end by "(finish)" */
} seen;

static void see(seen *s, const char *text)
{
    const size_t n = strlen(s->text);
    (void)snprintf(s->text + n, sizeof(s->text) - n, "%s", text);
}

static void on_text(void *user, int64_t prompt, const char *text, size_t n_bytes)
{
    char piece[64];
    (void)snprintf(piece, sizeof(piece), "%d:%.*s|", (int)prompt, (int)n_bytes, text);
    see(user, piece);
}

static void on_done(void *user, const weft_generated *g)
{
    char piece[64];
    (void)snprintf(piece, sizeof(piece), "(%d %d ids %d)", (int)g->prompt, (int)g->n_ids,
                   (int)g->finish);
    see(user, piece);
}

typedef struct setup {
    weft_sequence sequence[3];
    int32_t ids[3][8];
    weft_prompts prompts;
    weft_tokenizer *tokenizer;
    weft_delivery delivery;
    weft_generate_callbacks callbacks;
    seen seen;
} setup;

static void open_setup(setup *u, scratch *s)
{
    memset(u, 0, sizeof(*u));
    expect_ok(weft_i_tokenizer_open(&u->tokenizer, s->alloc, "byte"));
    u->prompts = (weft_prompts){.alloc = s->alloc, .sequence = u->sequence, .n = 3};
    for (int64_t i = 0; i < 3; i++) {
        u->sequence[i].number = i;
        u->sequence[i].ids = u->ids[i];
        weft_i_str_init(&u->sequence[i].text, s->alloc);
    }
    u->callbacks = (weft_generate_callbacks){.user = &u->seen, .text = on_text, .done = on_done};
    weft_i_delivery_init(&u->delivery, &u->prompts, u->tokenizer, &u->callbacks);
}

static void close_setup(setup *u)
{
    weft_i_delivery_fini(&u->delivery);
    for (int i = 0; i < 3; i++)
        weft_i_str_fini(&u->sequence[i].text);
    weft_i_tokenizer_close(u->tokenizer);
}

static void add(setup *u, int prompt, int32_t id)
{
    weft_sequence *s = &u->sequence[prompt];
    s->ids[s->n_ids++] = id;
    expect_ok(weft_i_delivery_add(&u->delivery, s, id));
}

static void end(setup *u, int prompt, weft_finish finish)
{
    expect_ok(weft_i_delivery_end(&u->delivery, &u->sequence[prompt], finish));
}

static void test_infer_deliver__a_character_comes_whole(void **state)
{
    static const int32_t thumb[] = {240, 159, 145, 141};
    setup u;
    open_setup(&u, *state);
    for (int i = 0; i < 3; i++)
        add(&u, 0, thumb[i]);
    assert_string_equal(u.seen.text, "");
    add(&u, 0, thumb[3]);
    assert_string_equal(u.seen.text, "0:\xf0\x9f\x91\x8d|");
    close_setup(&u);
}

static void test_infer_deliver__an_incomplete_end_is_one_sign(void **state)
{
    setup u;
    open_setup(&u, *state);
    add(&u, 0, 240);
    add(&u, 0, 159);
    add(&u, 0, 145);
    end(&u, 0, WEFT_FINISH_LENGTH);
    assert_string_equal(u.seen.text, "0:\xef\xbf\xbd|(0 3 ids 1)");
    close_setup(&u);
}

static void test_infer_deliver__garbage_does_not_stall(void **state)
{
    setup u;
    open_setup(&u, *state);
    add(&u, 0, 240);
    add(&u, 0, 159);
    add(&u, 0, 32);
    add(&u, 0, 97);
    assert_string_equal(u.seen.text, "0:\xef\xbf\xbd |0:a|");
    close_setup(&u);
}

static void test_infer_deliver__prompts_come_in_order(void **state)
{
    setup u;
    open_setup(&u, *state);
    add(&u, 1, 'x');
    add(&u, 0, 'a');
    add(&u, 2, 'p');
    end(&u, 2, WEFT_FINISH_EOS);
    add(&u, 1, 'y');
    assert_string_equal(u.seen.text, "0:a|");
    end(&u, 0, WEFT_FINISH_LENGTH);
    assert_string_equal(u.seen.text, "0:a|(0 1 ids 1)1:xy|");
    add(&u, 1, 'z');
    end(&u, 1, WEFT_FINISH_CONTEXT);
    assert_string_equal(u.seen.text, "0:a|(0 1 ids 1)1:xy|1:z|(1 3 ids 2)2:p|(2 1 ids 0)");
    close_setup(&u);
}

/* The end-of-text id stands for no text. */
static void test_infer_deliver__special_ids_show_nothing(void **state)
{
    setup u;
    open_setup(&u, *state);
    add(&u, 0, 'a');
    add(&u, 0, 256);
    end(&u, 0, WEFT_FINISH_EOS);
    assert_string_equal(u.seen.text, "0:a|(0 2 ids 0)");
    close_setup(&u);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_infer_deliver__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(a_character_comes_whole), RUN(an_incomplete_end_is_one_sign),
        RUN(garbage_does_not_stall), RUN(prompts_come_in_order), RUN(special_ids_show_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
