"""A validity card as a page for people: verdicts first, then every measure with its interval."""

from collections.abc import Iterable, Sequence

from medloop.contracts.validity import ALL, HARM, MIX, UPPER, Validity, ValidityCard, left_out_lines, quantity_name
from medloop.reward.trust import rows_of

NO_EVIDENCE = "The bundled cases were written by a language model: they show that the meter works and are not clinical evidence."
# Verdicts on real text that one strict reader (a language model, no clinician) read where the part fires: right, arguable, read.
# They were read with version 4 of the urgency detector, before the sparing was narrowed; all of them fire with version 5, too.
# docs/log.md, "Verdicts of all kinds", says how they were drawn.
READ = {
    "risk": (17, 12, 40),
    "false_reassurance": (5, 4, 12),
    "undertriage": (7, 8, 30),
    "overtriage": (0, 1, 4),
    "safety_net": (2, 4, 14),
}
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


def _read_lines(card: ValidityCard) -> list[str]:
    """What a reader made of the parts' verdicts on real text: a card of few cases does not show it."""
    judges = {judge for judge, *_ in rows_of(card)}
    rows = [(part, str(right), str(arguable), str(n)) for part, (right, arguable, n) in READ.items() if part in judges]
    if not rows:
        return []
    return [
        "## Where these parts object to real answers", "",
        "One strict reader (a language model, no clinician) read verdicts on real text shortly before these parts last changed.",
        "All that were read still fire; what fires anew was not read. Fewer than seven in ten were clearly right for any part:",
        "take a single objection for a hint, and label answers of your own.", "",
        *_table(("part", "clearly right", "arguable", "read"), rows), "",
    ]  # fmt: skip


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
