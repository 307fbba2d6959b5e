/* screen.c: writes a view down, and draws it with ncurses. */
#include "top/screen.h"

#include <curses.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

#include "base/clock.h"
#include "base/json.h"

/* --- text --- */

#define BAR_CELLS 24

/* The pieces of which text and screen are made: "1.2 ms", "won 1,200/s, sold out 9/s". */
static void top_append_latency(struct buffer *out, double seconds)
{
    if (seconds <= 0)
        buffer_append_literal(out, "-");
    else if (seconds < 1e-3)
        buffer_printf(out, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        buffer_printf(out, "%.*f ms", seconds < 0.01 ? 1 : 0, seconds * 1e3);
    else
        buffer_printf(out, "%.1f s", seconds);
}

static void top_append_rates(struct buffer *out, const struct top_view *view)
{
    if (!view->has_rates) {
        buffer_append_literal(out, "-");
        return;
    }
    buffer_printf(out, "%.0f/s", top_view_rate(view));
    const char *separator = ": ";
    for (enum top_result result = 0; result < TOP_RESULTS; result++) {
        if (view->rates[result] <= 0)
            continue;
        buffer_printf(out, "%s%s %.0f", separator, top_result_name(result), view->rates[result]);
        separator = ", ";
    }
}

void top_bar(const struct top_policy *policy, int cells, int parts[3])
{
    double total = policy->total > 0 ? (double)policy->total : 1;
    int remaining = (int)((double)policy->remaining / total * cells + 0.5);
    int pending = (int)((double)policy->pending / total * cells + 0.5);

    /* What is there shows, however little it is. */
    remaining = remaining == 0 && policy->remaining > 0 ? 1 : remaining;
    pending = pending == 0 && policy->pending > 0 ? 1 : pending;
    remaining = remaining > cells ? cells : remaining;
    pending = pending > cells - remaining ? cells - remaining : pending;
    parts[0] = cells - remaining - pending;
    parts[1] = pending;
    parts[2] = remaining;
}

static void top_text_policy(struct buffer *out, const struct top_policy *policy)
{
    static const char marks[3] = {'#', '+', '.'};
    int parts[3];

    top_bar(policy, BAR_CELLS, parts);
    buffer_printf(out, "%8" PRId64 "  %-9s  [", policy->id, policy->state);
    for (int part = 0; part < 3; part++)
        for (int i = 0; i < parts[part]; i++)
            buffer_append(out, &marks[part], 1);
    buffer_printf(
        out, "] %9" PRId64 " left, %" PRId64 " pending, %" PRId64 " of %" PRId64 " issued  %s\n",
        policy->remaining, policy->pending, policy->issued, policy->total, policy->name);
}

void top_text(struct buffer *out, const struct top_view *view, const char *url)
{
    const struct top_snapshot *now = &view->now;

    buffer_printf(out, "%s  %s%s%s\n", url,
                  !now->is_reachable ? "does not answer"
                  : now->is_ready    ? "ready"
                                     : "not ready",
                  now->trouble[0] != '\0' ? ": " : "", now->trouble);
    buffer_append_literal(out, "claims   ");
    top_append_rates(out, view);
    buffer_append_literal(out, "\nlatency  p50 ");
    top_append_latency(out, view->p50_s);
    buffer_append_literal(out, ", p99 ");
    top_append_latency(out, view->p99_s);
    buffer_printf(out, "\npending  %.0f", now->pending);
    if (now->oldest_pending_s > 0)
        buffer_printf(out, ", the oldest for %.1f s", now->oldest_pending_s);
    buffer_printf(out, "; %.0f connections", now->connections);
    if (now->dead_letters > 0)
        buffer_printf(out, "; %.0f dead letters", now->dead_letters);
    buffer_append_literal(out, "\nparts    ");
    for (size_t i = 0; i < now->part_count; i++)
        buffer_printf(out, "%s%s (%s) %s", i > 0 ? ", " : "", now->parts[i].name,
                      now->parts[i].kind, now->parts[i].is_ready ? "ok" : now->parts[i].detail);
    buffer_append_literal(out, "\n\n");
    for (size_t i = 0; i < now->policy_count; i++)
        top_text_policy(out, top_view_policy(view, i));
    if (now->policy_count == 0 && now->lacks_policies)
        buffer_append_literal(out, "Which policies there are cannot be told right now.\n");
    else if (now->policy_count == 0)
        buffer_append_literal(out, "There are no policies yet; `dibs policy create` makes one.\n");
}

/* --- JSON --- */

static void top_json_parts(struct buffer *out, const struct top_snapshot *now)
{
    buffer_append_literal(out, ",\"parts\":[");
    for (size_t i = 0; i < now->part_count; i++) {
        const struct top_part *part = &now->parts[i];
        json_begin(out, '{');
        json_put(out, "name", part->name);
        json_put(out, "kind", part->kind);
        json_put_flag(out, "ready", part->is_ready);
        json_put(out, "detail", part->detail);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static void top_json_policies(struct buffer *out, const struct top_snapshot *now)
{
    if (now->lacks_policies && now->policy_count == 0) {
        json_put_null(out, "policies");
        return;
    }
    buffer_append_literal(out, ",\"policies\":[");
    for (size_t i = 0; i < now->policy_count; i++) {
        const struct top_policy *policy = &now->policies[i];
        json_begin(out, '{');
        json_put(out, "id", policy->id);
        json_put(out, "name", policy->name);
        json_put(out, "state", policy->state);
        json_put(out, "total", policy->total);
        json_put(out, "remaining", policy->remaining);
        json_put(out, "pending", policy->pending);
        json_put(out, "issued", policy->issued);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

void top_json(struct buffer *out, const struct top_view *view, const char *url)
{
    static const char *const names[TOP_RESULTS] = {
        [TOP_WON] = "won",
        [TOP_HELD] = "held",
        [TOP_SOLD_OUT] = "sold_out",
        [TOP_REFUSED] = "refused",
        [TOP_UNAVAILABLE] = "unavailable",
    };
    const struct top_snapshot *now = &view->now;

    buffer_append_literal(out, "{");
    json_put(out, "url", url);
    json_put_time(out, "at", now->wall_ms);
    json_put_flag(out, "reachable", now->is_reachable);
    json_put_flag(out, "ready", now->is_ready);
    buffer_append_literal(out, ",\"claims_per_second\":{");
    for (enum top_result result = 0; result < TOP_RESULTS; result++)
        buffer_printf(out, "%s\"%s\":%.1f", result > 0 ? "," : "", names[result],
                      view->rates[result]);
    buffer_printf(out,
                  "},\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"pending\":%.0f,\"oldest_pending_s\":%.3f,"
                  "\"connections\":%.0f,\"dead_letters\":%.0f",
                  view->p50_s * 1e3, view->p99_s * 1e3, now->pending, now->oldest_pending_s,
                  now->connections, now->dead_letters);
    top_json_parts(out, now);
    top_json_policies(out, now);
    buffer_append_literal(out, "}\n");
}

/* --- the terminal --- */

#define LINE_MAX_LENGTH 1024
#define EVENT_LINES     6
#define POLICY_LINES    5 /* that events leave free, if there are so many */
#define HEAD_LINES      8

enum top_colour { TOP_PLAIN, TOP_GOOD, TOP_WAITING, TOP_BAD, TOP_QUIET };

static SCREEN *top_terminal;

enum status top_screen_open(struct error *error)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return error_set(error, STATUS_FAILED,
                         "this is not a terminal; --once prints how it stands, --json as JSON");
    setlocale(LC_ALL, "");
    top_terminal = newterm(NULL, stdout, stdin);
    if (top_terminal == NULL)
        return error_set(error, STATUS_FAILED,
                         "this terminal is not known (TERM=%s); use --once instead",
                         getenv("TERM") != NULL ? getenv("TERM") : "");
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    curs_set(0);
    if (has_colors() && getenv("NO_COLOR") == NULL) {
        start_color();
        use_default_colors();
        init_pair(TOP_GOOD, COLOR_GREEN, -1);
        init_pair(TOP_WAITING, COLOR_YELLOW, -1);
        init_pair(TOP_BAD, COLOR_RED, -1);
        init_pair(TOP_QUIET, COLOR_CYAN, -1);
    }
    return STATUS_OK;
}

void top_screen_close(void)
{
    endwin();
    delscreen(top_terminal);
    top_terminal = NULL;
}

/* --- pieces --- */

/* How many bytes of the text fit into so many columns; a character may take two. */
static int top_fitting(const char *text, int cells)
{
    mbstate_t state = {0};
    const char *at = text;
    wchar_t character;
    size_t length;

    while (*at != '\0') {
        length = mbrtowc(&character, at, MB_CUR_MAX, &state);
        if (length == (size_t)-1 || length == (size_t)-2)
            break;
        int width = wcwidth(character);
        cells -= width > 0 ? width : 0;
        if (cells < 0)
            break;
        at += length;
    }
    return (int)(at - text);
}

static void top_put(int row, int column, enum top_colour colour, const char *text)
{
    if (row >= LINES || column >= COLS)
        return;
    attron(COLOR_PAIR(colour));
    mvaddnstr(row, column, text, top_fitting(text, COLS - column));
    attroff(COLOR_PAIR(colour));
}

static void top_put_buffer(int row, const char *title, struct buffer *text)
{
    top_put(row, 0, TOP_QUIET, title);
    top_put(row, 10, TOP_PLAIN, text->length > 0 ? text->bytes : "");
    buffer_clear(text);
}

/* Claims a second of the last minute, as a row of marks. */
static void top_draw_history(int row, const struct top_view *view)
{
    static const char marks[] = " .:-=+*#%@";
    double most = 1;

    for (size_t i = 0; i < TOP_HISTORY; i++)
        most = view->history[i] > most ? view->history[i] : most;
    char line[TOP_HISTORY + 1];
    for (size_t i = 0; i < TOP_HISTORY; i++)
        line[i] = marks[(size_t)(view->history[i] / most * (sizeof(marks) - 2) + 0.5)];
    line[TOP_HISTORY] = '\0';
    top_put(row, 0, TOP_QUIET, "a minute");
    top_put(row, 10, TOP_GOOD, line);
    char peak[48];
    snprintf(peak, sizeof(peak), "| most %.0f/s", most > 1 ? most : 0);
    top_put(row, 10 + TOP_HISTORY + 1, TOP_QUIET, peak);
}

static void top_draw_parts(int row, const struct top_snapshot *now)
{
    int column = 10;

    top_put(row, 0, TOP_QUIET, "parts");
    for (size_t i = 0; i < now->part_count; i++) {
        char text[LINE_MAX_LENGTH];
        const struct top_part *part = &now->parts[i];
        snprintf(text, sizeof(text), "%s %s %s", part->is_ready ? "o" : "X", part->name,
                 part->is_ready ? part->kind : part->detail);
        top_put(row, column, part->is_ready ? TOP_GOOD : TOP_BAD, text);
        column += (int)strlen(text) + 3;
    }
}

static void top_draw_head(const struct top_view *view, const char *url)
{
    const struct top_snapshot *now = &view->now;
    char time[CLOCK_TEXT_SIZE];
    char line[LINE_MAX_LENGTH];
    struct buffer text;

    buffer_init(&text, LINE_MAX_LENGTH);
    clock_format_rfc3339(now->wall_ms, time);
    snprintf(line, sizeof(line), "dibs top  %s  %.19sZ", url, time);
    attron(A_BOLD);
    top_put(0, 0, TOP_PLAIN, line);
    attroff(A_BOLD);
    top_put(0, (int)strlen(line) + 2, now->is_reachable && now->is_ready ? TOP_GOOD : TOP_BAD,
            !now->is_reachable ? now->trouble
            : now->is_ready    ? "ready"
                               : "NOT READY");
    top_append_rates(&text, view);
    top_put_buffer(2, "claims", &text);
    top_draw_history(3, view);
    buffer_append_literal(&text, "p50 ");
    top_append_latency(&text, view->p50_s);
    buffer_append_literal(&text, "   p99 ");
    top_append_latency(&text, view->p99_s);
    buffer_printf(&text, "   connections %.0f", now->connections);
    top_put_buffer(4, "latency", &text);
    buffer_printf(&text, "%.0f", now->pending);
    if (now->oldest_pending_s > 0)
        buffer_printf(&text, "   the oldest for %.1f s", now->oldest_pending_s);
    if (now->dead_letters > 0)
        buffer_printf(&text, "   dead letters %.0f", now->dead_letters);
    top_put_buffer(5, "pending", &text);
    top_draw_parts(6, now);
    buffer_release(&text);
}

static enum top_colour top_state_colour(const char *state)
{
    if (strcmp(state, "OPEN") == 0)
        return TOP_GOOD;
    if (strcmp(state, "PAUSED") == 0 || strcmp(state, "SCHEDULED") == 0)
        return TOP_WAITING;
    return strcmp(state, "SOLD_OUT") == 0 ? TOP_BAD : TOP_PLAIN;
}

static void top_draw_policy(int row, const struct top_policy *policy, bool is_selected)
{
    static const enum top_colour colours[3] = {TOP_GOOD, TOP_WAITING, TOP_QUIET};
    static const char marks[3] = {'#', '+', '.'};
    int cells = COLS > 100 ? 30 : COLS > 70 ? 16 : 8;
    int column = 24;
    int parts[3];
    char text[LINE_MAX_LENGTH];

    snprintf(text, sizeof(text), "%s%10" PRId64, is_selected ? ">" : " ", policy->id);
    if (is_selected)
        attron(A_BOLD);
    top_put(row, 0, TOP_PLAIN, text);
    top_put(row, 13, top_state_colour(policy->state), policy->state);
    top_bar(policy, cells, parts);
    for (int part = 0; part < 3; part++) {
        memset(text, marks[part], (size_t)parts[part]);
        text[parts[part]] = '\0';
        top_put(row, column, colours[part], text);
        column += parts[part];
    }
    snprintf(text, sizeof(text), " %9" PRId64 " %8" PRId64 " %9" PRId64 "  %s", policy->remaining,
             policy->pending, policy->issued, policy->name);
    top_put(row, column, TOP_PLAIN, text);
    if (is_selected)
        attroff(A_BOLD);
}

static void top_draw_policies(const struct top_view *view, size_t selected, int first_row,
                              int row_count)
{
    const struct top_snapshot *now = &view->now;
    int cells = COLS > 100 ? 30 : COLS > 70 ? 16 : 8;
    char title[LINE_MAX_LENGTH];

    snprintf(title, sizeof(title),
             "         ID  STATE      %-*s      LEFT  PENDING    ISSUED  NAME", cells,
             "ISSUED PENDING LEFT");
    /* A short bar has no room for its legend. */
    if (cells < 19)
        snprintf(title, sizeof(title),
                 "         ID  STATE      %-*s      LEFT  PENDING    ISSUED"
                 "  NAME",
                 cells, "STOCK");
    attron(A_UNDERLINE);
    top_put(first_row, 0, TOP_QUIET, title);
    attroff(A_UNDERLINE);
    size_t visible = row_count > 1 ? (size_t)row_count - 1 : 0;
    size_t from = selected >= visible && visible > 0 ? selected - visible + 1 : 0;
    for (size_t i = 0; i < visible && from + i < now->policy_count; i++)
        top_draw_policy(first_row + 1 + (int)i, top_view_policy(view, from + i),
                        from + i == selected);
    if (now->policy_count == 0)
        top_put(first_row + 1, 2, TOP_QUIET,
                now->lacks_policies ? "Which policies there are cannot be told right now."
                                    : "There are no policies yet: `dibs policy create`.");
}

/* How many events there is room for, beside a few policies. */
static size_t top_event_lines(const struct top_view *view, int room)
{
    int policies =
        view->now.policy_count < POLICY_LINES ? (int)view->now.policy_count : POLICY_LINES;
    int left = room - policies - 2; /* a title, and a blank line between them */
    int wanted = view->event_count < EVENT_LINES ? (int)view->event_count : EVENT_LINES;

    return left < 0 ? 0 : left < wanted ? (size_t)left : (size_t)wanted;
}

static void top_draw_events(const struct top_view *view, int first_row, size_t shown)
{
    for (size_t i = 0; i < shown; i++) {
        const struct top_event *event = &view->events[view->event_count - shown + i];
        char time[CLOCK_TEXT_SIZE];
        char line[LINE_MAX_LENGTH];
        clock_format_rfc3339(event->wall_ms, time);
        snprintf(line, sizeof(line), "%.8s  %s", time + 11, event->text);
        top_put(first_row + (int)i, 0, TOP_PLAIN, line);
    }
}

void top_screen_draw(const struct top_view *view, const char *url, size_t selected,
                     const char *footer)
{
    int room = LINES - 1 - HEAD_LINES;
    size_t events = top_event_lines(view, room);

    erase();
    top_draw_head(view, url);
    top_draw_policies(view, selected, HEAD_LINES, events > 0 ? room - (int)events - 1 : room);
    top_draw_events(view, LINES - 1 - (int)events, events);
    if (footer[0] != '\0') {
        attron(A_REVERSE);
        top_put(LINES - 1, 0, TOP_PLAIN, footer);
        attroff(A_REVERSE);
    } else {
        top_put(LINES - 1, 0, TOP_QUIET, "up/down select   p pause   r resume   q quit");
    }
    refresh();
}

enum top_key top_screen_key(int64_t timeout_ms)
{
    timeout((int)timeout_ms);
    switch (getch()) {
    case ERR:
        return TOP_KEY_NONE;
    case 'q':
    case 'Q':
    case 3: /* Ctrl-C */
        return TOP_KEY_QUIT;
    case KEY_UP:
    case 'k':
        return TOP_KEY_UP;
    case KEY_DOWN:
    case 'j':
        return TOP_KEY_DOWN;
    case 'p':
        return TOP_KEY_PAUSE;
    case 'r':
        return TOP_KEY_RESUME;
    case 'y':
    case 'Y':
        return TOP_KEY_YES;
    case KEY_RESIZE:
        return TOP_KEY_RESIZE;
    default:
        return TOP_KEY_OTHER;
    }
}
