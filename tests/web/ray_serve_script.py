"""Serve a small model with two replicas of Ray Serve, and replace it while requests come in.

The last line is a JSON object of observations, which the caller checks.
"""

import json
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from fastapi.testclient import TestClient

from loger.data import split
from loger.data.demo import shop
from loger.encoder import TransEConfig
from loger.model import LOGER, LOGERConfig
from loger.web.app import create_app
from loger.web.config import ServeConfig, bound_socket
from loger.web.launch import run_on_ray


def saved(bundle: Path, seed: int) -> None:
    config = LOGERConfig(seed=seed, encoder=TransEConfig(dimension=8, epochs=1))
    model = LOGER(config).fit(split(shop(users=60, items=60).dataset), tune={}, progress=False)
    model.save(bundle)


def asked(url: str) -> dict:
    with urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())


def ask(url: str, user: str, bundle: Path, seen: dict) -> None:
    """Wait for the server, ask it, write another bundle, and ask on until both replicas have it."""
    end = time.time() + 240
    while time.time() < end:
        with suppress(OSError, HTTPException):
            asked(f"{url}/v1/health")
            break
        time.sleep(1)
    path = f"{url}/v1/recommendations?user={user}&k=5"
    seen["first"] = [asked(path)["items"] for _ in range(4)]
    old = asked(f"{url}/v1/health")["fingerprint"]
    saved(bundle, 1)
    prints: list[str] = []
    while time.time() < end and prints[-20:].count(old) + (len(prints) < 20) > 0:
        prints.append(asked(f"{url}/v1/health")["fingerprint"])
        seen["answered"] += len(asked(path)["items"]) == 5
        seen["asked"] += 1
        time.sleep(0.05)
    seen["exchanged"] = old not in prints[-20:]
    seen["copies"] = [
        len(list(place.glob("[!.]*"))) for place in Path("/tmp").glob("loger-replicas-*")
    ]


if __name__ == "__main__":
    bundle = Path(sys.argv[1]) / "shop.bundle"
    saved(bundle, 0)
    user = LOGER.load(bundle).users[0].replace(" ", "%20")
    local = create_app(ServeConfig(str(bundle), events=False))
    with TestClient(local, base_url="http://127.0.0.1") as client:
        expected = client.get(f"/v1/recommendations?user={user}&k=5").json()["items"]
    with bound_socket("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    over, seen = threading.Event(), {"asked": 0, "answered": 0}

    def ask_and_end() -> None:
        try:
            ask(f"http://127.0.0.1:{port}", user, bundle, seen)
        finally:
            over.set()

    threading.Thread(target=ask_and_end, daemon=True).start()
    config = ServeConfig(str(bundle), port=port, workers=2, watch=0.2)
    run_on_ray(config, "local", over.is_set)
    seen["same"] = seen.pop("first", []) == [expected] * 4
    print(json.dumps(seen))
