/*
 * ZeRO stage 2: gradients are cut over the dp ranks too; a whole one exists for the buckets in the ring only.
 *
 * Source: Rajbhandari et al., arXiv:1910.02054, sec. 5.2 (P_os+g).
 *
 * Communication (dp): 1 reduce_scatter of every bucket's gradient a micro-batch, f32, onto the shard; a step: 1 all_gather
 * of every bucket's updated weights, in the model's type.
 * Invariants: the shard is added to in the order of micro-batches, so neither the number of ranks nor stage 2 or 3
 * changes a bit.
 * Leaves to others: the ring and its order (bucket.c), sharing the update (zero1.c).
 */
#include "parallel/data_axis.h"

const weft_data_method weft_i_zero2_method = {.is_state_shard = true,
                                              .is_grad_shard = true,
                                              .reduce = weft_i_bucket_reduce_onto_own,
                                              .share_update = weft_i_zero1_share_update};
