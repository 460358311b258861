"""Whether the splits are large enough for the gate: a clinic learns it when it prepares its data, not after the training."""

from collections.abc import Iterator

from medloop.contracts import DatasetCard
from medloop.contracts.dataset import Split
from medloop.contracts.gate_config import GateConfig
from medloop.data.prepare.prepare import PrepareConfig
from medloop.data.prepare.split import SPLITS

SHARE = 10  # gold and red get at most a tenth of the rows each (split.py)


def too_small(card: DatasetCard, chosen: PrepareConfig, policy: GateConfig) -> Iterator[str]:
    """Sentences about the splits that the gate needs and that have too few rows, and what helps."""
    needed = policy.min_cases
    small = {split: card.files[split].rows for split in SPLITS if split != "train" and split in policy.required_suites}
    small = {split: rows for split, rows in small.items() if rows < needed}
    if not small:
        return
    counts = " and ".join(f"{split} has {rows:,}" for split, rows in small.items())
    yield f"Too few rows for the gate: {counts}. It needs at least {needed} scored cases of each, or no model can pass."
    copies = sum(counts.get("contaminated", 0) for counts in card.drops.values())  # left train after the splits were drawn
    rows = sum(entry.rows for entry in card.files.values()) + copies
    if rows < SHARE * needed:
        yield (
            f"Import more data: gold and red get at most a tenth of the rows each, so the gate needs about {SHARE * needed:,} "
            f"rows after duplicates are dropped; there are {rows:,}."
        )
        return
    asked: dict[Split, float] = {"gold": chosen.gold, "red": chosen.red, "dev": chosen.dev * rows, "test": chosen.test * rows}
    if flags := [f"--{split} {needed}" for split in small if split in ("gold", "red") and asked[split] < needed]:
        yield f"Ask for more of them: medloop data prepare {' '.join(flags)}"
    if shares := [f"--{split}" for split in small if split in ("dev", "test") and asked[split] < needed]:
        yield f"Ask for a larger share of the rows: {' and '.join(shares)}"
    if any(asked[split] >= needed for split in small):
        half = ", and red gets at most half of the dangerous ones" if "red" in small else ""
        yield f"Import more data: only questions that no other row repeats are held out{half}."
