/* servers.c: starts, empties, kills and ends what the strategies talk to. */
#include "lab/servers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define START_MS 20000

static const char TABLES[] =
    "CREATE TABLE stock (remaining bigint NOT NULL, version bigint NOT NULL);"
    "CREATE TABLE coupon (id bigserial PRIMARY KEY,"
    " user_id text NOT NULL UNIQUE CHECK (user_id <> 'poison'),"
    " created_at timestamptz NOT NULL DEFAULT clock_timestamp());";

int lab_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ensure(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
           getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* In the child: becomes the user that owns the folder when that is not root. */
static void lab_become_owner(const char *folder)
{
    struct stat owner;
    if (geteuid() == 0 && stat(folder, &owner) == 0 && owner.st_uid != 0 &&
        (setgid(owner.st_gid) != 0 || setuid(owner.st_uid) != 0))
        _exit(127);
}

pid_t lab_spawn(const char *folder, const char *name, const char *const *arguments, int *output)
{
    char log[128];
    int ends[2] = {-1, -1};
    snprintf(log, sizeof(log), "%s/%s.log", folder, name);
    if (output != NULL && pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (strncmp(name, "postgres", 8) == 0 || strncmp(name, "initdb", 6) == 0)
            lab_become_owner(folder);
        if (chdir(folder) != 0)
            _exit(127);
        dup2(ends[1] >= 0 ? ends[1] : log_fd, 1);
        dup2(log_fd, 2);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(log_fd);
    if (output != NULL) {
        close(ends[1]);
        *output = ends[0];
    }
    return pid;
}

void lab_end(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGTERM);
    for (int i = 0; i < 200; i++) {
        if (waitpid(*pid, NULL, WNOHANG) != 0) {
            *pid = 0;
            return;
        }
        usleep(10000);
    }
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

static double lab_cpu_of(const char *path, pid_t wanted)
{
    char text[1024];
    int parent;
    unsigned long own_user, own_system, dead_user, dead_system;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *rest = strrchr(text, ')');
    if (rest == NULL ||
        sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu", &parent,
               &own_user, &own_system, &dead_user, &dead_system) != 5)
        return 0;
    unsigned long ticks = 0;
    if (atoi(text) == wanted)
        ticks = own_user + own_system + dead_user + dead_system;
    else if (parent == wanted)
        ticks = own_user + own_system;
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

double lab_cpu_seconds(pid_t pid)
{
    double seconds = 0;
    char path[300];
    DIR *folder = pid > 0 ? opendir("/proc") : NULL;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        seconds += lab_cpu_of(path, pid);
    }
    if (folder != NULL)
        closedir(folder);
    return seconds;
}

/* --- Redis --- */

static enum status lab_redis_launch(struct lab_servers *servers, struct error *error)
{
    char port[16], folder[96];
    snprintf(port, sizeof(port), "%d", servers->redis_port);
    snprintf(folder, sizeof(folder), "%s/redis-%d", servers->folder, servers->run_count);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_set(error, STATUS_FAILED, "cannot make %s", folder);
    const char *const arguments[] = {"/usr/bin/redis-server",
                                     "--port",
                                     port,
                                     "--bind",
                                     "127.0.0.1",
                                     "--dir",
                                     folder,
                                     "--appendonly",
                                     "yes",
                                     "--appendfsync",
                                     "everysec",
                                     "--save",
                                     "",
                                     NULL};
    servers->redis_pid = lab_spawn(servers->folder, "redis", arguments, NULL);
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        const struct timeval patience = {.tv_sec = 1};
        redisContext *redis = redisConnectWithTimeout("127.0.0.1", servers->redis_port, patience);
        redisReply *reply = redis != NULL && redis->err == 0 ? redisCommand(redis, "PING") : NULL;
        bool is_there = reply != NULL && reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (redis != NULL)
            redisFree(redis);
        if (is_there)
            return STATUS_OK;
        usleep(10000);
    }
    return error_set(error, STATUS_UNAVAILABLE,
                     "redis-server does not start (apt-get install redis-server); see %s/redis.log",
                     servers->folder);
}

enum status lab_redis_crash(struct lab_servers *servers, struct error *error)
{
    kill(servers->redis_pid, SIGKILL);
    waitpid(servers->redis_pid, NULL, 0);
    return lab_redis_launch(servers, error);
}

/* --- PostgreSQL --- */

static enum status lab_postgres_run(const struct lab_servers *servers, const char *connection,
                                    const char *statement, struct error *error)
{
    PGconn *db = PQconnectdb(connection);
    PGresult *result = PQexec(db, statement);
    bool is_done = PQresultStatus(result) == PGRES_COMMAND_OK;
    enum status status =
        is_done ? STATUS_OK
                : error_set(error, STATUS_UNAVAILABLE, "%.60s: %.200s; see %s/postgres.log",
                            statement, PQerrorMessage(db), servers->folder);
    PQclear(result);
    PQfinish(db);
    return status;
}

/* The newest that is installed. */
static bool lab_postgres_program(const char *name, char path[128])
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "/usr/lib/postgresql/*/bin/%s", name);
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    snprintf(path, 128, "%s", found.gl_pathv[found.gl_pathc - 1]);
    globfree(&found);
    return true;
}

static enum status lab_postgres_launch(struct lab_servers *servers, struct error *error)
{
    char initdb[128], postgres[128], data[96], port[16];
    int status = 0;
    int number = lab_free_port();

    if (!lab_postgres_program("initdb", initdb) || !lab_postgres_program("postgres", postgres))
        return error_set(error, STATUS_UNAVAILABLE,
                         "PostgreSQL is not installed: apt-get install postgresql");
    snprintf(data, sizeof(data), "%s/postgres", servers->folder);
    snprintf(port, sizeof(port), "%d", number);
    const char *const initialize[] = {initdb,  "-D",        data, "-U",   "lab",        "-A",
                                      "trust", "--no-sync", "-E", "UTF8", "--locale=C", NULL};
    pid_t pid = lab_spawn(servers->folder, "initdb", initialize, NULL);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return error_set(error, STATUS_UNAVAILABLE, "initdb fails; see %s/initdb.log",
                         servers->folder);
    const char *const serve[] = {postgres,
                                 "-D",
                                 data,
                                 "-p",
                                 port,
                                 "-k",
                                 servers->folder,
                                 "-c",
                                 "listen_addresses=127.0.0.1",
                                 "-c",
                                 "max_connections=300",
                                 NULL};
    servers->postgres_pid = lab_spawn(servers->folder, "postgres", serve, NULL);
    snprintf(servers->postgres, sizeof(servers->postgres), "host=127.0.0.1 port=%d user=lab",
             number);
    snprintf(servers->database, sizeof(servers->database), "%s dbname=postgres", servers->postgres);
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        if (PQping(servers->database) == PQPING_OK)
            return STATUS_OK;
        usleep(20000);
    }
    return error_set(error, STATUS_UNAVAILABLE, "PostgreSQL does not start; see %s/postgres.log",
                     servers->folder);
}

/* --- both --- */

enum status lab_servers_start(struct lab_servers *servers, struct error *error)
{
    *servers = (struct lab_servers){.redis_port = lab_free_port()};
    snprintf(servers->folder, sizeof(servers->folder), "/tmp/dibs-lab-XXXXXX");
    if (mkdtemp(servers->folder) == NULL)
        return error_set(error, STATUS_FAILED, "cannot make a folder in /tmp");
    const struct passwd *owner = geteuid() == 0 ? getpwnam("postgres") : NULL;
    if (owner != NULL && chown(servers->folder, owner->pw_uid, owner->pw_gid) != 0)
        return error_set(error, STATUS_FAILED, "cannot give %s to postgres", servers->folder);
    snprintf(servers->redis_address, sizeof(servers->redis_address), "127.0.0.1:%d",
             servers->redis_port);
    return lab_postgres_launch(servers, error);
}

enum status lab_servers_renew(struct lab_servers *servers, bool with_tables, struct error *error)
{
    char statement[64], admin[200];

    lab_end(&servers->redis_pid);
    servers->run_count++;
    enum status status = lab_redis_launch(servers, error);
    if (status != STATUS_OK)
        return status;
    snprintf(admin, sizeof(admin), "%s dbname=postgres", servers->postgres);
    snprintf(statement, sizeof(statement), "CREATE DATABASE run_%d", servers->run_count);
    snprintf(servers->database, sizeof(servers->database), "%s dbname=run_%d", servers->postgres,
             servers->run_count);
    status = lab_postgres_run(servers, admin, statement, error);
    return status == STATUS_OK && with_tables
               ? lab_postgres_run(servers, servers->database, TABLES, error)
               : status;
}

void lab_servers_stop(struct lab_servers *servers)
{
    char command[96];
    lab_end(&servers->redis_pid);
    if (servers->postgres_pid > 0)
        kill(servers->postgres_pid, SIGINT); /* PostgreSQL: fast */
    lab_end(&servers->postgres_pid);
    if (servers->folder[0] == '\0')
        return;
    snprintf(command, sizeof(command), "rm -rf %s", servers->folder);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", servers->folder);
}
