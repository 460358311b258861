"""One thread that computes: rows enter and leave the batch at every step.

    engine = Engine(batch, tokenizer, stop_ids, deliver=…)      # deliver(events) is called after each step
    engine.submit(generation)                                   # Refusal 429 when the queue is full, 503 when the engine is dead
    engine.cancel(generation)
    engine.close()

Adapters are slots. A request holds its slot from the moment it is accepted, so a name may be unloaded or switched to other
weights at any time: what was accepted is answered by the weights it was accepted for. A slot is freed when its last request ends.

An error inside a step ends the engine: every request that waits or runs is told so, and the server is not ready any more.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from medloop.serve.server.adapter_file import AdapterWeights
from medloop.serve.server.draw import draw
from medloop.serve.server.fast_batch import Entering
from medloop.serve.server.generation import Event, Generation, Output
from medloop.serve.server.lora_slots import AdapterSlot
from medloop.serve.server.refusal import Refusal
from medloop.serve.server.request_queue import RequestQueue
from medloop.serve.server.serve_metrics import ServeMetrics
from medloop.serve.server.text_stream import Decode

log = logging.getLogger(__name__)
PREFILL_TOKENS = 4096  # of all prompts that enter at one step, unless one alone is longer
STALLED_S = 120.0  # a step that takes longer makes the server unready

Deliver = Callable[[list[tuple[Generation, Event]]], None]


class RunningBatch(Protocol):
    """A forward pass over rows: `FastBatch`, or `LibraryBatch` for a model that the fast decoder does not know."""

    @property
    def backend(self) -> str: ...

    @property
    def prefix_hit_tokens(self) -> int: ...

    def __len__(self) -> int: ...

    def payload(self, weights: AdapterWeights) -> Any: ...

    def enter(self, group: Sequence[Entering]) -> Tensor: ...

    def step(self, tokens: Sequence[int]) -> Tensor: ...

    def leave(self, place: int) -> None: ...

    def free(self, slot: AdapterSlot, *, bytes_in_use: bool) -> None: ...


class Engine:
    def __init__(
        self, batch: RunningBatch, *, decode: Callable[[Sequence[int], bool], str], stop_ids: Sequence[int], deliver: Deliver,
        metrics: ServeMetrics, max_rows: int, queue_places: int,
    ) -> None:  # fmt: skip
        self.batch, self.decode, self.stop_ids, self.deliver = batch, decode, frozenset(stop_ids), deliver
        self.max_rows, self.metrics = max_rows, metrics
        self.error: BaseException | None = None
        self._queue: RequestQueue[Generation] = RequestQueue(queue_places)
        self._rows: list[Generation] = []
        self._retired: list[AdapterSlot] = []  # freed by the engine's thread
        self._live: Counter[str] = Counter()  # slots by the hash of their bytes
        self._changed = threading.Condition()
        self._closing = False
        self._step_began: float | None = None
        self._thread = threading.Thread(target=self._run, name="medloop-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        """False once the engine has died or hangs in a step."""
        began = self._step_began
        return self.error is None and not self._closing and (began is None or time.monotonic() - began < STALLED_S)

    @property
    def running(self) -> int:
        return len(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, generation: Generation) -> None:
        """Put a request into the queue. It holds its slot from here on until its last event."""
        with self._changed:
            self._refuse_dead()
            if self._queue.full_for(generation.client):
                raise Refusal(
                    429, "The server has too many waiting requests; try again later", kind="RateLimitError",
                    retry_after_s=self._retry_after(),
                )  # fmt: skip
            self._queue.put(generation)
            if generation.slot is not None:
                generation.slot.references += 1
            self._changed.notify()

    def cancel(self, generation: Generation) -> None:
        """Nobody waits for it any more; a running one leaves before the next step."""
        with self._changed:
            generation.cancelled = True
            if self._queue.remove(generation):
                self._release(generation)
            self._changed.notify()

    def add_slot(self, slot: AdapterSlot) -> None:
        with self._changed:
            self._refuse_dead()
            self._live[slot.sha256] += 1

    def retire(self, slot: AdapterSlot) -> None:
        """No new request gets this slot; it is freed when its last one has ended."""
        with self._changed:
            slot.retired = True
            if slot.references == 0:
                self._retired.append(slot)
                self._changed.notify()

    def close(self) -> None:
        """End the thread; what still waits is told so."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _refuse_dead(self) -> None:
        if self.error is not None:
            raise Refusal(503, "The engine has stopped after an error; restart the server")
        if self._closing:
            raise Refusal(503, "The server is shutting down", retry_after_s=5)

    def _retry_after(self) -> int:
        seconds = self.metrics.mean_request_s() * len(self._queue) / self.max_rows
        return int(min(60, max(1, math.ceil(seconds))))

    def _release(self, generation: Generation) -> None:
        """Under the lock: the request is over."""
        slot = generation.slot
        if slot is not None:
            slot.references -= 1
            if slot.retired and slot.references == 0:
                self._retired.append(slot)

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._step_began = time.monotonic()
                self._step()
                self._step_began = None
        except BaseException as error:
            log.error("The engine stopped: %s", type(error).__name__, exc_info=error)
            self.error = error
        self._end()

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not (self._closing or self._rows or len(self._queue) or self._retired):
                self._changed.wait()
            return not self._closing

    def _end(self) -> None:
        """Tell everybody who waits or runs."""
        with self._changed:
            left = [*self._rows, *self._queue.take_all()]
            self._rows.clear()
            for generation in left:
                self._release(generation)
        died = self.error is not None
        refusal = Refusal(500, "The engine stopped after an error") if died else Refusal(503, "The server is shutting down")
        self._tell([(generation, refusal) for generation in left])

    def _step(self) -> None:
        self._free_slots()
        for place in reversed(range(len(self._rows))):
            if self._rows[place].cancelled:
                self._leave(place)
        self._enter()
        if not self._rows:
            return
        began = time.perf_counter()
        logits = self.batch.step([generation.last_token for generation in self._rows])
        self._draw(logits, range(len(self._rows)))
        self.metrics.step(time.perf_counter() - began, len(self._rows))

    def _enter(self) -> None:
        """Waiting requests become rows while there is room, and get their first token."""
        group: list[Generation] = []
        tokens = 0
        with self._changed:
            running = Counter(generation.client for generation in self._rows)
            while len(self._queue) and len(self._rows) + len(group) < self.max_rows:
                generation = self._queue.take(running)
                group.append(generation)
                running[generation.client] += 1
                tokens += len(generation.prompt)
                if tokens > PREFILL_TOKENS:
                    break
            self._rows += group  # from here on an error reaches them
        if not group:
            return
        before = len(self.batch)
        try:
            logits = self.batch.enter([Entering(generation.prompt, generation.slot) for generation in group])
        except torch.OutOfMemoryError:
            if len(self.batch) != before:
                raise
            self._give_up(group)
            return
        self._draw(logits, range(len(self._rows) - len(group), len(self._rows)))

    def _give_up(self, group: list[Generation]) -> None:
        """Prompts that do not fit into memory beside the running rows; those go on."""
        with self._changed:
            del self._rows[len(self._rows) - len(group) :]
            for generation in group:
                self._release(generation)
        refusal = Refusal(503, "There is not enough memory for this request now; try again later", retry_after_s=5)
        self._tell([(generation, refusal) for generation in group])

    def _draw(self, logits: Tensor, places: range) -> None:
        """Draw a token for these rows, tell who waits, and let the rows that ended leave."""
        rows = [self._rows[place] for place in places]
        drawn = draw(logits, [row.params for row in rows], [row.random for row in rows])
        events: list[tuple[Generation, Event]] = []
        for row, token in zip(rows, drawn, strict=True):
            event = row.accept(token, self._decode_for(row), self.stop_ids)
            if event is not None:
                events.append((row, event))
        ended = {id(row) for row, event in events if _is_last(event)}
        for place in reversed(places) if ended else ():
            row = self._rows[place]
            if id(row) in ended:
                self._leave(place)
                self.metrics.finished(row)
        if events:
            self._tell(events)

    def _decode_for(self, generation: Generation) -> Decode:
        skip = generation.params.skip_special_tokens
        return lambda tokens: self.decode(tokens, skip)

    def _leave(self, place: int) -> None:
        self.batch.leave(place)
        with self._changed:
            generation = self._rows[place]
            self._rows[place] = self._rows[-1]
            self._rows.pop()
            self._release(generation)

    def _free_slots(self) -> None:
        with self._changed:
            retired, self._retired = self._retired, []
            for slot in retired:
                self._live[slot.sha256] -= 1
        for slot in retired:
            self.batch.free(slot, bytes_in_use=self._live[slot.sha256] > 0)

    def _tell(self, events: list[tuple[Generation, Event]]) -> None:
        try:
            self.deliver(events)
        except RuntimeError:  # the event loop has been closed: nobody listens any more
            log.debug("events of %d requests had no listener", len(events))


def _is_last(event: Event) -> bool:
    return not isinstance(event, Output) or event.finish_reason is not None
