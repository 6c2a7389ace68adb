/* A training session of one rank, for tests that go through a run round by round. */
#ifndef WEFT_TESTS_ONE_RANK_SESSION_H
#define WEFT_TESTS_ONE_RANK_SESSION_H

#include "train_case.h"

#include "train/train_session.h"

/* Opened and ready for its first round, on a mesh of its own; the case outlives it. */
void one_rank_session_open(weft_train_session *s, const train_case *c);
void one_rank_session_close(weft_train_session *s);

#endif
