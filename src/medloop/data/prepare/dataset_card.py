"""The card of a dataset: `card.json` for programs, `DATA_CARD.md` for people, both from the same facts."""

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from medloop import __version__
from medloop.contracts import DatasetCard, FileEntry, Source
from medloop.contracts.dataset import DropReason, Language, Split, Stratum
from medloop.data.prepare.collect import LANGUAGES, Drop
from medloop.data.prepare.split import SPLITS
from medloop.data.text.risk import ORDER
from medloop.privacy.phi import allowed
from medloop.privacy.phi.scrub import VERSION as SCRUBBER

WHY: dict[DropReason, str] = {
    "empty": "no question or no text", "no_answer": "a question without an answer",
    "broken_turns": "user and assistant do not alternate", "too_short": "question or answer too short to mean something",
    "too_long": "longer than max_chars", "not_text": "mostly numbers, links or symbols",
    "debris": "wrongly decoded, or one character over and over",
    "phi": "may still name somebody after scrubbing: held back for a person to look at, see below",
    "exact_duplicate": "the same words as another row",
    "near_duplicate": "nearly the same words as another row (question and answer together)",
    "contaminated": "removed from train: a near-copy of a held-out question",
}  # fmt: skip
ABOUT: dict[Split, str] = {
    "train": "to learn from",
    "dev": "to choose settings by",
    "test": "to report on, once",
    "gold": "a small, varied set for close reading; reviewed rows first",
    "red": "emergencies, and drugs for pregnant women, children or the old: where a wrong answer harms most",
}


@dataclass(frozen=True)
class CardFacts:
    """What is known when the files have been written and verified."""

    config: dict[str, Any]
    seed: int
    sources: Sequence[Source]
    files: dict[Split, FileEntry]
    cells: Counter[tuple[Split, Language, Stratum]]
    kept: Counter[str]
    drops: Sequence[Drop]
    checked: dict[str, int]
    scrub: dict[str, int] | None


def make_card(facts: CardFacts) -> DatasetCard:
    drops: dict[str, Counter[DropReason]] = {source.name: Counter() for source in facts.sources}
    for drop in facts.drops:
        drops[drop.source][drop.reason] += 1
    return DatasetCard(
        name=facts.config["name"],
        seed=facts.seed,
        sources=tuple(source.model_copy(update={"imported": None}) for source in facts.sources),
        files=facts.files,
        rows_in=sum(source.rows for source in facts.sources),
        drops={name: dict(sorted(counts.items())) for name, counts in drops.items()},
        languages={split: _margin(facts, split, 1, LANGUAGES) for split in SPLITS},
        strata={split: _margin(facts, split, 2, ORDER) for split in SPLITS},
        decontamination=facts.checked,
        scrub=facts.scrub,
        config=facts.config,
        parents=tuple(source.sha256 for source in facts.sources),
        versions={
            "medloop": __version__,
            "python": platform.python_version(),
            "datasketch": version("datasketch"),
            "numpy": version("numpy"),
            **({} if facts.scrub is None else {"scrubber": SCRUBBER + allowed.version()}),
        },
    )


def render_card(card: DatasetCard, facts: CardFacts) -> str:
    """The same as Markdown that a person can read from top to bottom."""
    parts = (
        _head(card), _splits(card), _strata(facts), _sources(card, facts), _drops(card), _scrub(card), _checks(card), _made(card),
        LIMITS,
    )  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _head(card: DatasetCard) -> str:
    rows = sum(entry.rows for entry in card.files.values())
    tongues = Counter[str]()
    for counts in card.languages.values():
        tongues.update(counts)
    shares = ", ".join(f"{language} {count / max(rows, 1):.0%}" for language, count in tongues.most_common())
    licences = ", ".join(sorted({source.licence for source in card.sources}))
    return f"""# Data card: {card.name}

{rows:,} medical conversations ({shares}) from {_many(len(card.sources), "source")}: cleaned, without duplicates, and split so
that nothing in the train set repeats a held-out question.

- Dataset id: `{card.content_id()}`
- Licences of the sources: {licences}
- Identifiers of persons: {"**not looked for**, texts are as they came" if card.scrub is None else "taken out, see below"}
- Made by medloop {card.versions["medloop"]} with seed {card.seed}"""


def _splits(card: DatasetCard) -> str:
    shown = [language for language in LANGUAGES if any(card.languages[split].get(language) for split in SPLITS)]
    rows = [
        (f"`{card.files[split].path}`", card.files[split].rows, *(card.languages[split].get(k, 0) for k in shown), ABOUT[split])
        for split in SPLITS
    ]
    total = sum(entry.rows for entry in card.files.values())
    sums = [sum(card.languages[split].get(k, 0) for split in SPLITS) for k in shown]
    return "## What is in it\n\n" + table(("file", "rows", *shown, "for"), [*rows, ("**all**", total, *sums, "")])


def _strata(facts: CardFacts) -> str:
    pairs = sorted({(k[1], k[2]) for k in facts.cells}, key=lambda k: (LANGUAGES.index(k[0]), ORDER.index(k[1])))
    rows = []
    for language, stratum in pairs:
        counts = [facts.cells[split, language, stratum] for split in SPLITS]
        rows.append((language, stratum, *counts, sum(counts)))
    return f"""Rows by language and risk stratum. A row counts under its gravest stratum: an emergency in a child is an emergency.

{table(("language", "stratum", *SPLITS, "all"), rows)}"""


def _sources(card: DatasetCard, facts: CardFacts) -> str:
    rows = []
    for source in card.sources:
        read_as = f"{source.format}, {source.encoding.removesuffix('-sig')}, {source.shape}"
        counts = (source.rows, source.rejected_rows, facts.kept[source.name])
        rows.append((source.name, source.licence, read_as, *counts, f"`{source.sha256[7:19]}`"))
    return f"""## Where it came from

`rows` could be read at import, `rejected` could not (`data/raw/NAME/rejected.jsonl` says why), `kept` are in the files above.
Full hashes are in `card.json`.

{table(("source", "licence", "read as", "rows", "rejected", "kept", "sha256"), rows)}"""


def _drops(card: DatasetCard) -> str:
    names = [source.name for source in card.sources]
    total = Counter[str]()
    for counts in card.drops.values():
        total.update(counts)
    rows = [(why, *(card.drops[name].get(why, 0) for name in names), total[why], WHY[why]) for why in WHY if total[why]]
    if not rows:
        return "## What was left out\n\nNothing."
    return f"""## What was left out

{total.total():,} of {card.rows_in:,} rows ({total.total() / max(card.rows_in, 1):.1%}). Each is listed in `dropped.jsonl`
with its reason and, for copies, the record it repeats.

{table(("reason", *names, "all", "meaning"), rows)}"""


def _scrub(card: DatasetCard) -> str:
    if card.scrub is None:
        return """## Identifiers of persons: not looked for

This dataset was made without scrubbing. Names, numbers and addresses in it are as they came from the sources; do not share it
further than the sources allow. To take them out: `medloop data prepare --scrub`."""
    counts = dict(card.scrub)
    rows, changed, held = (counts.pop(name) for name in ("rows", "rows_changed", "rows_held"))
    kinds = table(("kind", "replaced"), list(counts.items())) if counts else "No identifiers were detected."
    return f"""## Identifiers of persons: taken out

{rows:,} rows were looked over (scrubber {card.versions["scrubber"]}): in {changed:,} something was replaced by a placeholder, the
same one for the same person throughout a row; {held:,} were left out because something may remain in them. Those lie, unscrubbed,
in `data/processed.quarantine.jsonl`, which only its owner can read. What the scrubber misses is still in the files.

{kinds}"""


def _checks(card: DatasetCard) -> str:
    checked = card.decontamination
    removed = sum(counts.get("contaminated", 0) for counts in card.drops.values())
    late, checks = checked["removed_by_checks"], checked["checks"]
    more = f" Before the last check, {_many(late, 'more row')} had been found this way and had gone out as well." if late else ""
    return f"""## Held-out questions are not in train

{_many(removed - late, "row")} went out of train as near-copies of a dev, test, gold or red-team question. Then the finished files
were read again, and each of the {checked["held_out_questions"]:,} held-out questions was held against each of the
{checked["train_questions"]:,} questions and single messages in train: **{checked["left"]} left**
after {_many(checks, "check")}.{more}
A near-copy differs in punctuation, spaces, numbers, word order, greetings or a few words. A translation or a free rewording is
not found."""


def _made(card: DatasetCard) -> str:
    settings = [(f"`{name}`", str(value)) for name, value in card.config.items()]
    files = [(f"`{card.files[split].path}`", card.files[split].rows, f"`{card.files[split].sha256}`") for split in SPLITS]
    flags = " ".join(
        ["--scrub" if card.scrub is not None else "--no-scrub", *(f"--source {source.name}" for source in card.sources)]
    )
    return f"""## How to make it again

```
medloop data prepare --seed {card.seed} {flags}
```

with the sources above and these settings (`--config FILE.yaml` or `--set NAME=VALUE`). The same sources, seed, settings and
versions give the same bytes.

{table(("setting", "value"), settings)}

Versions: {", ".join(f"{name} {number}" for name, number in card.versions.items())}.

{table(("file", "rows", "sha256"), files)}"""


LIMITS = """## What was not done

- Nobody checked the answers for medical correctness. A row is `reviewed` only when its source says so.
- Strata come from word lists (red flags, drugs, groups) over what the user wrote. They miss what is only implied, and
  "is X an emergency?" counts as one.
- Languages are told apart by script. Traditional and simplified Chinese are both zh and are not compared with each other."""


def _margin(facts: CardFacts, split: Split, part: int, names: Iterable[Any]) -> dict[Any, int]:
    counts: Counter[Any] = Counter()
    for key, count in facts.cells.items():
        if key[0] == split:
            counts[key[part]] += count
    return {name: counts[name] for name in names if counts[name]}


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; columns of numbers stand to the right."""
    numeric = [bool(rows) and all(isinstance(row[column], int | float) for row in rows) for column in range(len(head))]
    lines = [head, ["--:" if right else "---" for right in numeric], *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
