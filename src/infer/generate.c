/*
 * `weft generate`: opens model, tokenizer and prompts, runs them group by group (contract: weft/generate.h).
 *
 * The loop over tokens is decode.c's, the order of output deliver.c's, the choice of ids sampling.c's.
 */
#include "base/ctx.h"
#include "infer/decode.h"
#include "nn/layout_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct generate_session {
    weft_ctx *ctx;
    weft_source source;
    weft_tokenizer *tokenizer; /* NULL: ids in, ids out */
    weft_prompts prompts;
    weft_delivery delivery;
    weft_decoder *decoder;
    weft_decoder_options decoding;
} generate_session;

static weft_status open_tokenizer(generate_session *s,
                                  const weft_generate_options *o,
                                  const weft_generate_callbacks *callbacks)
{
    const int64_t rows = s->source.hf.config.vocab_size;
    const bool is_text_wanted = callbacks != NULL && callbacks->text != NULL;

    s->decoding.n_ids = rows;
    if (o->n_prompt == 0 && !is_text_wanted)
        return WEFT_OK;
    WEFT_TRY(weft_i_tokenizer_open(&s->tokenizer, s->ctx->alloc, o->tokenizer));
    weft_i_source_warn_tokenizer(&s->source, s->ctx);
    const int64_t n_ids = weft_i_tokenizer_size(s->tokenizer);
    if (n_ids > rows)
        WEFT_FAIL(WEFT_STATUS_MISMATCH,
                  "tokenizer %s has %" PRId64 " ids, but the model only has rows for %" PRId64,
                  o->tokenizer, n_ids, rows);
    s->decoding.n_ids = n_ids; /* what rows lie above is never chosen */
    return WEFT_OK;
}

static void add_stop(weft_decoder_options *d, int64_t id)
{
    if (id >= 0 && id <= INT32_MAX && d->n_stop < WEFT_STOP_IDS)
        d->stop[d->n_stop++] = (int32_t)id;
}

static weft_status choose(generate_session *s,
                          const weft_generate_options *o,
                          const weft_generate_callbacks *callbacks)
{
    const weft_config *c = &s->source.hf.config;
    weft_decoder_options *d = &s->decoding;
    const int64_t together = o->layout.micro_batch_size;

    if (together < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "micro_batch_size %" PRId64 " must not be negative", together);
    d->sampling = (weft_sampling){.temperature = o->temperature,
                                  .top_k = o->top_k,
                                  .top_p = o->top_p,
                                  .seed = (uint64_t)o->layout.seed};
    WEFT_TRY(weft_i_sampling_check(&d->sampling));
    for (int i = 0; i < c->n_eos && !o->ignore_eos; i++)
        add_stop(d, c->eos_ids[i]);
    if (s->tokenizer != NULL && !o->ignore_eos)
        add_stop(d, weft_i_tokenizer_eos(s->tokenizer));
    d->n_seqs = together > 0 ? WEFT_MIN(together, s->prompts.n) : s->prompts.n;
    d->callbacks = callbacks;
    return WEFT_OK;
}

static weft_status open_all(generate_session *s,
                            const weft_generate_options *o,
                            const weft_generate_callbacks *callbacks)
{
    const char *dtype = o->layout.dtype != NULL ? o->layout.dtype : "";
    const uint64_t seed = (uint64_t)o->layout.seed;

    WEFT_TRY(weft_i_source_open(&s->source, s->ctx, o->model, dtype));
    WEFT_TRY(open_tokenizer(s, o, callbacks));
    WEFT_TRY(weft_i_prompts_init(&s->prompts, s->ctx, o, &s->source.hf.config, s->tokenizer));
    WEFT_TRY(choose(s, o, callbacks));
    weft_i_delivery_init(&s->delivery, &s->prompts, s->tokenizer, callbacks);
    return weft_i_decoder_create(&s->decoder, s->ctx, &s->source, &s->prompts, &s->decoding, seed);
}

static void note(const generate_session *s, const weft_generate_callbacks *callbacks)
{
    weft_alloc_count cache;
    char line[192];
    char bytes[32];

    if (callbacks == NULL || callbacks->note == NULL)
        return;
    weft_i_alloc_counts(s->ctx->alloc, WEFT_MEM_CACHE, &cache);
    const int n = snprintf(
        line, sizeof(line),
        "%" PRId64 " prompt%s, %" PRId64 " tokens, %" PRId64 " at a time; cache %s; %s",
        s->prompts.n, s->prompts.n == 1 ? "" : "s", s->prompts.n_tokens, s->decoding.n_seqs,
        weft_i_str_bytes((double)cache.now_bytes, bytes, sizeof(bytes)),
        weft_dtype_name(s->source.dtype));
    if (n > 0 && (size_t)n < sizeof(line))
        callbacks->note(callbacks->user, line);
}

static weft_status run_groups(generate_session *s)
{
    weft_prompts *p = &s->prompts;
    bool is_stopped = false;

    for (int64_t i = 0; i < p->n; i += s->decoding.n_seqs) {
        const int64_t n = WEFT_MIN(s->decoding.n_seqs, p->n - i);
        if (!is_stopped) {
            WEFT_TRY(weft_i_decoder_run(&is_stopped, s->decoder, &p->sequence[i], n, &s->delivery));
            continue;
        }
        for (int64_t k = i; k < i + n; k++)
            WEFT_TRY(weft_i_delivery_end(&s->delivery, &p->sequence[k], WEFT_FINISH_STOPPED));
    }
    return WEFT_OK;
}

static void close_session(generate_session *s)
{
    if (s->ctx == NULL)
        return;
    weft_i_decoder_destroy(s->decoder);
    weft_i_delivery_fini(&s->delivery);
    weft_i_prompts_fini(&s->prompts);
    weft_i_tokenizer_close(s->tokenizer);
    weft_i_source_close(&s->source, s->ctx);
    weft_ctx_destroy(s->ctx);
}

weft_status weft_generate_run(weft_generate_result *out,
                              const weft_generate_options *options,
                              const weft_ctx_options *ctx_options,
                              const weft_generate_callbacks *callbacks)
{
    generate_session s = {.ctx = NULL};
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    if (options->model == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "generate needs a model");
    WEFT_TRY(weft_i_prompts_check(options));
    WEFT_TRY_GOTO(st, weft_i_layout_context(&s.ctx, &options->layout, ctx_options), out);
    WEFT_TRY_GOTO(st, open_all(&s, options, callbacks), out);
    note(&s, callbacks);
    WEFT_TRY_GOTO(st, run_groups(&s), out);
    weft_i_decoder_times(s.decoder, out);
    out->n_prompts = s.prompts.n;
    out->n_prompt_tokens = s.prompts.n_tokens;
out:
    close_session(&s);
    return st;
}
