/* test_log.c: lines that cannot be forged, in both formats. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

#include "base/log.h"

/* A socket that keeps the borders of writes: one receive gives just what one write(2) put in. */
static int sink[2];
static char line[8192];

static int setup(void **state)
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sink);
}

static int teardown(void **state)
{
    log_configure(LOG_INFO, LOG_LOGFMT, STDERR_FILENO);
    close(sink[0]);
    close(sink[1]);
    return 0;
}

/* Receives one write, checks that it is one line, and takes the newline off. */
static size_t receive_line(void)
{
    ssize_t count = recv(sink[0], line, sizeof(line) - 1, MSG_DONTWAIT);
    assert_in_range(count, 1, 4096);
    assert_ptr_equal(memchr(line, '\n', (size_t)count), &line[count - 1]);
    line[count - 1] = '\0';
    return (size_t)count - 1;
}

static void assert_nothing_written(void)
{
    assert_int_equal(recv(sink[0], line, sizeof(line), MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

/* The part after "ts=2026-11-15T12:00:00.000Z ", whose shape is checked. */
static const char *logfmt_rest(void)
{
    receive_line();
    assert_memory_equal(line, "ts=2", 4);
    assert_memory_equal(line + 26, "Z level=", 8);
    return line + 28;
}

static void test_log__logfmt_writes_plain_words_bare(void **state)
{
    log_configure(LOG_INFO, LOG_LOGFMT, sink[1]);
    log_event(LOG_INFO, "policy_created", LOG_FIELD("policy", LOG_I64(42)),
              LOG_FIELD("name", LOG_TEXT("u1@shop:a-b_c.d/e")),
              LOG_FIELD("least", LOG_I64(INT64_MIN)), LOG_FIELD("took", LOG_REAL(0.25)),
              LOG_FIELD("paused", LOG_FLAG(false)), LOG_FIELD("open", LOG_FLAG(true)),
              LOG_FIELD("odd", LOG_REAL(NAN)));
    assert_string_equal(logfmt_rest(),
                        "level=info event=policy_created policy=42 name=u1@shop:a-b_c.d/e "
                        "least=-9223372036854775808 took=0.25 paused=false open=true odd=null");
}

static void test_log__logfmt_quotes_the_rest(void **state)
{
    log_configure(LOG_INFO, LOG_LOGFMT, sink[1]);
    log_event(LOG_ERROR, "e", LOG_FIELD("empty", LOG_TEXT("")),
              LOG_FIELD("none", LOG_SPAN((struct span){0})), LOG_FIELD("space", LOG_TEXT("a b")),
              LOG_FIELD("equals", LOG_TEXT("a=b")), LOG_FIELD("quote", LOG_TEXT("a\"b")),
              LOG_FIELD("slash", LOG_TEXT("a\\b")), LOG_FIELD("utf8", LOG_TEXT("caf\xc3\xa9")));
    assert_string_equal(logfmt_rest(),
                        "level=error event=e empty=\"\" none=\"\" space=\"a b\" equals=\"a=b\" "
                        "quote=\"a\\\"b\" slash=\"a\\\\b\" utf8=\"caf\xc3\xa9\"");
}

static void test_log__no_value_can_start_a_line_or_a_field(void **state)
{
    log_configure(LOG_INFO, LOG_LOGFMT, sink[1]);
    log_event(LOG_WARN, "refused",
              LOG_FIELD("user", LOG_TEXT("u1\nts=x level=error event=forged\r\n\x1b[2J\x7f")),
              LOG_FIELD("c1", LOG_TEXT("\xc2\x9b")), LOG_FIELD("nel", LOG_TEXT("\xc2\x85")),
              LOG_FIELD("separator", LOG_TEXT("\xe2\x80\xa8")),
              LOG_FIELD("bidi", LOG_TEXT("\xe2\x80\xae\xe2\x81\xa6")),
              LOG_FIELD("nul", LOG_SPAN(SPAN("a\0b"))), LOG_FIELD("bad", LOG_TEXT("a\xff\xc3")));
    assert_string_equal(
        logfmt_rest(),
        "level=warn event=refused "
        "user=\"u1\\nts=x level=error event=forged\\u000d\\n\\u001b[2J\\u007f\" c1=\"\\u009b\" "
        "nel=\"\\u0085\" separator=\"\\u2028\" bidi=\"\\u202e\\u2066\" nul=\"a\\u0000b\" "
        "bad=\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void test_log__json_lines_give_the_values_back(void **state)
{
    static const char text[] = "q\" s\\ n\n t\t e\x1b d\x7f \xc3\xa9 \xe2\x80\xa8 \xf0\x9f\x8e\x9f";
    log_configure(LOG_INFO, LOG_JSON, sink[1]);
    log_event(LOG_INFO, "claimed", LOG_FIELD("text", LOG_TEXT(text)),
              LOG_FIELD("nul", LOG_SPAN(SPAN("a\0b"))), LOG_FIELD("number", LOG_I64(-7)),
              LOG_FIELD("real", LOG_REAL(1e300)), LOG_FIELD("infinite", LOG_REAL(INFINITY)),
              LOG_FIELD("yes", LOG_FLAG(true)));
    size_t length = receive_line();
    for (size_t i = 0; i < length; i++)
        assert_true((unsigned char)line[i] >= ' ' && line[i] != 0x7f);
    yyjson_doc *doc = yyjson_read(line, length, 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_int_equal(yyjson_obj_size(root), 9);
    assert_int_equal(yyjson_get_len(yyjson_obj_get(root, "ts")), 24);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "level")), "info");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "event")), "claimed");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "text")), text);
    assert_int_equal(yyjson_get_len(yyjson_obj_get(root, "nul")), 3);
    assert_int_equal(yyjson_get_sint(yyjson_obj_get(root, "number")), -7);
    assert_true(yyjson_get_real(yyjson_obj_get(root, "real")) == 1e300);
    assert_true(yyjson_is_null(yyjson_obj_get(root, "infinite")));
    assert_true(yyjson_get_bool(yyjson_obj_get(root, "yes")));
    yyjson_doc_free(doc);
}

static void test_log__an_event_may_have_no_fields(void **state)
{
    log_configure(LOG_INFO, LOG_LOGFMT, sink[1]);
    log_event(LOG_INFO, "started");
    assert_string_equal(logfmt_rest(), "level=info event=started");
}

static int evaluations;

static const char *counted(const char *text)
{
    evaluations++;
    return text;
}

static void test_log__levels_below_the_configured_are_not_written(void **state)
{
    log_configure(LOG_WARN, LOG_LOGFMT, sink[1]);
    assert_int_equal(log_level(), LOG_WARN);
    evaluations = 0;
    log_event(LOG_DEBUG, "e", LOG_FIELD("k", LOG_TEXT(counted("v"))));
    log_event(LOG_INFO, "e", LOG_FIELD("k", LOG_TEXT(counted("v"))));
    log_write(LOG_INFO, "e", NULL, 0);
    assert_int_equal(evaluations, 0);
    assert_nothing_written();
    log_event(LOG_WARN, "e", LOG_FIELD("k", LOG_TEXT(counted("v"))));
    assert_true(evaluations > 0);
    assert_string_equal(logfmt_rest(), "level=warn event=e k=v");

    log_configure(LOG_DEBUG, LOG_LOGFMT, sink[1]);
    log_event(LOG_DEBUG, "e");
    assert_string_equal(logfmt_rest(), "level=debug event=e");
}

/* Values of every length around the limit (six bytes for one when escaped), so that each border of
 * a cut comes up once. */
static void check_long_lines(enum log_format format, char fill)
{
    static char value[5000];
    memset(value, fill, sizeof(value));
    log_configure(LOG_INFO, format, sink[1]);
    for (size_t length = 0; length < sizeof(value); length++) {
        bool near_limit = (length > 640 && length < 700) || (length > 1990 && length < 2050) ||
                          (length > 3950 && length < 4100);
        if (!near_limit && length % 97 != 0)
            continue;
        log_event(LOG_INFO, "e",
                  LOG_FIELD("v", LOG_SPAN(((struct span){.bytes = value, .length = length}))),
                  LOG_FIELD("last", LOG_TEXT("x y")));
        size_t written = receive_line();
        bool whole = strstr(line, format == LOG_JSON ? "\"last\":\"x y\"" : "last=\"x y\"") != NULL;
        bool cut =
            strstr(line, format == LOG_JSON ? "\"truncated\":true" : " truncated=true") != NULL;
        assert_true(whole != cut);
        assert_true(whole || length > 640);
        if (format == LOG_JSON) {
            yyjson_doc *doc = yyjson_read(line, written, 0);
            assert_non_null(doc);
            yyjson_doc_free(doc);
        }
    }
}

static void test_log__long_lines_are_cut_and_say_so(void **state)
{
    check_long_lines(LOG_LOGFMT, 'a');
    check_long_lines(LOG_LOGFMT, ' ');
    check_long_lines(LOG_LOGFMT, '\x01');
    check_long_lines(LOG_JSON, 'a');
    check_long_lines(LOG_JSON, '"');
    check_long_lines(LOG_JSON, '\x01');
    check_long_lines(LOG_JSON, '\xff');
}

static void test_log__a_cut_last_value_says_so_too(void **state)
{
    static char value[5000];
    memset(value, 'a', sizeof(value) - 1);
    for (int format = LOG_LOGFMT; format <= LOG_JSON; format++) {
        log_configure(LOG_INFO, (enum log_format)format, sink[1]);
        log_event(LOG_INFO, "e", LOG_FIELD("v", LOG_TEXT(value)));
        receive_line();
        assert_non_null(strstr(line, "truncated"));
    }
}

static void test_log__a_sink_that_fails_changes_nothing(void **state)
{
    log_configure(LOG_INFO, LOG_LOGFMT, -1);
    errno = EDOM;
    log_event(LOG_INFO, "e");
    assert_int_equal(errno, EDOM);
}

/* Reads until every line was read or told to be dropped; how many were dropped. */
static uint64_t read_all(int fd, uint64_t lines)
{
    FILE *stream = fdopen(fd, "r");
    uint64_t read_count = 0;
    uint64_t dropped = 0;
    assert_non_null(stream);
    while (read_count + dropped < lines && fgets(line, sizeof(line), stream) != NULL) {
        const char *told = strstr(line, "event=log_dropped lines=");
        if (told != NULL)
            dropped += strtoull(strrchr(told, '=') + 1, NULL, 10);
        else
            read_count++;
    }
    fclose(stream);
    assert_int_equal(read_count + dropped, lines);
    return dropped;
}

static void test_log__a_full_ring_drops_lines_and_tells_how_many(void **state)
{
    (void)state;
    const uint64_t lines = 20000;
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    log_configure(LOG_INFO, LOG_LOGFMT, pipe_fds[1]);
    log_start();
    for (uint64_t i = 0; i < lines; i++) {
        log_event(LOG_INFO, "numbered", LOG_FIELD("number", LOG_I64(i)),
                  LOG_FIELD("words", LOG_TEXT("a line as long as such lines are")));
    }
    uint64_t before = log_dropped();
    assert_true(before > 0);
    /* Nobody reads: this does not wait either. */
    log_flush();
    assert_int_equal(read_all(pipe_fds[0], lines), before);
    log_stop();
    close(pipe_fds[1]);
}

static void test_log__what_was_logged_is_written_when_it_stops(void **state)
{
    (void)state;
    int pipe_fds[2];
    char bytes[16384];
    assert_int_equal(pipe(pipe_fds), 0);
    log_configure(LOG_INFO, LOG_LOGFMT, pipe_fds[1]);
    log_start();
    for (int i = 0; i < 100; i++)
        log_event(LOG_INFO, "numbered", LOG_FIELD("number", LOG_I64(i)));
    log_stop();
    log_event(LOG_INFO, "after");
    ssize_t length = read(pipe_fds[0], bytes, sizeof(bytes) - 1);
    assert_true(length > 0);
    bytes[length] = '\0';
    assert_non_null(strstr(bytes, "number=0\n"));
    assert_non_null(strstr(bytes, "number=99\n"));
    assert_non_null(strstr(bytes, "event=after\n"));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_log__logfmt_writes_plain_words_bare, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__logfmt_quotes_the_rest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__no_value_can_start_a_line_or_a_field, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_log__json_lines_give_the_values_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__an_event_may_have_no_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__levels_below_the_configured_are_not_written,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__long_lines_are_cut_and_say_so, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__a_cut_last_value_says_so_too, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log__a_sink_that_fails_changes_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_log__a_full_ring_drops_lines_and_tells_how_many, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_log__what_was_logged_is_written_when_it_stops, setup,
                                        teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
