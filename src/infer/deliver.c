/*
 * Output in order (contract: deliver.h).
 *
 * Invariant: callbacks see prompts 0, 1, 2, ... one after another, whatever order they finish in; text of a later prompt
 * waits in its sequence.
 */
#include "infer/deliver.h"

void weft_i_delivery_init(weft_delivery *d,
                          weft_prompts *prompts,
                          const weft_tokenizer *tokenizer,
                          const weft_generate_callbacks *callbacks)
{
    *d = (weft_delivery){.prompts = prompts, .tokenizer = tokenizer, .callbacks = callbacks};
    weft_i_str_init(&d->bytes, prompts->alloc);
}

void weft_i_delivery_fini(weft_delivery *d)
{
    if (d->bytes.alloc != NULL)
        weft_i_str_fini(&d->bytes);
}

static void show_text(weft_delivery *d, weft_sequence *s)
{
    const weft_generate_callbacks *c = d->callbacks;

    if (s->number != d->next || s->text.n_bytes == 0)
        return;
    if (c != NULL && c->text != NULL)
        c->text(c->user, s->number, s->text.text, s->text.n_bytes);
    weft_i_str_clear(&s->text);
}

static void show_end(const weft_delivery *d, const weft_sequence *s)
{
    const weft_generate_callbacks *c = d->callbacks;
    const weft_generated g = {.prompt = s->number,
                              .prompt_ids = s->ids,
                              .n_prompt_ids = s->n_prompt,
                              .ids = s->ids + s->n_prompt,
                              .n_ids = s->n_ids - s->n_prompt,
                              .finish = s->finish};
    if (c != NULL && c->done != NULL)
        c->done(c->user, &g);
}

weft_status weft_i_delivery_add(weft_delivery *d, weft_sequence *s, int32_t id)
{
    if (d->tokenizer == NULL)
        return WEFT_OK;
    weft_i_str_clear(&d->bytes);
    WEFT_TRY(weft_i_tokenizer_decode(d->tokenizer, id, &d->bytes));
    if (d->bytes.n_bytes > 0)
        WEFT_TRY(weft_i_utf8_stream_add(&s->utf8, d->bytes.text, d->bytes.n_bytes, &s->text));
    show_text(d, s);
    return WEFT_OK;
}

weft_status weft_i_delivery_end(weft_delivery *d, weft_sequence *s, weft_finish finish)
{
    s->is_done = true;
    s->finish = finish;
    if (d->tokenizer != NULL)
        WEFT_TRY(weft_i_utf8_stream_end(&s->utf8, &s->text));
    while (d->next < d->prompts->n && d->prompts->sequence[d->next].is_done) {
        show_text(d, &d->prompts->sequence[d->next]);
        show_end(d, &d->prompts->sequence[d->next]);
        d->next++;
        if (d->next < d->prompts->n)
            show_text(d, &d->prompts->sequence[d->next]);
    }
    return WEFT_OK;
}
