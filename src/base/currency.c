/* currency.c: the codes in use, and how many digits each has behind its point. */
#include "base/currency.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* By the digits behind the point. */
static const char *const codes[] = {
    "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    "",
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN "
    "BZD "
    "CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL "
    "GHS "
    "GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD "
    "LSL "
    "MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN "
    "PGK "
    "PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB "
    "TJS "
    "TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VES VED WST XCD XCG YER ZAR ZMW ZWG",
    "BHD IQD JOD KWD LYD OMR TND",
    "CLF UYW",
};

#define DIGITS_COUNT (sizeof(codes) / sizeof(codes[0]))

/* The digits of a code; DIGITS_COUNT: nobody uses it. */
static size_t currency_digits(const char *code)
{
    size_t digits = 0;
    while (digits < DIGITS_COUNT && (strstr(codes[digits], code) == NULL))
        digits++;
    return digits;
}

int32_t currency_of(struct span code)
{
    char text[CURRENCY_TEXT_SIZE] = "";
    if (code.length != CURRENCY_TEXT_SIZE - 1)
        return CURRENCY_NONE;
    memcpy(text, code.bytes, code.length);
    if (strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != code.length ||
        currency_digits(text) == DIGITS_COUNT)
        return CURRENCY_NONE;
    return text[0] << 16 | text[1] << 8 | text[2];
}

const char *currency_text(int32_t currency, char text[CURRENCY_TEXT_SIZE])
{
    for (int i = 0; i < CURRENCY_TEXT_SIZE; i++)
        text[i] = (char)(((uint64_t)currency << 8) >> (24 - 8 * i) & 0xff);
    return text;
}

const char *currency_amount(int32_t currency, int64_t amount, char text[CURRENCY_AMOUNT_SIZE])
{
    char code[CURRENCY_TEXT_SIZE];
    int64_t unit = 1;
    size_t digits = currency == CURRENCY_NONE ? 0 : currency_digits(currency_text(currency, code));
    for (size_t i = 0; i < digits && digits < DIGITS_COUNT; i++)
        unit *= 10;
    int length = snprintf(text, CURRENCY_AMOUNT_SIZE, "%" PRId64, amount / unit);
    if (unit > 1)
        length += snprintf(text + length, CURRENCY_AMOUNT_SIZE - (size_t)length, ".%0*" PRId64,
                           (int)digits, amount % unit);
    if (currency != CURRENCY_NONE)
        snprintf(text + length, CURRENCY_AMOUNT_SIZE - (size_t)length, " %s", code);
    return text;
}
