"""Every kind of job in one table. To add one, write its function (`Work` in, one sentence out) and enter it here.

A new pool is one line here as well: queue and supervisor know pools only by the kinds and by the first part of a job's id.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from medloop.contracts import TrainRequest
from medloop.contracts.job import TaskRequest
from medloop.errors import ConfigError
from medloop.jobs import tasks
from medloop.jobs.tasks import Work
from medloop.loop.train import STAGES

Channel = Literal["http", "keyboard", "trigger"]


@dataclass(frozen=True)
class Pool:
    """Kinds of one pool share its slots and do not wait for those of another; `name` begins the ids of their jobs."""

    name: str  # lower-case letters
    slots: int | None  # jobs at once; None: as many as the supervisor was given


TRAINING = Pool("train", slots=None)
DATA = Pool("data", slots=1)  # apart: an erasure must not wait for days of training, which may learn what has to go
INSPECTION = Pool("inspect", slots=1)  # apart: a clinician waits for it
GATE = Pool("gate", slots=1)  # apart from both: a gate answers hundreds of questions with two models


@dataclass(frozen=True)
class Kind:
    """How jobs of a kind are run and treated. `run` returns the sentence that the job's record keeps."""

    name: str
    run: Callable[[Work], str]
    request: type[TrainRequest | TaskRequest]
    pool: Pool
    filed_by: frozenset[Channel]
    cancellable: bool = True
    checkpointed: bool = True  # it continues where it was; otherwise it starts again
    urgent: bool = False  # comes before the others of its pool
    retries_when_busy: bool = False  # it goes back into the queue when something that it needs is in use
    out_of_memory: str = "End other programs"  # what to do about it


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise ConfigError(f"There is no job kind {name}", f"Known: {', '.join(KINDS)}")
    return KINDS[name]


def slots_of_pools(training: int) -> dict[str, int]:
    """How many jobs of each pool may run at once, with so many slots for training."""
    return {kind.pool.name: training if kind.pool.slots is None else kind.pool.slots for kind in KINDS.values()}


def _training(name: str) -> Kind:
    advice = "Lower micro_batch_size or max_new_tokens, or use a smaller model"
    channels: frozenset[Channel] = frozenset(("http", "keyboard", "trigger"))
    return Kind(name, tasks.train, TrainRequest, TRAINING, channels, out_of_memory=advice)


KINDS: dict[str, Kind] = {
    **{name: _training(name) for name in STAGES},
    "BUILD": Kind(
        "BUILD", tasks.build_dataset, TaskRequest, DATA, frozenset(("http",)), checkpointed=False, retries_when_busy=True
    ),
    # A person's erasure is carried out, whatever happens: nobody may cancel it, and it does not wait for datasets.
    "ERASE": Kind(
        "ERASE", tasks.erase, TaskRequest, DATA, frozenset(("http",)), cancellable=False, checkpointed=False, urgent=True,
        retries_when_busy=True,
    ),
    # Its answers are cached, so one that starts again asks for what is left.
    "GATE": Kind("GATE", tasks.decide_gate, TaskRequest, GATE, frozenset(("http",)), checkpointed=False),
    "INSPECT": Kind(
        "INSPECT", tasks.draw_inspection, TaskRequest, INSPECTION, frozenset(("http",)), checkpointed=False,
        retries_when_busy=True,
    ),
}  # fmt: skip
