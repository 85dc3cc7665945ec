"""The slow lane answers as a worker does, and requests are answered without it too."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import CapacityLimiter
from fastapi.testclient import TestClient

from loger.model import LOGER
from loger.web import guard, lane
from loger.web.app import create_app
from loger.web.config import ServeConfig
from loger.web.guard import Guard
from loger.web.lane import NICE, Lane
from loger.web.metrics import Metrics
from loger.web.problems import ProblemError
from web_shop import another_shop


def until(what: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


# ── one worker and its lane ─────────────────────────────────────────────────────────────


@contextmanager
def worker_over(bundle: Path, folder: Path, **settings: Any) -> Iterator[TestClient]:
    """A worker with a lane that is ready, over a copy of a bundle."""
    place = shutil.copytree(bundle, folder / "shop")
    (folder / "scratch").mkdir()
    config = ServeConfig(
        str(place),
        watch=0,
        merge_interval=0,
        scratch=str(folder / "scratch"),
        lane=True,
        **settings,
    )
    with TestClient(create_app(config), base_url="http://localhost") as client:
        client.headers["X-API-Key"] = settings.get("api_key", "")
        until(lambda: ask_expensive(client) and by(client, "lane") > 0)
        yield client


def ask_expensive(client: TestClient) -> bool:
    return client.post("/v1/what-if", json={"history": [], "k": 99}).status_code < 500


@pytest.fixture(scope="module")
def worker(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with worker_over(bundle, tmp_path_factory.mktemp("lane")) as client:
        yield client


def by(client: TestClient, who: str) -> int:
    """How many expensive questions somebody answered."""
    found = re.search(rf'loger_costly_total{{by="{who}"}} (\d+)', client.get("/metrics").text)
    return int(found[1]) if found else 0


def answered(client: TestClient) -> tuple[int, int]:
    """How many expensive questions the lane and the worker answered."""
    return by(client, "lane"), by(client, "worker")


def lane_of(client: TestClient) -> Lane:
    app: Any = client.app
    return next(m.kwargs["lane"] for m in app.user_middleware if m.cls is Guard)


EXPENSIVE: dict[str, Callable[[LOGER], tuple[str, str, Any]]] = {
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


@pytest.mark.parametrize("question", EXPENSIVE.values(), ids=EXPENSIVE)
def test_the_lane_says_byte_for_byte_what_a_worker_says(worker, client, model, question):
    before, (method, path, asked) = answered(worker), question(model)
    body = asked if isinstance(asked, str) else json.dumps(asked)
    headers = {"Accept-Language": "de", "Content-Type": "application/json"}
    ours, theirs = (
        one.request(method, f"/v1/{path}", content=body if asked else None, headers=headers)
        for one in (worker, client)
    )
    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
    assert dict(ours.headers) == dict(theirs.headers)
    assert answered(worker) == (before[0] + 1, before[1])


def test_a_request_is_counted_once_by_its_path_and_cheap_ones_stay_in_the_worker(worker, model):
    counter = r'loger_requests_total{method="POST",path="/v1/explain",status="200"} (\d+)'
    before, user, item = answered(worker), model.users[0], model.items[0]
    for reasons in ("shown", "all"):
        asked = {"user": user, "item": item, "reasons": reasons}
        assert worker.post("/v1/explain", json=asked).status_code == 200
    assert re.findall(counter, worker.get("/metrics").text) == ["2"]
    assert answered(worker) == (before[0] + 1, before[1])


def test_the_lane_knows_a_mask_as_soon_as_it_is_put(worker, model):
    asked, before = (
        {"history": model.items[:2], "include": ["mask=few"], "k": 100},
        answered(worker),
    )
    for few in (model.items[5:9], model.items[20:22]):
        worker.put("/v1/masks/few", content="\n".join(few)).raise_for_status()
        told = worker.post("/v1/what-if", json=asked).json()
        assert {row["item"] for row in told["after"]} == set(few)
    assert answered(worker) == (before[0] + 2, before[1])


def test_a_long_upload_goes_through_the_lane_whole(worker, model):
    names, before = [*model.items, *(f"none {k}" for k in range(200_000))], answered(worker)
    told = worker.put("/v1/masks/long", content="\n".join(names)).json()
    assert told == {"name": "long", "items": len(model.items), "unknown": 200_000}
    assert answered(worker) == (before[0] + 1, before[1])


def test_the_lane_knows_an_event_as_soon_as_it_is_acknowledged(worker, model):
    user, before = model.users[4], answered(worker)
    for _ in range(3):
        best = worker.get("/v1/recommendations", params={"user": user}).json()["items"][0]["item"]
        bought = {"kind": "interaction", "user": user, "item": best}
        worker.post("/v1/events", json={"events": [bought]}).raise_for_status()
        told = worker.post("/v1/what-if", json={"user": user, "k": 100}).json()
        assert best not in {row["item"] for row in told["after"]}
    assert answered(worker) == (before[0] + 3, before[1])


def test_the_lane_is_never_behind_the_bundle_of_its_worker_and_is_asked_only_with_the_key(
    bundle, tmp_path
):
    with worker_over(bundle, tmp_path, api_key="secret") as worker:
        before, other = answered(worker), another_shop()
        other.save(tmp_path / "other")
        shutil.rmtree(tmp_path / "shop")
        (tmp_path / "other").rename(tmp_path / "shop")
        asked = {"history": other.items[:5], "k": 100}
        old = worker.post("/v1/what-if", json=asked).content
        app: Any = worker.app
        assert app.state.variants.services[0].refresh()
        new = worker.post("/v1/what-if", json=asked).content
        assert answered(worker) == (before[0] + 2, before[1]) and new != old
        worker.headers["X-API-Key"] = "wrong"
        assert worker.post("/v1/what-if", json=asked).status_code == 401
        worker.headers["X-API-Key"] = "secret"
        assert answered(worker) == (before[0] + 2, before[1])
    alone = ServeConfig(str(tmp_path / "shop"), watch=0, events=False)
    with TestClient(create_app(alone), base_url="http://localhost") as client:
        assert client.post("/v1/what-if", json=asked).content == new


def test_the_worker_answers_while_the_lane_starts_is_dead_or_hangs(
    bundle, tmp_path, client, model, monkeypatch
):
    asked = {"history": model.items[:2], "k": 100}
    right = client.post("/v1/what-if", json=asked).content
    with worker_over(bundle, tmp_path) as worker:
        mine = lane_of(worker)
        dead = mine.process
        dead.kill()
        dead.join()
        before = answered(worker)
        monkeypatch.setattr(lane, "RESTART_INTERVAL_S", 1000.0)
        assert worker.post("/v1/what-if", json=asked).content == right
        assert mine.process is dead  # another one would come too soon
        monkeypatch.setattr(lane, "RESTART_INTERVAL_S", 0.0)
        assert worker.post("/v1/what-if", json=asked).content == right
        assert mine.process is not dead and mine.process.is_alive()
        assert worker.post("/v1/what-if", json=asked).content == right  # it is only starting
        assert answered(worker) == (before[0], before[1] + 3)
        until(lambda: ask_expensive(worker) and answered(worker)[0] > before[0])
        before = answered(worker)
        os.kill(mine.process.pid, signal.SIGSTOP)
        monkeypatch.setattr(lane, "TIMEOUT_S", 0.1)
        monkeypatch.setattr(lane, "RESTART_INTERVAL_S", 100.0)
        assert worker.post("/v1/what-if", json=asked).content == right
        assert answered(worker) == (before[0], before[1] + 1)
        assert not mine.process.is_alive()


# ── the queue ───────────────────────────────────────────────────────────────────────────


def test_the_queue_has_an_end_and_gives_places_back(monkeypatch):
    monkeypatch.setattr(guard, "MAX_WAITING", 2)

    async def story() -> None:
        queue, served = CapacityLimiter(1), list[int]()

        async def ask(number: int) -> None:
            async with guard.place(queue):
                served.append(number)
                await asyncio.sleep(0.02)

        tasks = [asyncio.create_task(ask(number)) for number in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ProblemError, match="too many expensive requests") as refused:
            await ask(3)
        assert refused.value.status == 503
        tasks[1].cancel()  # it does not want to wait
        await asyncio.gather(*tasks, return_exceptions=True)
        await ask(4)
        assert served == [0, 2, 4]

    asyncio.run(story())


def test_who_is_refused_for_the_load_learns_when_to_come_back(bundle, monkeypatch):
    monkeypatch.setattr(guard, "MAX_WAITING", 0)
    app = create_app(ServeConfig(str(bundle), watch=0, events=False))
    with TestClient(app, base_url="http://localhost") as client:
        refused = client.get("/v1/counterfactual", params={"user": "a", "item": "b"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["error"]["code"] == "unavailable"


def test_whoever_does_not_read_the_answer_holds_no_place():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"long"})

    async def story() -> None:
        guarded = Guard(app, ServeConfig("b", threads=2), Metrics())
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
        slow = asyncio.create_task(guarded(dict(scope), receive, stuck))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await guarded(dict(scope), receive, reads)
        slow.cancel()
        assert told == ["http.response.start", "http.response.body"]

    asyncio.run(story())


# ── as people start it ──────────────────────────────────────────────────────────────────


class Server:
    """``loger serve`` in a process of its own."""

    def __init__(self, bundle: Path, *arguments: str) -> None:
        self.temporary = bundle.parent
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loger", "serve", str(bundle), "--port", "0", *arguments],
            env=os.environ | {"TMPDIR": str(self.temporary)},
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
            if int(stat[1]) == self.process.pid and b"spawn_main" in command:
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
@pytest.mark.long
def test_the_lane_has_a_low_priority(serve, model):
    server, asked = serve(), {"history": model.items[:30], "k": 100}
    right = server.ask("/v1/what-if", asked)  # the lane is hardly there yet
    server.wait_for_lane(asked)
    (lane,) = server.lanes()
    assert os.getpriority(os.PRIO_PROCESS, lane) == os.getpriority(os.PRIO_PROCESS, 0) + NICE
    assert server.ask("/v1/what-if", asked) == right


@linux
@pytest.mark.long
def test_a_server_that_is_killed_leaves_no_lane(serve, model):
    server = serve()
    server.wait_for_lane({"history": model.items[:3], "k": 100})
    (lane,) = server.lanes()
    server.process.kill()
    until(lambda: not is_alive(lane), 10)


@linux
@pytest.mark.long
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
    assert not list(server.temporary.glob("loger-serve-*"))
    for asker in askers:
        asker.join()


@linux
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_lists_that_lanes_made_are_counted(serve, model, workers):
    server, asked = serve("--workers", workers), {"history": model.items[:3], "k": 100}
    server.wait_for_lane(asked)
    for _ in range(4):
        told = json.loads(server.ask("/v1/recommendations:batch", {"users": model.users[:3]}))
        assert len(told["lists"]) == 3
    assert server.number('loger_lists_total{variant="A"}') == 12
