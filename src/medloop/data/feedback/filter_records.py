"""Which records of the store fit a filter (contracts/record_filter.py), and how many there are.

    facts = RecordFacts(store)
    facts.fits(tree, record, trace)                # for `medloop data build --filter FILE`
    count_fitting(store, tree, actor="user:li")    # for `medloop data filter FILE`, its route and its page

What needs the text (language, stratum) is looked at last, when a condition asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from medloop.contracts import Correction, Feedback, Preference, Trace
from medloop.contracts.polarity import label, polarity
from medloop.contracts.record_filter import FactValue, FilterTree
from medloop.data.text.risk import strata_of
from medloop.lexicon.language import detect_language
from medloop.store.db import Store
from medloop.store.records import crud, lineage
from medloop.store.records.audited_read import CitedTraces, read_pages
from medloop.store.records.scores import reward_values
from medloop.store.records.users import list_users

Judged = Feedback | Preference | Correction
KIND_OF: dict[type[Judged], str] = {Feedback: "rating", Preference: "choice", Correction: "correction"}
PURPOSE = "data filter"


@dataclass(frozen=True)
class FilterCounts:
    """Records in the newest version of each, and those of them that fit; `kinds`, `languages` and `strata` are of these."""

    records: int
    fitting: int
    kinds: dict[str, int] = field(default_factory=dict)
    languages: dict[str, int] = field(default_factory=dict)
    strata: dict[str, int] = field(default_factory=dict)


class RecordFacts:
    """What is known about a record, field by field."""

    def __init__(self, store: Store) -> None:
        self._store = store
        people = list_users(store)
        self._names = {user.user_id: user.name for user in people}
        self._roles = {user.user_id: user.role for user in people}
        self._rewards: dict[str, float] = {}

    def load_rewards(self, traces: list[str]) -> None:
        """Of the next records; without this no record has a reward."""
        self._rewards = reward_values(self._store, traces)

    def fits(self, tree: FilterTree, record: Judged, trace: Trace | None) -> bool:
        return tree.matches(lambda name: self.of(name, record, trace))

    def of(self, name: str, record: Judged, trace: Trace | None) -> FactValue:
        if name.startswith("axis."):
            stars = record.axes.get(name.removeprefix("axis.")) if isinstance(record, Feedback) else None
            return None if stars is None else float(stars)
        return FACTS[name](self, record, trace)

    def rater(self, record: Judged) -> frozenset[str]:
        name = record.clinician_id or record.recorded_by
        return frozenset(filter(None, (name, self._names.get(name or ""))))

    def role(self, record: Judged) -> frozenset[str]:
        return frozenset(filter(None, (self._roles.get(record.clinician_id or record.recorded_by or ""),)))

    def reward(self, record: Judged) -> float | None:
        return self._rewards.get(record.trace_id or "")


def question_of(record: Judged) -> str:
    return record.exchange[0]


def _liked(record: Judged) -> frozenset[str] | None:
    if not isinstance(record, Feedback):
        return None
    liked = label(polarity(thumb=record.thumb, stars=record.rating, feedback_type=record.feedback_type, critical=record.critical))
    return None if liked is None else frozenset({"yes" if liked else "no"})


def _versions(record: Judged, trace: Trace | None) -> frozenset[str]:
    own = (record.model_a, record.model_b) if isinstance(record, Preference) else (getattr(record, "model_version", None),)
    return frozenset(filter(None, (*own, trace.model_version if trace else None)))


def _agent(record: Judged, trace: Trace | None) -> frozenset[str]:
    return frozenset(filter(None, (getattr(record, "agent_name", None), trace.agent_name if trace else None)))


def _stars(record: Judged) -> float | None:
    return float(record.rating) if isinstance(record, Feedback) and record.rating is not None else None


def _critical(record: Judged) -> frozenset[str]:
    return frozenset({"yes" if getattr(record, "critical", False) else "no"})


FACTS: dict[str, Callable[[RecordFacts, Judged, Trace | None], FactValue]] = {
    "kind": lambda facts, record, trace: frozenset({KIND_OF[type(record)]}),
    "stars": lambda facts, record, trace: _stars(record),
    "liked": lambda facts, record, trace: _liked(record),
    "critical": lambda facts, record, trace: _critical(record),
    "reward": lambda facts, record, trace: facts.reward(record),
    "rater": lambda facts, record, trace: facts.rater(record),
    "role": lambda facts, record, trace: facts.role(record),
    "version": lambda facts, record, trace: _versions(record, trace),
    "agent": lambda facts, record, trace: _agent(record, trace),
    "day": lambda facts, record, trace: frozenset({record.timestamp.date().isoformat()}),
    "consent": lambda facts, record, trace: frozenset(record.consent),
    "language": lambda facts, record, trace: frozenset({detect_language(question_of(record))}),
    "stratum": lambda facts, record, trace: frozenset(strata_of(question_of(record))),
}


def count_fitting(store: Store, tree: FilterTree, *, actor: str) -> FilterCounts:
    """Count the records that fit, whatever they allow: a build says how many of them may be learnt from."""
    facts, erased = RecordFacts(store), lineage.erased_ids(store)
    cited = CitedTraces(store, KIND_OF, actor=actor, purpose=PURPOSE)
    seen, kinds, languages, strata = 0, Counter[str](), Counter[str](), Counter[str]()
    for kind in KIND_OF:
        superseded = lineage.superseded(store, crud.TABLES[kind])
        for page in read_pages(store, kind, actor=actor, purpose=PURPOSE):
            traces = cited.get(record.trace_id for _, record in page)
            facts.load_rewards(sorted(traces))
            for _, record in page:
                if crud.id_of(record) in erased or crud.id_of(record) in superseded:
                    continue
                seen += 1
                if facts.fits(tree, record, traces.get(record.trace_id or "")):
                    kinds[KIND_OF[kind]] += 1
                    languages[detect_language(question_of(record))] += 1
                    strata[strata_of(question_of(record))[0]] += 1
    return FilterCounts(seen, kinds.total(), dict(kinds), dict(languages), dict(strata))
