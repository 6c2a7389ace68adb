/*
 * Tensors from the memory of all ranks into safetensors files (contract: tensor_writer.h).
 *
 * Elements are named by their number in the full tensor (row-major); nn/param_part.h says which stretches of it a part is.
 * Nothing here depends on how parameters were cut: every rank writes the stretches it owns where they belong.
 *
 * Communication, over the world: create ends with an agreement, after rank 0 made the files. finish: an agreement, after
 * every rank synced what it wrote; for each SUMS_AT_ONCE tensors a gather of 2 I64 a tensor (bytes written, part of the
 * checksum) to rank 0; an agreement on what rank 0 found. Between create and finish: none.
 *
 * Invariants
 *  1. One staging buffer and one open file a rank, whatever the model's size.
 *  2. What is written depends on values, names, types and shard_bytes alone, not on who writes it.
 *  3. finish succeeds only when every element of every tensor was written by exactly one rank.
 * Making files appear under their name at once, and removing them after a failure, is left to the callers.
 */
#include "train/tensor_writer.h"

#include "base/crc32.h"
#include "base/ctx.h"
#include "tensor/convert.h"
#include "train/agree.h"

#include <inttypes.h>
#include <string.h>

#define STAGE_ELEMS ((int64_t)1 << 18)
#define MAX_FILES 99999
#define SUMS_AT_ONCE ((size_t)1024)
#define NAME_BYTES 128

/* A file and the tensors in it. */
typedef struct file {
    char name[NAME_BYTES];
    size_t first, n;  /* items */
    weft_st_sum head; /* rank 0 */
} file;

struct weft_tensor_writer {
    weft_tensor_writer_options o;
    weft_st_plan *plan; /* [n_items] */
    weft_st_sum *sums;  /* [n_items]: of this rank; on rank 0 of all ranks in the end */
    file *files;
    size_t n_files;
    weft_st_share *share; /* of file number `opened` */
    size_t opened;
    char *stage; /* STAGE_ELEMS as they lie here, STAGE_ELEMS as the file has them */
};

static const weft_st_meta META = {"format", "pt"};

weft_status weft_i_tensor_item_set(weft_tensor_item *item,
                                   const char *name,
                                   weft_dtype dtype,
                                   const weft_param *param)
{
    item->dtype = dtype;
    item->shape = param->n_dims == 1 ? weft_i_shape_1d(param->full_cols)
                                     : weft_i_shape_2d(param->full_rows, param->full_cols);
    return weft_i_str_print(item->name, sizeof(item->name), "%s", name);
}

/* ---- the plan ---- */

static uint64_t bytes_of(const weft_tensor_item *item)
{
    int64_t n = 0;
    (void)weft_i_shape_count(&item->shape, &n); /* the header's making checks it */
    return (uint64_t)n * weft_dtype_bytes(item->dtype);
}

/* How many of the items from the front go into one file. */
static size_t file_length(const weft_tensor_item *items, size_t n_items, uint64_t file_bytes)
{
    uint64_t n_bytes = 0;
    size_t n = 0;
    while (n < n_items && (n == 0 || n_bytes + bytes_of(&items[n]) <= file_bytes))
        n_bytes += bytes_of(&items[n++]);
    return n;
}

static weft_status name_file(const weft_tensor_writer *w, file *f, size_t number)
{
    if (w->o.path != NULL)
        return WEFT_OK;
    if (w->n_files == 1)
        return weft_i_str_print(f->name, NAME_BYTES, "%s.safetensors", w->o.base);
    return weft_i_str_print(f->name, NAME_BYTES, "%s-%05zu-of-%05zu.safetensors", w->o.base,
                            number + 1, w->n_files);
}

static weft_status path_of(const weft_tensor_writer *w, size_t number, char *path)
{
    if (w->o.path != NULL)
        return weft_i_str_print(path, WEFT_PATH_MAX, "%s", w->o.path);
    return weft_i_path_join(path, w->o.dir, w->files[number].name);
}

static weft_st_content content_of(const weft_tensor_writer *w, const file *f)
{
    return (weft_st_content){w->plan + f->first, f->n, &META, 1};
}

static weft_status plan_files(weft_tensor_writer *w)
{
    const weft_tensor_item *items = w->o.items;
    const size_t n_items = w->o.n_items;
    const uint64_t file_bytes = w->o.path != NULL ? UINT64_MAX : w->o.shard_bytes;
    size_t n_files = 0;
    for (size_t i = 0; i < n_items; n_files++)
        i += file_length(items + i, n_items - i, file_bytes);
    w->n_files = n_files == 0 ? 1 : n_files;
    if (w->n_files > MAX_FILES)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s would be %zu files, at most %d can be", w->o.base,
                  w->n_files, MAX_FILES);
    WEFT_TRY(weft_i_alloc_array(w->o.ctx->alloc, (int64_t)w->n_files, sizeof(file), &w->files));
    size_t first = 0;
    for (size_t k = 0; k < w->n_files; k++) {
        file *f = &w->files[k];
        f->first = first;
        f->n = file_length(items + first, n_items - first, file_bytes);
        first += f->n;
        WEFT_TRY(name_file(w, f, k));
    }
    return WEFT_OK;
}

static weft_status prepare(weft_tensor_writer *w)
{
    weft_alloc *alloc = w->o.ctx->alloc;
    const int64_t n = (int64_t)w->o.n_items;
    WEFT_TRY(weft_i_alloc_array(alloc, n, sizeof(*w->plan), &w->plan));
    WEFT_TRY(weft_i_alloc_array(alloc, n, sizeof(*w->sums), &w->sums));
    WEFT_TRY(weft_i_alloc_array(alloc, 2 * STAGE_ELEMS, sizeof(double) / 2, &w->stage));
    for (size_t i = 0; i < w->o.n_items; i++) {
        const weft_tensor_item *item = &w->o.items[i];
        w->plan[i] = (weft_st_plan){item->name, item->dtype, item->shape};
    }
    return plan_files(w);
}

/* ---- the files ---- */

static weft_status index_name(const weft_tensor_writer *w, char *name)
{
    return weft_i_str_print(name, NAME_BYTES, "%s.safetensors.index.json", w->o.base);
}

static weft_status write_index(const weft_tensor_writer *w)
{
    char name[NAME_BYTES], path[WEFT_PATH_MAX];
    weft_st_place *places = NULL;
    uint64_t total = 0;
    WEFT_TRY(index_name(w, name));
    WEFT_TRY(weft_i_path_join(path, w->o.dir, name));
    WEFT_TRY(weft_i_alloc_array(w->o.ctx->alloc, (int64_t)w->o.n_items, sizeof(*places), &places));
    for (size_t k = 0; k < w->n_files; k++) {
        for (size_t i = w->files[k].first; i < w->files[k].first + w->files[k].n; i++) {
            places[i] = (weft_st_place){w->plan[i].name, w->files[k].name};
            total += bytes_of(&w->o.items[i]);
        }
    }
    const weft_status st =
        weft_i_st_write_index(w->o.ctx->alloc, path, places, w->o.n_items, total);
    weft_i_alloc_put(w->o.ctx->alloc, places);
    return st;
}

static weft_status make_files(weft_tensor_writer *w)
{
    char path[WEFT_PATH_MAX];
    for (size_t k = 0; k < w->n_files; k++) {
        const weft_st_content content = content_of(w, &w->files[k]);
        WEFT_TRY(path_of(w, k, path));
        WEFT_TRY(weft_i_ctx_alive(w->o.ctx));
        WEFT_TRY(weft_i_st_share_make(&w->files[k].head, w->o.ctx->alloc, path, &content));
    }
    return w->n_files > 1 ? write_index(w) : WEFT_OK;
}

weft_status weft_i_tensor_writer_create(weft_tensor_writer **out,
                                        const weft_tensor_writer_options *options)
{
    void *block = NULL;
    *out = NULL;
    weft_status st = weft_i_alloc_new(options->ctx->alloc, 1, sizeof(weft_tensor_writer), &block);
    weft_tensor_writer *w = block;
    if (st == WEFT_OK) {
        w->o = *options;
        st = prepare(w);
    }
    if (st == WEFT_OK && weft_i_train_is_first(options->mesh))
        st = make_files(w);
    st = weft_i_train_agree(options->mesh, st);
    if (st == WEFT_OK)
        *out = w;
    else
        weft_i_tensor_writer_abandon(w);
    return st;
}

void weft_i_tensor_writer_abandon(weft_tensor_writer *w)
{
    if (w == NULL)
        return;
    weft_alloc *alloc = w->o.ctx->alloc;
    weft_i_st_share_abandon(w->share);
    weft_i_alloc_put(alloc, w->stage);
    weft_i_alloc_put(alloc, w->files);
    weft_i_alloc_put(alloc, w->sums);
    weft_i_alloc_put(alloc, w->plan);
    weft_i_alloc_put(alloc, w);
}

/* ---- writing ---- */

static weft_status close_share(weft_tensor_writer *w)
{
    weft_st_share *share = w->share;
    w->share = NULL;
    return share != NULL ? weft_i_st_share_close(share) : WEFT_OK;
}

/* Opens the file that `item` is in. Parts come in the order of the files, so each is opened once. */
static weft_status open_share(weft_tensor_writer *w, size_t item)
{
    char path[WEFT_PATH_MAX];
    size_t k = 0;
    if (item >= w->o.n_items)
        WEFT_FAIL(WEFT_STATUS_ARG, "tensor %zu was to be written, there are %zu", item,
                  w->o.n_items);
    while (item >= w->files[k].first + w->files[k].n)
        k++;
    if (w->share != NULL && w->opened == k)
        return WEFT_OK;
    WEFT_TRY(close_share(w));
    WEFT_TRY(path_of(w, k, path));
    const weft_st_content content = content_of(w, &w->files[k]);
    w->opened = k;
    return weft_i_st_share_open(&w->share, w->o.ctx->alloc, path, &content,
                                w->sums + w->files[k].first);
}

/* At most STAGE_ELEMS elements on the host. */
static weft_status write_block(weft_tensor_writer *w,
                               size_t item,
                               int64_t first,
                               int64_t n,
                               weft_dtype dtype,
                               const void *values)
{
    const weft_dtype to = w->plan[item].dtype;
    const void *bytes = values;
    char *converted = w->stage + (size_t)STAGE_ELEMS * sizeof(float);
    WEFT_TRY(weft_i_ctx_alive(w->o.ctx));
    if (values == NULL) {
        memset(converted, 0, (size_t)n * weft_dtype_bytes(to));
        bytes = converted;
    } else if (dtype != to) {
        WEFT_TRY(weft_i_convert(converted, to, values, dtype, n));
        bytes = converted;
    }
    return weft_i_st_share_write(w->share, item - w->files[w->opened].first, first, n, bytes);
}

weft_status
weft_i_tensor_writer_part(weft_tensor_writer *w, size_t item, const weft_part *part, weft_view from)
{
    weft_backend *b = w->o.ctx->backend;
    const size_t size = weft_dtype_bytes(from.dtype);
    weft_stretch s;
    WEFT_TRY(open_share(w, item));
    weft_stretch_walk walk = weft_i_stretch_begin(part->param, part->first, part->n);
    while (weft_i_stretch_next(&walk, &s)) {
        const char *at = (const char *)from.data + (size_t)(s.local - part->first) * size;
        for (int64_t done = 0; s.is_owned && done < s.n; done += STAGE_ELEMS) {
            const int64_t n = WEFT_MIN(STAGE_ELEMS, s.n - done);
            WEFT_TRY(b->ops->copy_to_host(b, w->stage, at + (size_t)done * size, (size_t)n * size));
            WEFT_TRY(write_block(w, item, s.full + done, n, from.dtype, w->stage));
        }
    }
    return WEFT_OK;
}

weft_status weft_i_tensor_writer_values(weft_tensor_writer *w,
                                        size_t item,
                                        int64_t first,
                                        int64_t n,
                                        weft_dtype dtype,
                                        const void *values)
{
    WEFT_TRY(open_share(w, item));
    for (int64_t done = 0; done < n; done += STAGE_ELEMS) {
        const void *at = NULL;
        if (values != NULL)
            at = (const char *)values + (size_t)done * weft_dtype_bytes(dtype);
        WEFT_TRY(write_block(w, item, first + done, WEFT_MIN(STAGE_ELEMS, n - done), dtype, at));
    }
    return WEFT_OK;
}

/* ---- the end ---- */

/* Sums of items [first, first + n) of all ranks, onto rank 0's. `all`: [ranks * 2 * n] there. */
static weft_status
gather_some(weft_tensor_writer *w, size_t first, size_t n, int64_t *mine, int64_t *all)
{
    weft_comm *c = w->o.mesh->comm[WEFT_AXIS_WORLD];
    for (size_t i = 0; i < n; i++) {
        mine[2 * i] = (int64_t)w->sums[first + i].n_bytes;
        mine[2 * i + 1] = (int64_t)w->sums[first + i].crc;
    }
    const weft_message m = {.op = WEFT_COMM_GATHER,
                            .dtype = WEFT_DTYPE_I64,
                            .send = mine,
                            .recv = c->rank == 0 ? all : NULL,
                            .n_elems = c->size * (int64_t)(2 * n),
                            .is_host = true,
                            .tensor = "checksums"};
    WEFT_TRY(weft_comm_call(c, &m));
    for (size_t r = 1; c->rank == 0 && r < (size_t)c->size; r++) {
        for (size_t i = 0; i < n; i++) {
            const int64_t *theirs = &all[2 * (r * n + i)];
            w->sums[first + i].n_bytes += (uint64_t)theirs[0];
            w->sums[first + i].crc ^= (uint32_t)theirs[1];
        }
    }
    return WEFT_OK;
}

static weft_status gather_sums(weft_tensor_writer *w, int64_t *buffer)
{
    for (size_t i = 0; i < w->o.n_items; i += SUMS_AT_ONCE)
        WEFT_TRY(gather_some(w, i, WEFT_MIN(SUMS_AT_ONCE, w->o.n_items - i), buffer,
                             buffer + 2 * SUMS_AT_ONCE));
    return WEFT_OK;
}

static weft_status check_whole(const weft_tensor_writer *w)
{
    for (size_t i = 0; i < w->o.n_items; i++) {
        const uint64_t wanted = bytes_of(&w->o.items[i]);
        if (w->sums[i].n_bytes != wanted)
            WEFT_FAIL(WEFT_STATUS_INTERNAL,
                      "tensor %s has %" PRIu64 " bytes, the ranks wrote %" PRIu64 " of it",
                      w->plan[i].name, wanted, w->sums[i].n_bytes);
    }
    return WEFT_OK;
}

static weft_status add_sums(const weft_tensor_writer *w, const file *f)
{
    weft_st_sum all = f->head;
    for (size_t i = f->first; i < f->first + f->n; i++) {
        all.crc = weft_i_crc32_join(all.crc, w->sums[i].crc, w->sums[i].n_bytes);
        all.n_bytes += w->sums[i].n_bytes;
    }
    WEFT_TRY(weft_i_checksums_begin(w->o.sums, f->name, all.n_bytes, all.crc));
    for (size_t i = f->first; i < f->first + f->n; i++)
        WEFT_TRY(weft_i_checksums_tensor(w->o.sums, w->plan[i].name, w->sums[i].crc));
    return weft_i_checksums_end(w->o.sums);
}

static weft_status report_sums(const weft_tensor_writer *w)
{
    char name[NAME_BYTES];
    WEFT_TRY(check_whole(w));
    if (w->o.sums == NULL)
        return WEFT_OK;
    for (size_t k = 0; k < w->n_files; k++)
        WEFT_TRY(add_sums(w, &w->files[k]));
    if (w->n_files == 1)
        return WEFT_OK;
    WEFT_TRY(index_name(w, name));
    return weft_i_checksums_add_file(w->o.sums, w->o.dir, name);
}

weft_status weft_i_tensor_writer_finish(weft_tensor_writer *w, weft_status st)
{
    weft_alloc *alloc = w->o.ctx->alloc;
    weft_mesh *mesh = w->o.mesh;
    const int n_ranks = mesh != NULL ? mesh->world_size : 1;
    const bool is_first = weft_i_train_is_first(mesh);
    const size_t n_parts = is_first ? (size_t)n_ranks + 1 : 1; /* what is sent, and what comes */
    int64_t *buffer = NULL;
    if (st == WEFT_OK)
        st = close_share(w);
    if (st == WEFT_OK)
        st = weft_i_alloc_array(alloc, (int64_t)(n_parts * 2 * SUMS_AT_ONCE), sizeof(*buffer),
                                &buffer);
    WEFT_TRY_GOTO(st, weft_i_train_agree(mesh, st), out);
    if (n_ranks > 1)
        WEFT_TRY_GOTO(st, gather_sums(w, buffer), out);
    st = is_first ? report_sums(w) : WEFT_OK;
    st = weft_i_train_agree(mesh, st);
out:
    weft_i_alloc_put(alloc, buffer);
    weft_i_tensor_writer_abandon(w);
    return st;
}
