/* Products whose kernel fails on another thread than the caller's: the words reach the caller. */
#include "op_case.h"

#include "backend/run_op.h"

#include <dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#define SIDE 256
#define WORKSPACE_BYTES ((size_t)4 << 20)

static pthread_t caller;
static atomic_int n_failed;

/* Instead of the library's: fails wherever the caller is not. */
dnnl_status_t DNNL_API dnnl_primitive_execute(const_dnnl_primitive_t primitive,
                                              dnnl_stream_t stream,
                                              int n_args,
                                              const dnnl_exec_arg_t *args)
{
    (void)primitive;
    (void)stream;
    (void)n_args;
    (void)args;
    if (pthread_equal(pthread_self(), caller) != 0)
        return dnnl_success;
    atomic_fetch_add(&n_failed, 1);
    return dnnl_out_of_memory;
}

static void test_backend_cpu_gemm__a_worker_that_fails_is_heard(void **state)
{
    static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    const weft_gemm_args args = {
        .c = weft_view_make(c, WEFT_DTYPE_F32, SIDE, SIDE),
        .a = weft_view_make(a, WEFT_DTYPE_F32, SIDE, SIDE),
        .b = weft_view_make(b, WEFT_DTYPE_F32, SIDE, SIDE),
    };
    static _Alignas(64) char workspace[WORKSPACE_BYTES];
    weft_arena arena;
    op_rig rig;
    (void)state;
    op_rig_open(&rig, WEFT_BACKEND_CPU, 4);
    weft_i_arena_init(&arena, workspace, sizeof(workspace));
    caller = pthread_self();
    for (int i = 0; i < 1000 && atomic_load(&n_failed) == 0; i++) {
        (void)weft_i_error_set(WEFT_STATUS_ARG, "an older message");
        const weft_status st = weft_i_op_run(rig.b, WEFT_OP_GEMM, &args, &arena);
        if (atomic_load(&n_failed) > 0) {
            assert_int_equal(st, WEFT_STATUS_DEVICE);
            assert_non_null(strstr(weft_last_error(), "product [256, 256] x [256, 256]"));
        }
    }
    assert_true(atomic_load(&n_failed) > 0);
    op_rig_close(&rig);
}

/* oneDNN would read through NULL. */
static void test_backend_cpu_gemm__no_room_to_compile_is_a_status(void **state)
{
    static float a[SIDE], b[SIDE], c[SIDE * SIDE];
    const weft_gemm_args args = {
        .c = weft_view_make(c, WEFT_DTYPE_F32, SIDE, SIDE),
        .a = weft_view_make(a, WEFT_DTYPE_F32, SIDE, 1),
        .b = weft_view_make(b, WEFT_DTYPE_F32, 1, SIDE),
    };
    struct rlimit before;
    op_rig rig;
    size_t bytes = 0;
    (void)state;
#ifdef WEFT_SANITIZED
    skip(); /* a sanitizer takes memory of its own */
#endif
    op_rig_open(&rig, WEFT_BACKEND_CPU, 1);
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit none = {.rlim_cur = 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &none), 0);
    const weft_status st = rig.b->ops->workspace_bytes(rig.b, WEFT_OP_GEMM, &args, &bytes);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_int_equal(st, WEFT_STATUS_NOMEM);
    assert_non_null(strstr(weft_last_error(), "compiling a matrix product"));
    CHECK_OK(rig.b->ops->workspace_bytes(rig.b, WEFT_OP_GEMM, &args, &bytes));
    op_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_cpu_gemm__a_worker_that_fails_is_heard),
        cmocka_unit_test(test_backend_cpu_gemm__no_room_to_compile_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
