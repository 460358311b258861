"""What the codebook has done since: votes of later feedback, and what each clinician taught.

    count_votes(store, actor="usr_1")         # feedback and corrections that came since the last look
    taught_by(store, "usr_1")                 # [Taught(correction, entry, counts, trial)]

A vote is for the entries that stood in the prompt of the answer, by its trace: a liked answer helps, one that was disliked,
flagged as critical or corrected harms.
"""

from dataclasses import dataclass

from medloop.contracts import CodebookEntry, CodebookTrial, Correction, Feedback, Trace
from medloop.contracts.polarity import polarity
from medloop.store.db import Store
from medloop.store.records import codebook, codebook_votes, crud
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.codebook_votes import RuleVote, VoteCounts

PURPOSE = "codebook"


@dataclass(frozen=True)
class Taught:
    """A correction's entry in the codebook and its effect since: the votes, and its newest trial."""

    entry: CodebookEntry
    is_live: bool
    counts: VoteCounts
    trial: CodebookTrial | None


def count_votes(store: Store, *, actor: str) -> int:
    """Look at the feedback and the corrections since the last look; returns how many votes are new."""
    new, seen = 0, codebook_votes.cursor(store)
    if not codebook.versions(store, limit=1):
        return 0  # no answer can have used an entry yet
    feedback_row, correction_row = seen.feedback_row, seen.correction_row
    while page := crud.page(store, Feedback, after=feedback_row):
        feedback_row = page[-1][0]
        votes = [(record.feedback_id, record.trace_id, helps(record)) for _, record in page]
        new += codebook_votes.add_votes(store, _votes(store, votes, actor), feedback_row=feedback_row)
    while corrections := crud.page(store, Correction, after=correction_row):
        correction_row = corrections[-1][0]
        votes = [(record.correction_id, record.trace_id, False) for _, record in corrections]
        new += codebook_votes.add_votes(store, _votes(store, votes, actor), correction_row=correction_row)
    return new


def taught_by(store: Store, correction_ids: list[str]) -> dict[str, Taught]:
    """The entry that came from each of these corrections, where there is one: the newest revision of it."""
    live = {entry.entry_id for entry in codebook.live(store).entries}
    counts, taught = codebook_votes.counts(store), dict[str, Taught]()
    for entry in codebook.by_evidence(store, correction_ids):  # newest first
        for record_id in set(entry.evidence) & set(correction_ids) - set(taught):
            votes, trials = counts.get(entry.entry_id, VoteCounts()), codebook.trials(store, entry.revision_id)
            taught[record_id] = Taught(entry, entry.entry_id in live, votes, trials[0] if trials else None)
    return taught


def helps(record: Feedback) -> bool | None:
    """Whether an answer was liked; None where the feedback says neither."""
    word = polarity(thumb=record.thumb, stars=record.rating, feedback_type=record.feedback_type, critical=record.critical)
    return None if word in (None, "neutral", "mixed") else word == "positive"


def _votes(store: Store, said: list[tuple[str, str | None, bool | None]], actor: str) -> list[RuleVote]:
    about = {trace_id for _, trace_id, helps in said if trace_id and helps is not None}
    traces = read_by_ids(store, Trace, about, actor=actor, purpose=PURPOSE) if about else []
    rules = {trace.trace_id: rules_of(trace) for trace in traces}
    return [
        RuleVote(record_id, trace_id, entry_id, helps)
        for record_id, trace_id, helps in said
        if trace_id and helps is not None
        for entry_id in rules.get(trace_id, ())
    ]


def rules_of(trace: Trace) -> tuple[str, ...]:
    """The entries that stood in the prompt of an answer."""
    rules = trace.meta.get("rules")
    return tuple(name for name in rules if isinstance(name, str)) if isinstance(rules, list) else ()
