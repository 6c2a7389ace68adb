/**
 * safetensors files: reading by memory map, a folder's shards as one set, writing from front to back or by several ranks at
 * once.
 *
 * Source: the format's specification (8-byte little-endian header length, JSON header, data) and the reference
 * reader 0.8.0 for what is accepted. Everything about a file is checked when it is opened: nothing read later can be
 * out of range.
 */
#ifndef WEFT_FORMATS_SAFETENSORS_H
#define WEFT_FORMATS_SAFETENSORS_H

#include "base/file.h"
#include "base/str.h"
#include "tensor/shape.h"
#include "weft/dtype.h"

#define WEFT_SAFETENSORS_HEADER_MAX ((uint64_t)100000000)

typedef struct weft_st_tensor {
    const char *name; /* as in the file, NUL ended; names with an embedded NUL are refused */
    weft_dtype dtype; /* OTHER: only its range was checked */
    weft_shape shape;
    int64_t n_elems;
    const void *data; /* into the map, may be unaligned */
    size_t n_bytes;
    size_t file;            /* index of the file it lies in */
    const char *dtype_name; /* as the file spells it: what OTHER stands for */
} weft_st_tensor;

typedef struct weft_st_meta {
    const char *key;
    const char *value;
} weft_st_meta;

/** One file, or all the shards of a folder, as one list of tensors sorted by name. */
typedef struct weft_st weft_st;

/**
 * Opens one file. Refused with file, tensor and numbers: too short, header over 100,000,000 bytes or past the end
 * (checked before anything is allocated), no JSON object, repeated key, fields of a wrong type, a dtype name whose
 * byte count disagrees with shape, ranges that overlap, leave a gap, run backwards, or do not end at the file's end,
 * metadata that is not strings, over WEFT_SHAPE_MAX dimensions. Unknown fields are ignored, as the reference does.
 *
 * @return WEFT_OK | IO | FORMAT | NOMEM
 */
weft_status weft_i_st_open(weft_st **out, weft_alloc *alloc, const char *path);

/** The same from a file's bytes in the caller's memory, which must outlive `out`; `path` is for messages. */
weft_status weft_i_st_parse(
    weft_st **out, weft_alloc *alloc, const char *path, const void *bytes, size_t n_bytes);

/**
 * Opens a model's folder: `BASE.safetensors.index.json` when there (its names, and only its names, decide which files
 * are read; a missing file is refused and all missing ones are listed; a tensor that the index places in a file that
 * does not hold it is refused; a tensor in two of the files is refused), else `BASE.safetensors`. Shards without an
 * index are refused with what was found; so is `BASE.safetensors` beside an index that does not name it, since
 * readers differ in which of the two they believe. `base` is "model" for weights and "optimizer" for optimizer state.
 *
 * @return WEFT_OK | IO | FORMAT | NOMEM
 */
weft_status
weft_i_st_open_folder(weft_st **out, weft_alloc *alloc, const char *dir, const char *base);
void weft_i_st_close(weft_st *s);

size_t weft_i_st_count(const weft_st *s);
const weft_st_tensor *weft_i_st_at(const weft_st *s, size_t i);           /* in order of names */
const weft_st_tensor *weft_i_st_find(const weft_st *s, const char *name); /* NULL when absent */
size_t weft_i_st_file_count(const weft_st *s);
const char *weft_i_st_file(const weft_st *s, size_t file);
size_t weft_i_st_meta_count(const weft_st *s); /* of the first file */
weft_st_meta weft_i_st_meta_at(const weft_st *s, size_t i);

/** The pages of this tensor are not needed again soon (loading a model must not keep two copies resident). */
void weft_i_st_drop(const weft_st *s, const weft_st_tensor *t);

/** What a file will hold, in the order its data is written. */
typedef struct weft_st_plan {
    const char *name;
    weft_dtype dtype;
    weft_shape shape;
} weft_st_plan;

typedef struct weft_st_writer weft_st_writer;

/**
 * The header's bytes alone, length and padding included: every rank that writes a part of one file knows where its
 * tensors go from this and the plan.
 *
 * @return WEFT_OK | NOMEM | ARG a name twice, no name, no known type, sizes that overflow
 */
weft_status weft_i_st_header(weft_str *out,
                             const weft_st_plan *plan,
                             size_t n_plan,
                             const weft_st_meta *meta,
                             size_t n_meta);

/**
 * Writes the header for all planned tensors; then each tensor's bytes are appended in plan order, in pieces of any size.
 * The data section starts 8-byte aligned (the header is padded with spaces).
 *
 * @param meta, n_meta  metadata; transformers wants {"format": "pt"}
 * @return WEFT_OK | IO | NOMEM | ARG a name twice
 */
weft_status weft_i_st_create(weft_st_writer **out,
                             weft_alloc *alloc,
                             const char *path,
                             const weft_st_plan *plan,
                             size_t n_plan,
                             const weft_st_meta *meta,
                             size_t n_meta);
weft_status weft_i_st_append(weft_st_writer *w, const void *bytes, size_t n_bytes);

/** Checks that every planned byte came, syncs, closes, frees. On failure too the writer is freed. */
weft_status weft_i_st_finish(weft_st_writer *w);
void weft_i_st_abandon(weft_st_writer *w); /* NULL is fine */

/** What stands in one file. */
typedef struct weft_st_content {
    const weft_st_plan *plan; /* in the order of their data */
    size_t n_plan;
    const weft_st_meta *meta;
    size_t n_meta;
} weft_st_content;

/** Bytes that were written and what they add to the checksum of a whole (base/crc32.h); sums of ranks add up. */
typedef struct weft_st_sum {
    uint64_t n_bytes;
    uint32_t crc;
} weft_st_sum;

/** A file that several ranks fill at once, each the elements it has. */
typedef struct weft_st_share weft_st_share;

/**
 * Makes the file: the header, and room for every tensor, so a full disk is found here. One rank; the others open after it.
 *
 * @param[out] head  length and checksum of the header
 * @return      WEFT_OK | IO | NOMEM | ARG as weft_i_st_header
 */
weft_status weft_i_st_share_make(weft_st_sum *head,
                                 weft_alloc *alloc,
                                 const char *path,
                                 const weft_st_content *content);

/** @param sums  [n_plan] what this rank wrote of each tensor is added; outlives the share */
weft_status weft_i_st_share_open(weft_st_share **out,
                                 weft_alloc *alloc,
                                 const char *path,
                                 const weft_st_content *content,
                                 weft_st_sum *sums);

/** Elements [first, first + n) of a tensor of the plan, in the file's type. @return WEFT_OK | IO | ARG out of range */
weft_status
weft_i_st_share_write(weft_st_share *s, size_t tensor, int64_t first, int64_t n, const void *bytes);

/** Syncs and frees, also on failure. */
weft_status weft_i_st_share_close(weft_st_share *s);
void weft_i_st_share_abandon(weft_st_share *s); /* NULL is fine */

/** Writes BASE.safetensors.index.json: {"metadata": {"total_size": bytes}, "weight_map": {name: file}}. */
typedef struct weft_st_place {
    const char *name;
    const char *file; /* base name */
} weft_st_place;

weft_status weft_i_st_write_index(weft_alloc *alloc,
                                  const char *path,
                                  const weft_st_place *places,
                                  size_t n_places,
                                  uint64_t total_bytes);

#endif
