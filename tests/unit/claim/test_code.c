/* test_code.c: ids and codes there and back, and what is neither. */
#include "shop.h"

#include "base/hash.h"
#include "claim/code.h"

static int set_up(void **state)
{
    int failed = shop_set_up(state);
    struct shop *shop = *state;
    shop->options.has_code_key = true;
    shop->options.code_key = (struct hash_key){.k0 = 1, .k1 = 2};
    shop_restart(shop);
    return failed;
}

static struct span code_of(struct shop *shop, int64_t policy_id, int64_t seq, struct buffer *out)
{
    buffer_clear(out);
    code_append(out, shop->service, policy_id, seq);
    return (struct span){.bytes = out->bytes, .length = out->length};
}

static void test_code__there_and_back(void **state)
{
    static const int64_t numbers[] = {1, 9, 10, 42, POLICY_ID_MAX};
    struct shop *shop = *state;
    struct buffer out;

    buffer_init(&out, CODE_SIZE);
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 5; j++) {
            int64_t policy_id = 0;
            int64_t seq = 0;
            struct span code = code_of(shop, numbers[i], numbers[j], &out);
            assert_int_equal(code_parse(shop->service, code, &policy_id, &seq), CODE_FULL);
            assert_int_equal(policy_id, numbers[i]);
            assert_int_equal(seq, numbers[j]);
            code.length -= CODE_MAC_LENGTH + 1;
            assert_int_equal(code_parse(shop->service, code, &policy_id, &seq), CODE_ID);
            assert_int_equal(policy_id, numbers[i]);
            assert_int_equal(seq, numbers[j]);
        }
    }
    buffer_release(&out);
}

/* Every single character counts, in either case. */
static void test_code__one_wrong_character(void **state)
{
    struct shop *shop = *state;
    struct buffer out;
    char text[CODE_SIZE];
    int64_t policy_id = 0;
    int64_t seq = 0;

    buffer_init(&out, CODE_SIZE);
    struct span code = code_of(shop, 42, 17, &out);
    struct span given = {.bytes = text, .length = code.length};
    for (size_t i = code.length - CODE_MAC_LENGTH; i < code.length; i++) {
        memcpy(text, code.bytes, code.length);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        assert_int_equal(code_parse(shop->service, given, &policy_id, &seq), CODE_WRONG);
    }
    memcpy(text, code.bytes, code.length);
    for (size_t i = 0; i < code.length; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            text[i] = (char)(text[i] - 'A' + 'a');
    assert_int_equal(code_parse(shop->service, given, &policy_id, &seq), CODE_FULL);
    memcpy(text, code.bytes, code.length);
    text[1] = '3'; /* the code of 42-17 is not the code of 43-17 */
    assert_int_equal(code_parse(shop->service, given, &policy_id, &seq), CODE_WRONG);
    buffer_release(&out);
}

static void test_code__neither(void **state)
{
    static const char *const texts[] = {
        "",
        "-",
        "42",
        "42-",
        "-17",
        "42-17-",
        "42-17-ABC",
        "42-17-ABCDEFGHJ",
        "042-17",
        "42-017",
        "0-17",
        "42-0",
        "+42-17",
        "42--17",
        "42-17 ",
        " 42-17",
        "42_17",
        "42-17x",
        "9007199254740992-1",
        "42-9223372036854775808",
        "99999999999999999999999-1",
        "42-17-ABCDEFGH-",
    };
    struct shop *shop = *state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int64_t policy_id = 0;
        int64_t seq = 0;
        if (code_parse(shop->service, span_of(texts[i]), &policy_id, &seq) != CODE_INVALID)
            fail_msg("\"%s\" was taken", texts[i]);
    }
}

/* Made with a key: another key makes other codes; the ledger's own key stays the same. */
static void test_code__depends_on_the_key(void **state)
{
    struct shop *shop = *state;
    struct buffer out;
    struct buffer other;
    int64_t policy_id = 0;
    int64_t seq = 0;

    buffer_init(&out, CODE_SIZE);
    buffer_init(&other, CODE_SIZE);
    struct span first = code_of(shop, 1, 1, &out);
    shop->options.has_code_key = false;
    shop_restart(shop);
    assert_int_equal(code_parse(shop->service, first, &policy_id, &seq), CODE_WRONG);
    struct span kept = code_of(shop, 1, 1, &other);
    shop_restart(shop);
    assert_int_equal(code_parse(shop->service, kept, &policy_id, &seq), CODE_FULL);
    buffer_release(&out);
    buffer_release(&other);
}

/* All 32 letters in all places but the last, which has the four bits that are left, and no two of
 * many codes alike: 64 bits, not fewer. */
static void test_code__uses_all_its_bits(void **state)
{
    enum { COUNT = 2000 };
    struct shop *shop = *state;
    static char macs[COUNT][CODE_MAC_LENGTH];
    uint64_t seen[CODE_MAC_LENGTH][2] = {{0}};
    struct buffer out;

    buffer_init(&out, CODE_SIZE);
    for (int i = 0; i < COUNT; i++) {
        struct span code = code_of(shop, 7, i + 1, &out);
        memcpy(macs[i], code.bytes + code.length - CODE_MAC_LENGTH, CODE_MAC_LENGTH);
        for (int j = 0; j < CODE_MAC_LENGTH; j++)
            seen[j][macs[i][j] / 64] |= UINT64_C(1) << (macs[i][j] % 64);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(macs[i], macs[j], CODE_MAC_LENGTH);
    }
    for (int j = 0; j < CODE_MAC_LENGTH; j++)
        assert_int_equal(__builtin_popcountll(seen[j][0]) + __builtin_popcountll(seen[j][1]),
                         j < CODE_MAC_LENGTH - 1 ? 32 : 16);
    buffer_release(&out);
}

/* The policy, the process and the version do not matter: it is kept as long as the policy. */
static void test_code__request_ids_of_keys(void **state)
{
    static const unsigned char known[] = {0xc4, 0x47, 0xba, 0xd5, 0x4c, 0x22, 0xf8, 0x9f,
                                          0x6c, 0xe4, 0x17, 0x92, 0xc4, 0x37, 0x2d, 0xc0};
    struct id ann = id_of(SPAN("ann"));
    struct id shorter = id_of(SPAN("an"));
    struct request_id one = request_id_of_key(&ann, SPAN("order-1"));
    struct request_id same = request_id_of_key(&ann, SPAN("order-1"));
    struct request_id other = request_id_of_key(&ann, SPAN("order-2"));
    struct request_id theirs = request_id_of_key(&shorter, SPAN("order-1"));
    struct request_id shifted = request_id_of_key(&shorter, SPAN("norder-1"));

    (void)state;
    assert_true(request_id_is_keyed(&one));
    assert_true(request_id_is_keyed(&other));
    assert_memory_equal(&one, &same, sizeof(one));
    assert_memory_not_equal(&one, &other, sizeof(one));
    assert_memory_not_equal(&one, &theirs, sizeof(one));
    assert_memory_not_equal(&one, &shifted, sizeof(one));
    assert_memory_equal(one.bytes, known, sizeof(known));
}

int main(void)
{
#define CODE_TEST(name) cmocka_unit_test_setup_teardown(test_code__##name, set_up, shop_tear_down)
    const struct CMUnitTest tests[] = {
        CODE_TEST(there_and_back),    CODE_TEST(one_wrong_character),
        CODE_TEST(neither),           CODE_TEST(depends_on_the_key),
        CODE_TEST(uses_all_its_bits), CODE_TEST(request_ids_of_keys),
    };
    return cmocka_run_group_tests_name("code", tests, NULL, NULL);
}
