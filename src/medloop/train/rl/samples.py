"""Answers of a run that people read and the panel compares: some of each step, all of each held-out check; no identifiers.

`samples.jsonl` and `held_out.jsonl` lie in the run's folder and go with the result. A resumed run drops what it will write again.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from medloop.contracts import Reward, Sample, Score
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store.files import jsonl
from medloop.train.rl.checks import Answers, CheckedAnswer
from medloop.train.rl.degraded import missing_of
from medloop.train.rl.experience import Experience

SAMPLES, HELD_OUT = "samples.jsonl", "held_out.jsonl"
PER_STEP = 4  # answers per step: the best, the worst, and some between


def append_some(folder: Path, step: int, experience: Experience) -> None:
    """The best, the worst and some answers between."""
    rewards, present = experience.reward_tensor()
    order = sorted((row for row in range(len(rewards)) if present[row]), key=lambda row: (-float(rewards[row]), row))
    rows = dict.fromkeys(order[round(n * (len(order) - 1) / (PER_STEP - 1))] for n in range(PER_STEP)) if order else {}
    append(folder / SAMPLES, step, experience, {row: {} for row in rows})


def append(path: Path, step: int, experience: Experience, rows: Mapping[int, Mapping[str, Any]]) -> None:
    """Answers by row, each with more columns; one whose identifiers cannot be removed is left out."""
    lines = []
    for row, more in rows.items():
        scrubber = Scrubber()
        with suppress(Unscrubbable):
            question, answer = scrubber.release(experience.prompts[row].question), scrubber.release(experience.texts[row])
            line = {"iter": step, "prompt_id": experience.groups[row], "question": question, "answer": answer}
            if context := experience.prompts[row].context:
                line["context"] = scrubber.release(context)
            reward = experience.rewards[row]
            lines.append({**line, "reward": reward.value, "parts": parts_of(reward), **_remarks(reward), **more})
    if lines:
        jsonl.append(path, lines)


def parts_of(reward: Reward) -> dict[str, float]:
    """The parts with a value. One that is missing or does not apply is absent, never 0."""
    return {part.name: part.value for part in reward.parts if isinstance(part, Score) and part.applies}


def _remarks(reward: Reward) -> dict[str, Any]:
    """The teacher's critique and its better answer, and why a part is missing; only what there is."""
    teacher = next((part for part in reward.parts if part.name == "teacher" and isinstance(part, Score) and part.applies), None)
    missing = {part.name: part.reason for part in missing_of(reward)}
    critique, suggested = (teacher.reason, teacher.suggested_answer) if teacher else (None, None)
    remarks = {"critique": critique, "suggested_answer": suggested, "missing": missing}
    return {name: value for name, value in remarks.items() if value}


def checked_answers(experience: Experience) -> Answers:
    """The answers of a batch as the audit reads them."""
    columns = zip(experience.prompts, experience.texts, experience.rewards, experience.rollouts, strict=True)
    return [
        CheckedAnswer(Sample(id=prompt.id, question=prompt.question, answer=text), reward, not rollout.ended)
        for prompt, text, reward, rollout in columns
    ]


def append_check(folder: Path, step: int, experience: Experience, reference: Sequence[tuple[float, float]] | None = None) -> None:
    """Every answer of a held-out check, with the parts of its reward; `reference` has the likelihood and the KL of each."""
    columns: dict[int, dict[str, Any]] = {}
    for row, reward in enumerate(experience.rewards):
        columns[row] = {"truncated": not experience.rollouts[row].ended}
        if reference is not None:
            columns[row] |= {"likelihood": reference[row][0], "kl": reference[row][1]}
        columns[row]["scored"] = reward.model_dump(mode="json", exclude_none=True)
    append(folder / HELD_OUT, step, experience, columns)


def read_checks(folder: Path) -> dict[int, Answers]:
    """The answers of each held-out check, by step; none where all were withheld as doubtful, so that there is no file."""
    checks: dict[int, list[CheckedAnswer]] = {}
    for row in jsonl.read(folder / HELD_OUT) if (folder / HELD_OUT).is_file() else ():
        sample = Sample(id=row["prompt_id"], question=row["question"], answer=row["answer"], context=row.get("context"))
        reward = Reward.model_validate(row["scored"])
        answer = CheckedAnswer(sample, reward, row.get("truncated"), row.get("likelihood"), row.get("kl"))
        checks.setdefault(row["iter"], []).append(answer)
    return dict(checks)


def truncate(folder: Path, step: int) -> None:
    """Keep what was written up to a step; -1 keeps nothing."""
    for path in (folder / SAMPLES, folder / HELD_OUT):
        if path.is_file():
            jsonl.write(path, [row for row in jsonl.read(path) if row["iter"] <= step])


def content(folder: Path) -> dict[str, bytes]:
    """The files as they are, for the result."""
    return {name: (folder / name).read_bytes() for name in (SAMPLES, HELD_OUT) if (folder / name).is_file()}
