/*
 * A lock on an OUT folder (flock on the empty file OUT/.lock): a second run would remove, as leftovers of a killed one, what
 * the first is writing. The system drops the lock with the process, so a killed run leaves nothing to clean.
 */
#include "train/out_lock.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

weft_status weft_i_out_lock(int *fd, const char *out)
{
    char path[WEFT_PATH_MAX];
    if (*fd >= 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_path_join(path, out, ".lock"));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return weft_i_file_fail("opening for writing", path);
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return WEFT_OK;
    weft_i_out_unlock(fd);
    WEFT_FAIL(WEFT_STATUS_IO, "%s: another run is writing there; give another --out", out);
}

void weft_i_out_unlock(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}
