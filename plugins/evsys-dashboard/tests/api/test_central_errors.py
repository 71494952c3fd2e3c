"""Messages of `--central` if there is no server to ask, or one that answers otherwise than expected."""

import gzip
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from command_line import evsys

from evsys_runtime import central

KEY = "evk_0123456789_secret"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("EVSYS_API_PROJECT", raising=False)
    monkeypatch.setenv("EVSYS_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)


@contextmanager
def server(answer):
    """A server whose answers a function makes: status, headers, and the parts of the body; its address and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            if self.path.endswith("/health"):
                status, headers, parts = 200, {"Content-Type": "application/json"}, [b'{"version": "0.0.9"}']
            else:
                status, headers, parts = answer(self)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            for part in parts:
                self.wfile.write(part)
            self.close_connection = True

        def log_message(self, *_):
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}", asked
    finally:
        found.shutdown()
        found.server_close()


def json_of(status, tree):
    return lambda _: (status, {"Content-Type": "application/json"}, [json.dumps(tree).encode()])


def refusal(status, message, hint=None):
    return json_of(status, {"error": {"message": message, "hint": hint}})


def invoke(monkeypatch, url, *arguments):
    if url is None:
        monkeypatch.delenv("EVSYS_API_URL", raising=False)
    else:
        monkeypatch.setenv("EVSYS_API_URL", url)
    done = evsys(*(arguments or ("next", "--central")))
    assert KEY not in done.out + done.err
    return done


def asked_of(monkeypatch, answer, *arguments):
    with server(answer) as (url, _):
        return invoke(monkeypatch, url, *arguments)


def test_the_variables_that_are_not_set_are_named(monkeypatch):
    done = invoke(monkeypatch, None)
    assert (done.code, done.out) == (2, "")
    assert "--central: EVSYS_API_URL is not set" in done.err
    monkeypatch.delenv("EVSYS_API_KEY")
    assert "EVSYS_API_URL and EVSYS_API_KEY are not set" in invoke(monkeypatch, None).err
    assert "EVSYS_API_KEY is not set" in invoke(monkeypatch, "http://127.0.0.1:1").err


@pytest.mark.parametrize(
    "command",
    [("context",), ("history",), ("next",), ("show", "x"), ("why",), ("compare", "x", "y"), ("plot", "x")],
)
def test_records_and_central_exclude_each_other(monkeypatch, tmp_path, command):
    done = invoke(monkeypatch, "http://127.0.0.1:1", *command, "--central", "--records", str(tmp_path))
    assert "--central and --records exclude each other" in done.err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host", "is not the address of a server"),
        ("http://", "is not the address of a server"),
        ("http://user:secret@host", "EVSYS_API_URL holds no key"),
        ("http://host/?key=secret", "EVSYS_API_URL holds no key"),
        ("http://host:notaport", "is not the address of a server"),
    ],
)
def test_an_address_that_is_none_is_refused(monkeypatch, url, message):
    done = invoke(monkeypatch, url)
    assert (done.code, message in done.err) == (2, True), done.err


def test_a_server_that_is_down_is_named(monkeypatch):
    with server(json_of(200, {})) as (url, _):
        pass
    done = invoke(monkeypatch, url)
    assert done.code == 1
    assert f"{url} can't be reached: " in done.err


def test_a_server_that_does_not_answer_is_waited_for_until_the_deadline(monkeypatch):
    monkeypatch.setattr(central, "SECONDS", 0.2)
    over = threading.Event()

    def drip(_):
        def parts():
            while not over.wait(0.05):
                yield b" "

        return 200, {"Content-Type": "application/json"}, parts()

    for answer in (drip, lambda _: over.wait(30) or (200, {}, [])):
        over.clear()
        with server(answer) as (url, _):
            done = invoke(monkeypatch, url)
            over.set()
        assert f"{url} doesn't answer within 0.2 seconds" in done.err


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (refusal(401, "the key isn't valid", "ask for a key"), 2, "refuses the key in EVSYS_API_KEY: the key isn't valid"),
        (refusal(403, "the key doesn't grant 'read' here"), 2, "the key doesn't grant 'read' here"),
        (refusal(400, "there is no experiment 'x' in lab"), 2, "there is no experiment 'x' in lab"),
        (refusal(404, "Not Found"), 2, "the server has version 0.0.9, this is version"),
        (refusal(429, "too many requests"), 1, "answers 429: too many requests"),
        (refusal(500, "a record can't be read"), 1, "answers 500: a record can't be read"),
        (json_of(200, {"total": 1, "steps": [], "more": 2}), 1, "the server has version 0.0.9, this is version"),
        (json_of(200, [1]), 1, "doesn't answer as an evsys dashboard does (200, application/json)"),
        (lambda _: (200, {"Content-Type": "application/json"}, [b"{" * 100_000]), 1, "doesn't answer as an evsys dashboard"),
        (lambda _: (200, {"Content-Type": "text/html"}, [b"<html>Sign in</html>"]), 1, "does (200, text/html)"),
        (lambda _: (502, {"Content-Type": "text/html"}, [b"<html>Bad gateway"]), 1, "does (502, text/html)"),
        (lambda _: (302, {"Location": "https://elsewhere/"}, []), 1, "it names https://elsewhere/"),
        (lambda _: (200, {"Content-Length": "100", "Content-Type": "application/json"}, [b"{}"]), 1, "can't be reached"),
        (lambda _: (200, {"Content-Encoding": "gzip"}, [gzip.compress(b"x" * 99)[:16]]), 1, "can't be reached"),
        (lambda _: (200, {"Content-Encoding": "gzip"}, [b"no gzip"]), 1, "can't be reached"),
    ],
)  # fmt: skip
def test_any_other_answer_is_said_in_one_message(monkeypatch, answer, code, message):
    done = asked_of(monkeypatch, answer)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_an_answer_is_read_no_further_than_its_bound(monkeypatch):
    monkeypatch.setattr(central, "MOST_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * (8 << 20))
    for answer in (
        lambda _: (200, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, [bomb]),
        lambda _: (200, {"Content-Type": "application/json"}, [b" " * 65536] * 17),
    ):
        assert "its answer has more than 1 MiB" in asked_of(monkeypatch, answer).err


def test_the_key_travels_in_the_header_and_through_the_proxy_of_the_environment(monkeypatch):
    with server(json_of(200, {"total": 0, "steps": []})) as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy.replace("//", "//me:word@"))
        monkeypatch.setenv("no_proxy", "")
        done = invoke(monkeypatch, "http://central.invalid/evsys/")
    assert done.code == 0, done.err
    (path, headers), *_ = asked
    assert path == "http://central.invalid/evsys/api/v1/projects/-/memory/next?limit=10"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Proxy-Authorization"] == "Basic bWU6d29yZA=="


def test_a_file_outside_of_the_record_is_not_written(monkeypatch, tmp_path):
    listing = {"experiment_id": "one", "files": [{"path": "../../outside", "bytes": 3}]}
    done = asked_of(monkeypatch, json_of(200, listing), "plot", "one", "--central")
    assert "which isn't a file of a record" in done.err
    assert not (tmp_path / "plots").exists()
