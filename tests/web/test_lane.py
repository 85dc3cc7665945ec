"""The slow lane answers as a worker does, and nobody misses it when it is not there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loger.model import LOGER
from loger.web import admission
from loger.web.admission import Admission
from loger.web.app import create_app
from loger.web.config import ServeConfig
from loger.web.guard import Guard
from loger.web.lane import NICE, Lane
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError
from web_shop import fitted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")


def until(what: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


# ── in this process ─────────────────────────────────────────────────────────────────────


@contextmanager
def lane_of(config: ServeConfig) -> Iterator[None]:
    """A lane in a thread."""
    assert config.lane is not None
    app = create_app(replace(config, threads=1, fold_every=0), guarded=False)
    loop, end = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(Lane(app).run(str(config.lane), end))
    )
    thread.start()
    try:
        until(Path(config.lane).exists)
        yield
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


@pytest.fixture
def config(bundle: Path, tmp_path: Path) -> Iterator[ServeConfig]:
    place = shutil.copytree(bundle, tmp_path / "shop")
    (tmp_path / "scratch").mkdir()
    with tempfile.TemporaryDirectory() as short:  # there is little room for a socket's path
        yield ServeConfig(
            str(place), watch=0, fold_every=0, scratch=str(tmp_path / "scratch"), lane=f"{short}/l"
        )


@pytest.fixture
def worker(config: ServeConfig) -> Iterator[TestClient]:
    """A worker with a lane beside it."""
    with (
        TestClient(create_app(config), base_url="http://localhost") as client,
        lane_of(config),
    ):
        yield client


def by(client: TestClient, who: str) -> int:
    """How many costly questions somebody answered."""
    found = re.search(rf'loger_costly_total{{by="{who}"}} (\d+)', client.get("/metrics").text)
    return int(found[1]) if found else 0


COSTLY: dict[str, Callable[[LOGER], tuple[str, str, Any]]] = {
    "what-if": lambda m: ("POST", "what-if", {"history": m.items[:40], "k": 100}),
    "fewer rules": lambda m: (
        "POST", "what-if", {"user": m.users[1], "without_rules": [0], "k": 50},
    ),
    "counterfactual": lambda m: (
        "GET", f"counterfactual?user={m.users[2]}&item={m.items[3]}", None,
    ),
    "every reason": lambda m: (
        "GET", f"explain?user={m.users[2]}&item={m.items[3]}&reasons=all", None,
    ),
    "nobody": lambda m: ("POST", "what-if", {"user": "nobody \u2603", "k": 99}),
    "too many": lambda m: ("GET", f"recommendations?user={m.users[0]}&k=1000", None),
    "no such path": lambda m: ("GET", "counterfactual/of?a=%FF", None),
    "not JSON": lambda m: ("POST", "what-if", "[" * 5000),
}  # fmt: skip


@pytest.mark.parametrize("question", COSTLY.values(), ids=COSTLY)
def test_the_lane_says_byte_for_byte_what_a_worker_says(worker, client, model, question):
    method, path, asked = question(model)
    body = asked if isinstance(asked, str) else json.dumps(asked)
    headers = {"Accept-Language": "de", "Content-Type": "application/json"}
    ours, theirs = (
        one.request(method, f"/v1/{path}", content=body if asked else None, headers=headers)
        for one in (worker, client)
    )
    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
    assert dict(ours.headers) == dict(theirs.headers)
    assert (by(worker, "lane"), by(worker, "worker")) == (1, 0)


def test_a_request_is_counted_once_by_its_path_and_cheap_ones_stay_in_the_worker(worker, model):
    for k in (10, 100):
        asked = {"history": model.items[:3], "k": k}
        assert worker.post("/v1/what-if", json=asked).status_code == 200
    numbers = worker.get("/metrics").text
    assert 'loger_requests_total{method="POST",path="/v1/what-if",status="200"} 2.0' in numbers
    assert (by(worker, "lane"), by(worker, "worker")) == (1, 0)


def test_the_lane_knows_a_mask_as_soon_as_it_is_put(worker, model):
    asked = {"history": model.items[:2], "include": ["mask=few"], "k": 100}
    for few in (model.items[5:9], model.items[20:22]):
        worker.put("/v1/masks/few", content="\n".join(few)).raise_for_status()
        told = worker.post("/v1/what-if", json=asked).json()
        assert {row["item"] for row in told["after"]} == set(few)
    assert by(worker, "lane") == 2


def test_a_long_upload_goes_through_the_lane_whole(worker, model):
    names = [*model.items, *(f"none {k}" for k in range(200_000))]
    told = worker.put("/v1/masks/long", content="\n".join(names)).json()
    assert told == {"name": "long", "items": len(model.items), "unknown": 200_000}
    assert by(worker, "lane") == 1


def test_the_lane_knows_an_event_as_soon_as_it_is_acknowledged(worker, model):
    user = model.users[4]
    for _ in range(3):
        best = worker.get("/v1/recommendations", params={"user": user}).json()["items"][0]["item"]
        bought = {"kind": "interaction", "user": user, "item": best}
        worker.post("/v1/events", json={"events": [bought]}).raise_for_status()
        told = worker.post("/v1/what-if", json={"user": user, "k": 100}).json()
        assert best not in {row["item"] for row in told["after"]}
    assert by(worker, "lane") == 3


def test_the_lane_is_never_behind_the_bundle_of_the_worker_that_asks(worker, config, tmp_path):
    other = fitted(3)
    other.save(tmp_path / "other")
    shutil.rmtree(config.bundle)
    (tmp_path / "other").rename(config.bundle)
    asked = {"history": other.items[:5], "k": 100}
    before = worker.post("/v1/what-if", json=asked).content
    assert worker.app.state.service.refresh()
    after = worker.post("/v1/what-if", json=asked).content
    assert by(worker, "lane") == 2 and after != before
    alone = ServeConfig(config.bundle, watch=0, learn=False)
    with TestClient(create_app(alone), base_url="http://localhost") as client:
        assert client.post("/v1/what-if", json=asked).content == after


def test_the_key_is_asked_for_before_the_lane_is(config, model):
    keyed = replace(config, api_key="secret")
    asked = {"history": model.items[:2], "k": 100}
    app = create_app(keyed)
    with TestClient(app, base_url="http://localhost") as client, lane_of(keyed):
        assert client.post("/v1/what-if", json=asked).status_code == 401
        client.headers["X-API-Key"] = "secret"
        assert by(client, "lane") == 0
        assert client.post("/v1/what-if", json=asked).status_code == 200
        assert by(client, "lane") == 1


def test_without_a_lane_or_with_one_that_dies_midway_the_worker_answers(config, client, model):
    asked = {"history": model.items[:2], "k": 100}
    right = client.post("/v1/what-if", json=asked).content

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b'{"status": 200, "route": null, "headers": []}'
        writer.write(len(head).to_bytes(4, "big") + head + b"\0\0\1\0half of it")
        writer.close()

    with TestClient(create_app(config), base_url="http://localhost") as worker:
        assert worker.post("/v1/what-if", json=asked).content == right
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_unix_server(die, config.lane))
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            assert worker.post("/v1/what-if", json=asked).content == right
        finally:
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        assert (by(worker, "lane"), by(worker, "worker")) == (0, 2)


# ── the queue ───────────────────────────────────────────────────────────────────────────


def test_clients_take_turns_in_the_queue_of_costly_questions():
    async def story() -> list[str]:
        admit, told = Admission(1), list[str]()

        async def ask(name: str) -> None:
            async with admit.place(name[0]):
                told.append(name)
                await everybody.wait()

        tasks, everybody = [], asyncio.Event()
        for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
            tasks.append(asyncio.create_task(ask(name)))
            await asyncio.sleep(0)
        tasks[2].cancel()  # a3 does not want to wait
        everybody.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with admit.place("d"):  # no place was lost
            return told

    assert asyncio.run(story()) == ["a1", "a2", "b1", "c1", "b2", "a4"]


def test_the_queue_has_an_end(monkeypatch):
    monkeypatch.setattr(admission, "MAX_WAITING", 2)

    async def story() -> None:
        admit = Admission(1)

        async def ask() -> None:
            async with admit.place("a"):
                await asyncio.sleep(0.02)

        tasks = [asyncio.create_task(ask()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ProblemError, match="too many costly questions"):
            await ask()
        await asyncio.gather(*tasks)
        await ask()

    asyncio.run(story())


def test_whoever_does_not_read_the_answer_holds_no_place():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"long"})

    async def story() -> None:
        guard = Guard(app, ServeConfig("b", threads=2), Metrics())
        scope = {
            "type": "http", "method": "GET", "path": "/v1/counterfactual", "query_string": b"",
            "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def stuck(_: Any) -> None:
            await asyncio.Event().wait()

        async def reads(message: Any) -> None:
            told.append(message["type"])

        told = list[str]()
        slow = asyncio.create_task(guard(dict(scope), receive, stuck))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await guard(dict(scope), receive, reads)
        slow.cancel()
        assert told == ["http.response.start", "http.response.body"]

    asyncio.run(story())


# ── as people start it ──────────────────────────────────────────────────────────────────


class Server:
    """``loger serve`` in a process of its own."""

    def __init__(self, bundle: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loger", "serve", str(bundle), "--port", "0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        said = self.process.stderr
        assert said is not None
        found = next(m for s in said if (m := re.search(r"running on (http://\S+)", s)))
        self.url = found[1]
        self._drain = threading.Thread(target=lambda: list(said))
        self._drain.start()

    def stop(self) -> None:
        """End it, by force if it must be."""
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self._drain.join()
            self.process.communicate()

    def ask(self, path: str, asked: object = None) -> bytes:
        body = None if asked is None else json.dumps(asked).encode()
        request = urllib.request.Request(f"{self.url}{path}", body)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def number(self, name: str) -> float:
        numbers = self.ask("/metrics").decode()
        return sum(
            float(n) for n in re.findall(rf"^{re.escape(name)} (\S+)$", numbers, re.MULTILINE)
        )

    def lanes(self) -> list[int]:
        """The processes of this server that are lanes."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                stat = (place / "stat").read_text().rpartition(") ")[2].split()
                command = (place / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            if int(stat[1]) == self.process.pid and b"loger.web.lane" in command:
                found.append(int(place.name))
        return found

    def wait_for_lane(self, asked: object, least: int = 1) -> None:
        def answered() -> bool:
            try:
                self.ask("/v1/what-if", asked)
            except urllib.error.URLError:  # workers are still loading
                return False
            return self.number('loger_costly_total{by="lane"}') >= least

        until(answered)


@pytest.fixture
def serve(bundle: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    place, servers = shutil.copytree(bundle, tmp_path / "shop"), list[Server]()

    def start(*arguments: str) -> Server:
        servers.append(Server(place, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be counted does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@linux
@pytest.mark.slow
def test_a_lane_that_dies_is_not_missed_and_another_one_comes(serve, model):
    server, asked = serve(), {"history": model.items[:30], "k": 100}
    right = server.ask("/v1/what-if", asked)  # the lane is hardly there yet
    server.wait_for_lane(asked)
    (lane,) = server.lanes()
    assert os.getpriority(os.PRIO_PROCESS, lane) == os.getpriority(os.PRIO_PROCESS, 0) + NICE
    assert server.ask("/v1/what-if", asked) == right
    os.kill(lane, signal.SIGKILL)
    assert server.ask("/v1/what-if", asked) == right
    server.wait_for_lane(asked, int(server.number('loger_costly_total{by="lane"}')) + 1)
    assert server.ask("/v1/what-if", asked) == right
    assert len(server.lanes()) == 1 and server.lanes() != [lane]


@linux
@pytest.mark.slow
def test_a_server_that_is_killed_leaves_no_lane(serve, model):
    server = serve()
    server.wait_for_lane({"history": model.items[:3], "k": 100})
    (lane,) = server.lanes()
    server.process.kill()
    until(lambda: not is_alive(lane), 10)


@linux
@pytest.mark.slow
def test_a_server_ends_in_time_and_whole_with_costly_questions_under_way(serve, model):
    server, asked = serve(), {"history": model.items[:90], "k": 100}
    server.wait_for_lane(asked)
    (lane,) = server.lanes()

    def ask() -> None:
        try:
            while True:
                server.ask("/v1/what-if", asked)
        except (OSError, urllib.error.URLError):
            pass

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    time.sleep(0.5)
    begun = time.monotonic()
    server.process.terminate()
    assert server.process.wait(30) == 0
    assert time.monotonic() - begun <= 10
    assert not is_alive(lane)
    assert not list(Path(tempfile.gettempdir()).glob(f"loger-serve-{server.process.pid}-*"))
    for asker in askers:
        asker.join()


@linux
@pytest.mark.slow
def test_workers_share_one_lane_and_its_lists_are_counted(serve, model):
    server, asked = serve("--workers", "2"), {"history": model.items[:3], "k": 100}
    server.wait_for_lane(asked)
    assert len(server.lanes()) == 1
    begun = server.number('loger_costly_total{by="lane"}')
    for _ in range(4):
        told = json.loads(server.ask("/v1/recommendations:batch", {"users": model.users[:3]}))
        assert len(told["lists"]) == 3
    assert server.number('loger_costly_total{by="lane"}') == begun + 4
    assert server.number('loger_lists_total{variant="A"}') == 12
