/* Contexts: their parts, their defaults, what they refuse, and the choke point's use of workspace. */
#include "op_case.h"

#include "backend/run_op.h"
#include "base/env.h"
#include "base/log.h"

#include <dirent.h>
#include <pthread.h>

static void test_backend_context__has_the_backend_asked_for(void **state)
{
    static const char *const names[3] = {"cpu", "reference", "dry"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const weft_ctx_options o = {.backend = (weft_backend_kind)i, .n_threads = 2};
        weft_ctx *ctx = NULL;
        CHECK_OK(weft_ctx_create(&ctx, &o));
        assert_string_equal(ctx->backend->ops->name, names[i]);
        assert_ptr_equal(ctx->backend->ctx, ctx);
        assert_int_equal(weft_i_pool_threads(ctx->pool), 2);
        assert_int_equal(weft_i_alloc_is_dry(ctx->alloc), i == WEFT_BACKEND_DRY);
        for (int op = 0; op < WEFT_OP_COUNT; op++)
            assert_non_null(ctx->backend->ops->run[op]);
        weft_ctx_destroy(ctx);
    }
}

static void test_backend_context__defaults_to_all_processors(void **state)
{
    weft_ctx *ctx = NULL;
    (void)state;
    CHECK_OK(weft_ctx_create(&ctx, NULL));
    assert_int_equal(weft_i_pool_threads(ctx->pool), weft_i_env_processors());
    assert_string_equal(ctx->backend->ops->name, "cpu");
    weft_log(ctx, WEFT_LOG_ERROR, "test", "nobody listens");
    weft_ctx_destroy(ctx);
    weft_ctx_destroy(NULL);
}

static void test_backend_context__refuses_bad_options(void **state)
{
    weft_ctx *ctx = NULL;
    (void)state;
    const weft_ctx_options threads = {.n_threads = -1};
    CHECK_FAILS(weft_ctx_create(&ctx, &threads), WEFT_STATUS_ARG, "-1 threads");
    assert_null(ctx);
    const weft_ctx_options kind = {.backend = (weft_backend_kind)9, .n_threads = 1};
    CHECK_FAILS(weft_ctx_create(&ctx, &kind), WEFT_STATUS_ARG, "backend 9");
    assert_null(ctx);
}

static void test_backend_context__holds_the_memory_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const weft_ctx_options o = {
            .backend = (weft_backend_kind)i, .n_threads = 1, .memory_limit_bytes = 4096};
        weft_ctx *ctx = NULL;
        void *block = NULL;
        CHECK_OK(weft_ctx_create(&ctx, &o));
        weft_backend *b = ctx->backend;
        CHECK_FAILS(b->ops->mem_get(b, WEFT_MEM_CACHE, 5000, "a big cache", &block),
                    WEFT_STATUS_NOMEM, "a big cache");
        CHECK_OK(b->ops->mem_get(b, WEFT_MEM_CACHE, 4000, "a cache", &block));
        b->ops->mem_put(b, block);
        weft_ctx_destroy(ctx);
    }
}

/* Memory comes zeroed and aligned, and goes there and back. */
static void test_backend_context__memory_is_zeroed_and_copied(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        op_rig rig;
        void *block = NULL;
        unsigned char host[100];
        unsigned char zeros[100] = {0};
        op_rig_open(&rig, (weft_backend_kind)i, 1);
        CHECK_OK(rig.b->ops->mem_get(rig.b, WEFT_MEM_PARAMETERS, 100, "block", &block));
        assert_int_equal((uintptr_t)block % WEFT_ALIGN_BYTES, 0);
        memset(host, 7, sizeof(host));
        CHECK_OK(rig.b->ops->copy_to_host(rig.b, host, block, sizeof(host)));
        assert_memory_equal(host, zeros, sizeof(host));
        memset(host, 7, sizeof(host));
        CHECK_OK(rig.b->ops->copy_from_host(rig.b, block, host, sizeof(host)));
        memset(host, 0, sizeof(host));
        CHECK_OK(rig.b->ops->copy_to_host(rig.b, host, block, sizeof(host)));
        assert_int_equal(host[0], 7);
        assert_int_equal(host[99], 7);
        CHECK_OK(rig.b->ops->copy_to_host(rig.b, NULL, NULL, 0));
        CHECK_OK(rig.b->ops->sync(rig.b));
        rig.b->ops->mem_put(rig.b, block);
        op_rig_close(&rig);
    }
}

/* A run takes its workspace above what is used and gives it back; too small an arena is our bug, and said so. */
static void test_backend_context__a_run_gives_its_workspace_back(void **state)
{
    op_bag bag = {0};
    op_rig rig;
    op_case c;
    size_t n_bytes = 0;
    void *before = NULL;
    weft_arena arena;
    (void)state;
    op_rig_open(&rig, WEFT_BACKEND_REFERENCE, 1);
    op_case_make(WEFT_OP_ATTENTION_FORWARD, 1, &bag, &c);
    CHECK_OK(rig.b->ops->workspace_bytes(rig.b, c.op, &c.args, &n_bytes));
    assert_true(n_bytes > 0);
    void *memory = op_bag_get(&bag, n_bytes + 128);
    void *aligned = (char *)memory + (64 - (uintptr_t)memory % 64) % 64;
    weft_i_arena_init(&arena, aligned, n_bytes + 64);
    CHECK_OK(weft_i_arena_get(&arena, 10, &before));
    CHECK_OK(weft_i_op_run(rig.b, c.op, &c.args, &arena));
    assert_int_equal(arena.used_bytes, 64);
    assert_int_equal(arena.peak_bytes, n_bytes + 64);
    assert_int_equal(rig.b->n_ops, 1);
    CHECK_SAME_DOUBLE(rig.b->n_flops, weft_op_flops(c.op, &c.args));
    CHECK_OK(weft_i_arena_get(&arena, 1, &before));
    CHECK_FAILS(weft_i_op_run(rig.b, c.op, &c.args, &arena), WEFT_STATUS_INTERNAL, "workspace");
    CHECK_FAILS(weft_i_op_run(rig.b, c.op, &c.args, NULL), WEFT_STATUS_INTERNAL, "no arena");
    assert_int_equal(rig.b->n_ops, 1);
    op_bag_empty(&bag);
    op_rig_close(&rig);
}

/* Threads of this process: what oneDNN would start is seen here. */
static int threads_of_process(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *e = readdir(tasks); e != NULL; e = readdir(tasks))
        n += e->d_name[0] != '.' ? 1 : 0;
    (void)closedir(tasks);
    return n;
}

typedef struct visit {
    op_rig rig;
    int n_failed;
    int n_threads; /* of the process, after the products */
} visit;

static void *run_elsewhere(void *user)
{
    visit *v = user;
    op_bag bag = {0};
    for (int i = 0; i < op_case_count(WEFT_OP_GEMM); i++) {
        op_case c;
        op_result r;
        op_case_make(WEFT_OP_GEMM, i, &bag, &c);
        v->n_failed += op_case_run(&v->rig, &c, &r) != WEFT_OK ? 1 : 0;
        op_result_free(&r);
        op_bag_empty(&bag);
    }
    v->n_threads = threads_of_process();
    return NULL;
}

/* A context may be used by another thread than the one that made it, and still computes on its own threads alone. */
static void test_backend_context__another_thread_may_use_it(void **state)
{
    visit v = {0};
    pthread_t thread;
    (void)state;
    op_rig_open(&v.rig, WEFT_BACKEND_CPU, 1);
    const int n_before = threads_of_process();
    assert_int_equal(pthread_create(&thread, NULL, run_elsewhere, &v), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(v.n_failed, 0);
    assert_int_equal(v.n_threads, n_before + 1);
    op_rig_close(&v.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_context__has_the_backend_asked_for),
        cmocka_unit_test(test_backend_context__defaults_to_all_processors),
        cmocka_unit_test(test_backend_context__refuses_bad_options),
        cmocka_unit_test(test_backend_context__holds_the_memory_limit),
        cmocka_unit_test(test_backend_context__memory_is_zeroed_and_copied),
        cmocka_unit_test(test_backend_context__another_thread_may_use_it),
        cmocka_unit_test(test_backend_context__a_run_gives_its_workspace_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
