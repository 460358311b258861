"""Metrics of the live assistant, behind those of the server in `GET /metrics`: outcomes, guards, tools, traces, model servers.

Model servers are told apart by their number in the settings, never by their address.
"""

from collections.abc import Callable, Iterable, Iterator

from medloop.api.metrics import family, histogram
from medloop.serve.gateway.backends import Backend
from medloop.serve.gateway.gateway import Gateway
from medloop.serve.gateway.gateway_counts import SECONDS
from medloop.serve.gateway.trace_counts import NAMES

Samples = Iterable[tuple[str, float]]


def render_gateway(gateway: Gateway) -> str:
    counts, traces, backends = gateway.counts, gateway.traces, gateway.pool.backends
    numbers = traces.counts.numbers
    outcomes = [(f'{{outcome="{name}"}}', count) for name, count in sorted(counts.outcomes.items())]
    acts = [(f'{{guard="{guard}",finding="{finding}"}}', n) for (guard, finding), n in sorted(counts.acts.items())]
    tools = [(f'{{tool="{tool}",result="{result}"}}', n) for (tool, result), n in sorted(counts.tools.items())]
    stored = [(f'{{state="{name}"}}', float(getattr(numbers, name))) for name in NAMES]
    parts: list[tuple[str, str, str, Samples]] = [
        ("answers_total", "counter", "Questions by what became of them.", outcomes),
        (
            "answer_seconds", "histogram", "Seconds from a question to the last word of its answer.",
            histogram(SECONDS, list(counts.buckets), counts.seconds, ""),
        ),
        ("in_flight", "gauge", "Answers that are being written.", [("", gateway.in_flight)]),
        ("guard_acts_total", "counter", "Acts of guards.", acts),
        ("tool_calls_total", "counter", "Calls of tools.", tools),
        ("traces_waiting", "gauge", "Traces that wait for the store.", [("", traces.waiting)]),
        ("traces_total", "counter", "Traces of all time; dropped, failed and lost ones are not stored.", stored),
        ("retries_total", "counter", "Questions that a second model server was asked.", [("", gateway.pool.retries)]),
        ("backend_open", "gauge", "1: the circuit breaker keeps questions away from this model server.", _each(backends, _open)),
        ("backend_up", "gauge", "1: the last look or answer of this model server succeeded.", _each(backends, _up)),
        ("backend_in_flight", "gauge", "Answers that a model server is writing.", _each(backends, lambda b: b.in_flight)),
        ("backend_answers_total", "counter", "Answers of a model server.", _each(backends, lambda b: b.answered)),
        ("backend_failures_total", "counter", "Failures of a model server.", _each(backends, lambda b: b.failed)),
    ]  # fmt: skip
    return "".join(family(f"medloop_gateway_{name}", kind, text, samples) for name, kind, text, samples in parts)


def _each(backends: Iterable[Backend], value: Callable[[Backend], float]) -> Iterator[tuple[str, float]]:
    for number, backend in enumerate(backends, start=1):
        yield f'{{backend="{number}",kind="{"fallback" if backend.is_fallback else "replica"}"}}', value(backend)


def _open(backend: Backend) -> float:
    return float(backend.is_open)


def _up(backend: Backend) -> float:
    return float(backend.was_seen and not backend.last_failure)
