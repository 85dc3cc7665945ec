"""The server withstands slow and greedy clients, odd headers and bundles, truncated files."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
import uvicorn
from anyio import CapacityLimiter
from fastapi.testclient import TestClient

from loger.web import launch, service
from loger.web.app import create_app
from loger.web.config import PREFIX, ServeConfig, claimed_folder, clear_abandoned
from loger.web.guard import at_most, is_expensive, place
from loger.web.problems import ProblemError


@pytest.fixture(scope="module")
def port(bundle: Path) -> Iterator[int]:
    """A server with short deadlines, in this process."""
    patch = pytest.MonkeyPatch()
    patch.setattr(launch, "SECONDS", 0.4)
    patch.setattr(launch, "MAX_OF_CLIENT", 5)
    app = create_app(ServeConfig(str(bundle), watch=0))
    with running(app) as number:
        yield number
    patch.undo()


@contextmanager
def running(app: object) -> Iterator[int]:
    """A server over an app, by its port."""
    config = uvicorn.Config(app, port=0, http=launch.TimedProtocol, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def talk(port: int, text: bytes) -> tuple[bytes, float]:
    """What the server says until it closes, and after how many seconds it did."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(text)
        answer = b""
        while part := line.recv(65536):
            answer += part
    return answer, time.monotonic() - begun


HALF = {
    "nothing": b"",
    "half of the headers": b"GET /v1/health HTTP/1.1\r\nHost: loc",
    "half of a body": b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 50\r\n\r\n{",
    "half of a chunk": b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n50\r\n{",
}


@pytest.mark.parametrize("text", HALF.values(), ids=HALF)
def test_a_request_that_does_not_end_is_ended(port: int, text: bytes) -> None:
    answer, seconds = talk(port, text)
    assert answer.startswith(b"HTTP/1.1 408")
    assert 0.3 < seconds < 5


def test_bytes_that_trickle_in_do_not_move_the_deadline(port: int) -> None:
    begun = time.monotonic()
    text = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 200
    line = socket.create_connection(("127.0.0.1", port), timeout=10)
    with line, pytest.raises(OSError):
        for letter in text:
            line.sendall(bytes([letter]))
            time.sleep(0.05)
    assert time.monotonic() - begun < 5


def test_one_address_has_so_many_connections_and_no_more(port: int) -> None:
    lines = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(5)]
    try:
        one_more = socket.create_connection(("127.0.0.1", port), timeout=5)
        with one_more, suppress(ConnectionResetError):
            assert one_more.recv(1) == b""
    finally:
        for line in lines:
            line.close()


CHUNKED = b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BLANKS = b" " * 60_000
LONG = {
    "a header of blanks": b"GET / HTTP/1.1\r\nHost: localhost\r\nX:" + BLANKS + b"\0\r\n\r\n",
    "blanks after a header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a" + BLANKS + b"\0\r\n\r\n",
    "words": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a " * 30_000 + b"\0\r\n\r\n",
    "a chunk extension of blanks": CHUNKED + b"5;" + BLANKS + b"\nx\r\nhello\r\n0\r\n\r\n",
    "a trailer of blanks": CHUNKED + b"0\r\nX:" + BLANKS + b"\0\r\n\r\n",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_line_that_is_wrong_at_its_far_end_is_refused_at_once(port: int, text: bytes) -> None:
    answer, seconds = talk(port, text)
    assert answer.startswith(b"HTTP/1.1 4")
    assert seconds < 1


ENDLESS = {
    "a header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000,
    "headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 40_000,
    "an address": b"GET /" + b"a" * 200_000,
    "trailers": CHUNKED + b"0\r\n" + b"X: a\r\n" * 40_000,
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_headers_that_do_not_end_are_refused_before_the_deadline(port: int, text: bytes) -> None:
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        with suppress(OSError):  # it may be closed while we still send
            line.sendall(text)
        with suppress(OSError):
            assert line.recv(65536)[:12] in (b"HTTP/1.1 400", b"")
    assert time.monotonic() - begun < 0.35


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[k : k + size] for k in range(0, len(body), size)]
    head = b"POST /v1/recommendations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def test_a_body_in_thousands_of_tiny_chunks_is_refused(port: int, model) -> None:
    body = json.dumps({"user": model.users[0]}).encode()
    assert talk(port, chunked(body + b" " * 900, 1))[0].startswith(b"HTTP/1.1 200")
    assert talk(port, chunked(body + b" " * 60_000, 64))[0].startswith(b"HTTP/1.1 200")
    answer, _ = talk(port, chunked(body + b" " * 5_000, 1))  # though all that matters is there
    assert answer.startswith(b"HTTP/1.1 400") and b"too small" in answer


async def long_answers(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 60_000})


def test_a_client_that_does_not_read_is_cut_off(monkeypatch, caplog) -> None:
    monkeypatch.setattr(launch, "SECONDS", 0.4)
    monkeypatch.setattr(launch, "MIN_RATE", 2**30)
    with running(long_answers) as port, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(10)
        line.connect(("127.0.0.1", port))
        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        time.sleep(2)
        answers = 0
        with suppress(ConnectionResetError):
            while part := line.recv(2**20):
                answers += part.count(b"HTTP/1.1 200")
        assert answers < 150  # the system itself holds some 4 MB for a client
    assert "Exception" not in caplog.text


def test_beyond_the_last_connection_health_is_answered_and_nothing_else(port: int, monkeypatch):
    lines = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(2)]
    try:
        monkeypatch.setattr(launch, "MAX_CONNECTIONS", 2)
        head = "HTTP/1.1\r\nHost: localhost\r\n\r\n"
        health, _ = talk(port, f"GET /v1/health {head}".encode())
        assert health.startswith(b"HTTP/1.1 200")
        rules, _ = talk(port, f"GET /v1/rules {head}".encode())
        assert rules.startswith(b"HTTP/1.1 503") and b"too many connections" in rules
        monkeypatch.setattr(launch, "RESERVE", 0)
        with suppress(ConnectionResetError):
            assert talk(port, f"GET /v1/health {head}".encode())[0] == b""
    finally:
        for line in lines:
            line.close()


def test_requests_in_one_piece_and_byte_by_byte_are_answered_in_order(port: int) -> None:
    one = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b'{"user": 1}'
    bad = (
        b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    )
    answer, _ = talk(port, one + one + bad)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"200", b"422"]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        for letter in bad:
            line.sendall(bytes([letter]))
        assert line.recv(65536).startswith(b"HTTP/1.1 422")


@pytest.mark.parametrize("stray", [b"", b"\r\n", b"GET"])
def test_a_connection_that_has_been_answered_does_not_stay_for_ever(
    port: int, stray: bytes
) -> None:
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.sendall(stray)
        while line.recv(65536):
            pass
    assert time.monotonic() - begun < 8


SMUGGLED = b"GET /v1/about HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A request that a proxy in front of us would take for a part of the body before it."""
POST = b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n"
LAST = b"0\r\n\r\n"
TWO_WAYS_TO_READ = {
    "a length and chunks": POST + b"Content-Length: 4\r\n" + CHUNKS + b"\r\n" + LAST,
    "chunks and a length": POST + CHUNKS + b"Content-Length: 4\r\n\r\n" + LAST,
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 54\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 0, 54\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +0\r\n\r\n",
    "a length below zero": POST + b"Content-Length: -1\r\n\r\n",
    "a length in hex": POST + b"Content-Length: 0x0\r\n\r\n",
    "an endless length": POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
    "a blank before the colon": POST + b"Content-Length : 54\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + LAST,
    "chunked, but not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + LAST,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n" + LAST,
    "a chunk below zero": POST + CHUNKS + b"\r\n-1\r\n" + LAST,
    "a chunk with 0x": POST + CHUNKS + b"\r\n0x0\r\n\r\n",
    "a chunk with a sign": POST + CHUNKS + b"\r\n+0\r\n\r\n",
    "a chunk of blanks": POST + CHUNKS + b"\r\n \r\n" + LAST,
    "an endless chunk": POST + CHUNKS + b"\r\n" + b"f" * 17 + b"\r\n",
    "a chunk longer than it says": POST + CHUNKS + b"\r\n1\r\nabc\r\n" + LAST,
    "a NUL in a header": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a bare CR in a header": POST + b"X: a\rContent-Length: 54\r\n\r\n",
}


@pytest.mark.parametrize("text", TWO_WAYS_TO_READ.values(), ids=TWO_WAYS_TO_READ)
def test_nobody_can_smuggle_a_request_behind_another(port: int, text: bytes) -> None:
    answer, _ = talk(port, text + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 4")
    assert answer.count(b"HTTP/1.1") == 1 and b"fingerprint" not in answer


def test_no_request_makes_the_metrics_grow(client: TestClient) -> None:
    def series() -> int:
        return sum(line[0] != "#" for line in client.get("/metrics").text.splitlines())

    def ask(word: str) -> None:
        id_ = f"{len(word):x}{word.encode().hex():0>15}"
        event = {"kind": "click", "recommendation_id": id_[:16], "item": word}
        for path in (f"/{word}", f"/v1/{word}", f"/v1/items/{word}/similar", f"/v1/masks/{word}"):
            for method in ("GET", "POST", "DELETE", word.upper()):
                client.request(method, path)
        client.get("/v1/recommendations", params={"user": word})
        client.post("/v1/events", json={"events": [event]})
        client.post("/v1/events", json={"events": [{"kind": word}]})

    ask("a")
    for _ in range(2):  # once to see all statuses
        before = series()
        for word in ("bb", "ccc", "dddd", "eeeee", "ffffff"):
            ask(word)
    # An event counts by its kind and by the list's variant, of which there are 16 at most.
    assert series() <= before


MANY = """
import resource, socket, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
port, n = int(sys.argv[1]), int(sys.argv[2])
if hard < n + 100:
    print("too few files")
    sys.exit()
lines = []
for k in range(n):  # from a hundred addresses, because one may have a hundred connections
    line = socket.socket()
    line.settimeout(5)
    line.bind((f"127.0.{1 + k // 100 % 100}.{1 + k % 100}", 0))
    try:
        line.connect(("127.0.0.1", port))
        line.sendall(b"GET /v1/health HTTP/1.1\\r\\nHost: loc")
    except OSError:
        pass  # refused
    lines.append(line)
print("open", flush=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.long
def test_ten_thousand_connections_leave_room_for_health_and_then_for_all(bundle: Path) -> None:
    command = [sys.executable, "-m", "loger", "serve", str(bundle), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            found = next(m for x in server.stderr if (m := re.search(r"http://\S+:(\d+)", x)))
            threading.Thread(target=lambda: list(server.stderr), daemon=True).start()
            ask = b"HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            port = int(found[1])
            crowd = [sys.executable, "-c", MANY, str(port), "10000", "3"]
            with subprocess.Popen(crowd, stdout=subprocess.PIPE, text=True) as many:
                said = many.stdout.readline()
                if "too few" in said:
                    pytest.skip("needs 10,100 open files: raise ulimit -n")
                begun, ok = time.monotonic(), 0
                while time.monotonic() < begun + 2:
                    with suppress(OSError):
                        ok += talk(port, b"GET /v1/health " + ask)[0].startswith(b"HTTP/1.1 200")
                assert ok > 5
            wait_until(lambda: b" 200 " in talk(port, b"GET /v1/about " + ask)[0][:20])
        finally:
            server.kill()


@pytest.mark.parametrize(
    "host", ["127.0.0.1].evil.com", "localhost.evil.com", "[::1].evil.com", "localhost:80:80", ""]
)
def test_only_this_machines_own_names_are_answered(bundle: Path, host: str) -> None:
    client = TestClient(create_app(ServeConfig(str(bundle))), base_url="http://localhost")
    assert client.get("/v1/health", headers={"Host": host}).status_code == 403
    assert client.get("/v1/health", headers={"Host": "LOCALHOST:8000"}).status_code == 200


def test_the_watch_survives_whatever_loading_raises_and_health_says_so(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "b"
    shutil.copytree(bundle, place)
    app = create_app(ServeConfig(str(place), watch=0.02))
    with TestClient(app, base_url="http://localhost") as client:

        def health() -> str:
            return str(client.get("/v1/health").json()["status"])

        assert health() == "ok"
        with monkeypatch.context() as patch:
            patch.setattr(service, "Served", lambda *_: 1 // 0)
            (place / "manifest.json").touch()
            wait_until(lambda: health() == "degraded")
            assert "ZeroDivisionError" in client.get("/v1/health").json()["problem"]
            assert "loger_bundle_degraded 1.0" in client.get("/metrics").text
            assert client.get("/v1/users").status_code == 200
        wait_until(lambda: health() == "ok")
        assert "loger_bundle_degraded 0.0" in client.get("/metrics").text


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


CUT = """
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from loger.web.app import create_app
from loger.web.config import ServeConfig
folder = Path(sys.argv[1])
client = TestClient(create_app(ServeConfig(str(folder), watch=0)), base_url="http://localhost")
users = [row["name"] for row in client.get("/v1/users").json()["results"]]
for file in folder.iterdir():
    file.open("wb").close()
for user in users:
    assert client.get("/v1/recommendations", params={"user": user}).status_code == 200
print("still here")
"""


def test_files_that_are_cut_in_place_do_not_take_the_server_down(
    bundle: Path, tmp_path: Path
) -> None:
    shutil.copytree(bundle, tmp_path / "b")
    command = [sys.executable, "-c", CUT, str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "still here\n", done.stderr[-2000:]


def test_what_killed_servers_left_is_cleared_and_what_others_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    code = (
        "from loger.web.config import claimed_folder\n"
        "claimed = claimed_folder()\nprint(claimed[0], flush=True)\ninput()"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        theirs = Path(server.stdout.readline().strip())
        ours, remove = claimed_folder()  # no name says whose it is: it may be in another container
        (tmp_path / f"{PREFIX}not-locked-yet").mkdir()
        clear_abandoned()
        assert theirs.is_dir() and ours.is_dir()
        server.kill()
    clear_abandoned()
    assert {*tmp_path.iterdir()} == {ours, tmp_path / f"{PREFIX}not-locked-yet"}
    remove()
    assert not ours.exists()


@pytest.mark.parametrize(
    ("path", "query", "body", "expensive"),
    [
        ("/v1/recommendations", b"user=a&k=10&paths=3", b"", False),
        ("/v1/recommendations", b"k=100", b"", True),
        ("/v1/recommendations", b"", b'{"user": "a", "k": 10}', False),
        ("/v1/recommendations", b"", b'{"user": "a", "paths" :10}', True),
        ("/v1/recommendations", b"", b'{"history": [' + b'"a",' * 600 + b'"b"]}', True),
        ("/v1/explain", b"user=a&item=b&reasons=all", b"", True),
        ("/v1/explain", b"", b'{"user": "a", "item": "b", "reasons": "all"}', True),
        ("/v1/counterfactual", b"user=a&item=b", b"", True),
        ("/v1/recommendations:batch", b"", b"{}", True),
        ("/v1/why-not", b"user=a&item=b", b"", False),
        ("/v1/what-if", b"", b"{}", False),
        ("/v1/what-if", b"", b'{"k": 10}', False),
        ("/v1/what-if", b"", b'{"k": 11}', True),
        ("/v1/recommendations", b"", b'{"k": "100"}', True),  # however it is written
        ("/v1/recommendations", b"", b'{"k": 1e2}', True),
        ("/v1/recommendations", b"", b'{"\\u006b": 100}', True),
        ("/v1/recommendations", b"%6b=%31%30%30", b"", True),
        ("/v1/recommendations", b"k=1&k=+100", b"", True),
        ("/v1/recommendations", b"k=" + b"9" * 5_000, b"", True),  # no int of Python's
        ("/v1/recommendations", b"", b"[" * 1_500, False),
        ("/v1/users", b"q=rank=90", b"", False),
    ],
)
def test_expensive_questions_are_known_beforehand(path, query, body, expensive) -> None:
    assert is_expensive(path, query, body) is expensive


def test_expensive_questions_wait_for_each_other_and_cheap_ones_do_not() -> None:
    async def story() -> list[str]:
        queue, told = CapacityLimiter(1), list[str]()

        async def ask(name: str, expensive: bool) -> None:
            async with place(queue) if expensive else nullcontext():
                told.append(name)
                await asyncio.sleep(0.05)

        first, second = (asyncio.create_task(ask(f"expensive {k}", True)) for k in (1, 2))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, second, *(ask("cheap", False) for _ in range(3)))
        return told

    assert asyncio.run(story()) == ["expensive 1", "cheap", "cheap", "cheap", "expensive 2"]


def test_half_sent_uploads_leave_room_for_two_only(port: int) -> None:
    head = b"PUT /v1/masks/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\nab"
    address = ("127.0.0.1", port)
    with socket.create_connection(address) as one, socket.create_connection(address) as other:
        one.sendall(head)
        other.sendall(head)
        time.sleep(0.1)
        assert b" 429 " in talk(port, head)[0]


def test_a_client_with_too_many_requests_at_a_time_is_told_and_others_are_not() -> None:
    counts = Counter[str]()

    def one(client: str) -> AbstractContextManager[None]:
        return at_most(2, counts, client, "requests")

    with one("greedy"), one("greedy"):
        with pytest.raises(ProblemError, match="more than 2 requests"), one("greedy"):
            pass
        with one("modest"):
            pass
    with one("greedy"):
        pass
    assert not counts
