/* A training session of one rank (contract: one_rank_session.h). */
#include "one_rank_session.h"

#include "one_rank.h"

void one_rank_session_open(weft_train_session *s, const train_case *c)
{
    static const weft_train_callbacks none = {NULL, NULL, NULL, NULL};
    memset(s, 0, sizeof(*s));
    s->options = &c->options;
    s->callbacks = &none;
    s->mesh = one_rank_open();
    s->ctx = s->mesh->ctx;
    s->is_speaker = true;
    CHECK_OK(weft_i_train_session_open(s));
    CHECK_OK(weft_i_train_session_take(s));
}

void one_rank_session_close(weft_train_session *s)
{
    weft_i_train_session_close(s);
    one_rank_close(s->mesh);
}
