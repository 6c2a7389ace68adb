/*
 * The plan of a training run: a dry run of the trainer.
 *
 * Nothing here knows how much anything takes. The dry context counts what the trainer asks for; the workspace is the
 * highest mark of the run's stack over one step (forward, backward, norm, search for what is not finite, update, and a
 * smaller last micro-batch where there is one) and over the passes of an evaluation.
 */
#include "train/plan.h"

#include "backend/backends.h"
#include "base/ctx.h"
#include "base/env.h"
#include "base/str.h"
#include "train/train_batch.h"

#include <stdio.h>

/* One step. What it sends over each axis is the plan's traffic. */
static weft_status run_step(weft_trainer *t, weft_train_plan *plan)
{
    weft_batch_reader reader;
    weft_train_batch batch;
    weft_train_outcome outcome;
    const double before = t->ctx->backend->n_flops;
    weft_i_mesh_traffic_reset(t->mesh);
    WEFT_TRY(weft_i_batch_reader_init(&reader, t->ctx->alloc, NULL, t->settings.global_batch,
                                      t->settings.seq_length));
    weft_status st = weft_i_batch_reader_read(&reader, 0, &batch);
    if (st == WEFT_OK)
        st = weft_i_trainer_step(t, 1, &batch, &outcome);
    weft_i_batch_reader_fini(&reader);
    plan->step_flops = t->ctx->backend->n_flops - before;
    for (int i = 0; i < WEFT_AXIS_COUNT; i++)
        weft_i_mesh_traffic(t->mesh, (weft_axis)i, &plan->step_traffic[i]);
    return st;
}

static weft_status run_evaluation(weft_trainer *t, const weft_evaluation_job *job)
{
    weft_pass_shape shapes[WEFT_EVALUATION_SHAPES];
    const weft_pass_plan passes = {
        .shapes = shapes,
        .n_shapes = weft_i_evaluation_shapes(job, shapes),
        .is_loss_wanted = true,
    };
    weft_exec *exec = weft_run_exec(t->run);
    if (t->mesh->layout.pp == 1)
        return weft_i_plan_run_shapes(t->run, &passes, weft_view_none(), NULL);
    exec->is_loss_wanted = true;
    return weft_i_plan_forward_shapes(t->parallel, t->run, &passes, weft_view_none());
}

static void count_elems(weft_train_plan *plan, weft_model *m, const weft_parts *here)
{
    plan->n_elems = weft_model_element_count(m);
    plan->n_trained_elems = plan->n_elems;
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        if (p->is_frozen)
            plan->n_trained_elems -= p->full_rows * p->full_cols;
    }
    for (int64_t i = 0; i < here->n; i++)
        plan->n_held_elems += here->part[i].n;
}

static void count_bytes(weft_train_plan *plan, const weft_trainer *t)
{
    plan->workspace_bytes = weft_run_workspace_peak(t->run);
    for (int i = 0; i < WEFT_MEM_COUNT; i++) {
        weft_alloc_count count;
        weft_i_alloc_counts(t->ctx->alloc, (weft_mem)i, &count);
        plan->bytes[i] = count.peak_bytes;
    }
    plan->bytes[WEFT_MEM_WORKSPACE] = weft_i_alloc_rounded(plan->workspace_bytes);
    plan->bytes[WEFT_MEM_CONTROL] = 0;
    for (int i = 0; i < WEFT_MEM_COUNT; i++)
        plan->total_bytes += plan->bytes[i];
}

static weft_status make(weft_train_plan *out,
                        const weft_mesh *mesh,
                        const weft_source *source,
                        const weft_train_settings *settings,
                        const weft_evaluation_job *evaluation)
{
    weft_status st = WEFT_OK;
    weft_ctx *dry = NULL;
    weft_mesh *dry_mesh = NULL;
    weft_trainer *t = NULL;
    weft_train_plan plan = {.plain_sent_bytes = -1};
    const weft_ctx_options options = {
        .backend = WEFT_BACKEND_DRY,
        .dry_of = weft_i_backend_kind(mesh->ctx->backend),
        .n_threads = weft_i_pool_threads(mesh->ctx->pool),
        .log_level = WEFT_LOG_SILENT,
    };
    WEFT_TRY_GOTO(st, weft_ctx_create(&dry, &options), out);
    WEFT_TRY_GOTO(st, weft_i_mesh_create_dry(&dry_mesh, dry, mesh), out);
    WEFT_TRY_GOTO(st, weft_i_trainer_create(&t, dry_mesh, source, settings, 0), out);
    WEFT_TRY_GOTO(st, run_step(t, &plan), out);
    if (evaluation != NULL)
        WEFT_TRY_GOTO(st, run_evaluation(t, evaluation), out);
    count_elems(&plan, t->model, weft_i_parallel_values(t->parallel));
    count_bytes(&plan, t);
    *out = plan;
out:
    weft_i_trainer_destroy(t);
    weft_i_mesh_destroy(dry_mesh);
    weft_ctx_destroy(dry);
    return st;
}

static int64_t sent_bytes(const weft_train_plan *plan)
{
    int64_t sum = 0;
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++)
            sum += (int64_t)plan->step_traffic[a].sent_bytes[op];
    }
    return sum;
}

weft_status weft_i_train_plan_make(weft_train_plan *out,
                                   const weft_mesh *mesh,
                                   const weft_source *source,
                                   const weft_train_settings *settings,
                                   const weft_evaluation_job *evaluation)
{
    WEFT_TRY(make(out, mesh, source, settings, evaluation));
    if (!mesh->layout.is_reproducible || mesh->world_size == 1)
        return WEFT_OK;
    weft_mesh plain_mesh =
        *mesh; /* what a dry mesh stands for: only its place and layout are read */
    weft_train_plan plain;
    plain_mesh.layout.is_reproducible = false;
    WEFT_TRY(make(&plain, &plain_mesh, source, settings, NULL));
    out->plain_sent_bytes = sent_bytes(&plain);
    return WEFT_OK;
}

weft_status
weft_i_train_plan_check(const weft_train_plan *plan, uint64_t limit_bytes, uint64_t all_bytes)
{
    const uint64_t limit = limit_bytes != 0 ? limit_bytes : weft_i_env_memory_available_bytes();
    if ((limit_bytes != 0 ? plan->total_bytes : all_bytes) <= limit)
        return WEFT_OK;
    char kinds[512] = "";
    size_t n = 0;
    for (int i = 0; i < WEFT_MEM_COUNT && n < sizeof(kinds); i++) {
        char text[32];
        if (plan->bytes[i] == 0)
            continue;
        const int added = snprintf(kinds + n, sizeof(kinds) - n, "%s%s %s", n > 0 ? ", " : "",
                                   weft_i_mem_name((weft_mem)i),
                                   weft_i_str_bytes((double)plan->bytes[i], text, sizeof(text)));
        n += added > 0 ? (size_t)added : 0;
    }
    char total[32], most[32], all[64] = "";
    if (all_bytes > plan->total_bytes)
        (void)snprintf(all, sizeof(all), " on this rank, %llu on all ranks here,",
                       (unsigned long long)all_bytes);
    WEFT_FAIL(WEFT_STATUS_NOMEM,
              "the run needs %zu bytes (%s: %s)%s and %s %llu bytes (%s); a smaller "
              "--micro-batch-size or --seq-length, --recompute full, or a higher --zero-stage over "
              "more ranks needs less",
              plan->total_bytes, weft_i_str_bytes((double)plan->total_bytes, total, sizeof(total)),
              kinds, all, limit_bytes != 0 ? "--memory-limit-mb allows" : "this machine has left",
              (unsigned long long)limit, weft_i_str_bytes((double)limit, most, sizeof(most)));
}

void weft_i_train_plan_print(const weft_train_plan *plan,
                             const size_t taken[WEFT_MEM_COUNT],
                             void (*line)(void *user, const char *text),
                             void *user)
{
    char text[128], left[32], right[32];
    size_t total = 0;
    (void)snprintf(text, sizeof(text), "%-14s %20s %20s", "memory, bytes", "planned", "taken");
    line(user, text);
    for (int i = 0; i < WEFT_MEM_CONTROL; i++) {
        total += taken[i];
        if (plan->bytes[i] == 0 && taken[i] == 0)
            continue;
        (void)snprintf(text, sizeof(text), "%-14s %20s %20s", weft_i_mem_name((weft_mem)i),
                       weft_i_str_thousands((int64_t)plan->bytes[i], left, sizeof(left)),
                       weft_i_str_thousands((int64_t)taken[i], right, sizeof(right)));
        line(user, text);
    }
    (void)snprintf(text, sizeof(text), "%-14s %20s %20s", "sum",
                   weft_i_str_thousands((int64_t)plan->total_bytes, left, sizeof(left)),
                   weft_i_str_thousands((int64_t)total, right, sizeof(right)));
    line(user, text);
}
