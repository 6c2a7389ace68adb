/*
 * `weft generate`: opens model, tokenizer and prompts, runs them group by group (contract: weft/generate.h).
 *
 * The loop over tokens is decode.c's, the order of output deliver.c's, the choice of ids sampling.c's. Groups of prompts are
 * dealt out to the dp ranks: group g to rank g mod dp, in round g / dp; after a round rank 0 has all answers (collect.c).
 *
 * Communication: of decode.c and collect.c; agreements before the first pass. Every rank opens everything itself.
 */
#include "base/ctx.h"
#include "infer/collect.h"
#include "infer/decode.h"
#include "nn/layout_context.h"
#include "parallel/compare_start.h"
#include "parallel/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct generate_session {
    weft_mesh *mesh;
    weft_ctx *ctx; /* the mesh's */
    bool is_speaker;
    weft_source source;
    weft_tokenizer *tokenizer; /* NULL: ids in, ids out */
    weft_prompts prompts;
    weft_delivery delivery;
    weft_collector collector;
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
    const int64_t n_ranks = s->mesh->size[WEFT_AXIS_DP];

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
    d->n_seqs = (s->prompts.n + n_ranks - 1) / n_ranks;
    if (together > 0)
        d->n_seqs = WEFT_MIN(together, s->prompts.n);
    d->callbacks = s->is_speaker ? callbacks : NULL;
    return WEFT_OK;
}

static weft_status open_inputs(generate_session *s,
                               const weft_generate_options *o,
                               const weft_generate_callbacks *callbacks)
{
    const char *dtype = o->layout.dtype != NULL ? o->layout.dtype : "";

    WEFT_TRY(weft_i_source_open(&s->source, s->ctx, o->model, dtype));
    WEFT_TRY(weft_i_layout_check_model(&s->mesh->layout, &s->source.hf.config));
    WEFT_TRY(open_tokenizer(s, o, callbacks));
    WEFT_TRY(weft_i_prompts_init(&s->prompts, s->ctx, o, &s->source.hf.config, s->tokenizer));
    WEFT_TRY(choose(s, o, callbacks));
    weft_i_delivery_init(&s->delivery, &s->prompts, s->is_speaker ? s->tokenizer : NULL,
                         s->decoding.callbacks);
    return weft_i_collector_init(&s->collector, s->mesh, &s->prompts, s->decoding.n_seqs);
}

typedef struct generate_start {
    const generate_session *session;
    const weft_generate_options *options;
} generate_start;

/* weft_start_texts_fn */
static weft_status add_texts(weft_str *options, weft_str *data, const void *user)
{
    const generate_start *const start = user;
    const generate_session *const s = start->session;
    const weft_generate_options *const o = start->options;

    WEFT_TRY(weft_i_str_addf(options,
                             "max_new_tokens %" PRId64 ", temperature %.17g, top_k %" PRId64
                             ", top_p %.17g, seed %" PRId64
                             ", ignore_eos %d, micro_batch_size %" PRId64,
                             o->max_new_tokens, o->temperature, o->top_k, o->top_p, o->layout.seed,
                             o->ignore_eos, s->decoding.n_seqs));
    for (int64_t i = 0; i < s->prompts.n; i++)
        WEFT_TRY(weft_i_start_add_ids(data, s->prompts.sequence[i].ids,
                                      s->prompts.sequence[i].n_prompt));
    return WEFT_OK;
}

static void note(const generate_session *s)
{
    const weft_generate_callbacks *callbacks = s->decoding.callbacks;
    weft_alloc_count cache;
    char line[192];
    char bytes[32];
    char ranks[48] = "";

    if (callbacks == NULL || callbacks->note == NULL)
        return;
    weft_i_alloc_counts(s->ctx->alloc, WEFT_MEM_CACHE, &cache);
    if (s->mesh->world_size > 1)
        (void)snprintf(ranks, sizeof(ranks), " on each of %d ranks", s->mesh->world_size);
    const int n = snprintf(
        line, sizeof(line),
        "%" PRId64 " prompt%s, %" PRId64 " tokens, %" PRId64 " at a time%s; cache %s; %s",
        s->prompts.n, s->prompts.n == 1 ? "" : "s", s->prompts.n_tokens, s->decoding.n_seqs, ranks,
        weft_i_str_bytes((double)cache.now_bytes, bytes, sizeof(bytes)),
        weft_dtype_name(s->source.dtype));
    if (n > 0 && (size_t)n < sizeof(line))
        callbacks->note(callbacks->user, line);
}

static weft_status run_round(bool *is_stopped, generate_session *s, int64_t round)
{
    const int rank = s->mesh->coord[WEFT_AXIS_DP];
    int64_t first = 0;
    const int64_t n = weft_i_collector_group(&s->collector, round, rank, &first);
    weft_sequence *sequences = n > 0 ? &s->prompts.sequence[first] : NULL;

    WEFT_TRY(weft_i_decoder_run(is_stopped, s->decoder, sequences, n, &s->delivery));
    return weft_i_collector_round(&s->collector, round, &s->delivery);
}

static weft_status run_rounds(generate_session *s)
{
    weft_prompts *p = &s->prompts;
    const int64_t n_in_round = s->decoding.n_seqs * s->mesh->size[WEFT_AXIS_DP];
    bool is_stopped = false;

    for (int64_t i = 0; i * n_in_round < p->n && !is_stopped; i++)
        WEFT_TRY(run_round(&is_stopped, s, i));
    for (int64_t i = 0; i < p->n && s->is_speaker; i++) {
        if (!p->sequence[i].is_done)
            WEFT_TRY(weft_i_delivery_end(&s->delivery, &p->sequence[i], WEFT_FINISH_STOPPED));
    }
    return WEFT_OK;
}

static void close_session(generate_session *s)
{
    weft_i_decoder_destroy(s->decoder);
    weft_i_collector_fini(&s->collector);
    weft_i_delivery_fini(&s->delivery);
    weft_i_prompts_fini(&s->prompts);
    weft_i_tokenizer_close(s->tokenizer);
    weft_i_source_close(&s->source, s->ctx);
}

static void fill_result(weft_generate_result *out, const generate_session *s)
{
    weft_i_decoder_times(s->decoder, out);
    out->n_prompts = s->prompts.n;
    out->n_prompt_tokens = s->prompts.n_tokens;
    out->n_new_tokens = 0;
    for (int64_t i = 0; i < s->prompts.n; i++)
        out->n_new_tokens += s->prompts.sequence[i].n_ids - s->prompts.sequence[i].n_prompt;
}

/* What all ranks share. */
typedef struct generate_call {
    const weft_generate_options *options;
    const weft_generate_callbacks *callbacks;
    weft_generate_result *result; /* rank 0 writes it */
} generate_call;

static weft_status run_rank(void *user, weft_mesh *mesh)
{
    const generate_call *call = user;
    const weft_generate_options *o = call->options;
    generate_session s = {.mesh = mesh, .ctx = mesh->ctx, .is_speaker = mesh->world_rank == 0};
    const generate_start begun = {.session = &s, .options = o};
    weft_status st = WEFT_OK;

    WEFT_TRY_GOTO(st, weft_i_mesh_agree(mesh, open_inputs(&s, o, call->callbacks)), out);
    WEFT_TRY_GOTO(st, weft_i_mesh_compare_start(mesh, &s.source, add_texts, &begun), out);
    WEFT_TRY_GOTO(st,
                  weft_i_decoder_create(&s.decoder, mesh, &s.source, &s.prompts, &s.decoding,
                                        (uint64_t)o->layout.seed),
                  out);
    note(&s);
    weft_i_mesh_begin(mesh);
    WEFT_TRY_GOTO(st, run_rounds(&s), out);
    if (s.is_speaker)
        fill_result(call->result, &s);
out:
    (void)weft_i_mesh_fail(mesh, st);
    close_session(&s);
    return st;
}

weft_status weft_generate_run(weft_generate_result *out,
                              const weft_generate_options *options,
                              const weft_ctx_options *ctx_options,
                              const weft_generate_callbacks *callbacks)
{
    generate_call call = {.options = options, .callbacks = callbacks, .result = out};
    weft_layout layout;
    weft_pace pace;

    memset(out, 0, sizeof(*out));
    if (options->model == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "generate needs a model");
    WEFT_TRY(weft_i_prompts_check(options));
    WEFT_TRY(weft_i_layout_make(&layout, &options->layout));
    layout.is_sequence_parallel = false; /* a token at a time: there is nothing to share out */
    if (layout.n_chunks > 1)
        layout.stage_layers = ""; /* numbers of chunks: a stage's lie together here */
    layout.n_chunks = 1;
    layout.schedule = WEFT_SCHEDULE_1F1B;
    WEFT_TRY(weft_i_layout_read_pace(&pace, &layout.pace, &options->layout));
    return weft_i_ranks_run(&layout, &options->layout, ctx_options, run_rank, &call);
}
