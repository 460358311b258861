"""A thread that works for as long as something else runs, for example the server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

JOIN_S = 5.0  # it is a daemon: a step that takes longer ends with the process


@contextmanager
def in_background(work: Callable[[], None], name: str, *ended: threading.Event) -> Iterator[None]:
    """Run `work` in a thread inside the block; at the end all events are set, and the thread gets some seconds to end."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        for event in ended:
            event.set()
        thread.join(JOIN_S)
