"""Triage and rubrics, composed: the suites that detectors and the teacher judge.

triage_suite(settings, None)                         # our own cases
rubric_suite(settings, Path("healthbench.jsonl"))    # cases of a file
"""

import random
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, get_args

from medloop.codebook.criteria import MENTIONS, NOT, SAME_LANGUAGE, SAYS, says_sentence
from medloop.codebook.retrieve import has_words
from medloop.contracts import Message, canonical_json, sha256_id
from medloop.contracts.detect import ActKind, ActPolarity
from medloop.contracts.suite import CriterionGrade, SuiteMetric
from medloop.data.text.risk import strata_of
from medloop.embedded import corpus
from medloop.evaluate.suites import rubric_cases, triage_cases
from medloop.evaluate.suites.rubric import METRICS, GradingTask, Rubric
from medloop.evaluate.suites.rubric_cases import RubricCase
from medloop.evaluate.suites.triage import Triage
from medloop.evaluate.suites.triage_cases import TriageCase
from medloop.knobs import load_config
from medloop.lexicon.language import is_read
from medloop.reward.answer_text import split_answer
from medloop.reward.detect.acts import VERSION as ACTS_VERSION
from medloop.reward.detect.acts import acts
from medloop.reward.disposition import VERSION as DISPOSITION_VERSION
from medloop.reward.disposition import disposition
from medloop.reward.unread import in_another_language
from medloop.settings import Settings
from medloop.store.files.answer_lines import RawMessage
from medloop.store.files.atomic import file_sha256
from medloop.teacher.config import RUBRIC_TEMPLATE, TeacherConfig
from medloop.teacher.judge import TeacherFiles, grade_criteria
from medloop.teacher.judge_items import judge_item
from medloop.teacher.prompt_templates import load as load_template
from medloop.teacher.rubric import RubricItem

# `urges_care_now` is what the answer tells this patient to do; `urges_care_now/conditional` only under a condition, and so on.
# Beside these, `mentions:a|b` and `says:SENTENCE` look for words; `!` before any of them means the opposite.
DETECTORS: Final = (
    SAME_LANGUAGE, MENTIONS, SAYS,
    *get_args(ActKind),
    *(f"{kind}/{tone}" for kind in get_args(ActKind) for tone in get_args(ActPolarity) if tone != "directive"),
)  # fmt: skip
GENERATED, GENERATED_SEED = 120, "medloop-triage-1"
TEACHER_FILE: Final = "configs/teacher.yaml"  # of the workspace; without it the DeepSeek preset


def case_file(file: Path | None, bundled: Traversable) -> tuple[Path, dict[str, str]]:
    """The file with the cases and its hash by name; `bundled` is ours."""
    path = file if file is not None else Path(str(bundled))
    return path, {f"cases {path.name}": file_sha256(path)}


def triage_suite(settings: Settings, file: Path | None) -> Triage:
    path, inputs = case_file(file, triage_cases.BUNDLED)
    cases = triage_cases.read_triage_cases(path, strata_of)
    if file is None:
        made = generated_cases()
        cases += made
        inputs["cases generated"] = sha256_id(canonical_json([case.model_dump(mode="json") for case in made]))
    return Triage(cases, disposition, f"disposition-{DISPOSITION_VERSION}", inputs)


def generated_cases() -> list[TriageCase]:
    """Questions of the corpus generator that the embedded model was not trained on; a red flag makes an emergency.

    Without one, questions for a child, a pregnant woman or an old person are left out: nobody knows how urgent they are.
    """
    rng = random.Random(GENERATED_SEED)
    cases: dict[str, TriageCase] = {}
    while len(cases) < GENERATED:
        language = corpus.LANGUAGES[len(cases) % 2]
        case = corpus.draw_case(rng, language)
        question = corpus.question_for(rng, case)
        if corpus.part_of(question) != "clinic" or (case.group and not case.flag) or question in cases:
            continue
        cases[question] = TriageCase(
            id=f"generated-{len(cases)}", messages=(Message(role="user", content=question),), language=language,
            label="emergent" if case.flag else "routine", strata=(case.group or "adult",),
        )  # fmt: skip
    return list(cases.values())


def rubric_suite(settings: Settings, file: Path | None) -> Rubric:
    path, inputs = case_file(file, rubric_cases.BUNDLED)
    return rubric_of(settings, rubric_cases.read_rubric_cases(path, strata_of, DETECTORS), inputs)


def teacher_config(settings: Settings) -> TeacherConfig:
    """The teacher of the workspace, or the DeepSeek preset."""
    own = settings.home / TEACHER_FILE
    return load_config(TeacherConfig, file=own if own.is_file() else None, pairs=(), flags={})


def rubric_of(
    settings: Settings, cases: Sequence[RubricCase], inputs: dict[str, str], metrics: tuple[SuiteMetric, ...] = METRICS
) -> Rubric:  # fmt: skip
    """The suite of these cases, with the detectors and the teacher of the workspace."""
    config = teacher_config(settings)
    key, files = settings.teacher.key.get_secret_value(), TeacherFiles.of(settings.workspace)

    def grade(tasks: Sequence[GradingTask]) -> list[list[CriterionGrade]]:
        return grade_criteria([_item(task) for task in tasks], config, key=key, files=files)

    template = load_template(RUBRIC_TEMPLATE).version
    grader = f"acts-{ACTS_VERSION}/{config.model}/rubric-{template}"
    return Rubric(cases, grade, detect, grader, inputs, metrics=metrics)


def _item(task: GradingTask) -> RubricItem:
    prompt = [RawMessage(message.role, message.content) for message in task.messages]
    item = judge_item(task.id, prompt, split_answer(task.answer).visible)
    return RubricItem(item.prompt_id, item.question, item.answer, item.context, criteria=task.criteria)


def detect(detector: str, question: str, answer: str) -> CriterionGrade:
    """Whether an answer does what a detector finds; None where it is in a language that the word lists do not read."""
    visible, author = split_answer(answer).visible, f"detector:{detector.partition(':')[0]}"
    if detector.startswith(NOT):
        grade = detect(detector.removeprefix(NOT), question, answer)
        return grade.model_copy(update={"met": None if grade.met is None else not grade.met, "author": author})
    if detector.startswith((MENTIONS, SAYS)):
        kind, _, words = detector.partition(":")
        met = has_words(visible, words) if f"{kind}:" == MENTIONS else says_sentence(visible, words)
        return CriterionGrade(met=met, reason="by its words" if met else "not found in the answer", author=author)
    if detector == SAME_LANGUAGE:
        met = bool(visible.strip()) and not in_another_language(question, visible)
        return CriterionGrade(met=met, reason="by the languages of question and answer", author=author)
    if not is_read(visible):
        return CriterionGrade(reason="the detectors do not read this language", author=author)
    kind, _, tone = detector.partition("/")
    spans = [act for act in acts(answer) if act.kind == kind and act.polarity == (tone or "directive")]
    reason = f"at characters {spans[0].start} to {spans[0].end}" if spans else "not found in the answer"
    return CriterionGrade(met=bool(spans), reason=reason, author=author)
