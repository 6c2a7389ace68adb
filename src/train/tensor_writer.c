/*
 * Tensors between a backend's memory and safetensors files, piece by piece.
 *
 * Elements are named by their number in the full tensor (row-major). A stretch of them is copied row by row from the pieces
 * that hold it, so nothing here depends on how a parameter was cut; a tensor that lies whole is one copy.
 *
 * Invariants
 *  1. At most one staging buffer is resident beside the model.
 *  2. What is written depends on values, names, types and shard_bytes alone.
 */
#include "train/tensor_writer.h"

#include "base/ctx.h"
#include "tensor/convert.h"

#include <string.h>

#define STAGE_ELEMS ((int64_t)1 << 18)
#define MAX_SHARDS 99999

typedef enum way { TO_HOST, FROM_HOST } way;

/* A part of one row: n elements at local (row, col), number `at` of the stretch. */
typedef struct stretch_part {
    int64_t row, col, n, at;
} stretch_part;

static weft_status
copy_part(weft_backend *b, weft_view local, char *host, stretch_part part, way direction)
{
    const size_t size = weft_dtype_bytes(local.dtype);
    char *device = (char *)local.data + (size_t)(part.row * local.ld + part.col) * size;
    char *here = host + (size_t)part.at * size;
    if (direction == TO_HOST)
        return b->ops->copy_to_host(b, here, device, (size_t)part.n * size);
    return b->ops->copy_from_host(b, device, here, (size_t)part.n * size);
}

/* Whether local memory is the full tensor, element for element. */
static bool is_whole(const weft_param *p, weft_view local)
{
    const weft_param_piece *piece = &p->piece[0];
    return p->n_pieces == 1 && piece->row == 0 && piece->col == 0 && piece->full_row == 0 &&
           piece->full_col == 0 && piece->rows == p->full_rows && piece->cols == p->full_cols &&
           local.ld == local.cols && local.cols == p->full_cols;
}

/* Elements [first, first + n) of the full tensor between `host` and the pieces here. */
static weft_status copy_stretch(weft_backend *b,
                                const weft_param *p,
                                weft_view local,
                                char *host,
                                int64_t first,
                                int64_t n,
                                way direction)
{
    if (is_whole(p, local)) {
        const stretch_part all = {0, first, n, 0};
        return copy_part(b, local, host, all, direction);
    }
    for (int64_t done = 0; done < n;) {
        const int64_t row = (first + done) / p->full_cols;
        const int64_t col = (first + done) % p->full_cols;
        const int64_t length = WEFT_MIN(p->full_cols - col, n - done);
        for (int i = 0; i < p->n_pieces; i++) {
            const weft_param_piece *piece = &p->piece[i];
            const int64_t from = WEFT_MAX(col, piece->full_col);
            const int64_t to = WEFT_MIN(col + length, piece->full_col + piece->cols);
            if (row < piece->full_row || row >= piece->full_row + piece->rows || from >= to)
                continue;
            const stretch_part part = {piece->row + row - piece->full_row,
                                       piece->col + from - piece->full_col, to - from,
                                       done + from - col};
            WEFT_TRY(copy_part(b, local, host, part, direction));
        }
        done += length;
    }
    return WEFT_OK;
}

/* ---- writing ---- */

static weft_shape shape_of(const weft_param *p)
{
    return p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                          : weft_i_shape_2d(p->full_rows, p->full_cols);
}

static uint64_t bytes_of(const weft_tensor_item *item)
{
    return (uint64_t)(item->param->full_rows * item->param->full_cols) *
           weft_dtype_bytes(item->dtype);
}

static weft_status
append_item(weft_st_writer *w, weft_backend *b, const weft_tensor_item *item, char *stage)
{
    const int64_t n_elems = item->param->full_rows * item->param->full_cols;
    char *converted = stage + (size_t)STAGE_ELEMS * sizeof(float);
    for (int64_t done = 0; done < n_elems; done += STAGE_ELEMS) {
        const int64_t n = WEFT_MIN(STAGE_ELEMS, n_elems - done);
        const char *bytes = stage;
        WEFT_TRY(copy_stretch(b, item->param, item->local, stage, done, n, TO_HOST));
        if (item->dtype != item->local.dtype) {
            WEFT_TRY(weft_i_convert(converted, item->dtype, stage, item->local.dtype, n));
            bytes = converted;
        }
        WEFT_TRY(weft_i_st_append(w, bytes, (size_t)n * weft_dtype_bytes(item->dtype)));
    }
    return WEFT_OK;
}

static weft_status write_file(
    weft_backend *b, const char *path, const weft_tensor_item *items, size_t n_items, char *stage)
{
    static const weft_st_meta meta = {"format", "pt"};
    weft_alloc *alloc = b->ctx->alloc;
    weft_st_writer *w = NULL;
    void *block = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_alloc_new(alloc, n_items, sizeof(weft_st_plan), &block));
    weft_st_plan *plan = block;
    for (size_t i = 0; i < n_items; i++)
        plan[i] = (weft_st_plan){items[i].name, items[i].dtype, shape_of(items[i].param)};
    WEFT_TRY_GOTO(st, weft_i_st_create(&w, alloc, path, plan, n_items, &meta, 1), out);
    for (size_t i = 0; i < n_items; i++)
        WEFT_TRY_GOTO(st, append_item(w, b, &items[i], stage), out);
    st = weft_i_st_finish(w);
    w = NULL;
out:
    weft_i_st_abandon(w);
    weft_i_alloc_put(alloc, block);
    return st;
}

/* How many of the items from the front go into one file. */
static size_t shard_length(const weft_tensor_item *items, size_t n_items, uint64_t shard_bytes)
{
    uint64_t n_bytes = 0;
    size_t n = 0;
    while (n < n_items && (n == 0 || n_bytes + bytes_of(&items[n]) <= shard_bytes))
        n_bytes += bytes_of(&items[n++]);
    return n;
}

typedef struct shard_name {
    char text[128];
} shard_name;

/* All shards and their index. */
static weft_status write_shards(weft_backend *b,
                                const char *dir,
                                const char *base,
                                const weft_tensor_item *items,
                                size_t n_items,
                                uint64_t shard_bytes,
                                char *stage)
{
    weft_alloc *alloc = b->ctx->alloc;
    size_t n_shards = 0, first = 0;
    uint64_t total = 0;
    void *names_block = NULL, *places_block = NULL;
    shard_name *names = NULL;
    weft_st_place *places = NULL;
    char path[WEFT_PATH_MAX], index[128];
    weft_status st = WEFT_OK;
    for (size_t i = 0; i < n_items; n_shards++)
        i += shard_length(items + i, n_items - i, shard_bytes);
    if (n_shards > MAX_SHARDS)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s would be %zu files", base, n_shards);
    WEFT_TRY(weft_i_alloc_new(alloc, n_shards, sizeof(shard_name), &names_block));
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n_items, sizeof(weft_st_place), &places_block), out);
    names = names_block;
    places = places_block;
    for (size_t k = 0; k < n_shards; k++) {
        const size_t n = shard_length(items + first, n_items - first, shard_bytes);
        WEFT_TRY_GOTO(st,
                      weft_i_str_print(names[k].text, sizeof(names[k].text),
                                       "%s-%05zu-of-%05zu.safetensors", base, k + 1, n_shards),
                      out);
        WEFT_TRY_GOTO(st, weft_i_path_join(path, dir, names[k].text), out);
        WEFT_TRY_GOTO(st, write_file(b, path, items + first, n, stage), out);
        for (size_t i = first; i < first + n; i++) {
            places[i] = (weft_st_place){items[i].name, names[k].text};
            total += bytes_of(&items[i]);
        }
        first += n;
    }
    WEFT_TRY_GOTO(st, weft_i_str_print(index, sizeof(index), "%s.safetensors.index.json", base),
                  out);
    WEFT_TRY_GOTO(st, weft_i_path_join(path, dir, index), out);
    st = weft_i_st_write_index(alloc, path, places, n_items, total);
out:
    weft_i_alloc_put(alloc, places_block);
    weft_i_alloc_put(alloc, names_block);
    return st;
}

weft_status weft_i_tensors_write(weft_backend *b,
                                 const char *dir,
                                 const char *base,
                                 const weft_tensor_item *items,
                                 size_t n_items,
                                 uint64_t shard_bytes)
{
    weft_alloc *alloc = b->ctx->alloc;
    char name[128], path[WEFT_PATH_MAX];
    void *stage = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_alloc_new(alloc, (size_t)(2 * STAGE_ELEMS), sizeof(float), &stage));
    if (shard_length(items, n_items, shard_bytes) < n_items) {
        st = write_shards(b, dir, base, items, n_items, shard_bytes, stage);
        goto out;
    }
    WEFT_TRY_GOTO(st, weft_i_str_print(name, sizeof(name), "%s.safetensors", base), out);
    WEFT_TRY_GOTO(st, weft_i_path_join(path, dir, name), out);
    st = write_file(b, path, items, n_items, stage);
out:
    weft_i_alloc_put(alloc, stage);
    return st;
}

/* ---- reading ---- */

weft_status weft_i_tensor_fill(weft_backend *b,
                               const weft_st_tensor *file,
                               const weft_param *param,
                               weft_view local,
                               void *stage,
                               int64_t stage_elems)
{
    const size_t size = weft_dtype_bytes(file->dtype);
    for (int64_t done = 0; done < file->n_elems; done += stage_elems) {
        const int64_t n = WEFT_MIN(stage_elems, file->n_elems - done);
        const char *bytes = (const char *)file->data + (size_t)done * size;
        WEFT_TRY(weft_i_convert(stage, local.dtype, bytes, file->dtype, n));
        WEFT_TRY(copy_stretch(b, param, local, stage, done, n, FROM_HOST));
    }
    return WEFT_OK;
}
