"""From what people said to rows a model can learn from. Pure: records in, drafts out, in an order that only their words decide.

    pairs      what most raters chose; an expert's answer over the one it corrects and over what most did not like; a liked
               over a disliked answer to the same question. Where two of these disagree, the one named first here counts
    thumbs     whether most raters liked an answer
    answers    experts' answers, and on request those that most raters liked
    red        questions whose answer somebody called a critical failure

A rater who spoke twice about the same thing counts once, with the last word. As many for as against: nothing is decided.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from medloop.data.feedback.select import Fix, Mark, Material, Question, Vote

RowKind = Literal["pairs", "thumbs", "answers", "red"]
Pair = tuple[str, str]
MOST_RATED = 100  # liked and disliked answers to one question that are held against each other: those with the most records
V = TypeVar("V", bound="Vote | Mark")


@dataclass(frozen=True)
class Draft:
    """A row before scrubbing; `texts` are (chosen, rejected), (answer,) or nothing. `records` are the ids behind it."""

    kind: RowKind
    question: Question
    texts: tuple[str, ...]
    records: tuple[str, ...]
    about: dict[str, Any]

    @property
    def order(self) -> bytes:
        """Where it stands in every list: decided by its own words, not by when it came."""
        said = "\0".join((self.question.key, *(plain(text) for text in self.texts)))
        return hashlib.sha256(said.encode("utf-8", errors="surrogatepass")).digest()


@dataclass(frozen=True)
class Drafts:
    rows: list[Draft]
    drops: Counter[tuple[str, str]]  # (kind, reason)
    dropped: list[tuple[str, str, tuple[str, ...]]]  # kind, reason, records


def plain(text: str) -> str:
    return " ".join(text.split())


def draft(material: Material, *, max_pairs: int, liked_answers: bool) -> Drafts:
    """Every row that the material gives, each once, with all records that speak for it.

    Nothing here compares answers to different questions, so the material of one question can be drafted by itself.
    """
    found = Drafts([], Counter(), [])
    verdicts = _verdicts(material.marks, found)
    found.rows.extend(_pairs(material, verdicts, max_pairs, found))
    found.rows.extend(_thumbs(verdicts))
    found.rows.extend(_answers(material.fixes, verdicts if liked_answers else []))
    found.rows.extend(_red(material.marks))
    found.rows.sort(key=lambda row: (row.kind, row.order))
    return found


@dataclass(frozen=True)
class Verdict:
    """What raters think of one answer to one question."""

    question: Question
    answer: str
    liked: bool
    critical: bool
    votes: tuple[int, int]
    records: tuple[str, ...]


def _drop(found: Drafts, kind: str, reason: str, records: Iterable[str]) -> None:
    found.drops[kind, reason] += 1
    found.dropped.append((kind, reason, tuple(sorted(records))))


def last_words(said: Sequence[V]) -> list[V]:
    """One word a rater; those who gave no name are different people."""
    kept: dict[object, V] = {}
    for one in sorted(said, key=lambda one: (one.when, one.record_id)):
        kept[one.rater or ("", one.record_id)] = one
    return list(kept.values())


def _verdicts(marks: Sequence[Mark], found: Drafts) -> list[Verdict]:
    groups: dict[Pair, list[Mark]] = {}
    for mark in marks:
        groups.setdefault((mark.question.key, plain(mark.answer)), []).append(mark)
    verdicts = []
    for group in groups.values():
        first, words = _first(group), [mark for mark in last_words(group) if mark.liked is not None]
        ups = sum(bool(mark.liked) for mark in words)
        ids = tuple(sorted(mark.record_id for mark in group))
        if 2 * ups == len(words):
            _drop(found, "thumbs", "tie" if words else "undecided", ids)
            continue
        critical = any(mark.critical for mark in words)
        verdicts.append(Verdict(first.question, first.answer, 2 * ups > len(words), critical, (ups, len(words) - ups), ids))
    return verdicts


def _first(group: Sequence[V]) -> V:
    return min(group, key=lambda one: (one.when, one.record_id))


def _thumbs(verdicts: Sequence[Verdict]) -> list[Draft]:
    return [
        Draft("thumbs", one.question, (one.answer,), one.records, {"liked": one.liked, "up": one.votes[0], "down": one.votes[1]})
        for one in verdicts
    ]  # fmt: skip


def _answers(fixes: Sequence[Fix], verdicts: Sequence[Verdict]) -> list[Draft]:
    groups: dict[Pair, list[Fix]] = {}
    for fix in fixes:
        groups.setdefault((fix.question.key, plain(fix.golden)), []).append(fix)
    rows = []
    for group in groups.values():
        first = min(group, key=lambda fix: (fix.when, fix.record_id))
        ids = tuple(sorted(fix.record_id for fix in group))
        rows.append(Draft("answers", first.question, (first.golden,), ids, {"from": "correction"}))
    known = set(groups)
    for one in verdicts:
        if one.liked and not one.critical and (one.question.key, plain(one.answer)) not in known:
            rows.append(Draft("answers", one.question, (one.answer,), one.records, {"from": "rating"}))
    return rows


def _red(marks: Sequence[Mark]) -> list[Draft]:
    groups: dict[str, list[Mark]] = {}
    for mark in marks:
        if mark.critical:
            groups.setdefault(mark.question.key, []).append(mark)
    return [
        Draft("red", _first(group).question, (), tuple(sorted(mark.record_id for mark in group)), {"from": "critical"})
        for group in groups.values()
    ]  # fmt: skip


@dataclass
class _Candidate:
    """Two answers to one question and which is better, as one source sees it. A lower `rank` is the stronger word."""

    rank: int
    question: Question
    chosen: str
    rejected: str
    records: set[str]
    about: dict[str, Any]

    @property
    def both(self) -> tuple[str, frozenset[str]]:
        return self.question.key, frozenset((plain(self.chosen), plain(self.rejected)))

    @property
    def way(self) -> tuple[str, str]:
        return plain(self.chosen), plain(self.rejected)


def _pairs(material: Material, verdicts: Sequence[Verdict], most: int, found: Drafts) -> list[Draft]:
    decided, undecided = _votes(material.votes, found)
    best: dict[tuple[str, frozenset[str]], _Candidate] = {}
    for one in sorted([*decided, *_corrected(material.fixes, verdicts), *_rated(verdicts)], key=lambda one: one.rank):
        if one.both in undecided:
            continue
        known = best.setdefault(one.both, one)
        if known is not one and known.way == one.way:
            known.records |= one.records
        elif known is not one:
            _drop(found, "pairs", "contradiction", one.records)
    return _capped(best.values(), most, found)


def _capped(candidates: Iterable[_Candidate], most: int, found: Drafts) -> list[Draft]:
    """At most so many pairs a question: one that everybody asks must not be half of the data."""
    rows, counts = [], Counter[str]()
    drafts = [
        (one.rank, Draft("pairs", one.question, (one.chosen, one.rejected), tuple(sorted(one.records)), one.about))
        for one in candidates
    ]
    for _, row in sorted(drafts, key=lambda pair: (pair[0], -len(pair[1].records), pair[1].order)):
        if counts[row.question.key] == most:
            _drop(found, "pairs", "too_many", row.records)
            continue
        counts[row.question.key] += 1
        rows.append(row)
    return rows


def _votes(votes: Sequence[Vote], found: Drafts) -> tuple[list[_Candidate], set[tuple[str, frozenset[str]]]]:
    """What most raters chose, and what they are divided about."""
    groups: dict[tuple[str, frozenset[str]], list[Vote]] = {}
    for vote in votes:
        answers = frozenset(plain(answer) for answer in vote.answers)
        if len(answers) < 2:
            _drop(found, "pairs", "same_answer", [vote.record_id])
            continue
        groups.setdefault((vote.question.key, answers), []).append(vote)
    decided, undecided = [], set()
    for both, group in groups.items():
        words = Counter(plain(vote.answers[vote.chosen]) for vote in last_words(group))
        ids = {vote.record_id for vote in group}
        (winner, ups), *rest = words.most_common()
        downs = rest[0][1] if rest else 0
        if ups == downs:
            undecided.add(both)
            _drop(found, "pairs", "tie", ids)
            continue
        first = _first(group)
        at = 0 if plain(first.answers[0]) == winner else 1
        about = {"from": "votes", "for": ups, "against": downs}
        decided.append(_Candidate(0, first.question, first.answers[at], first.answers[1 - at], ids, about))
    return decided, undecided


def _corrected(fixes: Sequence[Fix], verdicts: Sequence[Verdict]) -> list[_Candidate]:
    """An expert's answer over the one it corrects, and over what most raters did not like."""
    disliked: dict[str, list[Verdict]] = {}
    for one in verdicts:
        if not one.liked:
            disliked.setdefault(one.question.key, []).append(one)
    disliked = {key: _weightiest(group) for key, group in disliked.items()}
    found = []
    for fix in sorted(fixes, key=lambda fix: (fix.when, fix.record_id)):
        worse = [(fix.original, {fix.record_id})]
        worse += [(one.answer, {fix.record_id, *one.records}) for one in disliked.get(fix.question.key, ())]
        found += [
            _Candidate(1, fix.question, fix.golden, answer, set(ids), {"from": "correction"})
            for answer, ids in worse
            if plain(answer) != plain(fix.golden)
        ]
    return found


def _rated(verdicts: Sequence[Verdict]) -> list[_Candidate]:
    groups: dict[str, list[Verdict]] = {}
    for one in verdicts:
        groups.setdefault(one.question.key, []).append(one)
    return [
        _Candidate(2, up.question, up.answer, down.answer, {*up.records, *down.records}, {"from": "ratings"})
        for group in groups.values()
        for up in _weightiest([one for one in group if one.liked])
        for down in _weightiest([one for one in group if not one.liked])
    ]


def _weightiest(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Few pairs of a question are kept in the end; thousands of answers to one would make millions on the way."""
    if len(verdicts) <= MOST_RATED:
        return list(verdicts)
    return sorted(verdicts, key=lambda one: (-len(one.records), plain(one.answer)))[:MOST_RATED]
