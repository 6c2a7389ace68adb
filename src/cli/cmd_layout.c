/*
 * weft layout: the map of a layout's ranks, as tables or as JSON.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

/* ---- text ---- */

/* "0-3", "4", "-" for none. */
static const char *range_text(weft_placement_range r, char *out, size_t size)
{
    if (r.n == 0)
        (void)snprintf(out, size, "-");
    else if (r.n == 1)
        (void)snprintf(out, size, "%lld", (long long)r.first);
    else
        (void)snprintf(out, size, "%lld-%lld", (long long)r.first, (long long)(r.first + r.n - 1));
    return out;
}

static void show_head(const weft_placement *p)
{
    char number[32], strips[32] = "";
    if (p->n_strips > 0)
        (void)snprintf(strips, sizeof(strips), " in %lld strips", (long long)p->n_strips);
    (void)printf("ranks         %lld: dp %lld, tp %lld%s%s, pp %lld; order %s; ",
                 (long long)p->n_ranks, (long long)p->dp, (long long)p->tp, strips,
                 p->is_sequence_parallel ? " with sequence parallelism" : "", (long long)p->pp,
                 p->rank_order);
    if (p->strategy[0] != '\0')
        (void)printf("strategy %s", p->strategy);
    else
        (void)printf("ZeRO stage %lld", (long long)p->zero_stage);
    (void)printf("%s\n", p->is_reproducible ? "; reproducible" : "");
    if (p->pp > 1)
        (void)printf("pipeline      %s, chunks of a stage: %lld\n", p->schedule,
                     (long long)p->n_chunks);
    (void)printf("model         %s, %s parameters, %s\n", p->family,
                 weft_i_cli_thousands(p->n_params, number, sizeof(number)), p->dtype);
    (void)printf(
        "step          %lld sequences of %lld tokens, micro-batches of %lld, %lld a rank\n",
        (long long)p->global_batch, (long long)p->seq_length, (long long)p->micro_batch,
        (long long)p->n_micro_batches);
}

static void layers_text(const weft_placement_rank *r, char *out, size_t size)
{
    int at = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < r->n_chunks && at >= 0 && (size_t)at < size; i++)
        at += snprintf(out + at, size - (size_t)at, "%s%s", i > 0 ? " | " : "", r->chunks[i].text);
}

static void show_parts(const weft_placement *p)
{
    int width = 6;
    char layers[512];
    for (int64_t i = 0; i < p->n_ranks; i++) {
        layers_text(&p->ranks[i], layers, sizeof(layers));
        width = (int)strlen(layers) > width ? (int)strlen(layers) : width;
    }
    (void)printf("\n%6s %4s %4s %4s  %-*s  %-9s %-9s %-13s %-15s %15s %15s\n", "rank", "dp", "tp",
                 "pp", width, "layers", "heads", "kv heads", "MLP columns", "ids", "parameters",
                 "held");
    for (int64_t i = 0; i < p->n_ranks; i++) {
        const weft_placement_rank *r = &p->ranks[i];
        char text[6][48];
        layers_text(r, layers, sizeof(layers));
        (void)printf("%6lld %4lld %4lld %4lld  %-*s  %-9s %-9s %-13s %-15s %15s %15s\n",
                     (long long)r->rank, (long long)r->dp, (long long)r->tp, (long long)r->pp,
                     width, layers, range_text(r->heads, text[0], sizeof(text[0])),
                     range_text(r->kv_heads, text[1], sizeof(text[1])),
                     range_text(r->mlp_columns, text[2], sizeof(text[2])),
                     range_text(r->ids, text[3], sizeof(text[3])),
                     weft_i_cli_thousands(r->n_params, text[4], sizeof(text[4])),
                     weft_i_cli_thousands(r->n_held, text[5], sizeof(text[5])));
    }
}

static void show_memory(const weft_placement *p)
{
    bool is_there[WEFT_PLACEMENT_KINDS] = {false};
    int64_t most = 0;
    char number[32];
    for (int64_t i = 0; i < p->n_ranks; i++) {
        most = p->ranks[i].total_bytes > p->ranks[most].total_bytes ? i : most;
        for (int k = 0; k < WEFT_PLACEMENT_KINDS; k++)
            is_there[k] = is_there[k] || p->ranks[i].bytes[k] != 0;
    }
    (void)printf("\nmemory, bytes\n%6s", "rank");
    for (int k = 0; k < WEFT_PLACEMENT_KINDS; k++) {
        if (is_there[k])
            (void)printf(" %17s", p->kinds[k]);
    }
    (void)printf(" %17s\n", "sum");
    for (int64_t i = 0; i < p->n_ranks; i++) {
        const weft_placement_rank *r = &p->ranks[i];
        (void)printf("%6lld", (long long)r->rank);
        for (int k = 0; k < WEFT_PLACEMENT_KINDS; k++) {
            if (is_there[k])
                (void)printf(" %17s", weft_i_cli_thousands(r->bytes[k], number, sizeof(number)));
        }
        (void)printf(" %17s\n", weft_i_cli_thousands(r->total_bytes, number, sizeof(number)));
    }
    (void)printf("most          rank %lld, %s\n", (long long)most,
                 weft_i_cli_bytes((double)p->ranks[most].total_bytes, number, sizeof(number)));
}

static void show_traffic(const weft_placement *p)
{
    char number[32];
    if (p->n_ranks == 1)
        return;
    (void)printf("\nsent in a step, bytes\n%6s %6s %-16s %8s %17s\n", "rank", "axis", "operation",
                 "calls", "bytes");
    for (int64_t i = 0; i < p->n_ranks; i++) {
        const weft_placement_rank *r = &p->ranks[i];
        for (int64_t k = 0; k < r->n_traffic; k++) {
            const weft_placement_traffic *t = &r->traffic[k];
            (void)printf("%6lld %6s %-16s %8lld %17s\n", (long long)r->rank, t->axis, t->op,
                         (long long)t->n_calls,
                         weft_i_cli_thousands(t->sent_bytes, number, sizeof(number)));
        }
    }
}

/* ---- JSON ---- */

static void json_range(const char *name, weft_placement_range r)
{
    (void)printf(", \"%s\": [%lld, %lld]", name, (long long)r.first, (long long)(r.first + r.n));
}

static void json_rank(const weft_placement *p, const weft_placement_rank *r)
{
    (void)printf("{\"rank\": %lld, \"dp\": %lld, \"tp\": %lld, \"pp\": %lld, \"chunks\": [",
                 (long long)r->rank, (long long)r->dp, (long long)r->tp, (long long)r->pp);
    for (int64_t i = 0; i < r->n_chunks; i++) {
        const weft_placement_chunk *c = &r->chunks[i];
        (void)printf("%s{\"stage\": %lld, \"layers\": \"%s\", \"embedding\": %s", i > 0 ? ", " : "",
                     (long long)c->stage, c->text, c->has_embedding ? "true" : "false");
        json_range("blocks", c->blocks);
        (void)printf(", \"head\": %s}", c->has_head ? "true" : "false");
    }
    (void)printf("]");
    json_range("heads", r->heads);
    json_range("kv_heads", r->kv_heads);
    json_range("mlp_columns", r->mlp_columns);
    json_range("ids", r->ids);
    (void)printf(", \"parameters\": %lld, \"held\": %lld, \"bytes\": {", (long long)r->n_params,
                 (long long)r->n_held);
    for (int k = 0; k < WEFT_PLACEMENT_KINDS; k++)
        (void)printf("%s\"%s\": %lld", k > 0 ? ", " : "", p->kinds[k], (long long)r->bytes[k]);
    (void)printf("}, \"total_bytes\": %lld, \"step_flops\": ", (long long)r->total_bytes);
    weft_i_cli_json_number(r->step_flops);
    (void)printf(", \"step_traffic\": [");
    for (int64_t k = 0; k < r->n_traffic; k++) {
        const weft_placement_traffic *t = &r->traffic[k];
        (void)printf("%s{\"axis\": \"%s\", \"op\": \"%s\", \"calls\": %lld, \"sent_bytes\": %lld}",
                     k > 0 ? ", " : "", t->axis, t->op, (long long)t->n_calls,
                     (long long)t->sent_bytes);
    }
    (void)printf("], \"sent_bytes\": %lld}", (long long)r->sent_bytes);
}

static void show_json(const weft_placement *p)
{
    (void)printf("{\"layout\": {\"ranks\": %lld, \"dp\": %lld, \"tp\": %lld, \"pp\": %lld, "
                 "\"zero_stage\": %lld, \"strategy\": \"%s\", \"schedule\": \"%s\", \"chunks\": "
                 "%lld, \"rank_order\": \"%s\", \"sequence_parallel\": %s, \"tp_strips\": %lld, "
                 "\"reproducible\": %s},\n",
                 (long long)p->n_ranks, (long long)p->dp, (long long)p->tp, (long long)p->pp,
                 (long long)p->zero_stage, p->strategy, p->schedule, (long long)p->n_chunks,
                 p->rank_order, p->is_sequence_parallel ? "true" : "false", (long long)p->n_strips,
                 p->is_reproducible ? "true" : "false");
    (void)printf(" \"model\": {\"family\": \"%s\", \"parameters\": %lld, \"dtype\": \"%s\"},\n",
                 p->family, (long long)p->n_params, p->dtype);
    (void)printf(" \"step\": {\"seq_length\": %lld, \"micro_batch_size\": %lld, "
                 "\"global_batch_size\": %lld, \"micro_batches\": %lld},\n \"ranks\": [",
                 (long long)p->seq_length, (long long)p->micro_batch, (long long)p->global_batch,
                 (long long)p->n_micro_batches);
    for (int64_t i = 0; i < p->n_ranks; i++) {
        (void)printf("%s\n  ", i > 0 ? "," : "");
        json_rank(p, &p->ranks[i]);
    }
    (void)printf("\n ]}\n");
}

static void show(void *user, const weft_placement *p)
{
    const weft_placement_options *o = user;
    if (o->json) {
        show_json(p);
        return;
    }
    show_head(p);
    show_parts(p);
    show_memory(p);
    show_traffic(p);
}

int weft_i_cli_layout(int argc, const char *const *argv)
{
    weft_placement_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_LAYOUT, argc, argv))
        return exit_code;
    const weft_status st = weft_placement_run(&o, show, &o);
    exit_code = st == WEFT_OK ? weft_i_cli_finish(WEFT_EXIT_OK) : weft_i_cli_fail(st);
    weft_options_destroy(options);
    return exit_code;
}
