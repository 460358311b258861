"""How a long stage reports progress: `with progress("Reading", total) as step: step(1)`. The CLI draws bars from it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Step = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Step]]


@contextmanager
def silent(phase: str, total: int) -> Iterator[Step]:
    yield lambda count: None
