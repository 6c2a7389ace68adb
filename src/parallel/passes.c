/*
 * Passes over a global batch: which micro-batches are this rank's, and when (contract: parallel.h).
 *
 * Communication: of the methods, through the hooks of the run; pipeline.c where the layers are on several ranks.
 * Invariants
 *  1. Micro-batch j of a global batch belongs to dp rank j mod dp and runs in round j / dp. All ranks run all rounds: one
 *     without a micro-batch joins with an idle pass.
 *  2. What a rank adds up depends on its micro-batches alone. Ranks of one tensor group have the same micro-batches: the
 *     first of them delivers.
 */
#include "parallel/hybrid.h"

#include "parallel/pace.h"
#include "parallel/trace_hooks.h"

/* n_seqs 0 when there is none of that number. */
weft_micro_batch weft_i_micro_batch_of(const weft_parallel_pass *pass, int64_t j)
{
    const int64_t first = j * pass->micro_batch;
    weft_micro_batch mb = {.number = j, .first_seq = first};
    if (first < pass->batch->n_seqs)
        mb.n_seqs = WEFT_MIN(pass->micro_batch, pass->batch->n_seqs - first);
    return mb;
}

weft_status weft_i_micro_batch_load(weft_run *run,
                                    int slot,
                                    const weft_parallel_pass *pass,
                                    const weft_micro_batch *mb)
{
    const weft_host_batch *b = pass->batch;
    const int64_t at = mb->first_seq * b->n_tokens;
    const weft_host_batch part = {
        .n_seqs = mb->n_seqs,
        .n_tokens = b->n_tokens,
        .ids = b->ids + at,
        .targets = b->targets != NULL ? b->targets + at : NULL,
        .positions = b->positions != NULL ? b->positions + at : NULL,
        .samples = b->samples != NULL ? b->samples + mb->first_seq : NULL,
    };
    weft_exec *e = weft_run_exec(run);
    e->logits = pass->logits;
    if (e->logits.data != NULL)
        e->logits.rows = mb->n_seqs * b->n_tokens;
    return weft_run_load(run, slot, &part);
}

/* All ranks of a tensor group have the same losses and logits: they count once. */
static weft_status deliver(weft_parallel *p,
                           weft_run *run,
                           const weft_parallel_pass *pass,
                           weft_micro_batch *mb,
                           bool has_loss)
{
    if (pass->done == NULL || p->mesh->coord[WEFT_AXIS_TP] != 0)
        return WEFT_OK;
    mb->logits = weft_run_exec(run)->logits;
    mb->losses = has_loss ? weft_run_losses(run, 0) : weft_view_none();
    return pass->done(pass->user, mb);
}

static weft_status train_micro_batch(weft_parallel *p,
                                     weft_run *run,
                                     const weft_parallel_pass *pass,
                                     weft_micro_batch *mb)
{
    if (mb->n_seqs == 0) {
        weft_run_exec(run)->logits = pass->logits; /* what a pass reads follows from it */
        WEFT_TRY(weft_run_idle(run, WEFT_PASS_FORWARD));
        return weft_run_idle(run, WEFT_PASS_BACKWARD);
    }
    weft_step_record *record = &p->mesh->record;
    weft_i_step_record_begin(record);
    WEFT_TRY(weft_i_micro_batch_load(run, 0, pass, mb));
    WEFT_TRY(weft_run_forward(run, 0));
    weft_i_step_record_end(record, WEFT_STEP_FORWARD, mb->number, 0);
    weft_i_step_record_begin(record);
    WEFT_TRY(weft_run_backward(run, 0, WEFT_BACKWARD_BOTH));
    weft_i_step_record_end(record, WEFT_STEP_BACKWARD, mb->number, 0);
    return deliver(p, run, pass, mb, true);
}

/* The micro-batches from number `first` on, one a rank. */
static weft_status
train_round(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass, int64_t first)
{
    if (p->chunks[0].data->method->is_on_root)
        return weft_i_data_parallel_round(p->chunks[0].data, run, pass, first);
    weft_micro_batch mb = weft_i_micro_batch_of(pass, first + p->mesh->coord[WEFT_AXIS_DP]);
    return train_micro_batch(p, run, pass, &mb);
}

weft_status
weft_i_parallel_train_pass(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass)
{
    weft_data_axis *a = p->chunks[0].data;
    const int64_t dp = p->mesh->size[WEFT_AXIS_DP];
    const int64_t n_rounds = weft_i_mesh_rounds(p->mesh, pass->batch->n_seqs, pass->micro_batch);
    WEFT_TRY(weft_i_parallel_reserve(p, pass->micro_batch, pass->batch->n_tokens));
    weft_i_parallel_bind(p, run);
    if (p->pipeline != NULL)
        return weft_i_pipeline_train(p->pipeline, pass);
    weft_model_begin_step(p->model);
    weft_i_buckets_begin_step(a);
    for (int64_t i = 0; i < n_rounds; i++) {
        weft_i_buckets_begin_action(a, WEFT_BACKWARD_BOTH, i == n_rounds - 1);
        if (p->chunks[0].tensor != NULL)
            weft_i_tensor_begin_action(p->chunks[0].tensor, a->is_reducing);
        WEFT_TRY(train_round(p, run, pass, i * dp));
        WEFT_TRY(weft_i_buckets_end_action(a));
    }
    WEFT_TRY(weft_i_buckets_end_step(a));
    return a->method->end_step != NULL ? a->method->end_step(a) : WEFT_OK;
}

weft_status
weft_i_parallel_forward_pass(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass)
{
    const int64_t dp = p->mesh->size[WEFT_AXIS_DP];
    const int64_t n_rounds = weft_i_mesh_rounds(p->mesh, pass->batch->n_seqs, pass->micro_batch);
    weft_i_parallel_bind(p, run);
    if (p->pipeline != NULL)
        return weft_i_pipeline_forward(p->pipeline, pass);
    for (int64_t i = 0; i < n_rounds; i++) {
        weft_micro_batch mb = weft_i_micro_batch_of(pass, i * dp + p->mesh->coord[WEFT_AXIS_DP]);
        if (mb.n_seqs == 0) {
            weft_run_exec(run)->logits = pass->logits; /* what a pass reads follows from it */
            WEFT_TRY(weft_run_idle(run, WEFT_PASS_FORWARD));
            continue;
        }
        WEFT_TRY(weft_i_micro_batch_load(run, 0, pass, &mb));
        WEFT_TRY(weft_run_forward_only(run, NULL));
        WEFT_TRY(deliver(p, run, pass, &mb, weft_run_exec(run)->is_loss_wanted));
    }
    return WEFT_OK;
}

void weft_i_parallel_bind(weft_parallel *p, weft_run *run)
{
    weft_i_mesh_begin(p->mesh);
    weft_i_chunk_bind(&p->chunks[0], run);
}

void weft_i_chunk_bind(weft_chunk *c, weft_run *run)
{
    c->data->exec = weft_run_exec(run);
    if (c->tensor != NULL)
        c->tensor->exec = weft_run_exec(run);
    if (c->trace != NULL)
        weft_i_trace_hooks_bind(c->trace, weft_run_exec(run));
    if (c->pace != NULL)
        weft_i_pace_hooks_bind(c->pace, weft_run_exec(run));
}
