/* What a message of a communicator means: names, parts, extents, validity. Shared by transports and wrappers. */
#ifndef WEFT_COMM_MESSAGE_H
#define WEFT_COMM_MESSAGE_H

#include "weft/ext/comm.h"

/** "all_reduce", "send", ...; "unknown" for what is no operation. */
const char *weft_i_comm_op_name(weft_comm_op op);

/** The operation adds or takes the largest of the ranks' elements. */
bool weft_i_comm_is_reduction(weft_comm_op op);

/** `peer` is a root. */
bool weft_i_comm_has_root(weft_comm_op op);

/** SEND or RECV: two ranks, matched by (peer, tag), outside the group's order. */
bool weft_i_comm_is_pair(weft_comm_op op);

/** What messages call rank r of the group: its number among all ranks. */
int weft_i_comm_world_rank(const weft_comm *c, int r);

/** What messages call the tensor: its name, or "a message" when it has none. */
const char *weft_i_comm_tensor_name(const weft_message *m);

/** Elements of rank r's part of the whole: counts[r], or the even cut's. ALL_TO_ALL: what goes to rank r. */
int64_t weft_i_comm_part(const weft_message *m, int size, int r);

/** Elements before rank r's part. */
int64_t weft_i_comm_part_start(const weft_message *m, int size, int r);

/** ALL_TO_ALL: elements that rank `rank` expects from rank r, and those before them. */
int64_t weft_i_comm_recv_part(const weft_message *m, int size, int rank, int r);
int64_t weft_i_comm_recv_start(const weft_message *m, int size, int rank, int r);

/**
 * Whether rank c->rank of c->size may start `m`: a known operation, type and reduction, a root or peer of the group,
 * counts that add up, buffers where elements are, and no overlap but the in-place forms of weft/ext/comm.h (where the rank's
 * own part is empty there is nothing to overlap). is_added: a REDUCE_SCATTER that sums F32, with buffers apart.
 *
 * @collective  none
 * @return      WEFT_OK | ARG naming operation and tensor
 */
weft_status weft_i_comm_check(const weft_comm *c, const weft_message *m);

/**
 * Bytes that rank `rank` receives, by the same convention (so that the group's sums of both are equal): all_gather
 * V - V_r; reduce_scatter (n-1) V_r; all_reduce both over the even cut; broadcast each other rank V; reduce the root
 * (n-1) V; gather the root V - V_root; scatter V_r each other rank; all_to_all the parts from the others; recv V.
 */
uint64_t weft_i_comm_received_bytes(const weft_message *m, int size, int rank);

/**
 * Bytes that rank `rank` sends, by weft's convention, the same on every transport. For V elements of which rank r holds
 * V_r: all_gather (n-1) V_r; reduce_scatter V - V_r; all_reduce both over the even cut; broadcast the root (n-1) V;
 * scatter the root V - V_root; gather V_r and reduce V, each other rank; all_to_all V less what stays; send V.
 */
uint64_t weft_i_comm_sent_bytes(const weft_message *m, int size, int rank);

#endif
