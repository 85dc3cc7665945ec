"""The same app as a deployment of Ray Serve: replicas on one machine or on a cluster.

Every replica opens the bundle by its path, which must be the same on all nodes. The replicas of a
node map one copy of it, and each exchanges it for a newer one by itself, as every server does: a
request that has begun ends on the bundle that it began with.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any

from loger.engine import RayEngine
from loger.errors import LogerError
from loger.web.config import ServeConfig
from loger.web.launch import check_free

NAME = "loger"


def run(config: ServeConfig, address: str | None, until: Callable[[], bool] | None = None) -> None:
    """Serve on the cluster at an address, or a running or new one, until interrupted.

    At the end the deployment is deleted, and what was started here ends: Ray Serve, and the
    cluster. Replicas on several machines cannot share the file that keeps events, so none are
    taken.
    """
    serve = _installed()
    config = config if config.port else replace(config, port=_free_port(config.host))
    scratch = Path(gettempdir()) / f"loger-replicas-{token_hex(8)}"
    placed = replace(config, learn=False, events=None, scratch=str(scratch))
    with RayEngine(address, config.workers + 1) as engine:  # a core for what passes requests on
        _ = engine.workers  # connects
        known = bool(serve.status().proxies)
        if not known:
            check_free(config.host, config.port)
            serve.start(http_options={"host": config.host, "port": config.port})
        where = "its own address" if known else f"http://{config.host}:{config.port}"
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            serve.run(_application(serve, placed), name=NAME, route_prefix="/")
            print(f"serving on Ray at {where}", file=sys.stderr)
            while until is None or not until():
                time.sleep(0.2)
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)
        finally:
            serve.delete(NAME)
            _on_every_node(_remove, str(scratch))
            if not known:
                serve.shutdown()


def _application(serve: Any, config: ServeConfig) -> Any:
    """The app, made where each replica runs."""

    def made() -> Any:
        from loger.web.app import create_app

        Path(config.scratch or "").mkdir(mode=0o700, exist_ok=True)
        return create_app(config)

    deployment = serve.deployment(
        serve.ingress(made)(type("Replica", (), {})),
        name=NAME,
        num_replicas=config.workers,
        max_ongoing_requests=4 * config.threads,
        ray_actor_options={"num_cpus": 1},
    )
    return deployment.bind()


def _free_port(host: str) -> int:
    """A port that nobody listens at: Ray Serve takes none by itself."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _on_every_node(fn: Callable[[str], None], argument: str) -> None:
    """Call a function once on each node that is alive."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0)(fn)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    where = [NodeAffinitySchedulingStrategy(node, soft=True) for node in nodes]
    ray.get([task.options(scheduling_strategy=node).remote(argument) for node in where])


def _remove(folder: str) -> None:
    """Remove the copies of bundles that the replicas of a node had."""
    shutil.rmtree(folder, ignore_errors=True)


def _installed() -> Any:
    """Ray Serve, or an error that says how to get it."""
    for check in ("READY", "HEALTH"):  # on a busy machine Ray's 5 seconds are too few
        os.environ.setdefault(f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S", "60")
    try:
        from ray import serve
    except ModuleNotFoundError as error:
        raise LogerError(
            f"serving on Ray needs {error.name}, which is not installed; "
            "pip install 'loger-rec[ray-serve]'"
        ) from None
    return serve
