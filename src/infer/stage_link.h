/* What the stages of a pipeline tell each other in a turn of generation: words, ids, activations. */
#ifndef WEFT_INFER_STAGE_LINK_H
#define WEFT_INFER_STAGE_LINK_H

#include "parallel/mesh.h"
#include "weft/model.h"

#define WEFT_STAGE_LINK_PLACES 2 /* outputs on their way to the next stage */

/** Kinds of messages. */
typedef enum weft_stage_message {
    WEFT_STAGE_ANSWER, /* ids that the last stage chose, to the first */
    WEFT_STAGE_WORD, /* what to do in a turn, with the ids that were chosen before, from stage to stage */
    WEFT_STAGE_OUTPUT, /* the stream, from stage to stage */
    WEFT_STAGE_MESSAGES
} weft_stage_message;

typedef struct weft_stage_link {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_comm *comm; /* pp */
    weft_dtype dtype;
    int64_t n_cols;            /* of the stream */
    int64_t n_ids;             /* of a turn, at most */
    int n_flights;             /* turns on their way at once, at most */
    int32_t *words, *answers;  /* [n_flights * (1 + n_ids)] each; an answer uses n_ids of it */
    weft_request *word_sent;   /* [n_flights] */
    weft_request *answer_sent; /* [n_flights] */
    bool *is_word_sent, *is_answer_sent;
    void *place[WEFT_STAGE_LINK_PLACES];
    weft_request place_sent[WEFT_STAGE_LINK_PLACES];
    bool is_place_sent[WEFT_STAGE_LINK_PLACES];
    int64_t n_sent[WEFT_STAGE_MESSAGES],
        n_received[WEFT_STAGE_MESSAGES]; /* their tags follow from it */
} weft_stage_link;

/** Bytes of one place; 0 where no stage follows. */
size_t weft_i_stage_link_place_bytes(const weft_mesh *mesh,
                                     int64_t n_rows,
                                     int64_t n_cols,
                                     weft_dtype dtype);

/**
 * Takes the buffers: places of kind COMMUNICATION, [n_rows, hidden] each, where another stage follows; the rest on the host.
 *
 * @param[in] part  this stage's part of the model
 * @return    WEFT_OK | NOMEM
 */
weft_status weft_i_stage_link_init(weft_stage_link *out,
                                   weft_mesh *mesh,
                                   const weft_model *part,
                                   int n_flights,
                                   int64_t n_ids,
                                   int64_t n_rows);
void weft_i_stage_link_fini(weft_stage_link *l);

bool weft_i_stage_link_is_first(const weft_stage_link *l);
bool weft_i_stage_link_is_last(const weft_stage_link *l);

/**
 * The largest word of the ranks that have the first stage (without a pipeline: of all ranks).
 *
 * @collective  the first stage's ranks: dp, then tp: 1 all_reduce of 1 I64 each
 */
weft_status weft_i_stage_link_agree(weft_stage_link *l, int64_t *word);

/** Where a flight's word [0] and ids [1 + n_ids] are put together; what was sent from it before has come. */
weft_status weft_i_stage_link_word_of(weft_stage_link *l, int flight, int32_t **out);

/** Sends it to the next stage; every stage but the first receives it before. @collective pp: 1 RECV and 1 SEND of I32 */
weft_status weft_i_stage_link_pass_word(weft_stage_link *l, int flight);

/** Last stage: where the chosen ids are put. */
weft_status weft_i_stage_link_answer_of(weft_stage_link *l, int flight, int32_t **out);

/** Last stage: n chosen ids to the first. @collective pp: 1 SEND of n I32 */
weft_status weft_i_stage_link_send_answer(weft_stage_link *l, int flight, int64_t n);

/** First stage: n ids of a flight's answer. @collective pp: 1 RECV of n I32 */
weft_status
weft_i_stage_link_receive_answer(weft_stage_link *l, int flight, int32_t *ids, int64_t n);

/** The loaded micro-batch's stream into the run, where a stage comes before. @collective pp: 1 RECV */
weft_status weft_i_stage_link_receive(weft_stage_link *l, const weft_run *run);

/** What the run left to the next stage; goes on while others compute. @collective pp: 1 SEND */
weft_status weft_i_stage_link_send(weft_stage_link *l, const weft_run *run);

/** All that was sent has come. */
weft_status weft_i_stage_link_finish(weft_stage_link *l);

#endif
