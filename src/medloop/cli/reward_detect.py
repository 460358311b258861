"""`medloop reward detect`: what the detectors find in each question and answer of a file, without any reward."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts.base import Json, canonical_json
from medloop.contracts.detect import Urgency
from medloop.contracts.score import Score, asserts_fault
from medloop.reward.detect.acts import acts
from medloop.reward.detect.encoder_head import load_detector
from medloop.reward.rules import RULES
from medloop.store.files.answer_lines import AnswerLine, Questions, read_answers

AT_ONCE = 256  # questions that are read together
STDIN = Path("/dev/stdin")
FAULT_PARTS = ("risk", "false_reassurance", "undertriage", "overtriage", "safety_net", "off_topic", "repetition")
FAULT_FROM = 0.25  # as in the trust meter
SHOWN = 20  # lines of the table; --json has no limit


def detect(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="[FILE|-]", help="Lines with a question, with or without an answer: {id, question[, answer]}; - reads stdin."
        ),
    ],
    questions: ui.QuestionFiles = None,
    json_: ui.AsJson = False,
) -> None:
    """Say how urgent each question of a file is: emergent, urgent, routine or unknown, with confidence and evidence.

    The file has one JSON object per line and may be gzipped. Where a line has an answer, what it tells the patient to do is
    listed, too: each act with its polarity (directive, conditional, negated, reported, question) and its place. Unknown means
    undecided, and routine does not mean safe. With --json one line is printed for each line of the file, and `faults` says what
    the rules object to: with "verdict": true they assert it, with false they are unsure, which shapes a reward and accuses
    nobody. The setting reward.urgency_encoder adds a sentence encoder, which reads English.

    Example:  medloop reward detect questions.jsonl --json

    Example:  medloop --set reward.urgency_encoder=embedded:minilm reward detect questions.jsonl
    """
    detector = load_detector(ui.settings())
    lines = read_answers(STDIN if str(file) == "-" else file, Questions(questions or ()), need_answer=False)
    counts: Counter[str] = Counter()
    rows: list[tuple[str, ...]] = []
    while batch := list(islice(lines, AT_ONCE)):
        for line, urgency in zip(batch, detector.read([line.question for line in batch]), strict=True):
            counts[urgency.level] += 1
            if json_:
                typer.echo(canonical_json(_json(line, urgency)))
            elif len(rows) < SHOWN:
                evidence = "; ".join(_evidence(urgency, line.question))
                rows.append((_id(line), urgency.level, f"{urgency.confidence:.2f}", evidence, "; ".join(_acts(line.answer))))
    if json_:
        return
    has_acts = any(row[-1] for row in rows)
    columns = ("id", "urgency", "confidence", "evidence", "acts of the answer")
    ui.table(columns if has_acts else columns[:-1], rows if has_acts else [row[:-1] for row in rows])
    if (more := counts.total() - len(rows)) > 0:
        ui.say(f"… and {more} more lines (--json prints all)")
    ui.say(
        ", ".join(f"{counts[level]} {level}" for level in ("emergent", "urgent", "routine", "unknown")) + f" ({detector.version})"
    )


def _id(line: AnswerLine) -> str:
    return line.ids[0] if line.ids else str(line.number)


def _json(line: AnswerLine, urgency: Urgency) -> Json:
    findings: Json = {"id": _id(line), "urgency": urgency.model_dump(mode="json")}
    if line.answer is not None:
        findings["acts"] = [act.model_dump(mode="json", exclude_none=True) for act in acts(line.answer)]
        findings["faults"] = [
            {"part": score.name, "value": score.value, "verdict": asserts_fault(score, FAULT_FROM), "reason": score.reason}
            for score in _faults(line.question, line.answer)
        ]
    return findings


def _faults(question: str, answer: str) -> Iterator[Score]:
    """What the penalties find in an answer, from the value on that the trust meter counts; some are unsure, so no verdict."""
    for name in FAULT_PARTS:
        score = RULES[name].score(question, answer)
        if isinstance(score, Score) and score.applies and score.value >= FAULT_FROM:
            yield score


def _acts(answer: str | None) -> Iterator[str]:
    """Kind and polarity of each act with its words, where they are few."""
    for act in acts(answer or ""):
        words = " ".join((answer or "")[act.start : act.end].split())
        yield f"{act.kind} ({act.polarity})" + (f' "{words}"' if len(words) <= 40 else "")


def _evidence(urgency: Urgency, question: str) -> Iterator[str]:
    """Source and id of each finding, with its words where they are few."""
    for evidence in urgency.evidence:
        words = " ".join(question[evidence.start : evidence.end].split())
        yield f"{evidence.source} {evidence.id}" + (f' "{words}"' if len(words) <= 40 and evidence.source != "encoder" else "")
