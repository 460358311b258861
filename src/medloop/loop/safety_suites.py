"""Triage and rubrics, composed: the suites that detectors and the teacher judge.

triage_suite(settings, None)                         # our own cases
rubric_suite(settings, Path("healthbench.jsonl"))    # cases of a file
"""

import random
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, get_args

from medloop.contracts import Message, canonical_json, sha256_id
from medloop.contracts.detect import ActKind, ActPolarity
from medloop.contracts.suite import CriterionGrade
from medloop.data.text.risk import strata_of
from medloop.embedded import corpus
from medloop.evaluate.suites import rubric_cases, triage_cases
from medloop.evaluate.suites.rubric import GradingTask, Rubric
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

SAME_LANGUAGE: Final = "same_language"
# `urges_care_now` is what the answer tells this patient to do; `urges_care_now/conditional` only under a condition, and so on.
DETECTORS: Final = (
    SAME_LANGUAGE,
    *get_args(ActKind),
    *(f"{kind}/{tone}" for kind in get_args(ActKind) for tone in get_args(ActPolarity) if tone != "directive"),
)
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
    cases = rubric_cases.read_rubric_cases(path, strata_of, DETECTORS)
    own = settings.home / TEACHER_FILE
    config = load_config(TeacherConfig, file=own if own.is_file() else None, pairs=(), flags={})
    key, files = settings.teacher.key.get_secret_value(), TeacherFiles.of(settings.workspace)

    def grade(tasks: Sequence[GradingTask]) -> list[list[CriterionGrade]]:
        return grade_criteria([_item(task) for task in tasks], config, key=key, files=files)

    template = load_template(RUBRIC_TEMPLATE).version
    return Rubric(cases, grade, detect, f"acts-{ACTS_VERSION}/{config.model}/rubric-{template}", inputs)


def _item(task: GradingTask) -> RubricItem:
    prompt = [RawMessage(message.role, message.content) for message in task.messages]
    item = judge_item(task.id, prompt, split_answer(task.answer).visible)
    return RubricItem(item.prompt_id, item.question, item.answer, item.context, criteria=task.criteria)


def detect(detector: str, question: str, answer: str) -> CriterionGrade:
    """Whether an answer does what a detector finds; None where it is in a language that the word lists do not read."""
    visible, author = split_answer(answer).visible, f"detector:{detector}"
    if detector == SAME_LANGUAGE:
        met = bool(visible.strip()) and not in_another_language(question, visible)
        return CriterionGrade(met=met, reason="by the languages of question and answer", author=author)
    if not is_read(visible):
        return CriterionGrade(reason="the detectors do not read this language", author=author)
    kind, _, tone = detector.partition("/")
    spans = [act for act in acts(answer) if act.kind == kind and act.polarity == (tone or "directive")]
    reason = f"at characters {spans[0].start} to {spans[0].end}" if spans else "not found in the answer"
    return CriterionGrade(met=bool(spans), reason=reason, author=author)
