"""What came of the feedback: how often the newest reward model is right, and how much the newest policy gained.

Both are read from the cards in the catalog, as the trainer measured them on held-out rows; nothing is measured again here.
"""

from typing import Any

from medloop.contracts import Interval
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.store import catalog
from medloop.store.catalog import CatalogEntry
from medloop.store.db import Store


class TrainedResult(Contract):
    """One number of a trained model with its interval. `tainted`: an erasure touched what it learnt from."""

    name: Text
    method: Text
    value: Interval
    finished: Timestamp | None = None
    tainted: bool = False


def reward_model_accuracy(store: Store) -> TrainedResult | None:
    """Share of held-out pairs that the newest reward model ranks as people did; None without a reward model."""
    return _newest(store, ("reward model",), "test_accuracy", "test_pairs")


def policy_gain(store: Store) -> TrainedResult | None:
    """Held-out reward after minus before, of the newest policy trained with RL; None without one."""
    return _newest(store, ("adapter", "model"), "held_out_gain", "held_out")


def _newest(store: Store, kinds: tuple[str, ...], metric: str, count: str) -> TrainedResult | None:
    for entry in catalog.newest_first(store, kinds):
        metrics: dict[str, Any] = entry.card.get("metrics", {})
        if metric in metrics:
            return _result(entry, metric, int(metrics.get(count, 0)))
    return None


def _result(entry: CatalogEntry, metric: str, n: int) -> TrainedResult:
    metrics = entry.card["metrics"]
    value = Interval(mean=metrics[metric], low=metrics.get(f"{metric}_low"), high=metrics.get(f"{metric}_high"), n=n)
    return TrainedResult(
        name=entry.card.get("name", entry.path.name), method=entry.card.get("method", entry.kind), value=value,
        finished=entry.card.get("finished"), tainted="tainted" in entry.flags,
    )  # fmt: skip
