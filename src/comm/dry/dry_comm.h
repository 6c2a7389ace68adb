/* The transport of a dry run: one rank of a group whose others are not there. */
#ifndef WEFT_COMM_DRY_COMM_H
#define WEFT_COMM_DRY_COMM_H

#include "weft/ext/comm.h"

/**
 * Rank `rank` of a group of `size`, alone: arguments are checked as in a real group, so what a wrapper counts above it is
 * what it counts in a run. Backend memory is never touched.
 *
 * Host messages give what they would if every rank had sent what this one did, with two exceptions: a SUM is not
 * multiplied, it is this rank's own numbers (a run that adds up its counts then sees its own); what another rank alone
 * would send (BROADCAST and SCATTER from another root, RECV) leaves recv as it was, so set it before. Parts of several ranks
 * get this rank's own part, as much of it as fits.
 *
 * @collective  none: nothing waits
 * @param[in] axis  borrowed
 * @return      WEFT_OK | ARG rank is not one of size | NOMEM
 */
weft_status
weft_i_dry_comm_create(weft_comm **out, weft_ctx *ctx, int rank, int size, const char *axis);

#endif
