/*
 * weft simulate: numbers of a pipeline schedule, for people or as JSON.
 */
#include "cli/cli.h"

#include <stdio.h>

static void print_counts(const int64_t *counts, int64_t n, const char *gap)
{
    for (int64_t i = 0; i < n; i++)
        (void)printf("%s%lld", i > 0 ? gap : "", (long long)counts[i]);
}

static void show_json(const weft_simulate_options *o, const weft_simulate_result *r)
{
    (void)printf("{\"schedule\": \"%s\", \"stages\": %lld, \"micro_batches\": %lld, "
                 "\"chunks\": %lld, \"actions\": %lld, \"makespan\": ",
                 o->schedule, (long long)o->stages, (long long)o->micro_batches,
                 (long long)r->n_chunks, (long long)r->n_actions);
    weft_i_cli_json_number(r->makespan);
    (void)printf(", \"span\": ");
    weft_i_cli_json_number(r->span);
    (void)printf(", \"ideal\": ");
    weft_i_cli_json_number(r->ideal);
    (void)printf(", \"idle_of_total\": ");
    weft_i_cli_json_number(r->idle_of_total);
    (void)printf(", \"idle_of_ideal\": ");
    weft_i_cli_json_number(r->idle_of_ideal);
    (void)printf(", \"in_flight\": [");
    print_counts(r->in_flight, r->n_ranks, ", ");
    (void)printf("], \"in_flight_input\": [");
    print_counts(r->in_flight_input, r->n_ranks, ", ");
    (void)printf("]}\n");
}

static void show_text(const weft_simulate_options *o, const weft_simulate_result *r)
{
    (void)printf("schedule         %s, %lld stages, %lld micro-batches", o->schedule,
                 (long long)o->stages, (long long)o->micro_batches);
    if (r->n_chunks > 1)
        (void)printf(", %lld chunks", (long long)r->n_chunks);
    (void)printf("\nmakespan         %.6g\nspan             %.6g\nideal            %.6g\n",
                 r->makespan, r->span, r->ideal);
    (void)printf("idle             %.2f %% of the span, %.2f %% of the ideal\n",
                 100.0 * r->idle_of_total, 100.0 * r->idle_of_ideal);
    (void)printf("in flight        ");
    print_counts(r->in_flight, r->n_ranks, " ");
    (void)printf("\n   till input     ");
    print_counts(r->in_flight_input, r->n_ranks, " ");
    (void)printf("\nactions          %lld\n", (long long)r->n_actions);
}

static void show(void *user, const weft_simulate_result *r)
{
    const weft_simulate_options *o = user;
    if (o->json)
        show_json(o, r);
    else
        show_text(o, r);
}

int weft_i_cli_simulate(int argc, const char *const *argv)
{
    weft_simulate_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_SIMULATE, argc, argv))
        return exit_code;
    const weft_status st = weft_simulate_run(&o, show, &o);
    exit_code = st == WEFT_OK ? weft_i_cli_finish(WEFT_EXIT_OK) : weft_i_cli_fail(st);
    weft_options_destroy(options);
    return exit_code;
}
