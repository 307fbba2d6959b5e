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
    "CREATE TABLE stock (policy_id int PRIMARY KEY, remaining bigint NOT NULL,"
    " version bigint NOT NULL);"
    "CREATE TABLE coupon (id bigserial PRIMARY KEY, policy_id int NOT NULL,"
    " user_id text NOT NULL CHECK (user_id <> 'poison'),"
    " created_at timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (policy_id, user_id));";

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

/* In the child. */
static void lab_add_environment(const char *words)
{
    static char text[1024];
    char *rest = text;
    snprintf(text, sizeof(text), "%s", words);
    for (char *one = strtok_r(text, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest))
        putenv(one);
}

pid_t lab_spawn(const char *folder, const char *name, const char *const *arguments,
                const char *environment)
{
    char log[128];
    snprintf(log, sizeof(log), "%s/%s.log", folder, name);
    int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (strncmp(name, "postgres", 8) == 0 || strncmp(name, "initdb", 6) == 0)
            lab_become_owner(folder);
        if (chdir(folder) != 0)
            _exit(127);
        dup2(log_fd, 1);
        dup2(log_fd, 2);
        if (environment != NULL)
            lab_add_environment(environment);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(log_fd);
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

bool lab_is_open(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_open = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0)
        close(fd);
    return is_open;
}

/* --- Redis --- */

/* The reply to one command on a connection of its own; NULL: none, or an error. */
static redisReply *lab_redis_once(const struct lab_servers *servers, const char *command)
{
    char host[64];
    const struct timeval patience = {.tv_sec = 5};
    const char *colon = strrchr(servers->redis_address, ':');
    snprintf(host, sizeof(host), "%.*s", (int)(colon - servers->redis_address),
             servers->redis_address);
    redisContext *redis = redisConnectWithTimeout(host, atoi(colon + 1), patience);
    redisReply *reply = redis != NULL && redis->err == 0 ? redisCommand(redis, command) : NULL;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        freeReplyObject(reply);
        reply = NULL;
    }
    if (redis != NULL)
        redisFree(redis);
    return reply;
}

static bool lab_redis_does(const struct lab_servers *servers, const char *command)
{
    redisReply *reply = lab_redis_once(servers, command);
    bool is_done = reply != NULL;
    freeReplyObject(reply);
    return is_done;
}

double lab_redis_info(const struct lab_servers *servers, const char *name)
{
    redisReply *reply = lab_redis_once(servers, "INFO");
    const char *found =
        reply != NULL && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
    double number = found != NULL ? atof(found + strlen(name) + 1) : 0;
    freeReplyObject(reply);
    return number;
}

static enum status lab_redis_launch(struct lab_servers *servers, bool syncs_always,
                                    bool is_going_to_crash, struct error *error)
{
    char folder[96], preload[4300];
    const char *port = strrchr(servers->redis_address, ':') + 1;
    snprintf(folder, sizeof(folder), "%s/redis-%d", servers->folder, servers->run_count);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_set(error, STATUS_FAILED, "cannot make %s", folder);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%.*s/liblab_slow_disk.so",
             (int)(strrchr(servers->program, '/') - servers->program), servers->program);
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
                                     syncs_always ? "always" : "everysec",
                                     "--save",
                                     "",
                                     NULL};
    servers->redis_pid = lab_spawn(servers->folder, "redis", arguments,
                                   is_going_to_crash && !syncs_always ? preload : NULL);
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        if (lab_redis_does(servers, "PING"))
            return STATUS_OK;
        usleep(10000);
    }
    return error_set(error, STATUS_UNAVAILABLE,
                     "redis-server does not start (apt-get install redis-server); see %s/redis.log",
                     servers->folder);
}

enum status lab_redis_await_sync(struct lab_servers *servers, struct error *error)
{
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        if (!lab_redis_does(servers, "SET lab:awaits-sync 1"))
            break;
        if (lab_redis_info(servers, "aof_pending_bio_fsync") > 0)
            return STATUS_OK;
        usleep(20000);
    }
    return error_set(error, STATUS_UNAVAILABLE, "Redis never syncs its file; see %s/redis.log",
                     servers->folder);
}

enum status lab_redis_crash(struct lab_servers *servers, bool syncs_always, struct error *error)
{
    kill(servers->redis_pid, SIGKILL);
    waitpid(servers->redis_pid, NULL, 0);
    return lab_redis_launch(servers, syncs_always, false, error);
}

/* One of the lab's own is a new one; another has to be empty before and after. */
static enum status lab_redis_renew(struct lab_servers *servers, const struct lab_climate *climate,
                                   struct error *error)
{
    if (servers->has_own_redis) {
        lab_end(&servers->redis_pid);
        return lab_redis_launch(servers, climate->syncs_always, climate->is_going_to_crash, error);
    }
    if (lab_redis_does(servers, "FLUSHALL") && lab_redis_does(servers, "FUNCTION FLUSH") &&
        lab_redis_does(servers, climate->syncs_always ? "CONFIG SET appendfsync always"
                                                      : "CONFIG SET appendfsync everysec"))
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE, "Redis at %s does not do what it is told",
                     servers->redis_address);
}

static enum status lab_redis_begin(struct lab_servers *servers, const char *address,
                                   struct error *error)
{
    servers->has_own_redis = address == NULL;
    if (address == NULL) {
        snprintf(servers->redis_address, sizeof(servers->redis_address), "127.0.0.1:%d",
                 lab_free_port());
        return STATUS_OK;
    }
    if (strchr(address, ':') == NULL || strlen(address) >= sizeof(servers->redis_address))
        return error_set(error, STATUS_INVALID, "--redis takes HOST:PORT, not %s", address);
    snprintf(servers->redis_address, sizeof(servers->redis_address), "%s", address);
    redisReply *reply = lab_redis_once(servers, "DBSIZE");
    bool is_there = reply != NULL, is_empty = is_there && reply->integer == 0;
    freeReplyObject(reply);
    if (!is_there)
        return error_set(error, STATUS_UNAVAILABLE, "there is no Redis at %s", address);
    return is_empty ? STATUS_OK
                    : error_set(error, STATUS_INVALID,
                                "Redis at %s is not empty; the lab would empty it", address);
}

/* --- PostgreSQL --- */

static enum status lab_postgres_run(const char *connection, const char *statement,
                                    struct error *error)
{
    PGconn *db = PQconnectdb(connection);
    PGresult *result = PQexec(db, statement);
    enum status status = PQresultStatus(result) == PGRES_COMMAND_OK
                             ? STATUS_OK
                             : error_set(error, STATUS_UNAVAILABLE, "PostgreSQL: %.60s: %.200s",
                                         statement, PQerrorMessage(db));
    PQclear(result);
    PQfinish(db);
    return status;
}

enum status lab_database_run(const struct lab_servers *servers, const char *statement,
                             struct error *error)
{
    return lab_postgres_run(servers->database, statement, error);
}

/* How libpq reaches one of its databases. */
static void lab_postgres_connection(const struct lab_servers *servers, const char *host, int port,
                                    const char *name, char text[400])
{
    const struct lab_postgres *postgres = &servers->postgres;
    bool has_password = postgres->password[0] != '\0';
    snprintf(text, 400, "host='%s' port=%d user='%s' dbname=%s%s%s%s", host, port, postgres->user,
             name, has_password ? " password='" : "", postgres->password, has_password ? "'" : "");
}

static enum status lab_postgres_admin(const struct lab_servers *servers, const char *statement,
                                      struct error *error)
{
    char connection[400];
    lab_postgres_connection(servers, servers->postgres.host, servers->postgres.port, "postgres",
                            connection);
    return lab_postgres_run(connection, statement, error);
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
    char connection[400];
    int status = 0;

    if (!lab_postgres_program("initdb", initdb) || !lab_postgres_program("postgres", postgres))
        return error_set(error, STATUS_UNAVAILABLE,
                         "PostgreSQL is not installed: apt-get install postgresql");
    snprintf(data, sizeof(data), "%s/postgres", servers->folder);
    servers->postgres = (struct lab_postgres){
        .host = "127.0.0.1", .port = lab_free_port(), .user = "lab", .password = ""};
    snprintf(port, sizeof(port), "%d", servers->postgres.port);
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
    lab_postgres_connection(servers, servers->postgres.host, servers->postgres.port, "postgres",
                            connection);
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        if (PQping(connection) == PQPING_OK)
            return STATUS_OK;
        usleep(20000);
    }
    return error_set(error, STATUS_UNAVAILABLE, "PostgreSQL does not start; see %s/postgres.log",
                     servers->folder);
}

static enum status lab_postgres_use(struct lab_servers *servers, const char *given,
                                    struct error *error)
{
    char *words = NULL;
    struct lab_postgres *postgres = &servers->postgres;
    PQconninfoOption *options = PQconninfoParse(given, &words);
    if (options == NULL) {
        enum status status = error_set(error, STATUS_INVALID, "--postgres: %.200s", words);
        PQfreemem(words);
        return status;
    }
    *postgres = (struct lab_postgres){
        .host = "127.0.0.1", .port = 5432, .user = "postgres", .password = ""};
    for (const PQconninfoOption *option = options; option->keyword != NULL; option++) {
        if (option->val == NULL)
            continue;
        if (strcmp(option->keyword, "host") == 0)
            snprintf(postgres->host, sizeof(postgres->host), "%s", option->val);
        else if (strcmp(option->keyword, "port") == 0)
            postgres->port = atoi(option->val);
        else if (strcmp(option->keyword, "user") == 0)
            snprintf(postgres->user, sizeof(postgres->user), "%s", option->val);
        else if (strcmp(option->keyword, "password") == 0)
            snprintf(postgres->password, sizeof(postgres->password), "%s", option->val);
    }
    PQconninfoFree(options);
    return STATUS_OK;
}

/* --- both --- */

static enum status lab_proxy_start(struct lab_servers *servers, int latency_ms, struct error *error)
{
    char port[16], target[96], delay[16];
    servers->claims_port = lab_free_port();
    snprintf(port, sizeof(port), "%d", servers->claims_port);
    snprintf(target, sizeof(target), "%s:%d", servers->postgres.host, servers->postgres.port);
    snprintf(delay, sizeof(delay), "%d", latency_ms);
    const char *const arguments[] = {servers->program, "proxy", port, target, delay, NULL};
    servers->proxy_pid = lab_spawn(servers->folder, "proxy", arguments, NULL);
    lab_postgres_connection(servers, "127.0.0.1", servers->claims_port, servers->name,
                            servers->claims);
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        if (lab_is_open(servers->claims_port))
            return STATUS_OK;
        usleep(5000);
    }
    return error_set(error, STATUS_UNAVAILABLE,
                     "the database cannot be put further away; see %s/proxy.log", servers->folder);
}

enum status lab_servers_start(struct lab_servers *servers, const char *redis, const char *postgres,
                              struct error *error)
{
    snprintf(servers->folder, sizeof(servers->folder), "/tmp/dibs-lab-XXXXXX");
    if (mkdtemp(servers->folder) == NULL)
        return error_set(error, STATUS_FAILED, "cannot make a folder in /tmp");
    const struct passwd *owner = geteuid() == 0 ? getpwnam("postgres") : NULL;
    if (owner != NULL && chown(servers->folder, owner->pw_uid, owner->pw_gid) != 0)
        return error_set(error, STATUS_FAILED, "cannot give %s to postgres", servers->folder);
    enum status status = lab_redis_begin(servers, redis, error);
    if (status != STATUS_OK)
        return status;
    return postgres != NULL ? lab_postgres_use(servers, postgres, error)
                            : lab_postgres_launch(servers, error);
}

static enum status lab_database_drop(struct lab_servers *servers, struct error *error)
{
    char statement[96];
    if (servers->name[0] == '\0')
        return STATUS_OK;
    snprintf(statement, sizeof(statement), "DROP DATABASE IF EXISTS %s WITH (FORCE)",
             servers->name);
    servers->name[0] = '\0';
    return lab_postgres_admin(servers, statement, error);
}

enum status lab_servers_renew(struct lab_servers *servers, const struct lab_climate *climate,
                              struct error *error)
{
    char statement[64];

    lab_end(&servers->proxy_pid);
    servers->run_count++;
    enum status status = lab_redis_renew(servers, climate, error);
    if (status == STATUS_OK)
        status = lab_database_drop(servers, error);
    if (status != STATUS_OK)
        return status;
    snprintf(servers->name, sizeof(servers->name), "dibs_lab_%d_%d", getpid(), servers->run_count);
    snprintf(statement, sizeof(statement), "CREATE DATABASE %s", servers->name);
    status = lab_postgres_admin(servers, statement, error);
    lab_postgres_connection(servers, servers->postgres.host, servers->postgres.port, servers->name,
                            servers->database);
    snprintf(servers->claims, sizeof(servers->claims), "%s", servers->database);
    servers->claims_port = servers->postgres.port;
    if (status == STATUS_OK && climate->has_tables)
        status = lab_database_run(servers, TABLES, error);
    if (status == STATUS_OK && climate->latency_ms > 0)
        status = lab_proxy_start(servers, climate->latency_ms, error);
    return status;
}

void lab_servers_abandon(const struct lab_servers *servers)
{
    const pid_t all[] = {servers->redis_pid, servers->proxy_pid, servers->postgres_pid};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i] > 0)
            kill(all[i], all[i] == servers->postgres_pid ? SIGQUIT : SIGKILL);
    if (servers->postgres_pid > 0)
        waitpid(servers->postgres_pid, NULL, 0);
    pid_t pid = servers->folder[0] != '\0' ? fork() : -1;
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", servers->folder, NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

void lab_servers_stop(struct lab_servers *servers, bool keeps_logs)
{
    char command[96];
    struct error error;
    lab_end(&servers->proxy_pid);
    if (servers->postgres_pid == 0 && lab_database_drop(servers, &error) != STATUS_OK)
        fprintf(stderr, "dibs-lab: %s\n", error.text);
    if (!servers->has_own_redis && servers->run_count > 0)
        (void)lab_redis_does(servers, "FLUSHALL");
    lab_end(&servers->redis_pid);
    if (servers->postgres_pid > 0)
        kill(servers->postgres_pid, SIGINT); /* PostgreSQL: fast */
    lab_end(&servers->postgres_pid);
    if (servers->folder[0] == '\0' || rmdir(servers->folder) == 0)
        return;
    if (keeps_logs) {
        fprintf(stderr, "dibs-lab: what the servers wrote is in %s\n", servers->folder);
        return;
    }
    snprintf(command, sizeof(command), "rm -rf %s", servers->folder);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", servers->folder);
}
