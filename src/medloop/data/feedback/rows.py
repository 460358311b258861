"""The feedback about one prompt as training rows. Pure: feedback in, row drafts out, in an order that only their texts decide.

    pairs      what the raters chose; an expert's answer over the one it corrects and over what most did not like; a liked
               over a disliked answer to the same prompt. Where two of these disagree, the one named first here counts
    thumbs     whether most raters liked an answer
    answers    experts' answers, and on request those that most raters liked
    red        prompts whose answer somebody flagged as a critical failure

A rater who judged the same thing twice counts once, with the latest judgement. "Most" means the greater weight of the raters, not
their number. A tie decides nothing. An answer that somebody flagged as a critical failure is never the better one of a pair.
An expert's answer weighs what its authors weigh; where raters of at least that weight disliked it, nothing learns from it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from medloop.contracts import Message

RowKind = Literal["pairs", "thumbs", "answers", "red"]
SAME_WEIGHT = 1e-9  # a smaller difference is a tie
MAX_RATED = 100  # liked and disliked answers to one prompt that are paired with each other: those with the most records


@dataclass(frozen=True)
class FeedbackPrompt:
    """What was asked: the conversation up to the answer, the passages that the assistant was given, and who was asked.

    `key` is the same for the same words. `specialty` is what the trace says about itself, if it does.
    """

    messages: tuple[Message, ...]
    context: tuple[str, ...] = ()
    specialty: str | None = None

    @property
    def key(self) -> str:
        """Case, white space, the system message and the passages do not make another prompt."""
        messages = (
            f"{message.role}:{' '.join(message.content.casefold().split())}"
            for message in self.messages
            if message.role != "system"
        )
        return "\n".join(messages)

    @property
    def user_text(self) -> str:
        """All messages of the user."""
        return "\n".join(message.content for message in self.messages if message.role == "user")


@dataclass(frozen=True)
class Choice:
    """One person's choice between two answers; `chosen` is None where they are equal, both bad, or the better one is harmful."""

    prompt: FeedbackPrompt
    answers: tuple[str, str]
    chosen: int | None
    rater: str | None
    record_id: str
    timestamp: datetime
    weight: float = 1.0


@dataclass(frozen=True)
class AnswerRating:
    """One person's rating of an answer; `liked` is None where the rating says neither.

    `safety` has one to five stars; `faults` are stars of the axes that are named like a part of the reward, one for "it has it".
    """

    prompt: FeedbackPrompt
    answer: str
    liked: bool | None
    critical: bool
    rater: str | None
    record_id: str
    timestamp: datetime
    safety: int | None = None
    faults: Mapping[str, int] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True)
class ExpertAnswer:
    """The answer an expert would have given."""

    prompt: FeedbackPrompt
    original: str
    golden: str
    reason: str | None
    rater: str | None
    record_id: str
    timestamp: datetime
    weight: float = 1.0


@dataclass(frozen=True)
class PromptFeedback:
    """All usable feedback about one prompt, in the order it came."""

    choices: list[Choice] = field(default_factory=list)
    ratings: list[AnswerRating] = field(default_factory=list)
    corrections: list[ExpertAnswer] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.choices) + len(self.ratings) + len(self.corrections)


@dataclass(frozen=True)
class RowDraft:
    """A row before scrubbing; `texts` are (chosen, rejected), (answer,) or empty. `record_ids` are the records behind it."""

    kind: RowKind
    prompt: FeedbackPrompt
    texts: tuple[str, ...]
    record_ids: tuple[str, ...]
    metadata: dict[str, Any]

    @property
    def order(self) -> bytes:
        """Its place in every file: decided by its texts, not by when it came."""
        texts = "\0".join((self.prompt.key, *(plain(text) for text in self.texts)))
        return hashlib.sha256(texts.encode("utf-8", errors="surrogatepass")).digest()


@dataclass(frozen=True)
class RowDrafts:
    """`corrections` are those that may be learnt from."""

    corrections: list[ExpertAnswer] = field(default_factory=list)
    rows: list[RowDraft] = field(default_factory=list)
    dropped: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)  # kind, reason, record ids

    def drop(self, kind: str, reason: str, record_ids: Iterable[str]) -> None:
        self.dropped.append((kind, reason, tuple(sorted(record_ids))))


def draft_rows(feedback: PromptFeedback, *, max_pairs: int, liked_answers: bool) -> RowDrafts:
    """Every row that this feedback gives, each once, with all records that support it."""
    drafts = RowDrafts()
    drafts.corrections.extend(_supported_corrections(feedback, drafts))
    rated = _rated_answers(feedback.ratings, drafts)
    drafts.rows.extend(_pairs(feedback, rated, max_pairs, drafts))
    drafts.rows.extend(
        RowDraft("thumbs", answer.prompt, (answer.text,), answer.record_ids, answer.counts | {"liked": answer.liked})
        for answer in rated
    )
    drafts.rows.extend(_answers(drafts.corrections, rated if liked_answers else []))
    drafts.rows.extend(_red_team(feedback.ratings))
    drafts.rows.sort(key=lambda row: (row.kind, row.order))
    return drafts


def plain(text: str) -> str:
    return " ".join(text.split())


Judgement = Choice | AnswerRating | ExpertAnswer
J = TypeVar("J", Choice, AnswerRating, ExpertAnswer)


def _age(judgement: Judgement) -> tuple[datetime, str]:
    return judgement.timestamp, judgement.record_id


def latest_per_rater(judgements: Sequence[J]) -> list[J]:
    """Raters without a name are different people."""
    latest: dict[object, J] = {}
    for judgement in sorted(judgements, key=_age):
        latest[judgement.rater or ("", judgement.record_id)] = judgement
    return list(latest.values())


def _weight(judgements: Iterable[Judgement]) -> float:
    return sum(judgement.weight for judgement in judgements)


def _ids(judgements: Iterable[Judgement]) -> tuple[str, ...]:
    return tuple(sorted(judgement.record_id for judgement in judgements))


@dataclass(frozen=True)
class _RatedAnswer:
    """What most raters think of one answer to one prompt."""

    prompt: FeedbackPrompt
    text: str
    liked: bool
    critical: bool
    counts: dict[str, int]
    record_ids: tuple[str, ...]


def _rated_answers(ratings: Sequence[AnswerRating], drafts: RowDrafts) -> list[_RatedAnswer]:
    groups: dict[tuple[str, str], list[AnswerRating]] = {}
    for rating in ratings:
        groups.setdefault((rating.prompt.key, plain(rating.answer)), []).append(rating)
    rated = []
    for group in groups.values():
        first, clear = min(group, key=_age), [rating for rating in latest_per_rater(group) if rating.liked is not None]
        up = [rating for rating in clear if rating.liked]
        down = [rating for rating in clear if not rating.liked]
        balance = _weight(up) - _weight(down)
        if abs(balance) < SAME_WEIGHT:
            reason = "undecided" if not clear else "tie" if _weight(clear) else "no_weight"
            drafts.drop("thumbs", reason, _ids(group))
            continue
        critical = any(rating.critical for rating in clear)
        counts = {"up": len(up), "down": len(down)}
        rated.append(_RatedAnswer(first.prompt, first.answer, balance > 0, critical, counts, _ids(group)))
    return rated


def _supported_corrections(feedback: PromptFeedback, drafts: RowDrafts) -> list[ExpertAnswer]:
    """Corrections whose authors weigh more than the raters who disliked them, and that nobody flagged as harmful."""
    groups = _by_golden(feedback.corrections)
    ratings: dict[tuple[str, str], list[AnswerRating]] = {key: [] for key in groups}
    for rating in feedback.ratings if groups else ():
        ratings.get((rating.prompt.key, plain(rating.answer)), []).append(rating)
    supported, harmful = list[ExpertAnswer](), _flagged(feedback.ratings)
    for key, group in groups.items():
        dislikes = [rating for rating in latest_per_rater(ratings[key]) if rating.liked is False]
        weight = _weight(latest_per_rater(group))
        if key not in harmful and weight - _weight(dislikes) >= SAME_WEIGHT:
            supported += group
            continue
        reason = "flagged" if key in harmful else "outweighed" if weight else "no_weight"
        for kind in ("answers", "pairs"):
            drafts.drop(kind, reason, _ids(group))
    return supported


def _by_golden(corrections: Sequence[ExpertAnswer]) -> dict[tuple[str, str], list[ExpertAnswer]]:
    groups: dict[tuple[str, str], list[ExpertAnswer]] = {}
    for correction in corrections:
        groups.setdefault((correction.prompt.key, plain(correction.golden)), []).append(correction)
    return groups


def _answers(corrections: Sequence[ExpertAnswer], rated: Sequence[_RatedAnswer]) -> list[RowDraft]:
    rows, groups = list[RowDraft](), _by_golden(corrections)
    for group in groups.values():
        first = min(group, key=_age)
        rows.append(RowDraft("answers", first.prompt, (first.golden,), _ids(group), {"from": "correction"}))
    for answer in rated:
        if answer.liked and not answer.critical and (answer.prompt.key, plain(answer.text)) not in groups:
            rows.append(RowDraft("answers", answer.prompt, (answer.text,), answer.record_ids, {"from": "rating"}))
    return rows


def _flagged(ratings: Sequence[AnswerRating]) -> set[tuple[str, str]]:
    """Prompts and answers that somebody flagged as harmful."""
    return {(rating.prompt.key, plain(rating.answer)) for rating in ratings if rating.critical}


def _red_team(ratings: Sequence[AnswerRating]) -> list[RowDraft]:
    groups: dict[str, list[AnswerRating]] = {}
    for rating in ratings:
        if rating.critical:
            groups.setdefault(rating.prompt.key, []).append(rating)
    return [
        RowDraft("red", min(group, key=_age).prompt, (), _ids(group), {"from": "critical"}) for group in groups.values()
    ]  # fmt: skip


@dataclass
class _PairCandidate:
    """Two answers to one prompt and which is better, according to one source. A lower `rank` is the stronger source."""

    rank: int
    prompt: FeedbackPrompt
    chosen: str
    rejected: str
    record_ids: set[str]
    metadata: dict[str, Any]

    @property
    def direction(self) -> tuple[str, str]:
        return plain(self.chosen), plain(self.rejected)

    @property
    def answers_key(self) -> tuple[str, frozenset[str]]:
        return self.prompt.key, frozenset(self.direction)


def _pairs(feedback: PromptFeedback, rated: Sequence[_RatedAnswer], max_pairs: int, drafts: RowDrafts) -> list[RowDraft]:
    chosen, ties = _chosen_pairs(feedback.choices, drafts)
    harmful = _flagged(feedback.ratings)
    best: dict[tuple[str, frozenset[str]], _PairCandidate] = {}
    for pair in [*chosen, *_corrected_pairs(drafts.corrections, rated), *_rated_pairs(rated)]:  # the strongest source first
        if pair.answers_key in ties:
            continue
        if (pair.prompt.key, plain(pair.chosen)) in harmful:
            drafts.drop("pairs", "flagged", pair.record_ids)
            continue
        known = best.setdefault(pair.answers_key, pair)
        if known is not pair and known.direction == pair.direction:
            known.record_ids |= pair.record_ids
        elif known is not pair:
            drafts.drop("pairs", "contradiction", pair.record_ids)
    return _capped(best.values(), max_pairs, drafts)


def _capped(pairs: Iterable[_PairCandidate], max_pairs: int, drafts: RowDrafts) -> list[RowDraft]:
    """At most so many pairs per prompt: one that everybody asks must not become half of the data."""
    ranked = [
        (pair.rank, RowDraft("pairs", pair.prompt, (pair.chosen, pair.rejected), tuple(sorted(pair.record_ids)), pair.metadata))
        for pair in pairs
    ]
    rows, counts = list[RowDraft](), Counter[str]()
    for _, row in sorted(ranked, key=lambda entry: (entry[0], -len(entry[1].record_ids), entry[1].order)):
        if counts[row.prompt.key] == max_pairs:
            drafts.drop("pairs", "too_many", row.record_ids)
            continue
        counts[row.prompt.key] += 1
        rows.append(row)
    return rows


def _chosen_pairs(choices: Sequence[Choice], drafts: RowDrafts) -> tuple[list[_PairCandidate], set[tuple[str, frozenset[str]]]]:
    """What most raters chose, by their weight, and what they are divided about."""
    groups: dict[tuple[str, frozenset[str]], list[Choice]] = {}
    for choice in choices:
        answers = frozenset(plain(answer) for answer in choice.answers)
        if len(answers) < 2:
            drafts.drop("pairs", "same_answer", [choice.record_id])
            continue
        groups.setdefault((choice.prompt.key, answers), []).append(choice)
    pairs, ties = [], set()
    for answers_key, group in groups.items():
        votes: dict[str | None, list[Choice]] = {}
        for choice in latest_per_rater(group):
            votes.setdefault(None if choice.chosen is None else plain(choice.answers[choice.chosen]), []).append(choice)
        (winner, supporters), *others = sorted(votes.items(), key=lambda vote: -_weight(vote[1]))
        opponents = others[0][1] if others else []
        if winner is None or _weight(supporters) - _weight(opponents) < SAME_WEIGHT:
            weighs = _weight(supporters) > 0  # votes without weight take nothing from a correction either
            if weighs:
                ties.add(answers_key)
            reason = "no_weight" if not weighs else "no_choice" if winner is None else "tie"
            drafts.drop("pairs", reason, {choice.record_id for choice in group})
            continue
        first = min(group, key=_age)
        index = 0 if plain(first.answers[0]) == winner else 1
        metadata = {"from": "votes", "for": len(supporters), "against": len(opponents)}
        chosen, rejected = first.answers[index], first.answers[1 - index]
        pairs.append(_PairCandidate(0, first.prompt, chosen, rejected, set(_ids(group)), metadata))
    return pairs, ties


def _corrected_pairs(corrections: Sequence[ExpertAnswer], rated: Sequence[_RatedAnswer]) -> list[_PairCandidate]:
    """An expert's answer over the one it corrects, and over what most raters did not like."""
    disliked: dict[str, list[_RatedAnswer]] = {}
    for answer in rated:
        if not answer.liked:
            disliked.setdefault(answer.prompt.key, []).append(answer)
    disliked = {key: _most_rated(group) for key, group in disliked.items()}
    pairs = []
    for correction in sorted(corrections, key=_age):
        own = correction.record_id
        worse = [(correction.original, {own})]
        worse += [(answer.text, {own, *answer.record_ids}) for answer in disliked.get(correction.prompt.key, ())]
        pairs += [
            _PairCandidate(1, correction.prompt, correction.golden, text, record_ids, {"from": "correction"})
            for text, record_ids in worse
            if plain(text) != plain(correction.golden)
        ]
    return pairs


def _rated_pairs(rated: Sequence[_RatedAnswer]) -> list[_PairCandidate]:
    groups: dict[str, list[_RatedAnswer]] = {}
    for answer in rated:
        groups.setdefault(answer.prompt.key, []).append(answer)
    return [
        _PairCandidate(2, good.prompt, good.text, bad.text, {*good.record_ids, *bad.record_ids}, {"from": "ratings"})
        for group in groups.values()
        for good in _most_rated([answer for answer in group if answer.liked])
        for bad in _most_rated([answer for answer in group if not answer.liked])
    ]


def _most_rated(answers: Sequence[_RatedAnswer]) -> list[_RatedAnswer]:
    """Few pairs of a prompt are kept in the end; thousands of answers to one would make millions on the way."""
    if len(answers) <= MAX_RATED:
        return list(answers)
    return sorted(answers, key=lambda answer: (-len(answer.record_ids), plain(answer.text)))[:MAX_RATED]
