/* currency.h: currencies of ISO 4217, as numbers that hold their three letters.
 *
 * Amounts are in a currency's smallest unit: 500 of USD are $5.00, 5000 of KRW are 5,000 won.
 *
 * Threads: values only.
 */
#pragma once

#include <stdint.h>

#include "base/buffer.h"

#define CURRENCY_NONE        0
#define CURRENCY_MAX         0xffffff
#define CURRENCY_TEXT_SIZE   4
#define CURRENCY_AMOUNT_SIZE 32

/* CURRENCY_NONE: it is no code in use. Capitals only. */
int32_t currency_of(struct span code);

/* Its three letters; "" of none. */
const char *currency_text(int32_t currency, char text[CURRENCY_TEXT_SIZE]);

/* "5.00 USD", "5000 KRW", and of none the number alone. */
const char *currency_amount(int32_t currency, int64_t amount, char text[CURRENCY_AMOUNT_SIZE]);
