/* Ends what ranks did each for itself; a run of one rank may do without a mesh. */
#ifndef WEFT_TRAIN_AGREE_H
#define WEFT_TRAIN_AGREE_H

#include "parallel/ranks.h"

/** weft_i_mesh_agree; with one rank, or mesh NULL, the status itself. @collective world, as there */
static inline weft_status weft_i_train_agree(weft_mesh *mesh, weft_status st)
{
    return mesh == NULL || mesh->world_size == 1 ? st : weft_i_mesh_agree(mesh, st);
}

/** Whether this rank does what one rank does for all. */
static inline bool weft_i_train_is_first(const weft_mesh *mesh)
{
    return mesh == NULL || mesh->world_rank == 0;
}

#endif
