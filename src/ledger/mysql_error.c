/* mysql_error.c: error numbers, sorted. */
#include "ledger/mysql_error.h"

#include <stddef.h>
#include <string.h>

#define CODES_HAVE(codes, code) codes_have(codes, sizeof(codes) / sizeof((codes)[0]), code)

static bool codes_have(const unsigned *codes, size_t count, unsigned code)
{
    for (size_t i = 0; i < count; i++) {
        if (codes[i] == code)
            return true;
    }
    return false;
}

/* Of another transaction's making. */
static const unsigned busy_codes[] = {
    1205, /* waited too long for a lock */
    1213, /* deadlock */
    1020, /* a row has changed since it was read (snapshot isolation of MariaDB) */
    1412, /* a table was altered under the transaction */
    1615, /* a prepared statement has to be prepared again */
    3101, /* undone by another member of the group */
    3572, /* a lock is not free */
};

/* The server will not go on with this connection. */
static const unsigned lost_codes[] = {
    1047, /* a cluster's node is not ready */
    1053, /* shutting down */
    1077, /* ended normally */
    1079, /* shutdown complete */
    1080, /* closed by force */
    1152, /* aborted */
    1158, /* error reading, */
    1159, /* timeout reading, */
    1160, /* error writing, */
    1161, /* timeout writing on the network */
    1184, /* aborted */
    1290, /* read-only: another server may be the primary now */
    1836, /* read-only mode */
    1927, /* killed (MariaDB) */
    3032, /* offline mode */
    3169, /* killed (MySQL) */
    4031, /* idle for too long */
};

/* Not now, and none of the above. */
static const unsigned unavailable_codes[] = {
    1021, /* disk full */
    1026, /* error writing a file */
    1037, /* out of memory */
    1038, /* out of memory for sorting */
    1040, /* too many connections */
    1041, /* out of memory */
    1114, /* table full: the disk is */
    1129, /* host blocked after too many errors */
    1135, /* cannot make a thread */
    1203, /* the user has too many connections */
    1226, /* the user has used up a resource */
    1317, /* interrupted */
    1461, /* too many prepared statements */
    1969, /* statement timeout (MariaDB) */
    3024, /* statement timeout (MySQL) */
};

/* The server is there and will not have us: for the operator. */
static const unsigned refused_codes[] = {
    1044, /* no right to the database */
    1045, /* access denied */
    1049, /* unknown database */
    1130, /* this host may not connect */
    1251, /* the way to log in is too old */
    1275, /* the password is of an old kind */
    1524, /* the plugin to log in is not there */
    1698, /* access denied, without a password */
    1820, /* the password has to be changed */
    1862, /* the password has expired */
    2059, /* the plugin to log in is not there (client) */
    2061, /* it failed */
    4151, /* the account is locked */
};
#define TLS_FAILED 2026

/* May have come after the transaction was written. */
static const unsigned doubt_codes[] = {1180, 1196, 1317, 1969, 3024, 3100};

/* Values of the wrong type or range, checks and triggers, where the SQL state does not tell. */
static const unsigned row_codes[] = {1048, 1264, 1265, 1292, 1364, 1366, 1406, 1644, 3819, 4025};

/* The client library numbers what it finds itself. */
#define IS_CLIENT_CODE(code) \
    (((code) >= 2000 && (code) < 3000) || ((code) >= 5000 && (code) < 6000))

/* "Got error 28 ... from storage engine", and the like, carry the system's error number. */
static bool words_say_disk_full(const char *words)
{
    return strstr(words, "rror 28 ") != NULL || strstr(words, "errno: 28") != NULL ||
           strstr(words, "No space left") != NULL;
}

/* A handshake that breaks off may succeed later; a certificate that is not good stays so. */
bool ledger_mysql_refuses_us(unsigned code, const char *words)
{
    if (code == TLS_FAILED)
        return strcasestr(words, "certificate") != NULL || strcasestr(words, "required") != NULL;
    return CODES_HAVE(refused_codes, code);
}

bool ledger_mysql_is_lost(unsigned code)
{
    return IS_CLIENT_CODE(code) || CODES_HAVE(lost_codes, code);
}

enum status ledger_mysql_status(unsigned code, const char *words)
{
    if (CODES_HAVE(busy_codes, code))
        return STATUS_BUSY;
    if (ledger_mysql_is_lost(code) || CODES_HAVE(unavailable_codes, code))
        return STATUS_UNAVAILABLE;
    return words_say_disk_full(words) ? STATUS_UNAVAILABLE : STATUS_FAILED;
}

/* After a lock that was waited for too long, only the statement is undone, but its locks are no
 * good for finishing the rest either. */
bool ledger_mysql_ends_transaction(unsigned code)
{
    return CODES_HAVE(busy_codes, code);
}

bool ledger_mysql_leaves_doubt(unsigned code)
{
    return ledger_mysql_is_lost(code) || CODES_HAVE(doubt_codes, code);
}

bool ledger_mysql_refuses_row(unsigned code, const char *sql_state)
{
    if (CODES_HAVE(row_codes, code))
        return true;
    return strncmp(sql_state, "22", 2) == 0 || strncmp(sql_state, "23", 2) == 0 ||
           strcmp(sql_state, "45000") == 0;
}
