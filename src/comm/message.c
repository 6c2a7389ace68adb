/*
 * What a message means: names, parts, extents, validity, traffic.
 *
 * The even cut gives the first n_elems % size ranks one element more, as weft/ext/comm.h says. Everything here is a
 * pure function of the message, the size of the group and a rank.
 * Communication: none.
 */
#include "comm/message.h"

#include "base/compiler.h"
#include "base/error.h"

static const char *const op_names[WEFT_COMM_OP_COUNT] = {
    [WEFT_COMM_ALL_REDUCE] = "all_reduce",
    [WEFT_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [WEFT_COMM_ALL_GATHER] = "all_gather",
    [WEFT_COMM_BROADCAST] = "broadcast",
    [WEFT_COMM_REDUCE] = "reduce",
    [WEFT_COMM_GATHER] = "gather",
    [WEFT_COMM_SCATTER] = "scatter",
    [WEFT_COMM_ALL_TO_ALL] = "all_to_all",
    [WEFT_COMM_SEND] = "send",
    [WEFT_COMM_RECV] = "recv",
    [WEFT_COMM_BARRIER] = "barrier",
};

const char *weft_i_comm_op_name(weft_comm_op op)
{
    return (unsigned)op < WEFT_COMM_OP_COUNT ? op_names[op] : "unknown";
}

bool weft_i_comm_is_reduction(weft_comm_op op)
{
    return op == WEFT_COMM_ALL_REDUCE || op == WEFT_COMM_REDUCE_SCATTER || op == WEFT_COMM_REDUCE;
}

bool weft_i_comm_has_root(weft_comm_op op)
{
    return op == WEFT_COMM_BROADCAST || op == WEFT_COMM_REDUCE || op == WEFT_COMM_GATHER ||
           op == WEFT_COMM_SCATTER;
}

bool weft_i_comm_is_pair(weft_comm_op op)
{
    return op == WEFT_COMM_SEND || op == WEFT_COMM_RECV;
}

int weft_i_comm_world_rank(const weft_comm *c, int r)
{
    return c->world_rank != NULL ? c->world_rank[r] : r;
}

const char *weft_i_comm_tensor_name(const weft_message *m)
{
    return m->tensor != NULL ? m->tensor : "a message";
}

static int64_t even_part(int64_t n_elems, int size, int r)
{
    return n_elems / size + (r < n_elems % size ? 1 : 0);
}

int64_t weft_i_comm_part(const weft_message *m, int size, int r)
{
    return m->counts != NULL ? m->counts[r] : even_part(m->n_elems, size, r);
}

int64_t weft_i_comm_part_start(const weft_message *m, int size, int r)
{
    if (m->counts == NULL)
        return m->n_elems / size * r + WEFT_MIN(m->n_elems % size, (int64_t)r);
    int64_t start = 0;
    for (int i = 0; i < r; i++)
        start += m->counts[i];
    return start;
}

int64_t weft_i_comm_recv_part(const weft_message *m, int size, int rank, int r)
{
    return m->recv_counts != NULL ? m->recv_counts[r] : even_part(m->n_elems, size, rank);
}

int64_t weft_i_comm_recv_start(const weft_message *m, int size, int rank, int r)
{
    int64_t start = 0;
    for (int i = 0; i < r; i++)
        start += weft_i_comm_recv_part(m, size, rank, i);
    return start;
}

/* Elements of the buffers that a rank gives, and where its part lies when it works in place. */
typedef struct extents {
    int64_t n_send, n_recv;
    int64_t recv_at; /* in place: recv is here in send ... */
    int64_t send_at; /* ... or send here in recv */
    bool may_alias;
} extents;

static extents extents_of(const weft_message *m, int size, int rank)
{
    const bool is_root = m->peer == rank;
    const int64_t all = m->n_elems;
    extents e = {.may_alias = true};
    switch (m->op) {
    case WEFT_COMM_ALL_REDUCE:
        return (extents){.n_send = all, .n_recv = all, .may_alias = true};
    case WEFT_COMM_BROADCAST:
        e.n_send = is_root ? all : 0;
        e.n_recv = is_root && m->recv == NULL ? 0 : all;
        return e;
    case WEFT_COMM_REDUCE:
        e.n_send = all;
        e.n_recv = is_root ? all : 0;
        return e;
    case WEFT_COMM_REDUCE_SCATTER:
    case WEFT_COMM_SCATTER:
        e.n_send = m->op == WEFT_COMM_SCATTER && !is_root ? 0 : all;
        e.n_recv = weft_i_comm_part(m, size, rank);
        e.recv_at = weft_i_comm_part_start(m, size, rank);
        return e;
    case WEFT_COMM_ALL_GATHER:
    case WEFT_COMM_GATHER:
        e.n_send = weft_i_comm_part(m, size, rank);
        e.n_recv = m->op == WEFT_COMM_GATHER && !is_root ? 0 : all;
        e.send_at = weft_i_comm_part_start(m, size, rank);
        return e;
    case WEFT_COMM_ALL_TO_ALL:
        return (extents){.n_send = all, .n_recv = weft_i_comm_recv_start(m, size, rank, size)};
    case WEFT_COMM_SEND:
        return (extents){.n_send = all};
    case WEFT_COMM_RECV:
        return (extents){.n_recv = all};
    case WEFT_COMM_BARRIER:
    case WEFT_COMM_OP_COUNT:
        break;
    }
    return (extents){0};
}

/* The counts are not negative and add up to `total` (< 0: to anything). */
static weft_status
check_counts(const weft_message *m, const int64_t *counts, int size, int64_t total)
{
    int64_t sum = 0;
    for (int r = 0; r < size; r++) {
        if (counts[r] < 0 || counts[r] > INT64_MAX - sum)
            WEFT_FAIL(WEFT_STATUS_ARG, "%s of %s gave rank %d a part of %lld elements",
                      weft_i_comm_op_name(m->op), weft_i_comm_tensor_name(m), r,
                      (long long)counts[r]);
        sum += counts[r];
    }
    if (total >= 0 && sum != total)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s of %s had parts of %lld elements in all, and a whole of %lld",
                  weft_i_comm_op_name(m->op), weft_i_comm_tensor_name(m), (long long)sum,
                  (long long)total);
    return WEFT_OK;
}

static weft_status check_types(const weft_comm *c, const weft_message *m)
{
    if ((unsigned)m->op >= WEFT_COMM_OP_COUNT || m->n_elems < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "call %d over %lld elements is no call of a communicator",
                  (int)m->op, (long long)m->n_elems);
    const char *const op = weft_i_comm_op_name(m->op);
    const char *const tensor = weft_i_comm_tensor_name(m);
    if (weft_dtype_bytes(m->dtype) == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s of %s named element type %d, which has no size", op, tensor,
                  (int)m->dtype);
    if (m->n_elems > INT64_MAX / (int64_t)weft_dtype_bytes(m->dtype))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s of %s over %lld elements is more than memory can hold", op,
                  tensor, (long long)m->n_elems);
    if (weft_i_comm_is_reduction(m->op) &&
        (((unsigned)m->reduction > WEFT_REDUCTION_MAX) ||
         (m->dtype != WEFT_DTYPE_F32 && m->dtype != WEFT_DTYPE_BF16 && m->dtype != WEFT_DTYPE_I32 &&
          m->dtype != WEFT_DTYPE_I64)))
        WEFT_FAIL(
            WEFT_STATUS_ARG,
            "%s of %s cannot reduce %s by rule %d; it adds or takes the largest of F32, BF16, "
            "I32 and I64",
            op, tensor, weft_dtype_name(m->dtype), (int)m->reduction);
    if (m->is_added && (m->op != WEFT_COMM_REDUCE_SCATTER || m->reduction != WEFT_REDUCTION_SUM ||
                        m->dtype != WEFT_DTYPE_F32))
        WEFT_FAIL(
            WEFT_STATUS_ARG,
            "%s of %s (%s) cannot add onto what recv holds; a reduce_scatter that sums F32 can", op,
            tensor, weft_dtype_name(m->dtype));
    const bool is_pair = weft_i_comm_is_pair(m->op);
    if ((is_pair || weft_i_comm_has_root(m->op)) &&
        (m->peer < 0 || m->peer >= c->size || (is_pair && m->peer == c->rank)))
        WEFT_FAIL(WEFT_STATUS_ARG, "rank %d of %d named peer %d for %s of %s", c->rank, c->size,
                  m->peer, op, tensor);
    return WEFT_OK;
}

weft_status weft_i_comm_check(const weft_comm *c, const weft_message *m)
{
    WEFT_TRY(check_types(c, m));
    const char *const op = weft_i_comm_op_name(m->op);
    const char *const tensor = weft_i_comm_tensor_name(m);
    if (m->counts != NULL)
        WEFT_TRY(check_counts(m, m->counts, c->size, m->n_elems));
    if (m->op == WEFT_COMM_ALL_TO_ALL) {
        if ((m->counts == NULL) != (m->recv_counts == NULL))
            WEFT_FAIL(WEFT_STATUS_ARG, "%s of %s gave only one of counts and recv_counts", op,
                      tensor);
        if (m->recv_counts != NULL)
            WEFT_TRY(check_counts(m, m->recv_counts, c->size, -1));
    }
    const extents e = extents_of(m, c->size, c->rank);
    if ((e.n_send > 0 && m->send == NULL) || (e.n_recv > 0 && m->recv == NULL))
        WEFT_FAIL(WEFT_STATUS_ARG, "%s of %s was given no buffer for %lld elements", op, tensor,
                  (long long)(e.n_send > 0 && m->send == NULL ? e.n_send : e.n_recv));
    if (e.n_send == 0 || e.n_recv == 0)
        return WEFT_OK;
    const uintptr_t n_bytes = weft_dtype_bytes(m->dtype);
    const uintptr_t send = (uintptr_t)m->send, recv = (uintptr_t)m->recv;
    const bool is_apart = send + (uintptr_t)e.n_send * n_bytes <= recv ||
                          recv + (uintptr_t)e.n_recv * n_bytes <= send;
    const bool is_in_place =
        e.may_alias && !m->is_added &&
        send + (uintptr_t)e.recv_at * n_bytes == recv + (uintptr_t)e.send_at * n_bytes;
    if (!is_apart && !is_in_place)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  m->is_added ? "%s of %s was to add onto a part of what it reads"
                              : "%s of %s was given buffers that overlap by another part than "
                                "the rank's own",
                  op, tensor);
    return WEFT_OK;
}

/* Elements, by the convention in the header. */
static int64_t sent_elems(const weft_message *m, int size, int rank)
{
    const int64_t all = m->n_elems;
    const bool is_root = m->peer == rank;
    switch (m->op) {
    case WEFT_COMM_ALL_REDUCE: {
        const int64_t mine = even_part(all, size, rank);
        return (size - 1) * mine + all - mine;
    }
    case WEFT_COMM_REDUCE_SCATTER:
    case WEFT_COMM_ALL_TO_ALL:
        return all - weft_i_comm_part(m, size, rank);
    case WEFT_COMM_ALL_GATHER:
        return (size - 1) * weft_i_comm_part(m, size, rank);
    case WEFT_COMM_BROADCAST:
        return is_root ? (size - 1) * all : 0;
    case WEFT_COMM_REDUCE:
        return is_root ? 0 : all;
    case WEFT_COMM_GATHER:
        return is_root ? 0 : weft_i_comm_part(m, size, rank);
    case WEFT_COMM_SCATTER:
        return is_root ? all - weft_i_comm_part(m, size, rank) : 0;
    case WEFT_COMM_SEND:
        return all;
    case WEFT_COMM_RECV:
    case WEFT_COMM_BARRIER:
    case WEFT_COMM_OP_COUNT:
        break;
    }
    return 0;
}

uint64_t weft_i_comm_sent_bytes(const weft_message *m, int size, int rank)
{
    return (uint64_t)sent_elems(m, size, rank) * weft_dtype_bytes(m->dtype);
}

/* Elements, by the convention in the header. */
static int64_t received_elems(const weft_message *m, int size, int rank)
{
    const int64_t all = m->n_elems;
    const bool is_root = m->peer == rank;
    switch (m->op) {
    case WEFT_COMM_ALL_REDUCE:
        return sent_elems(m, size, rank); /* (n-1) V_r, then V - V_r */
    case WEFT_COMM_REDUCE_SCATTER:
        return (size - 1) * weft_i_comm_part(m, size, rank);
    case WEFT_COMM_ALL_GATHER:
        return all - weft_i_comm_part(m, size, rank);
    case WEFT_COMM_ALL_TO_ALL:
        return weft_i_comm_recv_start(m, size, rank, size) -
               weft_i_comm_recv_part(m, size, rank, rank);
    case WEFT_COMM_BROADCAST:
        return is_root ? 0 : all;
    case WEFT_COMM_REDUCE:
        return is_root ? (size - 1) * all : 0;
    case WEFT_COMM_GATHER:
        return is_root ? all - weft_i_comm_part(m, size, rank) : 0;
    case WEFT_COMM_SCATTER:
        return is_root ? 0 : weft_i_comm_part(m, size, rank);
    case WEFT_COMM_RECV:
        return all;
    case WEFT_COMM_SEND:
    case WEFT_COMM_BARRIER:
    case WEFT_COMM_OP_COUNT:
        break;
    }
    return 0;
}

uint64_t weft_i_comm_received_bytes(const weft_message *m, int size, int rank)
{
    return (uint64_t)received_elems(m, size, rank) * weft_dtype_bytes(m->dtype);
}
