/*
 * Reads prompts (contract: prompts.h).
 *
 * With learned positions a sequence ends where they do: the last id may stand one beyond the last position, since it is
 * never read. With rotary positions it goes on, with a warning.
 */
#include "infer/prompts.h"

#include "base/ctx.h"
#include "nn/layout_context.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    weft_ctx *ctx;
    const weft_generate_options *options;
    const weft_config *config;
    const weft_tokenizer *tokenizer;
} reader;

weft_status weft_i_prompts_check(const weft_generate_options *o)
{
    if (o->n_prompt > 0 && o->n_ids > 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "prompts were given as text and as ids; give one kind");
    if (o->n_prompt == 0 && o->n_ids == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "no prompt was given");
    if (o->max_new_tokens < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "max_new_tokens %" PRId64 " must not be negative",
                  o->max_new_tokens);
    return WEFT_OK;
}

/* ---- ids ---- */

/* Room for the prompt and what follows; ids of the prompt are written by the caller. */
static weft_status take_ids(weft_sequence *s, const reader *r, int64_t n_prompt)
{
    const int64_t positions = r->config->max_positions;
    const bool is_bounded = r->config->family == WEFT_FAMILY_GPT2;
    char what[48];
    void *block = NULL;

    (void)snprintf(what, sizeof(what), "prompt %" PRId64, s->number);
    if (is_bounded)
        WEFT_TRY(weft_i_layout_check_positions(r->ctx, r->config, what, n_prompt));
    if (r->options->max_new_tokens > INT32_MAX - n_prompt)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s with max_new_tokens %" PRId64 " is over 2^31 tokens", what,
                  r->options->max_new_tokens);
    s->n_limit = n_prompt + r->options->max_new_tokens;
    s->at_limit = WEFT_FINISH_LENGTH;
    if (is_bounded && s->n_limit > positions + 1) {
        s->n_limit = positions + 1;
        s->at_limit = WEFT_FINISH_CONTEXT;
    }
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, (size_t)s->n_limit, sizeof(int32_t), &block));
    s->ids = block;
    return WEFT_OK;
}

static weft_status check_id(const weft_sequence *s, const reader *r, int64_t id, int64_t place)
{
    if (id < 0 || id >= r->config->vocab_size)
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "prompt %" PRId64 ": id %" PRId64 " at place %" PRId64
                  " is not one of the model's %" PRId64,
                  s->number, id, place, r->config->vocab_size);
    return WEFT_OK;
}

static bool is_separator(char c)
{
    return c == ',' || isspace((unsigned char)c) != 0;
}

/* The next id of a list, *at moved behind it; false at the end. */
static weft_status next_id(bool *is_found, int64_t *id, const char **at, int64_t number)
{
    char word[32];
    size_t n = 0;

    while (is_separator(**at))
        (*at)++;
    while (**at != '\0' && !is_separator(**at) && n + 1 < sizeof(word))
        word[n++] = *(*at)++;
    word[n] = '\0';
    *is_found = n > 0;
    if (*is_found && !weft_i_str_to_int64(word, id))
        WEFT_FAIL(WEFT_STATUS_ARG, "prompt %" PRId64 ": \"%s\" is no token id", number, word);
    return WEFT_OK;
}

static weft_status read_list(weft_sequence *s, const reader *r, const char *text)
{
    int64_t n = 0;

    for (int pass = 0; pass < 2; pass++) { /* count, then keep */
        const char *at = text;
        bool is_found = true;
        int64_t id = 0;
        if (pass == 1) {
            WEFT_TRY(take_ids(s, r, n));
            n = 0;
        }
        for (;;) {
            WEFT_TRY(next_id(&is_found, &id, &at, s->number));
            if (!is_found)
                break;
            if (pass == 1) {
                WEFT_TRY(check_id(s, r, id, n));
                s->ids[n] = (int32_t)id; /* below the vocabulary, which fits */
            }
            n++;
        }
        if (n == 0)
            WEFT_FAIL(WEFT_STATUS_ARG, "prompt %" PRId64 " has no ids", s->number);
    }
    s->n_prompt = n;
    return WEFT_OK;
}

/* ---- text ---- */

static weft_status read_bos(weft_sequence *s, const reader *r)
{
    const int64_t bos = r->config->bos_id;

    if (bos < 0 || bos >= r->config->vocab_size)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "prompt %" PRId64 " is empty, and the model has no id that begins a text",
                  s->number);
    WEFT_TRY(take_ids(s, r, 1));
    s->ids[0] = (int32_t)bos;
    s->n_prompt = 1;
    return WEFT_OK;
}

static weft_status read_text(weft_sequence *s, const reader *r, const char *text)
{
    const size_t n_bytes = strlen(text);
    void *block = NULL;
    size_t n = 0;
    weft_status st = WEFT_OK;

    if (n_bytes == 0)
        return read_bos(s, r);
    WEFT_TRY(weft_i_alloc_new(r->ctx->alloc, n_bytes, sizeof(int32_t), &block));
    WEFT_TRY_GOTO(st, weft_i_tokenizer_encode(r->tokenizer, text, n_bytes, block, &n), out);
    WEFT_TRY_GOTO(st, take_ids(s, r, (int64_t)n), out);
    memcpy(s->ids, block, n * sizeof(int32_t));
    s->n_prompt = (int64_t)n;
    for (int64_t i = 0; i < s->n_prompt && st == WEFT_OK; i++)
        st = check_id(s, r, s->ids[i], i);
out:
    weft_i_alloc_put(r->ctx->alloc, block);
    return st;
}

/* ---- all of them ---- */

static weft_status read_all(weft_prompts *p, const reader *r)
{
    const weft_generate_options *o = r->options;

    for (int64_t i = 0; i < p->n; i++) {
        weft_sequence *s = &p->sequence[i];
        s->number = i;
        weft_i_str_init(&s->text, p->alloc);
        if (o->n_ids > 0)
            WEFT_TRY(read_list(s, r, o->ids[i]));
        else
            WEFT_TRY(read_text(s, r, o->prompt[i]));
        s->n_ids = s->n_prompt;
        p->n_tokens += s->n_prompt;
        p->longest = WEFT_MAX(p->longest, s->n_prompt);
        p->capacity = WEFT_MAX(p->capacity, WEFT_MAX(s->n_prompt, s->n_limit - 1));
    }
    return WEFT_OK;
}

weft_status weft_i_prompts_init(weft_prompts *out,
                                weft_ctx *ctx,
                                const weft_generate_options *options,
                                const weft_config *config,
                                const weft_tokenizer *tokenizer)
{
    const reader r = {ctx, options, config, tokenizer};
    weft_prompts p = {.alloc = ctx->alloc};
    void *block = NULL;
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY(weft_i_prompts_check(options));
    const size_t n = options->n_prompt + options->n_ids;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, n, sizeof(weft_sequence), &block));
    p.sequence = block;
    p.n = (int64_t)n;
    WEFT_TRY_GOTO(st, read_all(&p, &r), out);
    WEFT_TRY_GOTO(
        st, weft_i_layout_check_positions(ctx, config, "the longest sequence", p.capacity), out);
out:
    if (st == WEFT_OK)
        *out = p;
    else
        weft_i_prompts_fini(&p);
    return st;
}

void weft_i_prompts_fini(weft_prompts *p)
{
    for (int64_t i = 0; p->sequence != NULL && i < p->n; i++) {
        weft_i_alloc_put(p->alloc, p->sequence[i].ids);
        if (p->sequence[i].text.alloc != NULL)
            weft_i_str_fini(&p->sequence[i].text);
    }
    if (p->alloc != NULL)
        weft_i_alloc_put(p->alloc, p->sequence);
    memset(p, 0, sizeof(*p));
}
