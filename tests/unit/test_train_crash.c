/* Checkpoints of runs, of one rank and of several, that are killed while saving, and of runs whose disk is full. */
#include "train_case.h"

#include "base/rng.h"
#include "train/checkpoint.h"
#include "train/trainer_state.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_KILLS 20
#define N_STEPS 100000

static int write_step_fd;

static void tell_step(void *user, const weft_train_step *step)
{
    (void)user;
    (void)!write(write_step_fd, &step->step, sizeof(step->step));
}

/* Trains and saves every step, in a process of its own, until it is killed. */
static pid_t start_child(const train_case *c, int *read_fd)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const weft_train_callbacks callbacks = {.step = tell_step};
        (void)close(fds[0]);
        write_step_fd = fds[1];
        _exit(weft_train_run(&c->options, NULL, &callbacks) == WEFT_OK ? 0 : 1);
    }
    (void)close(fds[1]);
    *read_fd = fds[0];
    return pid;
}

/* The last step that the child reported; 0: none. */
static int64_t last_step(int fd)
{
    int64_t step = 0, next = 0;
    while (read(fd, &next, sizeof(next)) == (ssize_t)sizeof(next))
        step = next;
    (void)close(fd);
    return step;
}

static void sleep_micros(int64_t n)
{
    const struct timespec t = {(time_t)(n / 1000000), (long)(n % 1000000) * 1000};
    (void)nanosleep(&t, NULL);
}

/* Whether the kill met a save: something is lying about that cleaning removes. */
static int count_left_over(const train_case *c)
{
    char **names = NULL;
    size_t n_names = 0;
    int n = 0;
    CHECK_OK(weft_i_dir_list(c->s->alloc, c->out, &names, &n_names));
    for (size_t i = 0; i < n_names; i++)
        n += strncmp(names[i], "tmp-", 4) == 0;
    weft_i_names_free(c->s->alloc, names, n_names);
    return n;
}

/*
 * Three ranks, of which one has a micro-batch more; on the reference backend, since the thread sanitizer cannot see how other
 * libraries guard what their threads share.
 */
static void share(train_case *c, int64_t zero_stage)
{
    c->options.layout.backend = "reference";
    c->options.layout.dp = 3;
    c->options.layout.zero_stage = zero_stage;
    c->options.layout.micro_batch_size = 1;
    c->options.layout.global_batch_size = 4;
}

/* Kills of one rank's run, or of one of three that share out everything. */
static void kill_and_go_on(void **state, bool is_shared)
{
    train_case c;
    const weft_rng_key key = weft_i_rng_key(7, "test/kills");
    char dir[WEFT_PATH_MAX];
    int64_t saved = 0;
    int n_left_over = 0;
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.1);
    c.options.save_interval = 1;
    c.options.train_steps = N_STEPS;
    c.options.lr_schedule = "constant";
    if (is_shared)
        share(&c, 3);
    CHECK_OK(weft_i_checkpoint_latest(c.s->alloc, c.out, dir));
    for (int i = 0; i < N_KILLS; i++) {
        int fd = -1;
        int64_t first = 0;
        c.options.resume = saved > 0 ? "" : NULL;
        const pid_t pid = start_child(&c, &fd);
        /* From the first round on: steps and saves alternate, and saving takes the longer part. */
        assert_int_equal(read(fd, &first, sizeof(first)), sizeof(first));
        assert_int_equal(first, saved + 1);
        sleep_micros((int64_t)weft_i_rng_below(key, (uint64_t)i, 60000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        const int64_t after = last_step(fd);
        const int64_t reported = after > first ? after : first;
        n_left_over += count_left_over(&c);
        CHECK_OK(weft_i_checkpoint_clean(c.s->alloc, c.out));
        CHECK_OK(weft_i_checkpoint_latest(c.s->alloc, c.out, dir));
        if (dir[0] == '\0') {
            assert_int_equal(reported, 1); /* killed in the very first save */
            continue;
        }
        weft_trainer_state s;
        CHECK_OK(weft_i_trainer_state_read(&s, c.s->alloc, dir));
        saved = s.step;
        weft_i_trainer_state_fini(&s);
        if (saved != reported && saved != reported - 1)
            fail_msg("kill %d: step %d was reported, the checkpoint is of step %d", i,
                     (int)reported, (int)saved);
    }
    print_message("%d of %d kills left a save half done\n", n_left_over, N_KILLS);
    /* And it comes to its end, as if nothing had happened. */
    train_record r = {0}, straight = {0};
    char a[WEFT_PATH_MAX], b[WEFT_PATH_MAX], name[32];
    assert_true(saved > 0);
    c.options.resume = "";
    c.options.train_steps = saved + 2;
    CHECK_OK(train_case_run(&c, &r));
    (void)snprintf(name, sizeof(name), "checkpoint-%d", (int)saved + 2);
    CHECK_OK(weft_i_path_join(a, c.out, name));
    train_case_out(&c, "straight");
    c.options.resume = NULL;
    c.options.save_interval = 0;
    const weft_train_callbacks quiet = {.user = &straight};
    CHECK_OK(weft_train_run(&c.options, NULL, &quiet));
    CHECK_OK(weft_i_path_join(b, c.out, name));
    train_case_same_checkpoint(a, b);
}

static void test_train_crash__a_killed_run_goes_on(void **state)
{
    kill_and_go_on(state, false);
}

static void test_train_crash__a_killed_run_of_ranks_goes_on(void **state)
{
    kill_and_go_on(state, true);
}

/* Nothing is half written, the older checkpoint works, and the message says why. */
static void check_full_disk(train_case *c, const char *reason)
{
    char path[WEFT_PATH_MAX];
    weft_trainer_state s;
    char **names = NULL;
    size_t n_names = 0;
    assert_non_null(strstr(weft_last_error(), reason));
    assert_non_null(strstr(weft_last_error(), "checkpoint-"));
    CHECK_OK(weft_i_path_join(path, c->out, "latest"));
    CHECK_OK(weft_i_trainer_state_read(&s, c->s->alloc, path));
    assert_int_equal(s.step, 2);
    weft_i_trainer_state_fini(&s);
    CHECK_OK(weft_i_dir_list(c->s->alloc, c->out, &names, &n_names));
    for (size_t i = 0; i < n_names; i++) {
        if (strncmp(names[i], "tmp-", 4) == 0)
            fail_msg("%s was left over", names[i]);
    }
    weft_i_names_free(c->s->alloc, names, n_names);
}

/* A limit on the size of files stands in for the disk: writing fails in the middle of the optimizer's state. */
static void limit_and_go_on(void **state, bool is_shared)
{
    train_case c;
    struct rlimit before, limit;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    if (is_shared)
        share(&c, 2);
    c.options.train_steps = 2;
    CHECK_OK(train_case_run(&c, NULL));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    limit = before;
    limit.rlim_cur = 200000; /* the weights fit, the moments do not */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    c.options.resume = "";
    c.options.train_steps = 3;
    const weft_status st = train_case_run(&c, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(st, WEFT_STATUS_IO);
    check_full_disk(&c, "File too large");
    CHECK_OK(train_case_run(&c, NULL)); /* with room again it goes on */
}

static void test_train_crash__a_file_that_may_not_grow(void **state)
{
    limit_and_go_on(state, false);
}

static void test_train_crash__a_file_that_may_not_grow_for_ranks(void **state)
{
    limit_and_go_on(state, true);
}

static void fill_disk(void **state, bool is_shared)
{
    train_case c;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    if (is_shared)
        share(&c, 1);
    assert_int_equal(mkdir(c.out, 0777), 0);
    if (mount("tmpfs", c.out, "tmpfs", 0, "size=900k") != 0) {
        print_message("no tmpfs can be mounted here: the test with a full disk is left out\n");
        CHECK_OK(weft_i_dir_remove(c.out));
        skip();
    }
    c.options.train_steps = 2;
    CHECK_OK(train_case_run(&c, NULL)); /* one of 490 KB fits, two do not */
    c.options.resume = "";
    c.options.train_steps = 3;
    const weft_status st = train_case_run(&c, NULL);
    if (st == WEFT_STATUS_IO)
        check_full_disk(&c, "No space left on device");
    assert_int_equal(umount(c.out), 0);
    assert_int_equal(st, WEFT_STATUS_IO);
}

static void test_train_crash__a_full_disk(void **state)
{
    fill_disk(state, false);
}

static void test_train_crash__a_full_disk_of_ranks(void **state)
{
    fill_disk(state, true);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_crash__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_killed_run_goes_on),
        TEST(a_killed_run_of_ranks_goes_on),
        TEST(a_file_that_may_not_grow),
        TEST(a_file_that_may_not_grow_for_ranks),
        TEST(a_full_disk),
        TEST(a_full_disk_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
