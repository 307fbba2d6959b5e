/* rush_many.c: `dibs rush --policies N`: as many storms at once, each in a process of its own. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "command/rush.h"

struct rush_child {
    FILE *report;
    pid_t pid; /* 0: there is none */
    int code;
};

/* The child's whole life: its report goes where the parent reads it when all are over. */
static void rush_child_main(const struct command_call *call, struct rush_child *child,
                            const int ready[2], const int go[2])
{
    struct rush_gun gun = {.ready = ready[1], .go = go[0]};

    close(ready[0]);
    close(go[1]);
    if (dup2(fileno(child->report), STDOUT_FILENO) < 0)
        _exit(command_fail(call, "cannot write its report: %s", strerror(errno)));
    int code = rush_one(call, &gun);
    fflush(stdout);
    _exit(code);
}

static int rush_begin_child(const struct command_call *call, struct rush_child *child,
                            const int ready[2], const int go[2])
{
    child->report = tmpfile();
    if (child->report == NULL)
        return command_fail(call, "no temporary file for a report: %s", strerror(errno));
    fflush(NULL);
    child->pid = fork();
    if (child->pid == 0)
        rush_child_main(call, child, ready, go);
    if (child->pid > 0)
        return COMMAND_FINE;
    child->pid = 0;
    return command_fail(call, "cannot start a process: %s", strerror(errno));
}

static void rush_end_child(struct rush_child *child)
{
    int state = 0;

    while (waitpid(child->pid, &state, 0) < 0 && errno == EINTR)
        continue;
    child->code = WIFEXITED(state) ? WEXITSTATUS(state) : COMMAND_FAILED;
}

/* Which of two exit codes says the worse. */
static int rush_worse(int a, int b)
{
    static const int ranks[] = {[COMMAND_FINE] = 0,
                                [COMMAND_TARGET_MISSED] = 1,
                                [COMMAND_FAILED] = 2,
                                [COMMAND_USAGE] = 3,
                                [COMMAND_GUARANTEE_BROKEN] = 4};
    return ranks[a] >= ranks[b] ? a : b;
}

static void rush_append_report(struct buffer *out, const struct rush_child *child, bool as_json)
{
    char piece[4096];
    size_t before = out->length;
    size_t length;

    rewind(child->report);
    while ((length = fread(piece, 1, sizeof(piece), child->report)) > 0)
        buffer_append(out, piece, length);
    while (as_json && out->length > before && out->bytes[out->length - 1] == '\n')
        out->length--;
    if (out->length == before)
        buffer_append_text(out, as_json ? "null" : "a policy without a report\n");
}

static int rush_tell_all(const struct rush_child *children, size_t count, bool as_json)
{
    struct buffer out;
    int code = COMMAND_FINE;

    buffer_init(&out, (size_t)RUSH_POLICIES_MAX * 65536);
    for (size_t i = 0; i < count; i++)
        code = rush_worse(code, children[i].code);
    bool is_exact = code == COMMAND_FINE || code == COMMAND_TARGET_MISSED;
    if (as_json) {
        buffer_append_literal(&out, "{");
        json_put_flag(&out, "exact", is_exact);
        json_put_flag(&out, "broken", code == COMMAND_GUARANTEE_BROKEN);
        buffer_append_literal(&out, ",\"policies\":[");
    }
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_text(&out, as_json ? "," : "\n");
        rush_append_report(&out, &children[i], as_json);
    }
    if (as_json)
        buffer_append_literal(&out, "]}\n");
    else
        buffer_printf(&out, "\n%zu policies: %s\n", count,
                      is_exact                           ? "EXACT"
                      : code == COMMAND_GUARANTEE_BROKEN ? "BROKEN"
                                                         : "NOT PROVEN");
    command_print(&out);
    return code;
}

/* The end of `ready` comes when every child has closed its side, ready or dead. */
static void rush_fire(const int ready[2], const int go[2])
{
    char byte;

    close(ready[1]);
    close(go[0]);
    while (read(ready[0], &byte, 1) != 0 && errno == EINTR)
        continue;
    close(go[1]);
    close(ready[0]);
}

int rush_many(const struct command_call *call, size_t count)
{
    struct rush_child children[RUSH_POLICIES_MAX] = {{.pid = 0}};
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    struct sigaction before;
    int ready[2];
    int go[2];
    int code = COMMAND_FINE;

    if (pipe(ready) != 0 || pipe(go) != 0)
        return command_fail(call, "no pipes to begin at once with: %s", strerror(errno));
    for (size_t i = 0; i < count && code == COMMAND_FINE; i++)
        code = rush_begin_child(call, &children[i], ready, go);
    /* Ctrl-C reaches the children as well, which end with a proof of what was pressed. */
    sigaction(SIGINT, &ignored, &before);
    rush_fire(ready, go);
    for (size_t i = 0; i < count && children[i].pid != 0; i++)
        rush_end_child(&children[i]);
    if (code == COMMAND_FINE)
        code = rush_tell_all(children, count, command_option(call, "json") != NULL);
    for (size_t i = 0; i < count; i++)
        if (children[i].report != NULL)
            fclose(children[i].report);
    sigaction(SIGINT, &before, NULL);
    return code;
}
