"""Serving: ask a model over HTTP about a known user and about someone new.

python examples/serving.py
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from loger.data.demo import shop
from loger.model import LOGER


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON answer to a GET, or to a POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def wait_for(url: str, seconds: float = 60) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            ask(f"{url}/v1/health")
            return
        except URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def main() -> None:
    """Fit, save, serve, ask, stop."""
    model = LOGER().fit(shop(users=200, items=150).dataset)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "shop.bundle"
        model.save(bundle)
        command = [sys.executable, "-m", "loger", "serve", str(bundle), "--port", str(port)]
        server = subprocess.Popen(command)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url)
            user = ask(f"{url}/v1/users?limit=1")["results"][0]["name"]
            first = ask(f"{url}/v1/recommendations?user={quote(user)}&k=1")["items"][0]
            print(f"{user}: {first['label']}, {first['explanation']['because']}")
            cold = {"history": [first["item"]], "k": 2, "paths": 0}
            for item in ask(f"{url}/v1/recommendations", cold)["items"]:
                print(f"a new user: {item['label']}, {item['explanation']['because']}")
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()
