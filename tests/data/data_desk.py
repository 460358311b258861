"""A workspace of our own, commands run in it, and near-copies of questions as people and scrapers make them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from medloop.cli import app
from medloop.errors import MedloopError
from medloop.loop.workspace import init_workspace
from medloop.settings import Workspace


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    error: str


class Desk(Workspace):
    """A workspace with the commands of the data stage."""

    def run(self, *args: str | Path) -> Ran:
        """What a user sees: exit code, output and the one sentence of a failure.

        The made-up places below would be taken out by the scrubber, so `prepare` leaves it out unless a test asks for it.
        """
        command = [*args, "--no-scrub"] if args[:1] == ("prepare",) and "--scrub" not in args else [*args]
        done = CliRunner().invoke(app, ["--home", str(self.home), "data", *map(str, command)])
        if isinstance(done.exception, MedloopError):
            return Ran(done.exception.exit_code, done.output, str(done.exception))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.output, "")

    def import_rows(self, name: str, rows: Iterable[dict[str, Any]], *flags: str) -> Ran:
        path = write_jsonl(self.home / f"{name}.jsonl", rows)
        return self.run("import", path, "--name", name, *flags)

    def records(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.processed / file).read_text(encoding="utf-8").splitlines()]


def new_desk(home: Path) -> Desk:
    init_workspace(home)
    return Desk(home)


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


SUBJECTS = ("hip", "knee", "elbow", "jaw", "thumb", "ankle", "wrist", "heel", "rib", "shin", "ear", "nose", "lip", "scalp", "toe")
AILMENTS = (
    "cramps",
    "swelling",
    "a rash",
    "itching",
    "numbness",
    "stiffness",
    "bruises",
    "dry skin",
    "warts",
    "spots",
    "burning",
)
MOMENTS = (
    "after running",
    "at night",
    "in winter",
    "when sitting",
    "after lunch",
    "on the stairs",
    "while driving",
    "in the garden",
)
部位 = ("髋部", "膝盖", "手肘", "下巴", "拇指", "脚踝", "手腕", "脚跟", "肋骨", "小腿", "耳朵", "鼻子", "嘴唇", "头皮", "脚趾")
毛病 = ("抽筋", "肿胀", "起皮疹", "发痒", "麻木", "僵硬", "淤青", "干燥", "长疣", "长斑", "灼热")
时候 = ("跑步以后", "半夜里", "冬天时", "久坐时", "吃完午饭", "爬楼梯时", "开车的时候", "在花园干活时")
地 = "安宝昌定丰关海和吉康兰明宁平青荣善泰万西新兴永玉云"
RISKY = (
    "I suddenly cannot breathe and my lips are blue, with {a} of the {s} {m} in {p}.",
    "My baby is 6 months old and has {a} of the {s} {m} since we came from {p}, can I give ibuprofen?",
    "我在{p}突然呼吸困难嘴唇发紫，{m}{s}{a}。",
    "我怀孕五个月，住在{p}，{m}{s}{a}，能吃布洛芬吗？",
)


def questions(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Different questions with different answers, half of them Chinese, every fifth one high-risk. Own words."""
    rng = random.Random(seed)
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < count:
        english = rng.random() < 0.5
        subjects, ailments, moments = (SUBJECTS, AILMENTS, MOMENTS) if english else (部位, 毛病, 时候)
        a, b = rng.sample(subjects, 2)
        words = {"a": rng.choice(ailments), "s": a, "m": rng.choice(moments), "p": _place(rng, english)}
        more = f"{rng.choice(ailments)} near the {b}" if english else f"{b}旁边还{rng.choice(ailments)}"
        if rng.random() < 0.2:
            question = rng.choice(RISKY[:2] if english else RISKY[2:]).format(**words)
        elif english:
            question = "Back from {p} I have {a} of the {s} {m}, and ".format(**words) + more + "."
        else:
            question = "从{p}回来我{m}总是{s}{a}，".format(**words) + more + "，怎么回事？"
        drawn = [rng.choice(subjects + ailments + moments) for _ in range(25)]
        rows.setdefault(question, {"question": question, "answer": (" " if english else "").join(drawn)})
    return list(rows.values())


def _place(rng: random.Random, english: bool) -> str:
    """A place nobody has heard of, so that questions differ in more than their template."""
    if english:
        return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(4)).title()
    return "".join(rng.choice(地) for _ in range(3)) + "镇"


def near_copy(rng: random.Random, question: str) -> str:
    """One to three edits of the kind that hide a copy: punctuation, spaces, numbers, case, greetings, swapped words."""
    for edit in rng.sample((_punctuation, _spaces, _numbers, _greeting, _swap, _case), rng.randint(1, 3)):
        question = edit(rng, question)
    return question


def _english(text: str) -> bool:
    return not re.search("[\u4e00-\u9fff]", text)


def _punctuation(rng: random.Random, text: str) -> str:
    return re.sub(r"[，。？,.?]", lambda _: rng.choice(("", " ", "；", "!", "...")), text) + rng.choice(("", "！！", "?"))


def _spaces(rng: random.Random, text: str) -> str:
    return text.replace(" ", rng.choice(("  ", "\n", "\u3000"))) if _english(text) else " ".join(text)


def _numbers(rng: random.Random, text: str) -> str:
    return re.sub(r"\d", lambda _: str(rng.randrange(10)), text)


def _greeting(rng: random.Random, text: str) -> str:
    if _english(text):
        return (
            rng.choice(("Dear doctor, ", "Hi all! ", "I hope somebody can help me. ")) + text + rng.choice((" Many thanks!", ""))
        )
    return rng.choice(("医生您好，", "各位好，求助一下：", "请问大夫，")) + text + rng.choice(("谢谢！", "急，求解答。"))


def _swap(rng: random.Random, text: str) -> str:
    words = text.split() if _english(text) else list(text)
    index = rng.randrange(len(words) - 1)
    words[index], words[index + 1] = words[index + 1], words[index]
    return (" " if _english(text) else "").join(words)


def _case(rng: random.Random, text: str) -> str:
    return rng.choice((text.upper(), text.lower(), text.title()))
