"""Counts and times of requests for Prometheus. Workers share them through a folder."""

from __future__ import annotations

import os
from functools import partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus-client finds the folder."""
SECONDS = (0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """What a server counts."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count = partial(Counter, registry=self.registry)
        asked = ("method", "path", "status")
        self.requests = count("loger_requests", "Requests answered.", asked)
        self.seconds = Histogram(
            "loger_request_seconds",
            "Time to answer, by path.",
            ("path",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.reloads = count("loger_reloads", "Reloads of the bundle.", ("result",))
        self.costly = count("loger_costly", "Expensive questions, by who answered.", ("by",))
        self.lists = count("loger_lists", "Lists recommended.", ("variant",))
        self.events = count(
            "loger_events",
            "Events kept; the variant of impressions and clicks is that of their list.",
            ("kind", "variant"),
        )
        self.loaded = Gauge(
            "loger_bundle_loaded_timestamp_seconds",
            "When the bundle in use was loaded.",
            registry=self.registry,
            multiprocess_mode="livemin",
        )
        self.degraded = Gauge(
            "loger_bundle_degraded",
            "1 while the newest bundle cannot be loaded and an older one is served.",
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        self._degraded: set[str] = set()

    def tell_degraded(self, bundle: str, degraded: bool) -> None:
        """Set whether the newest state of a bundle can't be loaded."""
        (self._degraded.add if degraded else self._degraded.discard)(bundle)
        self.degraded.set(bool(self._degraded))

    def seen(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self.requests.labels(method, path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """The metrics of all workers, in the format of Prometheus."""
        if not os.environ.get(FOLDER):
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
