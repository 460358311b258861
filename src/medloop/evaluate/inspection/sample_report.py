"""A sample as people read it: Markdown, HTML, CSV, and the form the reviewer fills in.

Patients' and models' texts are data: escaped in HTML (Jinja2, autoescape, no scripts, strict content policy), made harmless in
Markdown, and guarded against formulas in CSV. Labels are in Chinese and English, since reviewers read either.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medloop.contracts import InspectedSample, Missing, Score
from medloop.evaluate.markup import markdown_table, number, one_line, templates
from medloop.store.files.spreadsheet import to_csv

MAX_SHOWN = 4000  # characters of a text in Markdown; the CSV has all of it
REVIEWER_COLUMNS = ("verdict", "score", "faults", "corrected_answer", "comment", "reviewer")
FORM_COLUMNS = ("id", "question", "answer", *REVIEWER_COLUMNS)  # no score of a machine: the reviewer judges first
VERDICTS = {"good": "好", "acceptable": "可接受", "bad": "差", "dangerous": "危险"}
FAULT_WORDS = {"risk": "风险用药", "false_reassurance": "错误安慰", "emergency": "遗漏急症", "overtriage": "过度分诊"}
# What each group and flag means, Chinese and English.
LABELS = {
    "safety_flag": ("教师模型安全警示", "safety flag from the teacher"),
    "conflict": ("教师模型与规则分歧", "teacher and rules disagree"),
    "red_flag": ("问题含急症信号", "red flag in the question"),
    "no_reward": ("无奖励分", "no reward"),
    "high_risk": ("用药或高风险人群", "medication or vulnerable patient"),
    "low_reward": ("低奖励", "low reward"),
    "middle_reward": ("中等奖励", "medium reward"),
    "high_reward": ("高奖励", "high reward"),
    "teacher_missing": ("教师模型未评分", "not judged by the teacher"),
    "no_answer": ("模型未作答", "no answer"),
    "risk": ("风险用药", "risky prescription"),
    "false_reassurance": ("错误安慰", "false reassurance"),
    "overtriage": ("过度分诊", "over-triage"),
    "length": ("长度异常", "unusual length"),
    "repetition": ("重复", "repetition"),
    "language:zh": ("中文", "Chinese"),
    "language:en": ("英文", "English"),
    "language:mixed": ("中英混合", "mixed languages"),
    "language:other": ("其他语言", "another language"),
}
SERIOUS = frozenset({"safety_flag", "conflict", "red_flag", "risk", "false_reassurance"})
_CHAIN = re.compile(r"\s*<think>(.*?)</think>\s*", re.IGNORECASE | re.DOTALL)


def label(name: str) -> str:
    return " ".join(LABELS[name]) if name in LABELS else name


def view(answer: InspectedSample) -> dict[str, Any]:
    """What a page shows of one answer."""
    chain = _CHAIN.match(answer.answer or "")
    return {
        "answer": answer,
        "chain": chain[1].strip() if chain else None,
        "visible": (answer.answer or "")[chain.end() :] if chain else answer.answer,
        "flags": [(label(name), name in SERIOUS) for name in answer.flags],
        "parts": [_part(part, answer.reward.weights.get(part.name)) for part in answer.reward.parts],
        "judgement": answer.judgement,
        "teacher": teacher_score(answer),
    }


def _part(part: Score | Missing, weight: float | None) -> dict[str, Any]:
    value, state = None, "missing 缺失"
    if isinstance(part, Score):
        value, state = (part.value, "unsure 不确定" if part.unsure else "") if part.applies else (None, "does not apply 不适用")
    return {"name": part.name, "value": value, "weight": weight, "reason": part.reason, "state": state}


def teacher_score(answer: InspectedSample) -> float | None:
    if answer.judgement is not None:
        return answer.judgement.teacher_score
    return next((part.value for part in answer.reward.parts if part.name == "teacher" and isinstance(part, Score)), None)


def html(name: str, samples: Sequence[InspectedSample], groups: Mapping[str, tuple[int, int]]) -> str:
    rows = [(label(group), *counts) for group, counts in groups.items()]
    template = templates().get_template("inspection.html")
    return template.render(name=name, samples=[view(answer) for answer in samples], groups=rows, verdicts=VERDICTS)


def markdown(name: str, samples: Sequence[InspectedSample], groups: Mapping[str, tuple[int, int]]) -> str:
    rows = [(label(group), str(available), str(drawn)) for group, (available, drawn) in groups.items()]
    lines = [
        f"# 抽检 Inspection {name}", "",
        f"{len(samples)} answers, most serious first. Write your verdicts into `form.csv`; the scores of machines come after all "
        "answers.", "",
        markdown_table(["组 group", "总数 available", "抽取 drawn"], rows),
    ]  # fmt: skip
    for answer in samples:
        lines += ["", *_markdown_entry(answer)]
    lines += ["", "# 机器评分 Machine scores", "", "请在判断之后再看。 Read these after you have judged."]
    for answer in samples:
        lines += ["", *_markdown_scores(answer)]
    return "\n".join(lines) + "\n"


def _markdown_entry(answer: InspectedSample) -> Iterator[str]:
    """What a reviewer judges: question and answer, without any score."""
    shown = view(answer)
    yield f"## {answer.id}"
    yield ""
    yield f"- {answer.language}, {', '.join(answer.strata)}"
    yield f"- `{one_line(answer.answer_id)}` from `{one_line(answer.source)}`"
    yield ""
    yield from _quoted("问题 Question", answer.question)
    yield from _quoted("思考 Chain of thought", shown["chain"])
    yield from _quoted("回答 Answer", shown["visible"] if answer.answer is not None else "(no answer)")


def _markdown_scores(answer: InspectedSample) -> Iterator[str]:
    shown = view(answer)
    flags = ", ".join(f"**{text}**" if serious else text for text, serious in shown["flags"]) or "–"
    yield f"## {answer.id}: 评分 scores"
    yield ""
    yield f"- 标记 flags: {flags}"
    yield f"- 奖励 reward {number(answer.reward.value)}, 教师模型 teacher {number(shown['teacher'])}"
    yield ""
    yield markdown_table(["项 part", "分 value", "权重 weight", "理由 reason"], [_markdown_row(part) for part in shown["parts"]])
    yield ""
    if answer.judgement is not None:
        yield from _quoted("教师模型点评 Teacher's critique", answer.judgement.critique)
        yield from _quoted("建议回答 Suggested answer", answer.judgement.suggested_answer)


def _markdown_row(part: Mapping[str, Any]) -> tuple[str, ...]:
    weight = "" if part["weight"] is None else f"{part['weight']:+.2f}"
    return part["name"], number(part["value"]), weight, one_line(part["state"] or part["reason"])


def _quoted(title: str, text: str | None) -> Iterator[str]:
    if text:
        yield f"**{title}**"
        yield ""
        shown = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
        yield from (f"> {one_line(line)}" for line in shown.splitlines())
        yield ""


def samples_csv(samples: Sequence[InspectedSample]) -> str:
    """samples.csv: a row per answer, with two columns for each part: its value and its reason."""
    parts = list(dict.fromkeys(part.name for answer in samples for part in answer.reward.parts))
    header = [
        "id", "answer_id", "source", "language", "strata", "flags", "drawn_for", "question", "answer", "reward", "reward_version",
        *(column for name in parts for column in (name, f"{name}_reason")),
        "teacher_score", "safety_flag", "critique", "suggested_answer",
    ]  # fmt: skip
    return to_csv(header, (_csv_row(answer) for answer in samples))


def _csv_row(answer: InspectedSample) -> dict[str, object]:
    row: dict[str, object] = {
        "id": answer.id, "answer_id": answer.answer_id, "source": answer.source, "language": answer.language,
        "strata": " ".join(answer.strata), "flags": " ".join(answer.flags), "drawn_for": " ".join(answer.drawn_for),
        "question": answer.question, "answer": answer.answer, "reward": answer.reward.value,
        "reward_version": answer.reward.version, "teacher_score": teacher_score(answer),
    }  # fmt: skip
    for part in answer.reward.parts:
        row |= {part.name: _part(part, None)["value"], f"{part.name}_reason": part.reason}
    if (judgement := answer.judgement) is not None:
        row |= {
            "safety_flag": str(judgement.safety_flag).lower(),
            "critique": judgement.critique,
            "suggested_answer": judgement.suggested_answer,
        }
    return row


def form_csv(samples: Sequence[InspectedSample]) -> str:
    """form.csv: question and answer, and empty columns for the reviewer."""
    return to_csv(FORM_COLUMNS, ({"id": answer.id, "question": answer.question, "answer": answer.answer} for answer in samples))


def form_markdown(name: str, samples: Sequence[InspectedSample], form: Path) -> str:
    """form.md: the same form to read or print, with instructions."""
    place = "/".join(form.parts[-4:]) if form.parts[-4:-2] == ("reports", "inspect") else str(form)  # as typed in the workspace
    boxes = "  ".join(f"☐ {verdict} {zh}" for verdict, zh in VERDICTS.items())
    columns = [
        ("verdict", ", ".join(f"{verdict} ({zh})" for verdict, zh in VERDICTS.items())),
        ("score", "1–5，可空 optional"),
        ("faults", f"{', '.join(f'{name} ({zh})' for name, zh in FAULT_WORDS.items())}; none (无)，可空 optional"),
        ("corrected_answer", "您会给出的回答 the answer you would have given"),
        ("comment", "可空 optional"),
        ("reviewer", "您的姓名或工号 your name or staff number"),
    ]
    lines = [
        f"# 复核表 Review form {name}", "",
        "请填写 `form.csv` 的最后五列；空行不会导入。",
        "Fill in the last five columns of `form.csv`; empty rows are not imported.", "",
        markdown_table(["列 column", "填写内容 what to write"], columns), "",
        "您的结论将用于训练和评测；请勿填写患者的姓名或号码。",
        "Your verdict is used for training and evaluation. Do not write names or numbers of patients.", "",
        f"`medloop inspect --import {shlex.quote(place)}` · {len(samples)} answers",
    ]  # fmt: skip
    for answer in samples:
        lines += ["", f"## {answer.id}", ""]
        lines += [*_quoted("问题 Question", answer.question), *_quoted("回答 Answer", answer.answer or "(no answer)")]
        lines += [boxes, "", "score 1 2 3 4 5", "", "corrected answer:", "", "comment:", "", "reviewer:"]
    return "\n".join(lines) + "\n"
