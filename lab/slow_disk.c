/* slow_disk.c: preloaded into a Redis that is going to be killed: a disk on which no sync comes to
 * an end.
 *
 * kill -9 takes what a process has not written yet, and with `appendfsync everysec` Redis holds
 * back up to two seconds of writes while a sync is under way. On an idle disk that is a matter of
 * luck; on a busy one, and on this one, it is not. Its first thread, which syncs when it starts, is
 * spared.
 *
 * Threads: any.
 */
#include <sys/syscall.h>
#include <unistd.h>

#define FOR_EVER_S 3600

int fdatasync(int fd)
{
    if (getpid() != gettid())
        sleep(FOR_EVER_S);
    return (int)syscall(SYS_fdatasync, fd);
}
