/* board_local.c: the board suite on the board in a process's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "board_suite.h"

struct board *board_suite_open(void)
{
    struct board *board = NULL;
    struct error error;

    if (board_local_open(&board, NULL, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return board;
}

struct board *board_suite_beside(struct board *board)
{
    return board;
}

void board_suite_close(struct board *board, struct board *beside)
{
    (void)beside;
    board_close(board);
}

int main(void)
{
    return board_suite_run(NULL, 0);
}
