/* The thread pool: every block exactly once, whatever the number of threads. */
#include "check.h"

#include "base/pool.h"

#include <stdatomic.h>
#include <time.h>

#define MAX_BLOCKS 1000

typedef struct job {
    atomic_int hits[MAX_BLOCKS];
    atomic_int n_wrong_workers;
    int n_threads;
    bool is_slow;
} job;

static void hit(void *user, int64_t block, int worker)
{
    job *const j = user;
    atomic_fetch_add(&j->hits[block], 1);
    if (worker < 0 || worker >= j->n_threads)
        atomic_fetch_add(&j->n_wrong_workers, 1);
    if (j->is_slow && block % 7 == 0) {
        const struct timespec pause = {.tv_nsec = 100000};
        (void)nanosleep(&pause, NULL);
    }
}

static weft_alloc *new_alloc(void)
{
    weft_alloc *a = NULL;
    CHECK_OK(weft_i_alloc_create(&a, false, 0));
    return a;
}

static void test_base_pool__runs_every_block_once(void **state)
{
    (void)state;
    static const int64_t n_blocks[] = {0, 1, 2, 3, 8, 9, 10, 100, MAX_BLOCKS};
    weft_alloc *const a = new_alloc();
    for (int n_threads = 1; n_threads <= 9; n_threads++) {
        weft_pool *p = NULL;
        CHECK_OK(weft_i_pool_create(&p, a, n_threads, NULL));
        assert_int_equal(weft_i_pool_threads(p), n_threads);
        for (size_t i = 0; i < WEFT_COUNT_OF(n_blocks); i++) {
            for (int is_slow = 0; is_slow < 2; is_slow++) {
                static job j;
                memset(&j, 0, sizeof(j));
                j.n_threads = n_threads;
                j.is_slow = is_slow != 0 && n_blocks[i] <= 100;
                weft_i_pool_run(p, n_blocks[i], hit, &j);
                for (int64_t b = 0; b < MAX_BLOCKS; b++)
                    assert_int_equal(atomic_load(&j.hits[b]), b < n_blocks[i] ? 1 : 0);
                assert_int_equal(atomic_load(&j.n_wrong_workers), 0);
            }
        }
        weft_i_pool_destroy(p);
    }
    weft_i_alloc_destroy(a);
}

/* Plain variables: what blocks of one run wrote, the caller and the next run's blocks read. */
static void shift(void *user, int64_t block, int worker)
{
    (void)worker;
    int64_t *const numbers = user;
    numbers[8 * block] = numbers[8 * block] * 3 + block;
}

static void test_base_pool__orders_memory_between_runs(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc();
    weft_pool *p = NULL;
    CHECK_OK(weft_i_pool_create(&p, a, 4, NULL));
    int64_t numbers[8 * 8] = {0}, expected[8] = {0};
    for (int round = 0; round < 3000; round++) {
        weft_i_pool_run(p, 8, shift, numbers);
        for (int b = 0; b < 8; b++) {
            expected[b] = (int64_t)((uint64_t)expected[b] * 3U + (uint64_t)b) % 1000003;
            numbers[8 * b] %= 1000003;
            assert_int_equal(numbers[8 * b], expected[b]);
        }
    }
    weft_i_pool_destroy(p);
    weft_i_alloc_destroy(a);
}

static atomic_int n_starts;

static void count_start(void)
{
    atomic_fetch_add(&n_starts, 1);
}

static void check_started(void *user, int64_t block, int worker)
{
    (void)block;
    (void)worker;
    (void)user;
}

static void test_base_pool__calls_start_once_in_every_thread(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc();
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        atomic_store(&n_starts, 0);
        weft_pool *p = NULL;
        CHECK_OK(weft_i_pool_create(&p, a, n_threads, count_start));
        weft_i_pool_run(p, 64, check_started, NULL);
        weft_i_pool_run(p, 64, check_started, NULL);
        weft_i_pool_destroy(p);
        assert_int_equal(atomic_load(&n_starts), n_threads);
    }
    weft_i_alloc_destroy(a);
}

static void test_base_pool__refuses_impossible_counts(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc();
    weft_pool *p = NULL;
    CHECK_FAILS(weft_i_pool_create(&p, a, 0, NULL), WEFT_STATUS_ARG, "0 threads");
    CHECK_FAILS(weft_i_pool_create(&p, a, 1025, NULL), WEFT_STATUS_ARG, "1025");
    assert_null(p);
    weft_i_pool_destroy(NULL);
    weft_i_alloc_destroy(a);
}

/* Workers sleep between runs: a pool at rest takes no processor time. */
static void test_base_pool__sleeps_when_there_is_no_work(void **state)
{
    (void)state;
    weft_alloc *const a = new_alloc();
    weft_pool *p = NULL;
    CHECK_OK(weft_i_pool_create(&p, a, 2, NULL));
    weft_i_pool_run(p, 64, check_started, NULL);
    const clock_t before = clock();
    const struct timespec pause = {.tv_nsec = 200000000};
    (void)nanosleep(&pause, NULL);
    const double used = (double)(clock() - before) / CLOCKS_PER_SEC;
    assert_true(used < 0.1);
    weft_i_pool_destroy(p);
    weft_i_alloc_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_pool__runs_every_block_once),
        cmocka_unit_test(test_base_pool__orders_memory_between_runs),
        cmocka_unit_test(test_base_pool__calls_start_once_in_every_thread),
        cmocka_unit_test(test_base_pool__refuses_impossible_counts),
        cmocka_unit_test(test_base_pool__sleeps_when_there_is_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
