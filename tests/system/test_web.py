"""The pages as they go over the wire: what they are made of, how they are kept, what they allow."""

import gzip
import json
import re
import subprocess

import pytest

from harness import expect, run_dibs, write_secret

CSP = {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'",
    "img-src": "'self' data:", "connect-src": "'self'", "form-action": "'self'",
    "base-uri": "'none'", "frame-ancestors": "'none'",
}
SHELLS = ["/", "/docs", "/drop/1"]
WIRE_BYTES_MAX = 200_000
ASSET_NAME = re.compile(r"[\w.-]+-[A-Z0-9]{8}\.(?:js|css|svg|png|woff2)")


def fetch(server, path, method="GET", **headers):
    with server.connect() as connection:
        return connection.request(method, path, None,
                                  {name.replace("_", "-"): value for name, value in headers.items()})


def assets_of(server):
    """Every asset that the shells name, and what these name, by name."""
    found = {}
    texts = [fetch(server, path).body.decode() for path in SHELLS]
    while texts:
        for name in set(ASSET_NAME.findall(texts.pop())) - set(found):
            found[name] = fetch(server, f"/assets/{name}")
            assert found[name].status == 200, name
            if name.endswith(("js", "css")):
                texts.append(found[name].body.decode())
    return found


def unpack(answer):
    coding = answer.headers.get("content-encoding")
    if coding == "gzip":
        return gzip.decompress(answer.body)
    if coding == "br":
        done = subprocess.run(
            ["node", "-e", "process.stdin.pipe(require('zlib').createBrotliDecompress())"
                           ".pipe(process.stdout)"],
            input=answer.body, capture_output=True, check=True, timeout=30)
        return done.stdout
    assert coding is None
    return answer.body


@pytest.mark.parametrize("path", SHELLS)
def test_web__a_shell_lets_nothing_in_from_elsewhere(shared, path):
    answer = fetch(shared, path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1)
                  for part in answer.headers["content-security-policy"].split(";"))
    assert policy == CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    text = answer.body.decode()
    # What the policy would block anyway must not be there in the first place.
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|https?://", text)


def test_web__a_shell_is_asked_for_again_and_an_asset_never(shared):
    assert fetch(shared, "/").headers["cache-control"] == "no-cache"
    assets = assets_of(shared)
    assert any(name.endswith(".js") for name in assets)
    assert any(name.endswith(".css") for name in assets)
    types = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
             "svg": "image/svg+xml", "png": "image/png", "woff2": "font/woff2"}
    for name, answer in assets.items():
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == types[name.rsplit(".", 1)[1]]
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", SHELLS)
def test_web__an_etag_is_of_one_form(shared, path):
    etags = set()
    for accept in ("identity", "gzip", "br"):
        full = fetch(shared, path, Accept_Encoding=accept)
        assert full.headers["vary"] == "Accept-Encoding"
        etag = full.headers["etag"]
        assert etag not in etags
        etags.add(etag)
        for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
            again = fetch(shared, path, Accept_Encoding=accept, If_None_Match=known)
            assert (again.status, again.body) == (304, b"")
            assert again.headers["etag"] == etag
            assert again.headers["vary"] == "Accept-Encoding"
            assert again.headers["cache-control"] == "no-cache"
            assert again.headers["content-security-policy"]
        changed = fetch(shared, path, Accept_Encoding=accept, If_None_Match='"other"')
        assert (changed.status, changed.body) == (200, full.body)
    other_form = fetch(shared, path, Accept_Encoding="identity",
                       If_None_Match=fetch(shared, path, Accept_Encoding="gzip").headers["etag"])
    assert other_form.status == 200


def test_web__every_form_unpacks_to_the_same(shared):
    for path in SHELLS:
        plain = fetch(shared, path)
        assert "content-encoding" not in plain.headers
        for accept, coding in (("gzip, deflate, br", "br"), ("gzip", "gzip"), ("br;q=0, *", "gzip"),
                               ("identity, br;q=0.1", None), ("", None), ("deflate", None)):
            answer = fetch(shared, path, Accept_Encoding=accept)
            assert answer.headers.get("content-encoding") == coding, accept
            assert int(answer.headers["content-length"]) == len(answer.body)
            assert unpack(answer) == plain.body


def test_web__head_is_get_without_the_body(shared):
    paths = SHELLS + [f"/assets/{name}" for name in list(assets_of(shared))[:1]]
    for path in paths:
        full = fetch(shared, path, Accept_Encoding="gzip")
        head = fetch(shared, path, "HEAD", Accept_Encoding="gzip")
        assert (head.status, head.body) == (200, b"")
        for name in set(full.headers) - {"date", "x-request-id"}:
            assert head.headers[name] == full.headers[name]


def test_web__all_of_it_is_small(shared):
    total = sum(len(fetch(shared, path, Accept_Encoding="gzip, br").body) for path in SHELLS)
    assets = assets_of(shared)
    for name in assets:
        total += len(fetch(shared, f"/assets/{name}", Accept_Encoding="gzip, br").body)
    print(f"{len(assets)} assets, {total} bytes over the wire")
    assert total < WIRE_BYTES_MAX


def test_web__the_pages_need_no_token_and_show_nothing(serve, tmp_path):
    server = serve(config={"admin_token_file": write_secret(tmp_path, "admin", "a" * 32)})
    server.admin_token = "a" * 32
    server.create(id=77, name="Hidden from the shell")
    for path in ("/", "/drop/77", "/drop/78"):
        answer = fetch(server, path)
        assert answer.status == 200
        assert b"Hidden" not in answer.body


SHOP = {"name": "하늘 \"상점\"", "url": "https://shop.example/", "colour": "#1f8a55", "logo": "logo.svg",
        "icon": "icon.svg", "description": "Coupons & more", "coupons_come_back": True}


def test_web__the_storefront_is_the_shops(serve, tmp_path):
    (tmp_path / "logo.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' id='i'/>")
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(SHOP))
    server = serve(config={"shop_file": path})
    shop = expect(server.get("/v1/session"), 200)["shop"]
    assert (shop["name"], shop["url"], shop["terms_url"]) == (SHOP["name"], SHOP["url"], None)
    assert shop["coupons_come_back"] is True and shop["look_again_at"] is None
    page = fetch(server, "/drop/1").body.decode()
    assert '<meta property="og:site_name" content="하늘 &quot;상점&quot;">' in page
    assert '<meta property="og:description" content="Coupons &amp; more">' in page
    icon, = re.findall(r'<link rel="icon" href="(/assets/shop-[0-9a-f]{16}\.svg)">', page)
    for picture in (icon, shop["logo"]):
        answer = fetch(server, picture)
        assert (answer.status, answer.headers["content-type"]) == (200, "image/svg+xml")
        # It is a picture, and never runs.
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.count("<title>") == 1 and "src=\"/assets/drop-" in page
    assert "<title>dibs</title>" in fetch(server, "/").body.decode()


@pytest.mark.parametrize("change,words", [
    ({"name": ""}, "name: must be"), ({"colour": "red"}, "colour: must be as in"),
    ({"url": "javascript:alert(1)"}, "url: must begin with"), ({"logo": "../x.svg"}, "logo: must be"),
    ({"logo": "none.svg"}, "none.svg: cannot be opened"), ({"motto": "x"}, "motto: is not a known"),
])
def test_web__a_shop_file_that_is_wrong_is_named(tmp_path, change, words):
    path = tmp_path / "shop.json"
    path.write_text(json.dumps({"name": "shop", **change}))
    ended = run_dibs("serve", "--listen", "127.0.0.1:0", "--ledger", f"sqlite:{tmp_path}/d.db",
                     "--shop-file", str(path))
    assert ended.returncode in (1, 2) and words in ended.stderr, ended
