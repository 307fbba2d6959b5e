"""dibs rush: a clean drop is proven exact, and every lie about one is found."""

import json
import re
import threading
import time

import pytest

from double import DROP, Double
from harness import expect, run_dibs, wait_until, write_secret

TOTAL, USERS, CONNECTIONS = 40, 100, 16
ADMIN = "admin-token-of-the-rush-test"


def rush(url, *arguments, code=0):
    ended = run_dibs("rush", "--url", url, "--connections", str(CONNECTIONS), "--json", *arguments,
                     timeout_s=60)
    assert ended.returncode == code, ended
    return json.loads(ended.stdout)


def url_of(server):
    return f"http://127.0.0.1:{server.address[1]}"


def verdicts(result):
    return {check["name"]: check["verdict"] for check in result["checks"]}


def is_claim(request):
    return request.line.startswith(b"POST") and b"/claims" in request.line


def broken(server, lie, *arguments, check):
    """Storms a double that tells this lie; that check is broken by it."""
    with Double(server, lie) as double:
        result = rush(double.url, "--total", str(TOTAL), "--users", str(USERS), "--settle", "2s",
                      *arguments, code=3)
    assert result["broken"] and not result["exact"]
    assert verdicts(result)[check] == "broken", result["checks"]
    return result


# --- the truth ---

@pytest.mark.parametrize("shape", [
    [], ["--rate", "2000"], ["--rate", "2000", "--ramp"], ["--bursts", "50", "--every", "50ms"],
    ["--duplicates", "50%"], ["--closed", "--per-user-limit", "3", "--duplicates", "100%"],
    ["--rate", "1000", "--duration", "200ms"],
])
def test_rush__a_clean_drop_is_exact(shared, shape):
    result = rush(url_of(shared), "--total", str(TOTAL), "--users", str(USERS), *shape)
    assert result["exact"] and not result["broken"]
    assert set(verdicts(result).values()) == {"holds"}
    assert result["winners"] == result["rows"] == TOTAL
    assert result["last_row_after_accept_ms"] >= 0
    assert (result["first_seq"], result["last_seq"]) == (1, TOTAL)
    assert result["sold_out"] > 0 and result["unknown"] == 0
    policy = expect(shared.get(f"/v1/policies/{result['policy_id']}"), 200)
    assert policy["state"] == "CLOSED" and policy["issued"] == TOTAL


def test_rush__more_coupons_than_people(shared):
    result = rush(url_of(shared), "--total", "500", "--users", "100")
    assert result["exact"] and result["winners"] == 100 and result["sold_out"] == 0
    assert result["sold_out_after_ms"] is None


def test_rush__a_policy_that_is_there_is_stormed_and_stays(shared):
    policy = shared.create(total=60)["id"]
    for user in range(10):
        shared.win(policy, f"early-{user}")
    result = rush(url_of(shared), "--policy", str(policy), "--users", str(USERS))
    assert result["exact"] and result["winners"] == 50
    assert (result["first_seq"], result["last_seq"]) == (11, 60)
    assert expect(shared.get(f"/v1/policies/{policy}"), 200)["state"] == "SOLD_OUT"


def test_rush__a_rehearsal_leaves_the_policy_alone(shared, tmp_path):
    policy = shared.create(total=30, name="Noon", per_user_limit=2)["id"]
    page = tmp_path / "page.html"
    result = rush(url_of(shared), "--rehearse", "--policy", str(policy), "--users", "90",
                  "--report", str(page))
    assert result["exact"] and result["rehearsal"] and result["winners"] == 30
    assert result["policy_id"] != policy and "Noon" in result["policy_name"]
    assert expect(shared.get(f"/v1/policies/{policy}"), 200)["issued"] == 0
    assert "rehearsed" in page.read_text()


def test_rush__the_page_stands_alone(shared, tmp_path):
    page = tmp_path / "page.html"
    rush(url_of(shared), "--total", "10", "--users", "30", "--report", str(page))
    text = page.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert data["exact"] and sum(data["whole"]["won"]) == 10
    assert sum(data["whole"]["sold_out"]) == 20
    assert data["curve"][0][0] == 0
    # Nothing is loaded from anywhere.
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)\s*=|@import|url\(', text)


def test_rush__words_for_people(shared):
    ended = run_dibs("rush", "--url", url_of(shared), "--total", "10", "--users", "30", "-c", "4")
    assert ended.returncode == 0, ended
    assert ended.stdout.rstrip().endswith("EXACT")
    assert re.search(r"\n  rows +10  the last \d+ ms after the last accept\n", ended.stdout), ended
    assert "won" in ended.stdout and "first come, first served" in ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr


def test_rush__tells_how_late_the_last_row_was(shared):
    """A row that was written years after its claim was accepted."""
    late = []

    def lie(request, reply):
        if request.line.startswith(b"GET") and b"/claims/" in request.line:
            late.append(late[0] if late else request.line)
            if request.line == late[0]:
                reply.body = re.sub(rb'("issued_at":"2)...', rb"\g<1>999", reply.body)
    with Double(shared, lie) as double:
        result = rush(double.url, "--total", str(TOTAL), "--users", str(USERS))
    assert result["last_row_after_accept_ms"] > 3_600_000


def test_rush__several_policies_are_stormed_at_once(shared):
    result = rush(url_of(shared), "--policies", "4", "--total", "40", "--users", "100")
    assert result["exact"] and not result["broken"]
    storms = result["policies"]
    assert len({storm["policy_id"] for storm in storms}) == 4
    for storm in storms:
        assert storm["exact"] and storm["winners"] == storm["rows"] == 40
        assert expect(shared.get(f"/v1/policies/{storm['policy_id']}"), 200)["state"] == "CLOSED"
    ended = run_dibs("rush", "--url", url_of(shared), "--policies", "2", "--total", "5", "-c", "4")
    assert ended.returncode == 0 and ended.stdout.endswith("\n2 policies: EXACT\n"), ended
    assert ended.stdout.count("\nEXACT\n") == 2


def test_rush__none_begins_before_all_can(shared):
    """Each waits until the last policy is there, which here takes its time."""
    order = []

    def note(request, _):
        if is_claim(request):
            order.append("claim")
        elif request.line.startswith(b"POST"):
            if order == ["policy"] * 2:
                double.lock.release()  # Others may claim meanwhile, if they do.
                until = time.monotonic() + 0.5
                while "claim" not in order and time.monotonic() < until:
                    time.sleep(0.01)
                double.lock.acquire()
            order.append("policy")
    with Double(shared, note) as double:
        result = rush(double.url, "--policies", "3", "--total", "5", "--users", "20")
    assert result["exact"]
    assert order[:3] == ["policy"] * 3 and order[3:] == ["claim"] * 60


def test_rush__one_of_several_that_is_broken_breaks_it(shared):
    first = []

    def lie(request, reply):
        if is_claim(request) and reply.status == 201:
            first.append(re.search(rb"/policies/(\d+)/", request.line)[1])
            if b"/%s/" % first[0] in request.line:
                reply.body = re.sub(rb'"seq":\d+', b'"seq":1', reply.body)
    with Double(shared, lie) as double:
        result = rush(double.url, "--policies", "2", "--total", str(TOTAL), "--users", str(USERS),
                      "--settle", "2s", code=3)
    assert result["broken"] and not result["exact"]
    assert {storm["policy_id"]: storm["broken"] for storm in result["policies"]}[int(first[0])]


def test_rush__one_of_several_that_cannot_begin_does_not_hold_up_the_others(shared):
    made = []

    def lie(request, reply):
        if request.line.startswith(b"POST /v1/policies "):
            made.append(request.line)
            if len(made) == 1:
                return DROP
    with Double(shared, lie) as double:
        result = rush(double.url, "--policies", "2", "--total", "5", "--users", "20", code=1)
    assert not result["exact"] and not result["broken"]
    assert sorted(storm is None for storm in result["policies"]) == [False, True]


def test_rush__a_missed_target_exits_4(shared):
    def linger(_request, _answer):
        time.sleep(0.005)  # A fast machine would meet any target that can be set.

    with Double(shared, linger) as double:
        result = rush(double.url, "--total", "10", "--users", "100", "--p99", "1ms", code=4)
    assert result["exact"] and result["target_missed"]


def test_rush__lost_answers_are_looked_up(shared):
    """A reply that never came may have been a win: it is found, and nothing is called broken."""
    count = 0

    def lie(request, _):
        nonlocal count
        count += is_claim(request)
        return DROP if is_claim(request) and count % 10 == 0 else None
    with Double(shared, lie) as double:
        result = rush(double.url, "--total", str(TOTAL), "--users", str(USERS))
        assert result["exact"] and result["winners"] == TOTAL and result["failures"] >= 10
        result = rush(double.url, "--total", str(TOTAL), "--users", str(USERS), "--retry", "5")
        assert result["exact"] and result["winners"] == TOTAL and result["unknown"] == 0


def test_rush__others_who_claim_meanwhile_are_no_breach(shared):
    policy = shared.create(total=200)["id"]
    done = threading.Event()

    def others():
        number = 0
        while not done.is_set():
            shared.claim(policy, f"other-{number}")
            number += 1
    thread = threading.Thread(target=others)
    thread.start()
    try:
        result = rush(url_of(shared), "--policy", str(policy), "--users", "400", "--rate", "1000")
    finally:
        done.set()
        thread.join()
    assert result["exact"], result["checks"]


@pytest.mark.parametrize("arguments", [
    ["--user-audience", "shop"], ["--total", "0"], ["--total", "5", "--policy", "1"], ["--policy", "x"],
    ["--total", "5", "--rate", "10", "--closed"], ["--total", "5", "--duration", "1s"],
    ["--total", "5", "--ramp"], ["--rehearse", "--total", "5"], ["--total", "5", "--at", "noon"],
    ["--total", "5", "--duplicates", "0.1"], ["--total", "5", "--connections", "100000"],
    ["--total", "5", "--rate", "1000000", "--duration", "1h"], ["--total", "5", "-x", "1"],
    ["--total", "5", "--every", "1s"], ["--policy", "1", "--per-user-limit", "2"],
    ["--total", "5", "--at", "2020-01-01T12:00:00+09:00"],
    ["--policy", "1", "--policies", "2"], ["--total", "5", "--policies", "0"],
    ["--total", "5", "--policies", "65"], ["--total", "5", "--policies", "2", "--report", "x.html"],
    ["--total", "5", "--topics", "redis://localhost"],
])
def test_rush__wrong_flags_are_a_usage_error(shared, arguments):
    ended = run_dibs("rush", "--url", url_of(shared), *arguments)
    assert ended.returncode == 2 and ended.stderr and not ended.stdout, ended


def test_rush__a_page_that_cannot_be_written_is_told_before_the_storm(shared, tmp_path):
    policy = shared.create(total=5)["id"]
    ended = run_dibs("rush", "--url", url_of(shared), "--policy", str(policy), "--report",
                     str(tmp_path / "nowhere" / "page.html"))
    assert ended.returncode == 1 and "cannot be written" in ended.stderr, ended
    assert expect(shared.get(f"/v1/policies/{policy}"), 200)["remaining"] == 5


def test_rush__a_drop_that_is_not_open_proves_nothing(shared):
    policy = shared.create(total=5, opens_at="2099-01-01T00:00:00Z")["id"]
    result = rush(url_of(shared), "--policy", str(policy), "--users", "20", code=1)
    assert not result["exact"] and not result["broken"]
    assert verdicts(result)["count"] == "cannot_say"


@pytest.mark.one_server("it is killed")
def test_rush__a_server_that_is_gone_for_good_ends_it(server):
    """Those who still want to press have nobody to connect to."""
    def end_it():
        wait_until(lambda: any(policy["issued"] > 0 for policy in
                               expect(server.get("/v1/policies"), 200)["items"]),
                   "somebody wins", timeout_s=30)
        server.kill()
    thread = threading.Thread(target=end_it)
    thread.start()
    try:
        result = rush(url_of(server), "--total", "100000", "--users", "100000",
                      "--timeout", "1s", "--settle", "1s", code=1)
    finally:
        thread.join()
        server.start()
    assert not result["exact"] and not result["broken"]
    assert result["unknown"] > 0 and verdicts(result)["ledger"] == "cannot_say"


def test_rush__nobody_there(tmp_path):
    ended = run_dibs("rush", "--url", "http://127.0.0.1:1", "--total", "5", folder=tmp_path)
    assert ended.returncode == 1 and "is `dibs serve` running?" in ended.stderr, ended


# --- the lies ---

def test_rush__a_loser_who_is_told_that_they_won(shared):
    told = []

    def lie(request, reply):
        if is_claim(request) and reply.status == 409 and not told:
            told.append(1)
            reply.status = 201
            reply.body = b'{"result":"ISSUED","seq":%d,"nth":1}' % (TOTAL + 1)
    broken(shared, lie, check="count")


def test_rush__a_winner_who_is_told_that_it_is_sold_out(shared):
    told = []

    def lie(request, reply):
        if is_claim(request) and reply.status == 201 and not told:
            told.append(1)
            reply.status = 409
            reply.body = b'{"code":"SOLD_OUT"}'
    result = broken(shared, lie, check="count")
    assert verdicts(result)["ledger"] == "broken"


def test_rush__a_seq_given_twice(shared):
    def lie(request, reply):
        if is_claim(request) and reply.status == 201:
            reply.body = re.sub(rb'"seq":2,', b'"seq":1,', reply.body)
    broken(shared, lie, check="unique")


def test_rush__a_seq_left_out(shared):
    def lie(request, reply):
        if reply.status in (200, 201):
            reply.body = re.sub(rb'"seq":%d,' % TOTAL, b'"seq":%d,' % (TOTAL + 5), reply.body)
    broken(shared, lie, check="dense")


def test_rush__a_user_over_the_limit(shared):
    """The second press of a holder is told a win of its own, which the status confirms."""
    given = []

    def lie(request, reply):
        if is_claim(request) and reply.status == 200 and not given:
            given.append(json.loads(request.body)["user"])
            reply.status = 201
            reply.body = b'{"result":"ISSUED","seq":%d,"nth":2}' % (TOTAL + 1)
    broken(shared, lie, "--duplicates", "100%", check="limit")


def test_rush__winners_who_were_overtaken(shared):
    """Seqs are handed out backwards."""
    def lie(request, reply):
        if reply.status in (200, 201) and b"/claims" in request.line:
            reply.body = re.sub(rb'"seq":(\d+)',
                                lambda m: b'"seq":%d' % (TOTAL + 1 - int(m[1])), reply.body)
    broken(shared, lie, check="order")


def test_rush__sold_out_while_there_is_stock(shared):
    count = 0

    def lie(request, reply):
        nonlocal count
        count += is_claim(request)
        if is_claim(request) and count == 3:
            reply.status = 409
            reply.body = b'{"code":"SOLD_OUT"}'
    broken(shared, lie, check="sold_out")


def test_rush__a_winner_who_is_forgotten(shared):
    def lie(request, reply):
        if is_claim(request) and reply.status == 200:
            reply.status = 409
            reply.body = b'{"code":"SOLD_OUT"}'
    broken(shared, lie, "--duplicates", "100%", check="repeats")


def test_rush__a_repeat_that_is_shown_anothers_claim(shared):
    def lie(request, reply):
        if is_claim(request) and reply.status == 200:
            seq = int(re.search(rb'"seq":(\d+)', reply.body)[1])
            reply.body = re.sub(rb'"seq":\d+', b'"seq":%d' % (seq % TOTAL + 1), reply.body)
    broken(shared, lie, "--duplicates", "100%", check="repeats")


@pytest.mark.parametrize("shown", [
    (404, b'{"code":"NO_CLAIM"}'), (200, b'{"state":"VOID","seq":1,"nth":1,"claims":[]}')])
def test_rush__a_winner_without_a_coupon(shared, shown):
    asked = []

    def lie(request, reply):
        if request.line.startswith(b"GET") and b"/claims/" in request.line:
            asked.append(request.line)
            if request.line == asked[0]:
                seq = re.search(rb'"seq":(\d+)', reply.body)
                reply.status, reply.body = shown
                reply.body = reply.body.replace(b'"seq":1', b'"seq":%s' % seq[1] if seq else b"")
    broken(shared, lie, check="coupons")


def test_rush__numbers_that_do_not_add_up(shared):
    def lie(request, reply):
        if re.match(rb"GET /v1/policies/\d+ ", request.line):
            reply.body = re.sub(rb'"issued":%d' % TOTAL, b'"issued":%d' % (TOTAL - 1), reply.body)
    broken(shared, lie, check="ledger")


def test_rush__an_audit_that_finds_something(shared):
    def lie(request, reply):
        if b"/v1/audit" in request.line:
            reply.body = reply.body.replace(b'"ok":true', b'"ok":false').replace(
                b'"findings":[]', b'"findings":[{"check":"missing","count":3},'
                b'{"check":"remaining","count":500}]')
    result = broken(shared, lie, check="ledger")
    words = {check["name"]: check["detail"] for check in result["checks"]}
    assert words["ledger"] == "the audit finds missing 3, remaining 500"


def test_rush__a_server_that_does_not_tell_is_not_called_broken(shared):
    def lie(request, _):
        return DROP if request.line.startswith(b"GET") and b"/claims/" in request.line else None
    with Double(shared, lie) as double:
        result = rush(double.url, "--total", "10", "--users", "20", "--settle", "1s", code=1)
    assert not result["exact"] and not result["broken"]
    assert verdicts(result)["coupons"] == "cannot_say"


# --- real settings ---

def test_rush__bare_it_storms_the_server_of_this_machine(shared):
    """Without a word about what: a policy of its own, at the usual size."""
    result = rush(url_of(shared))
    assert result["exact"] and result["winners"] == 1000 and result["users"] == 2000


def test_rush__signs_its_users_tokens(serve, tmp_path):
    key = write_secret(tmp_path, "key", b"a key of the users' tokens, of 32 bytes and more\n")
    server = serve(config={"user_key_file": key, "user_audience": "shop",
                           "admin_token_file": write_secret(tmp_path, "admin", ADMIN)})
    url, env = url_of(server), {"DIBS_ADMIN_TOKEN": ADMIN}
    told = run_dibs("rush", "--url", url, env=env)
    assert told.returncode == 1 and "--user-key-file" in told.stderr, told

    def storm(key_file, *more, code):
        ended = run_dibs("rush", "--url", url, "--connections", "8", "--json", "--total", "40",
                         "--users", "100", "--user-key-file", key_file, *more, env=env)
        assert ended.returncode == code, ended
        return json.loads(ended.stdout) if ended.stdout else ended.stderr

    result = storm(key, "--user-audience", "shop", code=0)
    assert result["exact"] and result["winners"] == 40 and result["refusals"] == {}
    # Why they are refused, and how many.
    refused = storm(key, code=1)
    assert refused["refusals"] == {"401 UNAUTHORIZED": 100}
    assert refused["winners"] == 0
    short = write_secret(tmp_path, "short", "short")
    assert "32" in storm(short, code=1)


def test_rush__says_why_presses_were_refused(serve):
    server = serve()
    policy = server.create(total=10)["id"]
    expect(server.patch(policy, paused=True), 200)
    result = run_dibs("rush", "--url", url_of(server), "--policy", policy, "--users", "20")
    assert re.search(r"refused +20\n +20  403 PAUSED\n", result.stdout), result.stdout
