/* crowd.h: who comes to a drop of the demo, and when.
 *
 * Some are early, most come when it opens, more come when it is sold out already; one in ten
 * presses again.
 *
 * Threads: constants and values only.
 */
#ifndef DEMO_CROWD_H
#define DEMO_CROWD_H

#include <stddef.h>
#include <stdint.h>

#define CROWD_TOTAL     500 /* coupons of a drop */
#define CROWD_COUNT     2780
#define CROWD_USER_SIZE 32

/* When the press with that index, of CROWD_COUNT, is made: in milliseconds since the opening. */
int64_t crowd_time_ms(size_t index);

/* Whose press it is. */
void crowd_user(size_t index, char user[CROWD_USER_SIZE]);

#endif
