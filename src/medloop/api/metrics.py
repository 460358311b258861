"""Metrics of the running server in Prometheus' text format: counts and seconds by route, never an id, an address or a text.

`MetricsMiddleware` is the outermost layer and sees every response, refusals too. Routes are named by their template
(`/api/v1/rlhf/feedback/{record_id}`), so no caller can create new series. `render` adds the numbers of the writer and the store.
"""

from __future__ import annotations

import bisect
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from medloop.store.records.group_commit import GroupCommitWriter

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
NO_ROUTE = "none"


class MetricsMiddleware:
    """Counts responses and their seconds."""

    def __init__(self, app: Any, counts: HttpCounts) -> None:
        self.app, self.counts = app, counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_and_note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.counts.add(method, route, status, time.perf_counter() - started)


class HttpCounts:
    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.buckets: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        buckets = self.buckets.setdefault(route, [0] * (len(SECONDS) + 1))
        buckets[bisect.bisect_left(SECONDS, seconds)] += 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds


def render(http: HttpCounts, writer: GroupCommitWriter, *, open_incidents: int, annotation: Mapping[str, int]) -> str:
    """The text that GET /metrics returns."""
    counts = writer.counts
    parts = [
        family("medloop_http_requests_total", "counter", "Responses by route and status.", _requests(http)),
        family("medloop_http_request_seconds", "histogram", "Seconds until the whole response was sent.", _latency(http)),
        family("medloop_ingest_waiting", "gauge", "Submissions waiting for the writer.", [("", writer.waiting)]),
        family("medloop_ingest_refused_total", "counter", "Submissions refused under overload.", [("", counts.refused)]),
        family("medloop_ingest_replays_total", "counter", "Repeated requests.", [("", counts.replays)]),
        family("medloop_ingest_write_seconds_total", "counter", "Seconds in write transactions.", [("", counts.commit_s)]),
        family("medloop_ingest_batch_size", "histogram", "Submissions per transaction.", _batches(dict(counts.batches))),
        family(
            "medloop_records_total", "counter", "Records stored since the server started.",
            [(f'{{kind="{kind}"}}', n) for kind, n in sorted(dict(counts.records).items())],
        ),
        family("medloop_incidents_open", "gauge", "Open safety incidents.", [("", open_incidents)]),
        family(
            "medloop_annotation_tasks", "gauge", "Tasks in Label Studio, and those that must still be deleted there.",
            [(f'{{state="{state}"}}', n) for state, n in sorted(annotation.items())],
        ),
        family("process_resident_memory_bytes", "gauge", "Memory in use.", [("", _memory())]),
    ]  # fmt: skip
    return "".join(parts)


def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value:.12g}" for labels, value in samples)]
    return "\n".join(lines) + "\n"


def _requests(http: HttpCounts) -> Iterator[tuple[str, float]]:
    for (method, route, status), count in sorted(http.requests.copy().items()):
        yield f'{{method="{method}",route="{route}",status="{status}"}}', count


def _latency(http: HttpCounts) -> Iterator[tuple[str, float]]:
    for route, counts in sorted(http.buckets.copy().items()):
        yield from histogram(SECONDS, counts, http.seconds[route], f'route="{route}",')


def _batches(sizes: dict[int, int]) -> Iterator[tuple[str, float]]:
    counts = [0] * (len(SIZES) + 1)
    for size, count in sizes.items():
        counts[bisect.bisect_left(SIZES, size)] += count
    yield from histogram(SIZES, counts, sum(size * count for size, count in sizes.items()), "")


def histogram(bounds: tuple[float, ...], counts: list[int], total: float, labels: str) -> Iterator[tuple[str, float]]:
    cumulative = 0
    for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
        cumulative += count
        yield f'_bucket{{{labels}le="{bound}"}}', cumulative
    plain = f"{{{labels.rstrip(',')}}}" if labels else ""
    yield f"_sum{plain}", total
    yield f"_count{plain}", cumulative


def _memory() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
