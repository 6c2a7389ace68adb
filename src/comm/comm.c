/* Calls common to all transports (contract: weft/ext/comm.h). */
#include "weft/ext/comm.h"

#include "base/error.h"

weft_status weft_comm_call(weft_comm *c, const weft_message *m)
{
    weft_request request = {0};
    WEFT_TRY(c->ops->start(c, m, &request));
    return c->ops->wait(c, &request);
}

void weft_comm_destroy(weft_comm *c)
{
    if (c != NULL)
        c->ops->destroy(c);
}
