/* Inside of weft_st: one file's header, checked; shared by the parser, the reader and the folder. */
#ifndef WEFT_FORMATS_SAFETENSORS_FILE_H
#define WEFT_FORMATS_SAFETENSORS_FILE_H

#include "formats/safetensors.h"

typedef struct weft_st_file {
    char *path;
    weft_map map;            /* n_bytes 0 when the bytes are the caller's */
    weft_st_tensor *tensors; /* sorted by name */
    size_t n_tensors;
    weft_st_meta *metas; /* in the file's order */
    size_t n_metas;
    char *strings; /* all names and metadata, each with its NUL */
} weft_st_file;

struct weft_st {
    weft_alloc *alloc;
    weft_st_file *files;
    size_t n_files;
    const weft_st_tensor **tensors; /* of all files, sorted by name */
    size_t n_tensors;
};

/** Fills f->tensors, metas and strings from the whole file's bytes; f->path is set by the caller. */
weft_status weft_i_st_file_parse(weft_st_file *f,
                                 weft_alloc *alloc,
                                 const unsigned char *bytes,
                                 size_t n_bytes);

/** An empty set with room for n_files. */
weft_status weft_i_st_new(weft_st **out, weft_alloc *alloc, size_t n_files);

/** Maps and parses file number `i` of the set. */
weft_status weft_i_st_load(weft_st *s, size_t i, const char *path);

/** Makes the sorted list over all files. FORMAT when a name is in two of them. */
weft_status weft_i_st_merge(weft_st *s);

#endif
