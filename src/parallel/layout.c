/*
 * From the layout options to a layout: how many ranks along each axis, and what cannot be.
 *
 * A message has the arithmetic and the nearest layouts that work. What has nothing to act on with one rank passes, so
 * that one layout line serves every command.
 * Communication: none.
 * Leaves to others: whether model and batch fit the layout (they are not known here).
 */
#include "parallel/layout.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "parallel/stage_cut.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static const char *text_or(const char *text, const char *fallback)
{
    return text != NULL ? text : fallback;
}

static weft_status check_values(const weft_layout_options *o)
{
    const struct {
        const char *name;
        int64_t value;
    } axes[] = {{"dp", o->dp}, {"tp", o->tp}, {"pp", o->pp}, {"ranks", o->ranks}};
    for (size_t i = 0; i < WEFT_COUNT_OF(axes); i++) {
        if (axes[i].value < 0 || axes[i].value > INT_MAX)
            WEFT_FAIL(WEFT_STATUS_ARG, "--%s %lld is not possible: a whole number >= 1 is needed",
                      axes[i].name, (long long)axes[i].value);
    }
    if (o->zero_stage < 0 || o->zero_stage > 3)
        WEFT_FAIL(WEFT_STATUS_ARG, "--zero-stage %lld is none of 0, 1, 2, 3",
                  (long long)o->zero_stage);
    const char *const strategy = text_or(o->strategy, "");
    if (strategy[0] != '\0' && strcmp(strategy, "data-parallel") != 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "--strategy %s is not known; data-parallel is", strategy);
    if (!(o->bucket_size_mb > 0) || !isfinite(o->bucket_size_mb))
        WEFT_FAIL(WEFT_STATUS_ARG, "--bucket-size-mb %g is not possible: a number > 0 is needed",
                  o->bucket_size_mb);
    if (!(o->comm_timeout > 0) || !isfinite(o->comm_timeout))
        WEFT_FAIL(WEFT_STATUS_ARG, "--comm-timeout %g is not possible: seconds > 0 are needed",
                  o->comm_timeout);
    return WEFT_OK;
}

static weft_status check_rank_order(weft_layout *l, const char *order)
{
    static const char *const orders[] = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp",
                                         "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"};
    for (size_t i = 0; i < WEFT_COUNT_OF(orders); i++) {
        if (strcmp(order, orders[i]) == 0)
            return weft_i_str_print(l->rank_order, sizeof(l->rank_order), "%s", order);
    }
    WEFT_FAIL(WEFT_STATUS_ARG, "--rank-order %s is no order of the axes; tp-dp-pp is one", order);
}

/* dp, tp, pp and their product. */
static weft_status count_ranks(weft_layout *l, const weft_layout_options *o)
{
    const int64_t tp = o->tp > 0 ? o->tp : 1, pp = o->pp > 0 ? o->pp : 1;
    const int64_t model = tp * pp; /* each at most INT_MAX: no overflow */
    int64_t dp = o->dp > 0 ? o->dp : 1;
    if (o->ranks > 0 && o->ranks % model != 0) {
        const int64_t below = o->ranks / model * model;
        if (below == 0)
            WEFT_FAIL(WEFT_STATUS_LAYOUT,
                      "--ranks %lld is no multiple of tp %lld x pp %lld = %lld; the nearest that "
                      "is: --ranks %lld",
                      (long long)o->ranks, (long long)tp, (long long)pp, (long long)model,
                      (long long)model);
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--ranks %lld is no multiple of tp %lld x pp %lld = %lld; the nearest that are: "
                  "--ranks %lld and --ranks %lld",
                  (long long)o->ranks, (long long)tp, (long long)pp, (long long)model,
                  (long long)below, (long long)(below + model));
    }
    if (o->ranks > 0 && o->dp == 0)
        dp = o->ranks / model;
    if (model > INT_MAX || dp > INT_MAX / model)
        WEFT_FAIL(WEFT_STATUS_LAYOUT, "dp %lld x tp %lld x pp %lld are more ranks than can be",
                  (long long)dp, (long long)tp, (long long)pp);
    if (o->ranks > 0 && o->ranks != dp * model)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "dp %lld x tp %lld x pp %lld = %lld ranks, but --ranks %lld were asked for; use "
                  "--dp %lld or --ranks %lld",
                  (long long)dp, (long long)tp, (long long)pp, (long long)(dp * model),
                  (long long)o->ranks, (long long)(o->ranks / model), (long long)(dp * model));
    l->dp = (int)dp;
    l->tp = (int)tp;
    l->pp = (int)pp;
    l->n_ranks = (int)(dp * model);
    return WEFT_OK;
}

/* The stages that so many parts would be, and the blocks that the model would have; "" when there are none. */
static void name_stages(const weft_layout *l, int n_parts, int64_t n_items, char *out, size_t size)
{
    out[0] = '\0';
    if (l->n_stage_chunks > 0 && n_parts > l->n_stage_chunks && n_parts % l->n_stage_chunks == 0)
        (void)weft_i_str_print(out, size, "--pp %d with a model of %lld blocks, ",
                               n_parts / l->n_stage_chunks, (long long)n_items - 2);
}

/* --stage-layers against stages and chunks; the sum is checked against the model (stage_cut.h). */
static weft_status check_stage_layers(const weft_layout *l)
{
    int64_t n_items;
    const int n_parts = weft_i_stage_cut_count(l->stage_layers, &n_items);
    const int64_t n_wanted = (int64_t)l->pp * l->n_chunks;
    char stages[64];
    if (n_parts < 0)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "--stage-layers %s is not possible: layers of each stage as 6,3,5 are needed",
                  l->stage_layers);
    name_stages(l, n_parts, n_items, stages, sizeof(stages));
    if (n_parts > 0 && n_parts != n_wanted)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--stage-layers %s names %d parts, but there are %lld (pp %d x %d chunks); use "
                  "%s%lld numbers, or leave it out",
                  l->stage_layers, n_parts, (long long)n_wanted, l->pp, l->n_chunks, stages,
                  (long long)n_wanted);
    return WEFT_OK;
}

/* Schedule, chunks and the cut, as far as they can be checked without the model. */
static weft_status choose_schedule(weft_layout *l, const weft_layout_options *o)
{
    l->stage_layers = text_or(o->stage_layers, "");
    WEFT_TRY(weft_i_schedule_from_name(&l->schedule, text_or(o->pp_schedule, "1f1b")));
    const bool is_interleaved = l->schedule == WEFT_SCHEDULE_INTERLEAVED;
    const int n_chunks =
        o->pp_chunks > 0 ? (int)o->pp_chunks : weft_i_schedule_usual_chunks(l->schedule);
    l->n_stage_chunks = is_interleaved || n_chunks == 1 ? n_chunks : 0;
    l->n_chunks = l->pp > 1 ? n_chunks : 1; /* one stage: nothing to act on */
    if (l->pp > 1 && l->n_stage_chunks == 0)
        WEFT_FAIL(
            WEFT_STATUS_LAYOUT,
            "--pp-chunks %d needs --pp-schedule interleaved, not %s: use it, or --pp-chunks 1",
            l->n_chunks, weft_i_schedule_name(l->schedule));
    return check_stage_layers(l);
}

/* --tp-strips beside other options; against ranks and model in check_strips. */
static weft_status choose_strips(weft_layout *l, int64_t n_strips)
{
    if (n_strips < 0 || n_strips > INT_MAX)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "--tp-strips %lld is not possible: a whole number >= 1 is needed",
                  (long long)n_strips);
    if (n_strips > 0 && l->is_data_parallel && l->n_ranks > 1)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--strategy data-parallel computes the loss of whole logits on rank 0, and "
                  "--tp-strips %lld of their strips; leave --strategy out, or --tp-strips",
                  (long long)n_strips);
    l->n_strips = (int)n_strips;
    return WEFT_OK;
}

weft_status weft_i_layout_make(weft_layout *out, const weft_layout_options *o)
{
    weft_layout l = {0};
    WEFT_TRY(check_values(o));
    WEFT_TRY(check_rank_order(&l, text_or(o->rank_order, "tp-dp-pp")));
    WEFT_TRY(count_ranks(&l, o));
    WEFT_TRY(choose_schedule(&l, o));
    l.is_data_parallel = text_or(o->strategy, "")[0] != '\0';
    l.zero_stage = (int)o->zero_stage;
    if (l.is_data_parallel && l.zero_stage > 0 && l.n_ranks > 1)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--strategy data-parallel keeps the whole optimizer on rank 0, and --zero-stage "
                  "%d shares it out over the ranks; use one of them",
                  l.zero_stage);
    if (l.is_data_parallel && l.tp > 1)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--strategy data-parallel copies the whole model to every rank, and --tp %d "
                  "divides it; use --dp %d --tp %d without --strategy, or --strategy with --dp %d "
                  "alone",
                  l.tp, l.dp, l.tp, l.n_ranks);
    if (l.is_data_parallel && l.pp > 1)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--strategy data-parallel has one process read and update for all, which --pp %d "
                  "does not do; use --dp alone with it, or leave it out",
                  l.pp);
    l.is_sequence_parallel = o->sequence_parallel && l.tp > 1;
    WEFT_TRY(choose_strips(&l, o->tp_strips));
    l.has_prefetch = o->zero_prefetch;
    l.bucket_bytes = weft_i_alloc_bytes_of_mb(o->bucket_size_mb);
    l.is_overlapped = o->overlap_grad_reduce;
    l.is_reproducible = o->reproducible;
    l.trace = text_or(o->trace, "");
    l.comm_timeout_s = o->comm_timeout;
    *out = l;
    return WEFT_OK;
}

#define NEAREST 128 /* bytes of a suggestion */

static int largest_divisor(int n, int64_t limit)
{
    int d = n;
    while (d > 1 && (d > limit || n % d != 0))
        d--;
    return d;
}

/* How far the model can be cut. */
typedef struct limits {
    int64_t tp, strips, items;
} limits;

static limits limits_of(const weft_config *c)
{
    const int64_t tp = WEFT_MIN(WEFT_MIN(c->n_heads, c->ffn_size), c->vocab_size);
    return (limits){tp, WEFT_MIN(tp, c->n_kv_heads), c->n_layers + 2};
}

/*
 * "--dp 2 --tp 4 --pp 2": as many ranks, with tp and pp as near as can be to what was asked for. The other flags stay as
 * they are; what of them would not fit is named, too.
 */
static void name_nearest(const weft_layout *l, const limits *most, char *out, size_t size)
{
    const int64_t most_tp = l->n_strips > 0 ? WEFT_MIN(most->tp, most->strips) : most->tp;
    const int tp = largest_divisor(l->tp, most_tp);
    const bool is_cut_given = l->stage_layers[0] != '\0';
    int64_t n_items = 0;
    const bool is_cut_kept = is_cut_given &&
                             weft_i_stage_cut_count(l->stage_layers, &n_items) > 0 &&
                             n_items == most->items;
    char strips[32] = "";
    int pp = largest_divisor(l->pp, most->items / l->n_chunks);
    const int64_t n_more =
        (int64_t)pp * (l->tp / tp); /* what tensor ranks cannot share, stages may */
    if (l->n_stage_chunks > 0 && !is_cut_kept && n_more * l->n_stage_chunks <= most->items)
        pp = (int)n_more;
    if (l->n_strips > 0 && (l->n_strips > most->strips || l->n_strips < tp))
        (void)weft_i_str_print(strips, sizeof(strips), " --tp-strips %lld",
                               (long long)most->strips);
    (void)weft_i_str_print(
        out, size, "--dp %d --tp %d --pp %d%s%s", l->n_ranks / (tp * pp), tp, pp, strips,
        is_cut_given && (pp != l->pp || !is_cut_kept) ? " without --stage-layers" : "");
}

static weft_status
check_tensor_ranks(const weft_layout *l, const weft_config *c, const limits *most)
{
    const struct {
        const char *what;
        int64_t n;
    } cut[] = {{"heads", c->n_heads}, {"MLP columns", c->ffn_size}, {"ids", c->vocab_size}};
    char nearest[NEAREST];
    name_nearest(l, most, nearest, sizeof(nearest));
    for (size_t i = 0; i < WEFT_COUNT_OF(cut); i++) {
        if (l->tp > cut[i].n)
            WEFT_FAIL(WEFT_STATUS_LAYOUT,
                      "--tp %d needs at least one of the model's %lld %s for each of its ranks; "
                      "--tp 1 to %lld work here (uneven cuts too); with as many ranks: %s",
                      l->tp, (long long)cut[i].n, cut[i].what, (long long)most->tp, nearest);
    }
    return WEFT_OK;
}

static weft_status check_strips(const weft_layout *l, const weft_config *c, const limits *most)
{
    char nearest[NEAREST];
    if (l->n_strips == 0 || (l->n_strips >= l->tp && l->n_strips <= most->strips))
        return WEFT_OK;
    name_nearest(l, most, nearest, sizeof(nearest));
    if (l->n_strips > most->strips)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--tp-strips %d are more than the model's %lld heads of keys and values, %lld "
                  "MLP columns or %lld ids; at most --tp-strips %lld work here, and as many tensor "
                  "ranks; with as many ranks: %s",
                  l->n_strips, (long long)c->n_kv_heads, (long long)c->ffn_size,
                  (long long)c->vocab_size, (long long)most->strips, nearest);
    if (l->tp <= most->strips)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "--tp-strips %d are fewer than the ranks of --tp %d, and each needs one; use "
                  "--tp-strips %d to %lld, or at most --tp %d; with as many ranks: %s",
                  l->n_strips, l->tp, l->tp, (long long)most->strips, l->n_strips, nearest);
    WEFT_FAIL(WEFT_STATUS_LAYOUT,
              "--tp-strips %d are fewer than the ranks of --tp %d, and each needs one, but the "
              "model has no more than %lld (heads of keys and values); use at most --tp %d; with "
              "as many ranks: %s",
              l->n_strips, l->tp, (long long)most->strips, l->n_strips, nearest);
}

weft_status weft_i_layout_check_model(const weft_layout *l, const weft_config *c)
{
    const limits most = limits_of(c);
    const int64_t n_parts = (int64_t)l->pp * l->n_chunks;
    char nearest[NEAREST];
    WEFT_TRY(check_tensor_ranks(l, c, &most));
    WEFT_TRY(check_strips(l, c, &most));
    name_nearest(l, &most, nearest, sizeof(nearest));
    if (n_parts > most.items)
        WEFT_FAIL(
            WEFT_STATUS_LAYOUT,
            "%lld stages (times chunks) cannot share %lld items (embedding, %lld blocks, final "
            "norm and "
            "head) without an empty one; with %d a stage --pp 1 to %lld work here; with as many "
            "ranks: %s",
            (long long)n_parts, (long long)most.items, (long long)c->n_layers, l->n_chunks,
            (long long)WEFT_MAX(most.items / l->n_chunks, 1), nearest);
    return weft_i_stage_cut_check(c, l->pp * l->n_chunks, l->stage_layers);
}
