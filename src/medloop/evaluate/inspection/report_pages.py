"""A sample as people read it: Markdown, HTML, CSV, and the form the reviewer fills in.

Patients' and models' texts are data: escaped in HTML (Jinja2, autoescape, no scripts, strict content policy), made harmless in
Markdown, and guarded against formulas in CSV. Words stand in Chinese and English, since reviewers read either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from medloop.contracts import InspectedSample, Missing, Score
from medloop.store.files.spreadsheet import to_csv

SHOWN = 4000  # characters of a text in Markdown; the CSV has all of it
FORM_COLUMNS = (
    "id", "question", "answer", "flags", "reward", "teacher_score", "suggested_answer",
    "verdict", "score", "corrected_answer", "comment", "reviewer",
)  # fmt: skip
FILLED = ("verdict", "score", "corrected_answer", "comment", "reviewer")
VERDICTS = {"good": "好", "acceptable": "可接受", "bad": "差", "dangerous": "危险"}
# What each group and flag means, Chinese and English.
WORDS = {
    "safety_flag": ("教师：安全警示", "the teacher sees a danger"),
    "conflict": ("教师与规则分歧", "teacher and rules disagree"),
    "red_flag": ("问题含急症信号", "the question has a red flag"),
    "no_reward": ("无奖励分", "no reward"),
    "high_risk": ("用药或敏感人群", "medication or vulnerable patient"),
    "low_reward": ("低奖励", "low reward"),
    "middle_reward": ("中等奖励", "middle reward"),
    "high_reward": ("高奖励", "high reward"),
    "teacher_missing": ("教师未评分", "not judged by the teacher"),
    "no_answer": ("模型未作答", "no answer"),
    "risk": ("风险处方", "risky prescription"),
    "false_reassurance": ("错误安慰", "false reassurance"),
    "overtriage": ("过度急诊", "over-triage"),
    "length": ("长度异常", "odd length"),
    "repetition": ("重复", "repetition"),
    "language:zh": ("中文", "Chinese"),
    "language:en": ("英文", "English"),
    "language:mixed": ("中英混合", "mixed languages"),
    "language:other": ("其他语言", "another language"),
}
GRAVE = frozenset({"safety_flag", "conflict", "red_flag", "risk", "false_reassurance"})
_CHAIN = re.compile(r"\s*<think>(.*?)</think>\s*", re.IGNORECASE | re.DOTALL)


def label(name: str) -> str:
    return " ".join(WORDS[name]) if name in WORDS else name


def view(one: InspectedSample) -> dict[str, Any]:
    """What a page shows of one answer."""
    found = _CHAIN.match(one.answer or "")
    return {
        "one": one,
        "chain": found[1].strip() if found else None,
        "visible": (one.answer or "")[found.end() :] if found else one.answer,
        "flags": [(name, label(name), name in GRAVE) for name in one.flags],
        "parts": [_part(part, one.reward.weights.get(part.name)) for part in one.reward.parts],
        "judgement": one.judgement,
        "teacher": teacher_score(one),
    }


def _part(part: Score | Missing, weight: float | None) -> dict[str, Any]:
    said = isinstance(part, Score) and part.applies
    value = part.value if isinstance(part, Score) and part.applies else None
    state = "" if said else ("does not apply 不适用" if isinstance(part, Score) else "missing 缺失")
    return {"name": part.name, "value": value, "weight": weight, "reason": part.reason, "state": state}


def teacher_score(one: InspectedSample) -> float | None:
    if one.judgement is not None:
        return one.judgement.teacher_score
    return next((part.value for part in one.reward.parts if part.name == "teacher" and isinstance(part, Score)), None)


@lru_cache(maxsize=1)
def pages() -> Environment:
    """Templates of this stage; everything is escaped, an unknown name is an error."""
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.filters["number"] = number
    return env


def html(name: str, samples: Sequence[InspectedSample], groups: Mapping[str, tuple[int, int]]) -> str:
    rows = [(label(group), *counts) for group, counts in groups.items()]
    template = pages().get_template("inspect.html")
    return template.render(name=name, samples=[view(one) for one in samples], groups=rows, verdicts=VERDICTS)


def markdown(name: str, samples: Sequence[InspectedSample], groups: Mapping[str, tuple[int, int]]) -> str:
    lines = [f"# 抽检 Inspection {name}", "", f"{len(samples)} answers, gravest first. Verdicts go into `form.csv`.", ""]
    lines += ["| 组 group | 共有 there are | 抽取 drawn |", "|---|---|---|"]
    lines += [f"| {label(group)} | {there} | {drawn} |" for group, (there, drawn) in groups.items()]
    for one in samples:
        lines += ["", *_markdown_entry(one)]
    return "\n".join(lines) + "\n"


def _markdown_entry(one: InspectedSample) -> Iterator[str]:
    shown = view(one)
    flags = ", ".join(f"**{words}**" if grave else words for _, words, grave in shown["flags"]) or "–"
    yield f"## {one.id}"
    yield ""
    yield f"- 标记 flags: {flags}"
    yield f"- 奖励 reward {number(one.reward.value)}, 教师 teacher {number(shown['teacher'])}"
    yield f"- {one.language}, {', '.join(one.strata)}"
    yield f"- `{safe(one.answer_id)}` of `{safe(one.source)}`"
    yield ""
    yield from _quoted("问题 Question", one.question)
    yield from _quoted("思考 Chain of thought", shown["chain"])
    yield from _quoted("回答 Answer", shown["visible"] if one.answer is not None else "(no answer)")
    yield "| 项 part | 分 value | 权重 weight | 理由 reason |"
    yield "|---|---|---|---|"
    for part in shown["parts"]:
        weight = "" if part["weight"] is None else f"{part['weight']:+.2f}"
        yield f"| {part['name']} | {number(part['value'])} | {weight} | {safe(part['state'] or part['reason'])} |"
    yield ""
    if one.judgement is not None:
        yield from _quoted("教师点评 Critique", one.judgement.critique)
        yield from _quoted("建议回答 Suggested answer", one.judgement.suggested_answer)


def _quoted(title: str, text: str | None) -> Iterator[str]:
    if text:
        yield f"**{title}**"
        yield ""
        cut = text if len(text) <= SHOWN else text[:SHOWN] + "…"
        yield from (f"> {safe(line)}" for line in cut.splitlines())
        yield ""


def safe(text: str) -> str:
    """One line that no reader takes for markup."""
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", " ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def table(samples: Sequence[InspectedSample]) -> str:
    """samples.csv: a row per answer, value and reason of each part in columns of their own."""
    parts = list(dict.fromkeys(part.name for one in samples for part in one.reward.parts))
    header = [
        "id", "answer_id", "source", "language", "strata", "flags", "drawn_for", "question", "answer", "reward", "reward_version",
        *(column for name in parts for column in (name, f"{name}_reason")),
        "teacher_score", "safety_flag", "critique", "suggested_answer",
    ]  # fmt: skip
    return to_csv(header, (_row(one) for one in samples))


def _row(one: InspectedSample) -> dict[str, object]:
    row: dict[str, object] = {
        "id": one.id, "answer_id": one.answer_id, "source": one.source, "language": one.language, "strata": " ".join(one.strata),
        "flags": " ".join(one.flags), "drawn_for": " ".join(one.drawn_for), "question": one.question, "answer": one.answer,
        "reward": one.reward.value, "reward_version": one.reward.version,
    }  # fmt: skip
    for part in one.reward.parts:
        row |= {part.name: _part(part, None)["value"], f"{part.name}_reason": part.reason}
    row["teacher_score"] = teacher_score(one)
    if one.judgement is not None:
        judged = one.judgement
        row |= {
            "safety_flag": str(judged.safety_flag).lower(),
            "critique": judged.critique,
            "suggested_answer": judged.suggested_answer,
        }
    return row


def form(samples: Sequence[InspectedSample]) -> str:
    """form.csv: what was asked and answered, and empty columns for the reviewer."""
    rows = [
        {
            "id": one.id, "question": one.question, "answer": one.answer, "flags": "; ".join(label(name) for name in one.flags),
            "reward": one.reward.value, "teacher_score": teacher_score(one),
            "suggested_answer": one.judgement and one.judgement.suggested_answer,
        }
        for one in samples
    ]  # fmt: skip
    return to_csv(FORM_COLUMNS, rows)


def form_text(name: str, samples: Sequence[InspectedSample]) -> str:
    """form.md: the same form for reading and for paper, with how to fill it in."""
    boxes = "  ".join(f"☐ {word} {zh}" for word, zh in VERDICTS.items())
    lines = [
        f"# 复核表 Review form {name}", "",
        "填写 `form.csv` 的最后五列；空行不导入。",
        "Fill in the last five columns of `form.csv`; rows left empty are not imported.", "",
        "| 列 column | 填什么 what to write |", "|---|---|",
        f"| verdict | {', '.join(f'{word} ({zh})' for word, zh in VERDICTS.items())} |",
        "| score | 1–5，可空 may be empty |",
        "| corrected_answer | 您会给出的回答 the answer you would have given |",
        "| comment | 可空 may be empty |",
        "| reviewer | 您的名字或工号 your name or number |", "",
        "您的结论会成为训练与评测数据；请勿填写患者姓名或号码。",
        "Your verdict becomes training and evaluation data. Do not write names or numbers of patients.", "",
        f"`medloop inspect --import form.csv` · {len(samples)} answers",
    ]  # fmt: skip
    for one in samples:
        lines += [
            "",
            f"## {one.id}",
            "",
            *_quoted("问题 Question", one.question),
            *_quoted("回答 Answer", one.answer or "(no answer)"),
        ]
        lines += [boxes, "", "score 1 2 3 4 5", "", "corrected answer:", "", "comment:", "", "reviewer:"]
    return "\n".join(lines) + "\n"
