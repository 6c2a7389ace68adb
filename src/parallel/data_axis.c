/*
 * The data-parallel axis of one rank: picks the method, takes the memory it divides, lists the parts, forwards the hooks.
 *
 * Memory (Rajbhandari et al., arXiv:1910.02054, table 1; bytes of weft's own types in docs/methods/zero.md):
 *
 *                 weights            gradients (f32)     optimizer state
 *   DataParallel  whole              whole               rank 0: whole; others: none
 *   ddp           whole              whole               whole
 *   ZeRO-1        whole              whole               this rank's parts
 *   ZeRO-2        whole              this rank's parts   this rank's parts
 *   ZeRO-3        this rank's parts  this rank's parts   this rank's parts
 *
 * and, of communication, the rings of bucket.c and zero3.c, and the outputs of data_parallel.c. DataParallel by micro-batch
 * (--reproducible) has gradients on rank 0 alone, beside the ring.
 * Communication: none here.
 * Invariant: the cut of a segment is the same for weights, gradients and state, so a part's update needs no other rank.
 */
#include "parallel/data_axis.h"
#include "base/ctx.h"

#define RING_SHARE 16 /* a bucket of the ring: this part of the gradients, at most */

static const weft_data_method *method_of(const weft_layout *l)
{
    static const weft_data_method *const methods[] = {&weft_i_ddp_method, &weft_i_zero1_method,
                                                      &weft_i_zero2_method, &weft_i_zero3_method};
    return l->is_data_parallel && l->dp > 1 ? &weft_i_data_parallel_method : methods[l->zero_stage];
}

/* ---- memory ---- */

static weft_status
get(weft_data_axis *a, weft_mem kind, int64_t n_elems, size_t elem_bytes, void **out)
{
    weft_backend *b = a->ctx->backend;
    const char *what = kind == WEFT_MEM_PARAMETERS ? "weights" : "gradients";
    return b->ops->mem_get(b, (int)kind, (size_t)n_elems * elem_bytes, what, out);
}

static weft_status take_memory(weft_data_axis *a)
{
    const weft_data_method *m = a->method;
    const size_t size = weft_dtype_bytes(weft_model_dtype(a->model));
    const int64_t n_values =
        m->is_value_shard ? a->shards.n_value_elems : weft_model_value_elems(a->model);
    const bool is_sum_alone = m->is_grad_shard || (m->is_on_root && a->is_by_micro_batch);
    const int64_t n_grads = is_sum_alone ? a->shards.n_grad_elems : weft_model_grad_elems(a->model);
    WEFT_TRY(get(a, WEFT_MEM_PARAMETERS, n_values, size, &a->values));
    if (a->is_training)
        WEFT_TRY(get(a, WEFT_MEM_GRADIENTS, n_grads, sizeof(float), &a->grads));
    weft_model_attach(a->model, m->is_value_shard ? NULL : a->values,
                      a->is_by_micro_batch ? NULL : a->grads);
    return WEFT_OK;
}

static weft_status make_parts(weft_data_axis *a)
{
    const weft_data_method *m = a->method;
    const weft_parts_options values = {
        .is_mine_only = m->is_value_shard,
        .values = a->values,
        .is_value_shard = m->is_value_shard,
    };
    weft_parts_options o = {
        .is_mine_only = true,
        .values = a->values,
        .is_value_shard = m->is_value_shard,
        .grads = a->grads,
        .is_grad_shard = m->is_grad_shard,
        .is_state_shard = m->is_state_shard,
    };
    WEFT_TRY(weft_i_parts_create(&a->value_parts, &a->shards, &values));
    WEFT_TRY(weft_i_parts_create(&a->owned_parts, &a->shards, &o));
    o.is_mine_only = m->is_state_shard;
    o.is_trained_only = true;
    a->n_state_elems = m->is_state_shard ? a->shards.n_grad_elems : weft_model_grad_elems(a->model);
    return weft_i_parts_create(&a->state_parts, &a->shards, &o);
}

/* ---- hooks ---- */

static weft_status layer_begin(void *user, const weft_layer *l, weft_pass pass)
{
    weft_data_axis *a = user;
    return a->method->is_value_shard ? weft_i_zero3_layer_begin(a, l, pass) : WEFT_OK;
}

/* A bucket's lowest layer ends here: what it completed is reduced while the layers below run backward. */
static weft_status layer_end(void *user, const weft_layer *l, weft_pass pass)
{
    weft_data_axis *a = user;
    if (pass == WEFT_PASS_BACKWARD && a->is_reducing)
        WEFT_TRY(weft_i_buckets_issue(a));
    return a->method->is_value_shard ? weft_i_zero3_layer_end(a, l, pass) : WEFT_OK;
}

static void make_hooks(weft_data_axis *a)
{
    a->hooks = (weft_hooks){.user = a, .layer_begin = layer_begin, .layer_end = layer_end};
    if (a->is_training) {
        a->hooks.grad_need = weft_i_bucket_grad_need;
        a->hooks.grad_ready = weft_i_bucket_grad_ready;
    }
}

/* ---- creation ---- */

/*
 * --bucket-size-mb; where whole buckets lie in a ring beside the gradients (bucket.c), at most a sixteenth of these, so that
 * on a small model the ring does not take what the method saves. A layer that is larger is a bucket all the same. In a
 * pipeline that reduces by micro-batch a bucket has one layer: the parts of a split backward complete them apart.
 */
static int64_t most_bucket_elems(const weft_data_axis *a)
{
    const int64_t asked = a->layout->bucket_bytes / (int64_t)sizeof(float);
    const int64_t share = weft_model_grad_elems(a->model) / RING_SHARE;
    if (!a->is_training || !a->is_by_micro_batch)
        return asked;
    return a->layout->pp > 1 ? 1 : WEFT_MIN(asked, share);
}

static weft_status create(weft_data_axis *a, weft_mesh *mesh)
{
    WEFT_TRY(weft_model_lay_out(a->model, a->is_training));
    const int64_t bucket_elems = most_bucket_elems(a);
    WEFT_TRY(weft_i_shards_create(&a->shards, a->model, mesh->coord[WEFT_AXIS_DP],
                                  mesh->size[WEFT_AXIS_DP],
                                  a->method->is_value_shard ? 0 : WEFT_MAX(bucket_elems, 1)));
    if (a->method->is_on_root)
        weft_i_shards_give_to_root(&a->shards);
    WEFT_TRY(take_memory(a));
    WEFT_TRY(make_parts(a));
    if (a->is_training)
        WEFT_TRY(weft_i_buckets_create(a));
    if (a->method->is_value_shard)
        WEFT_TRY(weft_i_zero3_create(a));
    make_hooks(a);
    return WEFT_OK;
}

weft_status
weft_i_data_axis_create(weft_data_axis **out, weft_mesh *mesh, weft_model *model, bool is_training)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_data_axis), &block));
    weft_data_axis *a = block;
    a->ctx = mesh->ctx;
    a->comm = mesh->comm[WEFT_AXIS_DP];
    a->model = model;
    a->layout = &mesh->layout;
    a->record = &mesh->record;
    a->method = method_of(&mesh->layout);
    a->is_training = is_training;
    a->is_by_micro_batch = a->method->is_grad_shard || mesh->layout.is_reproducible;
    const weft_status st = create(a, mesh);
    if (st == WEFT_OK)
        *out = a;
    else
        weft_i_data_axis_destroy(a);
    return st;
}

void weft_i_data_axis_destroy(weft_data_axis *a)
{
    if (a == NULL)
        return;
    weft_backend *b = a->ctx->backend;
    weft_i_zero3_destroy(a);
    weft_i_data_parallel_destroy(a);
    weft_i_buckets_destroy(a);
    weft_i_parts_fini(&a->value_parts, a->ctx);
    weft_i_parts_fini(&a->owned_parts, a->ctx);
    weft_i_parts_fini(&a->state_parts, a->ctx);
    weft_i_shards_fini(&a->shards);
    weft_model_attach(a->model, NULL, NULL);
    b->ops->mem_put(b, a->grads);
    b->ops->mem_put(b, a->values);
    weft_i_alloc_put(a->ctx->alloc, a);
}
