/* notify.c: the datagrams of sd_notify(3). */
#include "command/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

/* So often within the watchdog's time, so that one beat may be late. */
#define BEATS 3

static bool send_to(const char *path, const char *words)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') /* a name that is in no folder */
        address.sun_path[0] = '\0';
    int socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0)
        return false;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    bool is_sent = sendto(socket_fd, words, strlen(words), MSG_NOSIGNAL,
                          (struct sockaddr *)&address, size) >= 0;
    int why = errno;
    close(socket_fd);
    errno = why;
    return is_sent;
}

static void tell(const char *words)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (path == NULL || path[0] == '\0' || send_to(path, words))
        return;
    log_event(LOG_WARN, "notify_failed", LOG_FIELD("socket", LOG_TEXT(path)),
              LOG_FIELD("words", LOG_TEXT(words)), LOG_FIELD("error", LOG_TEXT(strerror(errno))));
}

/* 0: nobody waits for us. A variable that our parent was meant by is not for us. */
static int64_t watchdog_ms(void)
{
    const char *time = getenv("WATCHDOG_USEC");
    const char *whom = getenv("WATCHDOG_PID");
    if (time == NULL || (whom != NULL && strtoll(whom, NULL, 10) != getpid()))
        return 0;
    int64_t time_ms = strtoll(time, NULL, 10) / 1000;
    return time_ms > 0 ? time_ms : 0;
}

static int64_t beat(void *context)
{
    struct notify *notify = context;
    if (notify->is_alive(notify->context))
        tell("WATCHDOG=1");
    return notify->beat_ms;
}

enum status notify_ready(struct notify *notify, bool (*is_alive)(void *context), void *context,
                         struct error *error)
{
    enum status status = STATUS_OK;
    notify->is_alive = is_alive;
    notify->context = context;
    notify->beat_ms = watchdog_ms() / BEATS;
    if (notify->beat_ms > 0)
        status = periodic_start(&notify->beat, "watchdog", beat, notify, 0, error);
    if (status == STATUS_OK)
        tell("READY=1");
    return status;
}

void notify_stopping(void)
{
    tell("STOPPING=1");
}

void notify_end(struct notify *notify)
{
    periodic_stop(&notify->beat);
}
