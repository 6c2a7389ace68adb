/* The dry backend takes and counts what the cpu backend takes and counts, and touches nothing. */
#include "op_case.h"

#include "backend/backends.h"
#include "backend/run_op.h"

static void test_backend_dry__takes_no_tensor_memory_itself(void **state)
{
    op_rig dry;
    weft_alloc_count count;
    (void)state;
    op_rig_open(&dry, WEFT_BACKEND_DRY, 3);
    weft_i_alloc_total(dry.ctx->alloc, &count);
    assert_int_equal(count.peak_bytes, 0);
    assert_int_equal(count.n_calls, 0);
    assert_string_equal(dry.b->ops->name, "dry");
    op_rig_close(&dry);
}

static void check_counts(const op_rig *dry, const op_rig *cpu)
{
    for (int kind = 0; kind < WEFT_MEM_CONTROL; kind++) {
        weft_alloc_count a;
        weft_alloc_count b;
        weft_i_alloc_counts(dry->ctx->alloc, (weft_mem)kind, &a);
        weft_i_alloc_counts(cpu->ctx->alloc, (weft_mem)kind, &b);
        assert_int_equal(a.now_bytes, b.now_bytes);
        assert_int_equal(a.peak_bytes, b.peak_bytes);
        assert_int_equal(a.n_calls, b.n_calls);
    }
}

/* Every case of every operation: workspace by workspace, then all counters. */
static void test_backend_dry__counts_what_the_cpu_backend_takes(void **state)
{
    op_bag bag = {0};
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
        op_rig dry;
        op_rig cpu;
        int n_runs = 0;
        op_rig_open(&dry, WEFT_BACKEND_DRY, n_threads);
        op_rig_open(&cpu, WEFT_BACKEND_CPU, n_threads);
        for (int op = 0; op < WEFT_OP_COUNT; op++) {
            for (int i = 0; i < op_case_count((weft_op)op); i += 3, n_runs++) {
                op_case c;
                op_result a;
                op_result b;
                size_t dry_bytes = 1;
                size_t cpu_bytes = 2;
                op_case_make((weft_op)op, i, &bag, &c);
                CHECK_OK(dry.b->ops->workspace_bytes(dry.b, c.op, &c.args, &dry_bytes));
                CHECK_OK(cpu.b->ops->workspace_bytes(cpu.b, c.op, &c.args, &cpu_bytes));
                assert_int_equal(dry_bytes, cpu_bytes);
                CHECK_OK(op_case_run(&dry, &c, &a));
                CHECK_OK(op_case_run(&cpu, &c, &b));
                op_result_free(&a);
                op_result_free(&b);
                op_bag_empty(&bag);
            }
        }
        assert_int_equal(dry.b->n_ops, n_runs);
        assert_int_equal(cpu.b->n_ops, n_runs);
        assert_true(cpu.b->n_flops > 1e6);
        CHECK_SAME_DOUBLE(dry.b->n_flops, cpu.b->n_flops);
        check_counts(&dry, &cpu);
        op_rig_close(&cpu);
        op_rig_close(&dry);
    }
}

/* The workspace of a view whose memory does not exist yet is that of the call. */
static void test_backend_dry__workspace_depends_on_shapes_alone(void **state)
{
    op_bag bag = {0};
    op_rig dry;
    (void)state;
    op_rig_open(&dry, WEFT_BACKEND_DRY, 2);
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        for (int i = 0; i < op_case_count((weft_op)op); i += 5) {
            op_case c;
            int n = 0;
            size_t given = 1;
            size_t asked = 2;
            op_case_make((weft_op)op, i, &bag, &c);
            CHECK_OK(dry.b->ops->workspace_bytes(dry.b, c.op, &c.args, &given));
            const op_view *v = op_views(c.op, &n);
            for (int k = 0; k < n; k++)
                op_view_at(&c.args, v[k].offset)->data = NULL;
            CHECK_OK(dry.b->ops->workspace_bytes(dry.b, c.op, &c.args, &asked));
            if (given != asked)
                fail_msg("%s: %zu bytes with data, %zu without", c.label, given, asked);
            op_bag_empty(&bag);
        }
    }
    op_rig_close(&dry);
}

static void test_backend_dry__gives_harmless_values_to_the_host(void **state)
{
    op_rig dry;
    void *block = NULL;
    weft_sum sum;
    int64_t index = 77;
    unsigned char host[16];
    unsigned char zeros[16] = {0};
    (void)state;
    op_rig_open(&dry, WEFT_BACKEND_DRY, 1);
    CHECK_OK(dry.b->ops->mem_get(dry.b, WEFT_MEM_GRADIENTS, (size_t)1 << 40, "a terabyte", &block));
    assert_non_null(block);
    weft_i_sum_init(&sum);
    const weft_sum_args s = {weft_view_make(block, WEFT_DTYPE_F32, 1 << 19, 1 << 19), &sum};
    CHECK_OK(weft_i_op_run(dry.b, WEFT_OP_SUM_SQUARES, &s, &(weft_arena){NULL, SIZE_MAX, 0, 0}));
    CHECK_SAME_DOUBLE(weft_i_sum_value(&sum), 0.0);
    const weft_find_nonfinite_args f = {s.x, &index};
    CHECK_OK(weft_i_op_run(dry.b, WEFT_OP_FIND_NONFINITE, &f, &(weft_arena){NULL, SIZE_MAX, 0, 0}));
    assert_int_equal(index, -1);
    memset(host, 1, sizeof(host));
    CHECK_OK(dry.b->ops->copy_from_host(dry.b, block, host, sizeof(host)));
    CHECK_OK(dry.b->ops->copy_to_host(dry.b, host, block, sizeof(host)));
    assert_memory_equal(host, zeros, sizeof(host));
    CHECK_OK(dry.b->ops->sync(dry.b));
    dry.b->ops->mem_put(dry.b, block);
    op_rig_close(&dry);
}

/* What would fail in the real run fails in the dry run, with the same words. */
static void test_backend_dry__refuses_what_the_cpu_backend_refuses(void **state)
{
    static const weft_backend_kind kinds[3] = {WEFT_BACKEND_DRY, WEFT_BACKEND_CPU,
                                               WEFT_BACKEND_REFERENCE};
    (void)state;
    for (int i = 0; i < 3; i++) {
        op_rig rig;
        float x[8] = {0};
        weft_add_args a = {0};
        op_rig_open(&rig, kinds[i], 1);
        a.dst = weft_view_make(x, WEFT_DTYPE_F32, 2, 3);
        a.a = a.dst;
        a.b = weft_view_make(x, WEFT_DTYPE_F32, 2, 4);
        CHECK_FAILS(weft_i_op_run(rig.b, WEFT_OP_ADD, &a, NULL), WEFT_STATUS_ARG,
                    "add: b was [2, 4]; wanted [2, 3]");
        assert_int_equal(rig.b->n_ops, 0);
        op_rig_close(&rig);
    }
}

static void test_backend_dry__stands_for_the_reference_when_asked(void **state)
{
    const weft_ctx_options o = {
        .backend = WEFT_BACKEND_DRY, .dry_of = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    op_bag bag = {0};
    op_rig reference;
    weft_ctx *ctx = NULL;
    (void)state;
    CHECK_OK(weft_ctx_create(&ctx, &o));
    op_rig_open(&reference, WEFT_BACKEND_REFERENCE, 1);
    assert_int_equal(weft_i_backend_kind(ctx->backend), WEFT_BACKEND_REFERENCE);
    assert_int_equal(weft_i_backend_kind(reference.b), WEFT_BACKEND_REFERENCE);
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        for (int i = 0; i < op_case_count((weft_op)op); i++) {
            op_case c;
            size_t a = 1, b = 2;
            op_case_make((weft_op)op, i, &bag, &c);
            CHECK_OK(ctx->backend->ops->workspace_bytes(ctx->backend, c.op, &c.args, &a));
            CHECK_OK(reference.b->ops->workspace_bytes(reference.b, c.op, &c.args, &b));
            assert_int_equal(a, b);
            op_bag_empty(&bag);
        }
    }
    op_rig_close(&reference);
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_dry__takes_no_tensor_memory_itself),
        cmocka_unit_test(test_backend_dry__counts_what_the_cpu_backend_takes),
        cmocka_unit_test(test_backend_dry__workspace_depends_on_shapes_alone),
        cmocka_unit_test(test_backend_dry__gives_harmless_values_to_the_host),
        cmocka_unit_test(test_backend_dry__stands_for_the_reference_when_asked),
        cmocka_unit_test(test_backend_dry__refuses_what_the_cpu_backend_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
