"""Numbers of the running server in Prometheus' text format; names of models, never a text or an address."""

from __future__ import annotations

import bisect
import threading
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medloop.serve.server.generation import Generation

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Histogram:
    def __init__(self) -> None:
        self.buckets, self.sum, self.count = [0] * (len(SECONDS) + 1), 0.0, 0

    def add(self, seconds: float) -> None:
        self.buckets[bisect.bisect_left(SECONDS, seconds)] += 1
        self.sum, self.count = self.sum + seconds, self.count + 1

    def lines(self, name: str, help_text: str) -> Iterable[str]:
        yield f"# HELP {name} {help_text}"
        yield f"# TYPE {name} histogram"
        below = 0
        for limit, count in zip((*SECONDS, "+Inf"), self.buckets, strict=True):
            below += count
            yield f'{name}_bucket{{le="{limit}"}} {below}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {self.count}"


class ServeMetrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.responses: Counter[tuple[str, int]] = Counter()
        self.prompt_tokens: Counter[str] = Counter()
        self.answer_tokens: Counter[str] = Counter()
        self.rows_computed = 0
        self.steps, self.first_tokens, self.requests = _Histogram(), _Histogram(), _Histogram()

    def step(self, seconds: float, rows: int) -> None:
        with self._lock:
            self.steps.add(seconds)
            self.rows_computed += rows

    def finished(self, generation: Generation) -> None:
        name = "" if generation.slot is None else generation.slot.name
        with self._lock:
            self.prompt_tokens[name] += len(generation.prompt)
            self.answer_tokens[name] += generation.tokens
            self.first_tokens.add(generation.first_token_s)
            self.requests.add(generation.seconds)

    def response(self, route: str, status: int) -> None:
        with self._lock:
            self.responses[route, status] += 1

    def mean_request_s(self) -> float:
        with self._lock:
            return self.requests.sum / self.requests.count if self.requests.count else 1.0

    def render(self, gauges: dict[str, tuple[str, float]], base: str) -> str:
        """`gauges` are name: (help, value) of this moment; `base` is the name of the base model."""
        with self._lock:
            lines = [
                line
                for name, (help_text, value) in gauges.items()
                for line in (f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {value:g}")
            ]
            lines += _counter("medloop_serve_responses_total", "Responses by route and status.", {
                f'route="{route}",status="{status}"': count for (route, status), count in self.responses.items()
            })  # fmt: skip
            for name, help_text, counts in (
                ("medloop_serve_prompt_tokens_total", "Tokens of answered prompts by model.", self.prompt_tokens),
                ("medloop_serve_answer_tokens_total", "Tokens of finished answers by model.", self.answer_tokens),
            ):
                lines += _counter(name, help_text, {f'model="{_escaped(model or base)}"': n for model, n in counts.items()})
            lines += _counter("medloop_serve_rows_computed_total", "Rows of all steps.", {"": self.rows_computed})
            for histogram, name, help_text in (
                (self.steps, "medloop_serve_step_seconds", "Seconds of one step for all rows."),
                (self.first_tokens, "medloop_serve_first_token_seconds", "Seconds from the request to its first token."),
                (self.requests, "medloop_serve_request_seconds", "Seconds from the request to its last token."),
            ):
                lines += histogram.lines(name, help_text)
        return "\n".join(lines) + "\n"


def _counter(name: str, help_text: str, values: dict[str, float]) -> list[str]:
    series = [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in values.items()]
    return [f"# HELP {name} {help_text}", f"# TYPE {name} counter", *series]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
