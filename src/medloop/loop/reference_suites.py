"""Golden answers and RAGAS, composed: the suites that compare answers with a reference or with passages.

golden_suite(settings, None)      # clinicians' corrections in the store and reviewed answers of the gold set
ragas_suite(settings, None)       # questions of the workspace that have context passages
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from medloop.contracts import Correction, Message, Record
from medloop.contracts.dataset import SPLIT_FILES
from medloop.data.text.risk import strata_of
from medloop.errors import InputError, MissingExtraError, ModelError
from medloop.evaluate.suites.golden import Golden, GoldenCase, Similarity, read_golden_cases
from medloop.evaluate.suites.ragas import TOP_K, ContextCase, Ragas, read_context_cases
from medloop.evaluate.suites.ragas_process import RagasJudge
from medloop.lexicon.language import detect_language
from medloop.privacy.consent import Register
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.reward.answer_text import split_answer
from medloop.reward.relevance import RelevanceConfig, RelevanceModels
from medloop.reward.word_overlap import script
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.atomic import file_sha256
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.review_verdicts import clinician_corrections

HELD_OUT = ("gold", "test", "dev", "red")  # splits that no model learns from
PURPOSE = "evaluating a model against golden answers"


def visible(answer: str) -> str:
    return split_answer(answer).visible


def golden_suite(settings: Settings, file: Path | None) -> Golden:
    if file is not None:
        cases, inputs = read_golden_cases(file, strata_of), {f"cases {file.name}": file_sha256(file)}
    else:
        cases, inputs = _golden_of_workspace(settings)
    similarity, encoder = _similarity(settings)
    return Golden(cases, visible, similarity, encoder, inputs)


def _golden_of_workspace(settings: Settings) -> tuple[list[GoldenCase], dict[str, str]]:
    path = settings.workspace.processed / SPLIT_FILES["gold"]
    cases = list(_corrections(settings))
    if path.is_file():
        cases += [case for record in jsonl.read(path, Record) if record.reviewed and (case := _of_record(record)) is not None]
    if not cases:
        raise InputError(
            "There are no golden answers: no correction by a clinician, and no reviewed answer in the gold set",
            "Name a file: --suite golden=FILE",
        )
    return cases, {"data gold": file_sha256(path)} if path.is_file() else {}


def _corrections(settings: Settings) -> Iterator[GoldenCase]:
    """What clinicians wrote, where it may be used for evaluation, without identifiers."""
    with open_store(settings) as store:
        register = Register.of(store)
        ids = clinician_corrections(store)
        corrections = read_by_ids(store, Correction, ids, actor=actor(), purpose=PURPOSE) if ids else []
        for correction in (row for row in corrections if register.covers(row, "evaluation")):
            texts = scrub([correction.prompt, correction.golden])
            if isinstance(texts, list):
                question, golden = texts
                yield GoldenCase(
                    id=correction.correction_id, messages=(Message(role="user", content=question),), golden=(golden,),
                    language=detect_language(question), strata=strata_of(question),
                )  # fmt: skip


def _of_record(record: Record) -> GoldenCase | None:
    answer = record.conversation.answer
    if not answer or not visible(answer).strip():
        return None
    return GoldenCase(
        id=record.record_id, messages=record.conversation.prompt, golden=(visible(answer).strip(),), language=record.language,
        strata=record.strata,
    )  # fmt: skip


def _similarity(settings: Settings) -> tuple[Similarity | None, str]:
    """The cosine of the sentence encoder of the relevance rewards, with its name; none where none is installed."""
    models = RelevanceModels(RelevanceConfig(), settings)
    try:
        digest = models.find(models.encoder_name)
    except (MissingExtraError, ModelError):
        digest = None
    if digest is None:
        return None, ""

    def similarity(pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        readable = [models.encoder.reads_chinese or "other" not in (script(first), script(second)) for first, second in pairs]
        texts = [pair for pair, is_readable in zip(pairs, readable, strict=True) if is_readable]
        if not texts:
            return [None] * len(pairs)
        vectors = models.encoder.encode([text for pair in texts for text in pair])
        values = iter(np.sum(vectors[0::2] * vectors[1::2], axis=1).tolist())
        return [next(values) if is_readable else None for is_readable in readable]

    return similarity, f"{models.encoder_name}@{digest}"


def ragas_suite(settings: Settings, file: Path | None) -> Ragas:
    given = settings.ragas
    judge = RagasJudge(
        python=given.python or settings.find(".venv-ragas/bin/python"), url=given.url, model=given.model,
        embedding_model=given.embedding_model, key=given.key.get_secret_value(), timeout_s=given.timeout_s,
    )  # fmt: skip
    judge.check()
    if file is not None:
        cases, inputs = read_context_cases(file, strata_of), {f"cases {file.name}": file_sha256(file)}
    else:
        cases, inputs = _questions_with_context(settings)
    return Ragas(cases, judge, visible, scrub, inputs)


def _questions_with_context(settings: Settings) -> tuple[list[ContextCase], dict[str, str]]:
    cases: list[ContextCase] = []
    inputs: dict[str, str] = {}
    for split in HELD_OUT:
        path = settings.workspace.processed / SPLIT_FILES[split]
        if path.is_file():
            cases += [_context_case(record) for record in jsonl.read(path, Record) if record.context]
            inputs[f"data {split}"] = file_sha256(path)
    if not cases:
        raise InputError("No held-out question of this workspace has context passages", "Name a file: --suite ragas=FILE")
    return cases, inputs


def _context_case(record: Record) -> ContextCase:
    answer = record.conversation.answer
    return ContextCase(
        id=record.record_id, messages=record.conversation.prompt, contexts=(record.context or ())[:TOP_K],
        reference=visible(answer).strip() if answer else None, language=record.language, strata=record.strata,
    )  # fmt: skip


def scrub(texts: Sequence[str]) -> list[str] | str:
    """The texts of one case without identifiers, or why that is not certain."""
    scrubber = Scrubber()
    try:
        return [scrubber.release(text) for text in texts]
    except Unscrubbable as problem:
        return problem.kind
