/*
 * weft_checkpoint_verify_create: whether checkpoints are what was written (contract: weft/checkpoints.h).
 *
 * Files are read block by block, so a disk that cannot read is told and not a signal. Only a file whose checksum is wrong is
 * then mapped, to find the tensors that differ.
 */
#include "weft/checkpoints.h"

#include "base/crc32.h"
#include "train/checkpoint_folder.h"
#include "weft/inspect.h"
#include "weft/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct verdict_store {
    weft_checkpoint_finding *findings;
    size_t capacity;
} verdict_store;

typedef struct report_store {
    weft_checkpoint_report report; /* first, so that the object is found from it */
    weft_alloc *alloc;
    weft_checkpoint_place *places;
    weft_checkpoint_verdict *verdicts; /* [places] */
    verdict_store *stores;             /* [places] */
} report_store;

/* The checkpoint that is being read. */
typedef struct work {
    report_store *s;
    const char *dir;
    weft_checkpoint_verdict *verdict;
    verdict_store *store;
} work;

/* Adds a finding; the texts are copied. */
static weft_status
find(work *w, weft_checkpoint_fault fault, const char *file, const char *tensor, const char *detail)
{
    weft_alloc *alloc = w->s->alloc;
    const size_t n_file = strlen(file) + 1;
    const size_t n_tensor = strlen(tensor) + 1;
    const size_t n_detail = strlen(detail) + 1;
    void *list = w->store->findings, *block = NULL;
    WEFT_TRY(weft_i_alloc_grow(alloc, w->verdict->n_findings + 1, sizeof(*w->store->findings),
                               &w->store->capacity, &list));
    w->store->findings = list;
    w->verdict->findings = list;
    WEFT_TRY(weft_i_alloc_new(alloc, n_file + n_tensor + n_detail, 1, &block));
    char *text = block;
    memcpy(text, file, n_file);
    memcpy(text + n_file, tensor, n_tensor);
    memcpy(text + n_file + n_tensor, detail, n_detail);
    w->store->findings[w->verdict->n_findings++] =
        (weft_checkpoint_finding){fault, text, text + n_file, text + n_file + n_tensor};
    if (fault == WEFT_CHECKPOINT_UNREADABLE)
        w->s->report.is_unreadable = true;
    else
        w->s->report.is_damaged = true;
    return WEFT_OK;
}

/* The message of a call that failed with `st`, as a finding; memory that ran out is a failure. */
static weft_status find_failed(work *w, weft_status st, const char *file)
{
    const bool is_unreadable = st == WEFT_STATUS_IO || st == WEFT_STATUS_UNSUPPORTED;
    char detail[1024];
    if (st == WEFT_STATUS_NOMEM)
        return st;
    (void)snprintf(detail, sizeof(detail), "%s", weft_last_error());
    return find(w, is_unreadable ? WEFT_CHECKPOINT_UNREADABLE : WEFT_CHECKPOINT_DAMAGED, file, "",
                detail);
}

/* ---- with checksums ---- */

static weft_status compare_tensors(work *w, json_t *tensors, const weft_st *file, const char *name)
{
    const char *tensor = NULL;
    json_t *value = NULL;
    char detail[96];
    const size_t n_before = w->verdict->n_findings;
    json_object_foreach(tensors, tensor, value)
    {
        const weft_st_tensor *t = weft_i_st_find(file, tensor);
        uint32_t wanted = 0;
        (void)weft_i_checksums_crc(value, &wanted);
        if (t == NULL) {
            WEFT_TRY(find(w, WEFT_CHECKPOINT_DAMAGED, name, tensor,
                          "the file's header does not name it any more"));
            continue;
        }
        const uint32_t crc = weft_i_crc32(t->data, t->n_bytes);
        weft_i_st_drop(file, t);
        if (crc == wanted)
            continue;
        (void)snprintf(detail, sizeof(detail), "crc32 is %08" PRIx32 ", was %08" PRIx32, crc,
                       wanted);
        WEFT_TRY(find(w, WEFT_CHECKPOINT_DAMAGED, name, tensor, detail));
    }
    if (w->verdict->n_findings > n_before)
        return WEFT_OK;
    return find(w, WEFT_CHECKPOINT_DAMAGED, name, "",
                "its header differs from what was written; the tensors' bytes are right");
}

/* A file that is as long as it was and not the same: which tensors are it? */
static weft_status find_tensors(work *w, json_t *entry, const char *path, const char *name)
{
    json_t *tensors = json_object_get(entry, "tensors");
    weft_st *file = NULL;
    if (tensors == NULL)
        return find(w, WEFT_CHECKPOINT_DAMAGED, name, "", "its bytes differ from what was written");
    weft_status st = weft_i_st_open(&file, w->s->alloc, path);
    if (st != WEFT_OK)
        return find_failed(w, st, name);
    st = compare_tensors(w, tensors, file, name);
    weft_i_st_close(file);
    return st;
}

static weft_status check_file(work *w, const char *name, json_t *entry)
{
    const uint64_t wanted = (uint64_t)json_integer_value(json_object_get(entry, "bytes"));
    char path[WEFT_PATH_MAX], detail[128];
    uint64_t n_bytes = 0;
    uint32_t crc = 0, wanted_crc = 0;
    WEFT_TRY(weft_i_path_join(path, w->dir, name));
    if (!weft_i_file_exists(path))
        return find(w, WEFT_CHECKPOINT_MISSING, name, "", "is not there");
    const weft_status st = weft_i_crc32_file(path, &crc, &n_bytes);
    w->verdict->n_files++;
    w->verdict->n_bytes += n_bytes;
    w->verdict->n_tensors += json_object_size(json_object_get(entry, "tensors"));
    if (st != WEFT_OK)
        return find_failed(w, st, name);
    (void)weft_i_checksums_crc(json_object_get(entry, "crc32"), &wanted_crc);
    if (n_bytes != wanted) {
        (void)snprintf(detail, sizeof(detail), "has %" PRIu64 " bytes, %" PRIu64 " were written",
                       n_bytes, wanted);
        return find(w, WEFT_CHECKPOINT_DAMAGED, name, "", detail);
    }
    return crc == wanted_crc ? WEFT_OK : find_tensors(w, entry, path, name);
}

/* ---- without ---- */

static weft_status find_names(work *w, const char *const *names, size_t n, const char *detail)
{
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(find(w, WEFT_CHECKPOINT_DAMAGED, "model", names[i], detail));
    return WEFT_OK;
}

static weft_status check_model(work *w)
{
    const weft_info_options o = {.model = w->dir};
    weft_info *info = NULL;
    weft_status st = weft_info_create(&info, &o);
    if (st != WEFT_OK)
        return find_failed(w, st, "config.json");
    w->verdict->n_files += info->n_files;
    w->verdict->n_bytes += info->n_bytes;
    if (info->weights_fault[0] != '\0')
        st = find(w, WEFT_CHECKPOINT_DAMAGED, "model", "", info->weights_fault);
    else if (!info->has_weights)
        st = find(w, WEFT_CHECKPOINT_MISSING, "model.safetensors", "", "is not there");
    if (st == WEFT_OK)
        st = find_names(w, info->missing, info->n_missing, "is needed by config.json and missing");
    if (st == WEFT_OK)
        st = find_names(w, info->misshapen, info->n_misshapen, "has another shape");
    weft_info_destroy(info);
    return st;
}

/* The optimizer's files and the trainer's state, where there is one: a model's folder has neither. */
static weft_status check_training(work *w)
{
    char path[WEFT_PATH_MAX];
    weft_trainer_state state;
    weft_st *file = NULL;
    WEFT_TRY(weft_i_path_join(path, w->dir, WEFT_TRAINER_STATE_FILE));
    if (!weft_i_file_exists(path))
        return WEFT_OK;
    w->verdict->n_files++;
    weft_status st = weft_i_trainer_state_read(&state, w->s->alloc, w->dir);
    if (st == WEFT_OK)
        weft_i_trainer_state_fini(&state);
    else
        WEFT_TRY(find_failed(w, st, WEFT_TRAINER_STATE_FILE));
    st = weft_i_st_open_folder(&file, w->s->alloc, w->dir, "optimizer");
    if (st != WEFT_OK)
        return find_failed(w, st, "optimizer");
    w->verdict->n_files += weft_i_st_file_count(file);
    weft_i_st_close(file);
    return WEFT_OK;
}

static weft_status check_form(work *w)
{
    WEFT_TRY(check_model(w));
    return check_training(w);
}

/* ---- all ---- */

static weft_status check_one(work *w)
{
    char path[WEFT_PATH_MAX];
    json_t *files = NULL, *entry = NULL;
    const char *name = NULL;
    WEFT_TRY(weft_i_path_join(path, w->dir, WEFT_CHECKSUMS_FILE));
    if (!weft_i_file_exists(path))
        return check_form(w);
    weft_status st = weft_i_checksums_read(&files, w->s->alloc, w->dir);
    if (st != WEFT_OK) {
        WEFT_TRY(find_failed(w, st, WEFT_CHECKSUMS_FILE));
        return check_form(w);
    }
    w->verdict->has_checksums = true;
    json_object_foreach(files, name, entry)
    {
        if (st == WEFT_OK)
            st = check_file(w, name, entry);
    }
    json_decref(files);
    return st;
}

static weft_status check_all(report_store *s, const char *dir)
{
    size_t n = 0;
    WEFT_TRY(weft_i_checkpoint_places(&s->places, &n, s->alloc, dir));
    WEFT_TRY(weft_i_alloc_array(s->alloc, (int64_t)n, sizeof(*s->verdicts), &s->verdicts));
    WEFT_TRY(weft_i_alloc_array(s->alloc, (int64_t)n, sizeof(*s->stores), &s->stores));
    s->report.verdicts = s->verdicts;
    for (size_t i = 0; i < n; i++) {
        const weft_checkpoint_kind kind = s->places[i].kind;
        if (kind != WEFT_CHECKPOINT_FINAL && kind != WEFT_CHECKPOINT_OTHER)
            continue; /* half written, or on its way out: no run will read it */
        const size_t k = s->report.n++;
        s->verdicts[k].path = s->places[i].path;
        work w = {s, s->places[i].path, &s->verdicts[k], &s->stores[k]};
        WEFT_TRY(check_one(&w));
    }
    if (s->report.n == 0)
        WEFT_FAIL(WEFT_STATUS_IO, "%s: holds no finished checkpoint", dir);
    return WEFT_OK;
}

weft_status weft_checkpoint_verify_create(weft_checkpoint_report **out,
                                          const weft_checkpoint_options *options)
{
    weft_alloc *alloc = NULL;
    void *memory = NULL;
    *out = NULL;
    WEFT_TRY(weft_options_check(WEFT_COMMAND_CHECKPOINT, options));
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    weft_status st = weft_i_alloc_new(alloc, 1, sizeof(report_store), &memory);
    if (st != WEFT_OK) {
        weft_i_alloc_destroy(alloc);
        return st;
    }
    report_store *s = memory;
    s->alloc = alloc;
    st = check_all(s, options->dir);
    if (st == WEFT_OK)
        *out = &s->report;
    else
        weft_checkpoint_verify_destroy(&s->report);
    return st;
}

void weft_checkpoint_verify_destroy(weft_checkpoint_report *report)
{
    if (report == NULL)
        return;
    report_store *s = (report_store *)report; /* its first member */
    weft_alloc *alloc = s->alloc;
    for (size_t i = 0; i < s->report.n; i++) {
        for (size_t k = 0; k < s->verdicts[i].n_findings; k++)
            weft_i_alloc_put(alloc, (void *)(uintptr_t)s->stores[i].findings[k].file);
        weft_i_alloc_put(alloc, s->stores[i].findings);
    }
    weft_i_alloc_put(alloc, s->stores);
    weft_i_alloc_put(alloc, s->verdicts);
    weft_i_alloc_put(alloc, s->places);
    weft_i_alloc_put(alloc, s);
    weft_i_alloc_destroy(alloc);
}
