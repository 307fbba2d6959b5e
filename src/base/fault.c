/* fault.c: reads DIBS_FAULT and stops the process at the points it names; test builds only. */
#include "base/fault.h"

#if defined(DIBS_FAULT_POINTS) && DIBS_FAULT_POINTS

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define ORDERS_MAX     16
#define ORDER_NAME_MAX 64

/* "The count-th time this point is passed, raise this signal." */
struct fault_order {
    char name[ORDER_NAME_MAX];
    atomic_ulong passes_left;
    int signal; /* 0: hold */
};

static struct fault_order orders[ORDERS_MAX];
static size_t order_count;
static pthread_once_t orders_once = PTHREAD_ONCE_INIT;

/* A test whose order is misspelt would wait for ever for its crash, so that is an error at once. */
static __attribute__((noreturn)) void refuse_orders(const char *text)
{
    fprintf(stderr, "dibs: DIBS_FAULT: \"%s\" is not name:count:kill, :stop or :hold\n", text);
    abort();
}

static void parse_order(const char *text)
{
    const char *name_end = strchr(text, ':');
    if (order_count == ORDERS_MAX || name_end == NULL || name_end == text ||
        name_end - text >= ORDER_NAME_MAX)
        refuse_orders(text);
    char *count_end;
    unsigned long count = strtoul(name_end + 1, &count_end, 10);
    if (name_end[1] < '0' || name_end[1] > '9' || count == 0)
        refuse_orders(text);
    struct fault_order *order = &orders[order_count];
    if (strcmp(count_end, ":kill") == 0)
        order->signal = SIGKILL;
    else if (strcmp(count_end, ":stop") == 0)
        order->signal = SIGSTOP;
    else if (strcmp(count_end, ":hold") == 0 && getenv("DIBS_FAULT_HOLD") != NULL)
        order->signal = 0;
    else
        refuse_orders(text);
    memcpy(order->name, text, (size_t)(name_end - text));
    atomic_init(&order->passes_left, count);
    order_count++;
}

static void parse_orders(void)
{
    const char *text = getenv("DIBS_FAULT");
    if (text == NULL || *text == '\0')
        return;
    char *copy = strdup(text);
    if (copy == NULL)
        abort();
    char *rest = copy;
    for (char *order = strsep(&rest, ","); order != NULL; order = strsep(&rest, ","))
        parse_order(order);
    free(copy);
}

static void hold(void)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    while (access(getenv("DIBS_FAULT_HOLD"), F_OK) == 0)
        nanosleep(&pause, NULL);
}

void fault_point(const char *name)
{
    pthread_once(&orders_once, parse_orders);
    for (size_t i = 0; i < order_count; i++) {
        struct fault_order *order = &orders[i];
        if (strcmp(order->name, name) != 0)
            continue;
        /* Wraps below zero after the one pass that counts, and then never comes back to 1. */
        if (atomic_fetch_sub(&order->passes_left, 1) == 1) {
            log_flush();
            if (order->signal == 0) {
                hold();
                continue;
            }
            /* To this thread, not to the process: it must not go on while another one hears it. */
            raise(order->signal);
        }
    }
}

#endif
