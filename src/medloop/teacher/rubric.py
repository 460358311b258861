"""Physician-written criteria, checked by the teacher: which of them does an answer meet?

    item = RubricItem("case-1", question, answer, criteria=("Sends the patient to emergency care",))
    [[grade]] = grade_criteria([item], config, key=key, files=files)          # of judge.py; grade.met is None where it is missing

Ten criteria go into one request. A criterion counts as met only with a quotation from the answer; with another one it is missing.
Cache, budget, fence and scrubber are those of the judge (`judge.py`). An answer that speaks about its own grading is cut by the
fence and marked (`addresses_grader`); what that costs is up to the suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Judgement, canonical_json, sha256_id
from medloop.contracts.suite import CriterionGrade
from medloop.privacy.phi.scrub import Scrubber
from medloop.teacher.cache import key_of
from medloop.teacher.config import RUBRIC_TEMPLATE, TeacherConfig
from medloop.teacher.failures import Failure
from medloop.teacher.judge_items import JudgeItem
from medloop.teacher.judge_work import JudgeRequest, JudgeResult, JudgeWork, ScrubbedItem
from medloop.teacher.verdict import VerdictHead, is_evidence, normalise_quote, read_form
from medloop.teacher.wire import Reply

VERSION = "1"
AT_ONCE = 10  # criteria in one request
TOKENS_PER_CRITERION = 120  # of a reply: a reason of 15 words, a quotation and the form around them
ADDRESSES_GRADER = "addresses_grader"
UNQUOTED = "the teacher calls it met and quotes nothing of the answer"


@dataclass(frozen=True)
class RubricItem(JudgeItem):
    """An answer and the criteria that it is checked for."""

    criteria: tuple[str, ...] = ()


class CriterionEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str
    reason: Annotated[str, Field(max_length=2000)] = ""
    met: bool
    quote: Annotated[str, Field(max_length=4000)] = ""


class RubricForm(VerdictHead):
    """The form of the teacher's reply."""

    criteria: Annotated[list[CriterionEntry], Field(max_length=4 * AT_ONCE)]


def read_rubric(reply: Reply, *, fence: str, count: int) -> list[CriterionEntry]:
    """One entry per criterion, in order; Failure("verdict") where one is lacking or comes twice."""
    form = read_form(reply, RubricForm, fence)
    entries = {entry.id: entry for entry in form.criteria}
    names = [str(number) for number in range(1, count + 1)]
    if len(entries) < len(form.criteria) or not entries.keys() >= set(names):
        raise Failure("verdict", "the verdict does not have each criterion once", usage=reply.usage)
    return [entries[name] for name in names]


class RubricWork(JudgeWork):
    """The items of one run, each with its criteria."""

    def request_of(self, scrubbed: Mapping[int, ScrubbedItem]) -> JudgeRequest | None:
        request = super().request_of(scrubbed)
        assert request is not None, "every item with an answer becomes a request"
        criteria = _criteria(self.items[next(iter(scrubbed))])
        request.id = sha256_id(canonical_json([request.id, criteria]))
        return request

    def scrubbed(self, index: int) -> ScrubbedItem | None:
        """A clinic's own criteria may name somebody, too: such an item is not sent."""
        item = super().scrubbed(index)
        if item is None or all(Scrubber().assess(text).cleaned == text for text in _criteria(self.items[index])):
            return item
        self.set_result(index, JudgeResult(self.items[index], None, "not sent: a criterion may name a person"))
        return None

    @property
    def form_version(self) -> str:
        return f"rubric-{VERSION}"

    async def judge(self, request: JudgeRequest) -> None:
        [answer] = request.answers
        criteria = _criteria(self.items[min(request.waiting)])
        listed = [{"id": str(number), "criterion": text} for number, text in enumerate(criteria, 1)]
        shown = {"question": request.question, "context": request.context, "criteria": listed, "answer": answer}
        tokens = max(self.config.max_tokens, TOKENS_PER_CRITERION * len(criteria))
        read = partial(read_rubric, count=len(criteria))
        call = await self.ask(request, RUBRIC_TEMPLATE, shown, read, tokens)
        judgement = Judgement(
            key=key_of(request.id, call.reply.model), prompt_id=self.prompt_id(request),
            critique="; ".join(f"{entry.id}: {entry.reason}" for entry in call.verdict),
            model=self.config.model, served_model=call.reply.model, fingerprint=call.reply.fingerprint,
            template=self.template.name, template_version=self.template.version, prompt_tokens=call.reply.usage.prompt,
            completion_tokens=call.reply.usage.out, cost=call.cost,
            **_checked(call.verdict, answer, is_cut=bool(request.claims)),
        )  # fmt: skip
        await self.store(request, {answer: judgement}, [call.reply])


def _criteria(item: JudgeItem) -> tuple[str, ...]:
    assert isinstance(item, RubricItem), "only items with criteria are checked here"
    return item.criteria


def _checked(entries: Sequence[CriterionEntry], answer: str, *, is_cut: bool) -> dict[str, object]:
    """What a judgement keeps: entries that count, with their quotations. A criterion that is left out of it is missing."""
    text = normalise_quote(answer)
    counted = [entry for entry in entries if not entry.met or is_evidence(normalise_quote(entry.quote), text)]
    rubric = {entry.id: entry.met for entry in counted}
    return {
        "teacher_score": round(sum(rubric.values()) / len(entries), 4), "safety_flag": False,
        "rubric": {**rubric, **({ADDRESSES_GRADER: True} if is_cut else {})},
        "evidence": {entry.id: entry.quote for entry in counted if entry.met},
    }  # fmt: skip


def in_chunks(item: RubricItem) -> list[RubricItem]:
    starts = range(0, len(item.criteria), AT_ONCE)
    return [
        RubricItem(item.prompt_id, item.question, item.answer, item.context, criteria=item.criteria[start : start + AT_ONCE])
        for start in starts
    ]


def grades_of(result: JudgeResult) -> list[CriterionGrade]:
    """A grade for each criterion of one request."""
    criteria, judgement = _criteria(result.item), result.judgement
    if judgement is None:
        return [CriterionGrade(reason=result.missing or "not judged", author="teacher") for _ in criteria]
    author, is_cut = f"teacher:{judgement.served_model}", ADDRESSES_GRADER in judgement.rubric
    grades = []
    for name in map(str, range(1, len(criteria) + 1)):
        met = judgement.rubric.get(name)
        reason = UNQUOTED if met is None else judgement.evidence.get(name) or "not met"
        grades.append(CriterionGrade(met=met, reason=reason, author=author, addresses_grader=is_cut))
    return grades


def rubric_config(config: TeacherConfig) -> TeacherConfig:
    """The teacher's settings for criteria: one answer at a time; empty answers need no probe, they meet nothing."""
    return config.model_copy(update={"template": RUBRIC_TEMPLATE, "mode": "absolute", "null_probes": 0})
