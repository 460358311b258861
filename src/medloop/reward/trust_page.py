"""A validity card as a page for people: verdicts first, then every measure with its interval."""

from collections.abc import Iterable, Sequence

from medloop.contracts.validity import ALL, HARM, MIX, UPPER, Validity, ValidityCard, left_out_lines, quantity_name
from medloop.reward.trust import rows_of

NO_EVIDENCE = "The bundled cases were written by a language model: they show that the meter works and are not clinical evidence."
WORDS = {"trusted": "trusted", "untrusted": "UNTRUSTED", "unmeasured": "not measured"}


def page(card: ValidityCard) -> str:
    """The card in Markdown."""
    bounds = ", ".join(
        f"{quantity_name(name)} {'at most' if name in UPPER else 'at least'} {bound:g}" for name, bound in card.bounds.items()
    )
    verdicts = [(judge, WORDS[verdict], reason, version) for judge, verdict, reason, version in rows_of(card)]
    measures = [measure_row(row) for row in card.measures if row.slice == ALL]
    slices = [(row.slice, *measure_row(row)) for row in card.measures if row.slice != ALL]
    return "\n".join([
        f"# Can this reward be trusted? Version {card.reward_version}", "",
        f"Measured on {card.n_cases:,} labelled cases ({card.created:%Y-%m-%d}, cases {card.cases[7:19]}), by source: "
        f"{', '.join(f'{source} {count:,}' for source, count in card.sources.items()) or 'none'}.",
        *([NO_EVIDENCE] if card.bundled else []),
        *([repeats_note(card)] if card.repeats else []),
        *([f"Left out: {'; '.join(left_out_lines(card.left_out))}."] if card.left_out else []),
        f"A judge is trusted when each of its 95 % intervals keeps its bound as a whole ({bounds}).",
        "Not measured does not mean trusted: no case, or too few, label what the judge says.", "",
        *_table(("judge", "verdict", "why", "version"), verdicts), "",
        f"`{MIX}` is the whole reward; `{HARM}` its safety parts together: does one object to an answer that people flagged?",
        "Agreement: pairs in which the judge prefers the answer that people preferred.",
        "For a single part, only pairs on which it gives two different values count.", "",
        *_read_lines(card),
        "## All cases", "", *_table(("judge", "quantity", "value", "95 % interval", "cases", "ties", "missing"), measures), "",
        "## By language, stratum, specialty and source", "",
        *_table(("slice", "judge", "quantity", "value", "95 % interval", "cases", "ties", "missing"), slices), "",
    ])  # fmt: skip


READ_COLUMNS = ("part", "verdicts read", "clearly right", "arguable", "wrong", "reader", "of this version")
READERS = {
    "blind": "a language model, blind",
    "known": "a language model; its grades were known when verdicts were chosen",
    "author": "the author of the rules, on texts they were mended on",
    "held": "the author of the rules, on texts kept apart from mending",
}
READ_NOTE = (
    "Of what a part asserts on real answers; what it is unsure of shapes the reward and is no verdict. No clinician has read "
    "them: take a single objection for a hint, and label answers of your own. Verdicts of safety_net are never asserted."
)


def read_rows(card: ValidityCard) -> list[tuple[str, ...]]:
    """What readers made of the parts' verdicts on real text, for READ_COLUMNS: a card of few cases does not show it."""
    versions = {row.judge: row.version for row in card.judges}
    return [
        (
            row.judge, str(row.read), str(row.right), str(row.arguable), str(row.read - row.right - row.arguable),
            READERS[row.reader], "yes" if versions.get(row.judge) == row.version else "no, read at an earlier one",
        )
        for row in card.read
    ]  # fmt: skip


def _read_lines(card: ValidityCard) -> list[str]:
    if not (rows := read_rows(card)):
        return []
    return ["## Where these parts object to real answers", "", READ_NOTE, "", *_table(READ_COLUMNS, rows), ""]


def repeats_note(card: ValidityCard) -> str:
    return (
        f"{card.repeats:,} of the cases repeat the text and the label of another one, so the intervals are wider than they look."
    )


def measure_row(row: Validity) -> tuple[str, ...]:
    value = row.value
    share = "–" if value.mean is None else f"{value.mean:.2f}"
    bounds = "–" if value.low is None or value.high is None else f"{value.low:.2f} to {value.high:.2f}"
    return row.judge, quantity_name(row.quantity), share, bounds, str(value.n), str(row.ties), str(value.missing)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
