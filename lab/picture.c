/* picture.c: the main picture as SVG: a row for each design, a column for each scenario, and beside
 * them what an answer and a million presses cost. It follows the reader's light or dark. */
#include <stdio.h>
#include <string.h>

#include "lab/report.h"

#define NAME_WIDTH 150
#define CELL_WIDTH 46
#define ROW_HEIGHT 25
#define HEAD       200
#define GROUP_GAP  26
#define BAR_WIDTH  120
#define FOOT       34

static const char STYLE[] =
    "<style>text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1c2530}"
    ".back{fill:#fff}.soft{fill:#5c6b7a}.small{font-size:11px}.title{font-size:17px;font-weight:"
    "650}"
    ".group{font-weight:650}.ok{fill:#d8efe3}.okt{fill:#0a6b44}.bad{fill:#c0392f}.badt{fill:#fff;"
    "font-weight:650}.none{fill:#eef1f4}.bar{fill:#3b6ea8}.bar2{fill:#c77d1a}"
    "@media(prefers-color-scheme:dark){text{fill:#e6ebf1}.back{fill:#12171d}.soft{fill:#98a6b5}"
    ".ok{fill:#173a2b}.okt{fill:#5fd39c}.bad{fill:#b8443a}.none{fill:#1c232b}.bar{fill:#6ea8e6}"
    ".bar2{fill:#e0a458}}</style>";

/* Where things are. */
struct picture {
    struct buffer *out;
    const struct lab_book *book;
    int cells_end;
    double p99_most, cpu_most;
};

static double picture_cpu(const struct lab_result *result)
{
    const struct lab_figures *sum = &result->sum;
    return (sum->front_cpu + sum->redis_cpu + sum->database_cpu + sum->broker_cpu) / result->rounds;
}

static void picture_heads(const struct picture *picture)
{
    const struct lab_book *book = picture->book;
    for (size_t i = 0; i < book->scenario_count; i++) {
        int x = NAME_WIDTH + (int)i * CELL_WIDTH + CELL_WIDTH / 2;
        buffer_printf(picture->out, "<text class='small' transform='translate(%d %d) rotate(-38)'>",
                      x, HEAD - 8);
        lab_text(picture->out, book->scenarios[i]->title);
        buffer_append_text(picture->out, "</text>");
    }
    buffer_printf(picture->out,
                  "<text class='small soft' x='%d' y='%d'>99 %% answered within</text>"
                  "<text class='small soft' x='%d' y='%d'>CPU per million</text>",
                  picture->cells_end + 16, HEAD - 8, picture->cells_end + 32 + BAR_WIDTH, HEAD - 8);
}

static void picture_cell(const struct picture *picture, const struct lab_result *result, int x,
                         int y)
{
    long long wrong = (long long)lab_figures_wrong(&result->sum);
    if (result->rounds == 0)
        return;
    buffer_printf(picture->out, "<rect class='%s' x='%d' y='%d' width='%d' height='%d' rx='3'/>",
                  wrong > 0 ? "bad" : "ok", x + 1, y + 1, CELL_WIDTH - 2, ROW_HEIGHT - 2);
    buffer_printf(picture->out, "<text class='small %s' x='%d' y='%d' text-anchor='middle'>",
                  wrong > 0 ? "badt" : "okt", x + CELL_WIDTH / 2, y + ROW_HEIGHT / 2 + 4);
    if (wrong > 0)
        buffer_printf(picture->out, "%lld", wrong);
    else
        buffer_append_text(picture->out, "✓");
    buffer_append_text(picture->out, "</text>");
}

static void picture_bar(const struct picture *picture, int x, int y, double value, double most,
                        const char *style, const char *unit)
{
    int room = BAR_WIDTH - 56;
    double width = most > 0 ? room * value / most : 0;
    buffer_printf(picture->out,
                  "<rect class='%s' x='%d' y='%d' width='%.1f' height='10' rx='2'/>"
                  "<text class='small' x='%.1f' y='%d'>%.*f %s</text>",
                  style, x, y + 8, width < 1 ? 1 : width, x + width + 5, y + 17, value < 10 ? 1 : 0,
                  value, unit);
}

static void picture_row(const struct picture *picture, size_t contestant, int y)
{
    const struct lab_book *book = picture->book;
    const struct lab_result *first = &book->results[0][contestant];
    buffer_printf(picture->out, "<text x='14' y='%d'>", y + 17);
    lab_text(picture->out, book->contestants[contestant]->name);
    buffer_append_text(picture->out, "</text>");
    for (size_t i = 0; i < book->scenario_count; i++)
        picture_cell(picture, &book->results[i][contestant], NAME_WIDTH + (int)i * CELL_WIDTH, y);
    if (first->rounds == 0)
        return;
    picture_bar(picture, picture->cells_end + 16, y, first->sum.p99_ms / first->rounds,
                picture->p99_most, "bar", "ms");
    picture_bar(picture, picture->cells_end + 32 + BAR_WIDTH, y, picture_cpu(first),
                picture->cpu_most, "bar2", "s");
}

static void picture_measure(struct picture *picture)
{
    for (size_t i = 0; i < picture->book->contestant_count; i++) {
        const struct lab_result *first = &picture->book->results[0][i];
        if (first->rounds == 0)
            continue;
        double p99 = first->sum.p99_ms / first->rounds, cpu = picture_cpu(first);
        picture->p99_most = p99 > picture->p99_most ? p99 : picture->p99_most;
        picture->cpu_most = cpu > picture->cpu_most ? cpu : picture->cpu_most;
    }
}

void lab_picture(struct buffer *out, const struct lab_book *book)
{
    struct picture picture = {.out = out, .book = book};
    const char *group = NULL;
    int groups = 0, y = HEAD;
    for (size_t i = 0; i < book->contestant_count; i++)
        groups += i == 0 || book->contestants[i]->group != book->contestants[i - 1]->group;
    int height = HEAD + groups * GROUP_GAP + (int)book->contestant_count * ROW_HEIGHT + FOOT;
    picture.cells_end = NAME_WIDTH + (int)book->scenario_count * CELL_WIDTH;
    int width = picture.cells_end + 48 + 2 * BAR_WIDTH;
    picture_measure(&picture);
    buffer_printf(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d'"
        " role='img' aria-label='What went wrong with each design'>",
        width, height, width, height);
    buffer_append_text(out, STYLE);
    buffer_printf(out,
                  "<rect class='back' width='%d' height='%d' rx='8'/>"
                  "<text class='title' x='14' y='30'>What went wrong, of each design</text>",
                  width, height);
    picture_heads(&picture);
    for (size_t i = 0; i < book->contestant_count; i++, y += ROW_HEIGHT) {
        if (group == NULL || strcmp(group, book->contestants[i]->group) != 0) {
            group = book->contestants[i]->group;
            buffer_printf(out, "<text class='group soft' x='14' y='%d'>%s</text>", y + 18, group);
            y += GROUP_GAP;
        }
        picture_row(&picture, i, y);
    }
    buffer_printf(
        out,
        "<text class='small soft' x='14' y='%d'>✓ nothing; a number: how many coupons and "
        "people it went wrong for, in %d round%s; blank: it does not concern this "
        "design.</text></svg>\n",
        height - 13, book->rounds, book->rounds > 1 ? "s" : "");
}
