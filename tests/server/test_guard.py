"""Security: hosts, origins, CSRF, API key, sizes. Each rule with its inverse."""

import json

import pytest
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL

from peasy.errors import UsageError
from peasy.server import guard as guards
from peasy.server.app import build_app
from peasy.server.guard import Guard, is_loopback
from peasy.server.model_registry import ModelRegistry

EXPLAIN = {"source": "i-love-ai"}


@pytest.fixture(scope="module")
def studio():
    with TestClient(build_app(ModelRegistry(), pages=True), base_url=LOCAL) as client:
        yield client


@pytest.fixture(scope="module")
def locked():
    with TestClient(build_app(ModelRegistry(), pages=False, api_key="s3cret"), base_url=LOCAL) as client:
        yield client


@pytest.mark.parametrize("host", ["evil.com", "localhost.evil.com", "10.0.0.1", "", "a@localhost"])
def test_unknown_hosts_are_refused(studio, host, monkeypatch):
    assert studio.get("/health", headers={"host": host}).status_code == 421
    assert studio.post("/api/explain", json=EXPLAIN, headers={"host": host}).status_code == 421
    monkeypatch.setattr(Guard, "_check_host", lambda *_: None)
    assert studio.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "LOCALHOST"])
def test_loopback_hosts_are_accepted(studio, host):
    assert studio.get("/health", headers={"host": host}).status_code == 200


FOREIGN = [
    {"origin": "http://evil.com"},
    {"origin": "null"},
    {"origin": "http://localhost:1234"},
    {"origin": "https://localhost.evil.com"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_cross_site_requests_are_refused(studio, headers, monkeypatch):
    word = {"cookie": f"peasy={studio.app.state.guard.csrf_token}"}
    for method, path in (("GET", "/health"), ("GET", "/v1/models"), ("POST", "/api/explain"), ("GET", "/openapi.json")):
        assert studio.request(method, path, json=EXPLAIN, headers=headers | word).status_code == 403
    monkeypatch.setattr(Guard, "_check_origin", lambda *_: None)
    assert studio.post("/api/explain", json=EXPLAIN, headers=headers).status_code == 200


def test_cross_site_navigation_is_allowed(studio):
    arriving = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert studio.get("/look?t=hello", headers=arriving).status_code == 200


def test_csrf_cookie_is_required(studio):
    studio.cookies.clear()
    ours = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert studio.post("/api/explain", json=EXPLAIN, headers=ours).status_code == 403
    assert studio.post("/api/explain", json=EXPLAIN, headers=ours | {"cookie": "peasy=wrong"}).status_code == 403
    cookie = studio.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert studio.post("/api/explain", json=EXPLAIN, headers=ours).status_code == 200
    studio.cookies.clear()


def test_cross_site_forms_are_refused(studio):
    """A form can send text or files cross-site without preflight; none is accepted."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        for headers in ({"origin": "http://evil.com"}, {}):
            sent = studio.post("/api/explain", content=json.dumps(EXPLAIN), headers={"content-type": kind} | headers)
            assert sent.status_code in (400, 403)


def test_every_route_but_health_needs_the_key(locked):
    assert locked.get("/health").status_code == 200
    for route in locked.app.routes:
        for method in getattr(route, "methods", None) or ():
            path = route.path.replace("{name:path}", "x")
            if path != "/health" and method != "HEAD":
                assert locked.request(method, path, json={}).status_code == 401, path
    assert locked.get("/nowhere").status_code == 401


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Bearer s3cre", "Bearer s3crett", "Basic s3cret"])
def test_wrong_keys_are_refused(locked, given):
    found = locked.get("/v1/models", headers={"authorization": given})
    assert found.status_code == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert found.json()["error"]["type"] == "authentication_error"


def test_the_right_key_is_accepted(locked, monkeypatch):
    assert locked.get("/v1/models", headers={"authorization": "Bearer s3cret"}).status_code == 200
    assert locked.post("/api/explain", json=EXPLAIN, headers={"authorization": "bearer s3cret"}).status_code == 200
    monkeypatch.setattr(Guard, "_check_key", lambda *_: None)
    assert locked.get("/v1/models").status_code == 200


def test_keys_are_compared_in_constant_time(locked, monkeypatch):
    compared = []
    monkeypatch.setattr(guards.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert locked.get("/v1/models", headers={"authorization": "Bearer abc"}).status_code == 401
    assert compared == [(b"abc", b"s3cret")]


def test_keys_must_fit_in_a_header():
    for key in ("", " x", "ü", "a\nb"):
        with pytest.raises(UsageError):
            Guard(key)


def test_large_bodies_are_refused(studio, monkeypatch):
    worked = []
    monkeypatch.setattr("peasy.server.routes.commands.explain", lambda *a, **k: worked.append(a))
    large = json.dumps({"source": "a b " * 300_000}).encode()
    assert studio.post("/api/explain", content=large, headers={"content-type": "application/json"}).status_code == 413
    pieces = (large[i : i + 1000] for i in range(0, len(large), 1000))  # without a length beforehand
    assert studio.post("/api/explain", content=pieces, headers={"content-type": "application/json"}).status_code == 413
    assert not worked


def test_without_limits_large_bodies_are_read(studio, monkeypatch):
    monkeypatch.setattr(studio.app.state.guard, "max_body_bytes", 10**9)
    large = {"source": "a b " * 300_000}
    assert "characters" in studio.post("/api/explain", json=large).json()["error"]["message"]  # it was read


@pytest.mark.parametrize("path", ["/", "/look", "/nowhere", "/api/explain", "/v1/models", "/health"])
def test_security_headers(studio, path):
    headers = studio.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


TRAVERSAL = [
    "/../app.py", "/..%2fapp.py", "/%2e%2e/app.py", "/web/render/../../html.py", "/web/render/..%2f..%2fhtml.py",
    "//etc/passwd", "/etc/passwd", "/web//etc/passwd", "/web/render/%00", "/..\\app.py", "/app.py",
    "/__init__.py", "/web/render/__init__.py", "/.git/config",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSAL)
def test_path_traversal_is_refused(studio, path):
    found = studio.get(path)
    assert found.status_code == 404
    assert "import" not in found.text
    assert "root:" not in found.text


def test_media_types_of_files(studio):
    for path, kind in (
        ("/", "text/html"), ("/shell.js", "text/javascript"), ("/studio.css", "text/css"),
        ("/icon.svg", "image/svg+xml"), ("/web/render/maps.js", "text/javascript"), ("/web/style.css", "text/css"),
    ):  # fmt: skip
        assert studio.get(path).headers["content-type"].startswith(kind), path


def test_is_loopback():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "")] == [False] * 5


def test_ip_hosts_are_allowed_but_names_must_be_listed():
    app = build_app(ModelRegistry(), pages=False, api_key="k", allowed_hosts=("me.local",), allow_ip_hosts=True)
    with TestClient(app, base_url=LOCAL) as client:
        for host, status in (("10.1.2.3:80", 200), ("[fe80::1]:80", 200), ("me.local", 200), ("evil.com", 421)):
            assert client.get("/health", headers={"host": host}).status_code == status
