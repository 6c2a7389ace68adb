/**
 * Checkpoints on disk: which there are, and whether they are as they were written (`weft checkpoint`). Layout of the files:
 * docs/formats.md.
 */
#ifndef WEFT_CHECKPOINTS_H
#define WEFT_CHECKPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The fields are the arguments of `weft checkpoint`. */
typedef struct weft_checkpoint_options {
    const char *action; /* "list" or "verify": which of the calls below the program makes */
    const char *dir;    /* required: the folder of a run, or one checkpoint */
    bool json;          /* how the program prints it; the calls do not read it */
} weft_checkpoint_options;

/** One folder of a run. */
typedef struct weft_checkpoint_entry {
    char name[64];        /* "checkpoint-20" */
    int64_t step;         /* -1: not known */
    int64_t total_tokens; /* input tokens up to it; -1: not known */
    int64_t written_at;   /* seconds since 1970; 0: not known */
    uint64_t n_bytes;     /* of all its files */
    char layout[96];      /* ranks that wrote it: "dp 4, zero stage 3"; "" when it does not say */
    bool has_checksums;
    bool is_latest;   /* what --resume goes on from */
    bool is_complete; /* all files are there, in their lengths; contents are not read */
    char fault[512];  /* why it is not; "" when it is */
} weft_checkpoint_entry;

typedef struct weft_checkpoint_list {
    size_t n;
    const weft_checkpoint_entry *entries; /* by step */
} weft_checkpoint_list;

/**
 * The checkpoints of a run's folder, unfinished ones included, or the one that `dir` is.
 *
 * @collective  none
 * @return      WEFT_OK | ARG | IO there is no such folder, or no checkpoint in it | NOMEM
 */
WEFT_API weft_status weft_checkpoint_list_create(weft_checkpoint_list **out,
                                                 const weft_checkpoint_options *options);
WEFT_API void weft_checkpoint_list_destroy(weft_checkpoint_list *list);

typedef enum weft_checkpoint_fault {
    WEFT_CHECKPOINT_MISSING,   /* a file that should be there */
    WEFT_CHECKPOINT_DAMAGED,   /* not what was written */
    WEFT_CHECKPOINT_UNREADABLE /* nothing can be said about it */
} weft_checkpoint_fault;

/** Something that is wrong. */
typedef struct weft_checkpoint_finding {
    weft_checkpoint_fault fault;
    const char *file;   /* its name in the folder */
    const char *tensor; /* ""; or the tensor whose bytes differ */
    const char *detail; /* a sentence */
} weft_checkpoint_finding;

/** One checkpoint after every byte of it was read. */
typedef struct weft_checkpoint_verdict {
    const char *path;
    bool has_checksums; /* false: only the form of its files could be checked */
    size_t n_files;     /* that were compared */
    size_t n_tensors;   /* in them, each with a checksum of its own */
    uint64_t n_bytes;   /* read */
    const weft_checkpoint_finding *findings;
    size_t n_findings; /* 0: whole */
} weft_checkpoint_verdict;

typedef struct weft_checkpoint_report {
    size_t n;
    const weft_checkpoint_verdict *verdicts; /* by step */
    bool is_damaged;                         /* something is MISSING or DAMAGED */
    bool is_unreadable;                      /* something is UNREADABLE */
} weft_checkpoint_report;

/**
 * Reads all of a checkpoint, or of every finished one of a run's folder, and compares it with its checksums.json. Without
 * that file: config, headers, names and shapes of the tensors, and the state of the trainer.
 *
 * @collective  none
 * @return      WEFT_OK read (the report says the outcome) | ARG | IO as list | NOMEM
 */
WEFT_API weft_status weft_checkpoint_verify_create(weft_checkpoint_report **out,
                                                   const weft_checkpoint_options *options);
WEFT_API void weft_checkpoint_verify_destroy(weft_checkpoint_report *report);

#ifdef __cplusplus
}
#endif
#endif
