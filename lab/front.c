/* front.c: HTTP in front of a strategy: one loop, and a thread with its connections for each claim
 * under way, as in the services that are written so. */
#include "lab/front.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/json.h"
#include "http/server/server.h"
#include "lab/session.h"

#define THREADS 32
#define PATH    "/v1/policies/"

struct front_job {
    struct http_task task; /* first: the loop hands it back */
    STAILQ_ENTRY(front_job) link;
    struct http_exchange *exchange;
    enum lab_answer answer;
    bool is_pending; /* the row comes later */
    int policy;
    char user[LAB_ID_SIZE];
};

static struct front {
    const struct lab_process *process;
    struct http_server *server;
    struct http_loop *loop;
    struct json_reader *reader;
    pthread_mutex_t lock;
    pthread_cond_t work;
    STAILQ_HEAD(, front_job) jobs;
    bool is_over;
} front = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .jobs = STAILQ_HEAD_INITIALIZER(front.jobs),
};

static void front_answer(struct http_exchange *exchange, int status, struct span body)
{
    http_answer_begin(exchange, status, SPAN("application/json"));
    http_answer_end(exchange, body);
}

static void front_tell(struct http_task *task)
{
    struct front_job *job = (struct front_job *)task;
    static const struct {
        int status;
        struct span body;
    } words[] = {
        [LAB_YES] = {201, {"{\"result\":\"ISSUED\"}", 19}},
        [LAB_SOLD_OUT] = {409, {"{\"code\":\"SOLD_OUT\"}", 19}},
        [LAB_ALREADY] = {409, {"{\"code\":\"ALREADY_ISSUED\"}", 25}},
        [LAB_BUSY] = {503, {"{\"code\":\"BUSY\"}", 15}},
        [LAB_FAILED] = {500, {"{\"code\":\"FAILED\"}", 17}},
    };
    front_answer(job->exchange,
                 job->answer == LAB_YES && job->is_pending ? 202 : words[job->answer].status,
                 words[job->answer].body);
    free(job);
}

static void *front_work(void *unused)
{
    const struct lab_process *process = front.process;
    struct lab_session session = {
        .knobs = &process->knobs,
        .redis_address = process->strategy->needs_redis ? process->redis_address : NULL,
        .database = process->database,
        .kafka_address = process->kafka_address,
        .kill_at = process->kill_at,
    };

    (void)unused;
    for (;;) {
        pthread_mutex_lock(&front.lock);
        while (STAILQ_EMPTY(&front.jobs) && !front.is_over)
            pthread_cond_wait(&front.work, &front.lock);
        struct front_job *job = STAILQ_FIRST(&front.jobs);
        if (job != NULL)
            STAILQ_REMOVE_HEAD(&front.jobs, link);
        pthread_mutex_unlock(&front.lock);
        if (job == NULL)
            break;
        lab_session_begin(&session);
        session.policy = job->policy;
        job->answer = session.failed ? LAB_FAILED : process->strategy->claim(&session, job->user);
        job->task.run = front_tell;
        if (!http_loop_post(front.loop, &job->task))
            free(job);
    }
    lab_session_close(&session);
    return NULL;
}

static void front_handle(void *context, struct http_exchange *exchange,
                         const struct http_request *request)
{
    struct span user = {NULL, 0};
    const struct json_field fields[] = {
        {.name = "user", .kind = JSON_ID, .presence = JSON_REQUIRED, .target = &user},
    };
    struct error error;
    /* "/v1/policies/3/claims" */
    const char *number = request->path.length > sizeof(PATH) - 1 &&
                                 memcmp(request->path.bytes, PATH, sizeof(PATH) - 1) == 0
                             ? request->path.bytes + sizeof(PATH) - 1
                             : "";
    int policy = atoi(number);

    (void)context;
    if (policy < 1 || policy > front.process->knobs.policies ||
        request->method != HTTP_METHOD_POST ||
        json_read_object(front.reader, request->body, fields, 1, NULL, &error) != STATUS_OK ||
        user.length >= LAB_ID_SIZE) {
        front_answer(exchange, 400, SPAN("{}"));
        return;
    }
    struct front_job *job = calloc(1, sizeof(*job));
    ensure(job != NULL);
    memcpy(job->user, user.bytes, user.length);
    job->exchange = exchange;
    job->policy = policy;
    job->is_pending = front.process->strategy->work != NULL;
    pthread_mutex_lock(&front.lock);
    STAILQ_INSERT_TAIL(&front.jobs, job, link);
    pthread_cond_signal(&front.work);
    pthread_mutex_unlock(&front.lock);
}

static void front_refuse(void *context, struct http_exchange *exchange, enum http_refusal refusal,
                         const char *detail)
{
    (void)context;
    (void)refusal;
    (void)detail;
    front_answer(exchange, 400, SPAN("{}"));
}

static size_t front_body_max(void *context, enum http_method method, struct span path)
{
    (void)context;
    (void)method;
    (void)path;
    return 4096;
}

static void front_on_tick(void *context, int64_t wall_ms)
{
    (void)context;
    (void)wall_ms;
}

static enum status front_loop_open(void *context, struct http_loop *loop, unsigned index,
                                   void **loop_context, struct error *error)
{
    (void)context;
    (void)index;
    (void)error;
    front.loop = loop;
    *loop_context = NULL;
    return STATUS_OK;
}

static void front_loop_close(void *context)
{
    (void)context;
}

static void front_stop(int number)
{
    (void)number;
    _exit(0);
}

enum status lab_front_run(const struct lab_process *process, int port, struct error *error)
{
    char listen[32];
    const struct http_options options = {
        .listen = listen,
        .threads = 1,
        .header_timeout_ms = 30000,
        .body_timeout_ms = 30000,
        .idle_timeout_ms = 120000,
        .write_timeout_ms = 30000,
        .stop_timeout_ms = 1000,
        .callbacks = {.handle = front_handle,
                      .refuse = front_refuse,
                      .body_max = front_body_max,
                      .on_tick = front_on_tick,
                      .loop_open = front_loop_open,
                      .loop_close = front_loop_close},
    };

    snprintf(listen, sizeof(listen), "127.0.0.1:%d", port);
    front.process = process;
    front.reader = json_reader_new(4096);
    ensure(front.reader != NULL);
    signal(SIGTERM, front_stop);
    enum status status = http_server_open(&front.server, &options, error);
    if (status != STATUS_OK)
        return status;
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        ensure(pthread_create(&thread, NULL, front_work, NULL) == 0);
        pthread_detach(thread);
    }
    return http_server_run(front.server, error);
}
