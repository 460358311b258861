"""How many corrections repair a mistake: held-out paraphrases answered right, for codebook, few-shot, SFT, DPO and RL.

    python benchmarks/repair.py --quick --out repair.json                               # a few cells: that the path works
    python benchmarks/repair.py --folder runs --out repair.json                         # all: class x method x n x seed
    python benchmarks/repair.py --folder runs --methods codebook --n 5 --fresh          # on 12 questions a class in fresh words
    python benchmarks/repair.py --folder runs --methods sft,dpo --n 5,20 --minutes 25   # some; finished cells are kept

Six classes of mistake are planted into the embedded model by `medloop train sft --full` on wrong answers among ordinary rows of
its corpus. A cell takes n corrections of one class (the planted model's own answers, corrected) and repairs by the commands:

    codebook   codebook propose, codebook approve (with its trial); answers have the rules in the prompt, the vetted sentences
               first and the guard of the rules, as at the gateway, but not its other guards, which would hide a mistake; `model`
               is the model's own answer to the same prompt
    few-shot   codebook examples, codebook approve
    sft        train sft --data CORRECTIONS --replay-data ORDINARY, with the command's own defaults
    dpo        train dpo --data (CORRECTED, ORIGINAL) --replay-data ORDINARY, from the SFT adapter of the same cell
    rl         train irs on the corrected questions, from the SFT adapter of the same cell, reward: the default mix
    criteria   the same with `--with criteria`: the corrections' criteria, drafted by the detectors and accepted by their author

`right` is judged by the class's own check (_repair_classes.py), which is part of no reward and no detector; the
gateway's notice alone is no answer. `elsewhere` is the change on ordinary questions, judged by the table of the corpus
(_table_judge.py), paired by question, for each stratum: `worse` are those whose interval lies below zero, of eight looks;
`worse_holm` those that stay so when the looks of the cell are corrected together (evaluate/compare.py). What training on the
replay does by itself is in `elsewhere`, too: `--against CELL` compares with a cell of the same training that repaired nothing.
A cell that is finished lies in FOLDER/cells and is not run again. Times are of one thread: wall-clock, and processor time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from _repair_classes import CLASSES, FOLLOW_GOOD, Exchange, MistakeClass, answered_right, exchanges, is_notice, visible
from _table_judge import judge, question_of
from typer.testing import CliRunner

from medloop.bootstrap import LEVEL, interval, wilson
from medloop.cli import app
from medloop.contracts import Correction, Message, ModelRef
from medloop.embedded.corpus import generate
from medloop.embedded.rule_rows import generate_rule_rows
from medloop.errors import ResultError
from medloop.evaluate.compare import holm, p_value
from medloop.loop.assistant import build_prompt
from medloop.loop.codebook import rules_for
from medloop.loop.rubrics import draft_new
from medloop.loop.rule_guard import as_shown
from medloop.loop.workspace import init_workspace
from medloop.models.generate import load_generator
from medloop.settings import Settings, resolve
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write
from medloop.store.records import codebook, criteria, crud, users

METHODS = ("codebook", "few-shot", "sft", "dpo", "rl", "criteria")
STEPS = (1, 2, 5, 20, 100)
PASSWORD = "correct horse battery"
FRESH = Path(__file__).with_name("repair_fresh_2.jsonl")  # 12 a class, worded by hand, from no template
REPLAY = 256  # ordinary rows in the mix of RL
LEARNT_BEFORE = 3000  # rows of the base corpus that SFT and DPO draw their replay from, as a clinic has its training file
STRATA = ("emergency", "child", "pregnancy", "elderly", "routine", "zh", "en")


@dataclass(frozen=True)
class Size:
    planted: int = 60  # wrong rows of each class
    ordinary: int = 400
    epochs: float = 3
    held_out: int = 40  # paraphrases of each class
    control: int = 120  # ordinary questions


QUICK = Size(planted=24, ordinary=60, epochs=1, held_out=6, control=12)


@dataclass(frozen=True)
class Cell:
    kind: str
    method: str
    n: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.method}-{self.n}-s{self.seed}"


def medloop(home: Path, line: str, model: str = "") -> str:
    """A command, as the user gives it."""
    env = {"MEDLOOP_HOME": str(home), **({"MEDLOOP_MODEL": model} if model else {})}
    result = CliRunner().invoke(app, shlex.split(line), input=f"{PASSWORD}\n", env=env)
    waits = isinstance(result.exception, ResultError) and "is not live" in str(result.exception)
    if waits:
        return str(result.exception)
    if result.exception is not None:
        raise SystemExit(f"medloop {line}: {result.output[-1500:]} {result.exception!r}")
    return result.output


class Bench:
    """The planted model, its answers, and the cells."""

    def __init__(
        self, folder: Path, size: Size, seed: int, model: str = "embedded:tiny", fresh: Path | None = None, replay: str = ""
    ) -> None:
        self.folder, self.size, self.seed, self.model, self.fresh = folder, size, seed, model, fresh
        self.home, self.replay = folder / "home", replay
        self.planted = self.home / "models/full/planted"
        self.settings: Settings

    @property
    def _questions(self) -> str:
        """In the names of files: which questions were judged."""
        return f".{self.fresh.stem}" if self.fresh else ""

    def prepare(self) -> None:
        init_workspace(self.home)
        self.settings = resolve({"home": self.home}).settings
        if not (self.planted / "card.json").is_file():
            started = time.monotonic()
            jsonl.write(self.home / "planted.jsonl", self._planted_rows())
            medloop(self.home, f"train sft --full --name planted --model {self.model} --data {self.home}/planted.jsonl"
                               f" --epochs {self.size.epochs} --set dev_rows=0 --learning-rate 0.0005 --replace")  # fmt: skip
            say(f"planted model trained in {time.monotonic() - started:.0f} s")

    def _planted_rows(self) -> Iterator[dict[str, Any]]:
        rows = [
            as_row(one.question, one.bad) for kind in CLASSES.values() for one in exchanges(kind, self.size.planted, seed="plant")
        ]
        rows += ordinary(self.size.ordinary)
        random.Random(1).shuffle(rows)
        yield from rows

    def corrections(self, kind: MistakeClass, n: int, seed: int) -> list[Exchange]:
        planted = {one.question for one in exchanges(kind, self.size.planted, seed="plant")}
        held = {one.question for one in self.held_out(kind)}
        return exchanges(kind, n, seed=f"fix{seed}", without=frozenset(planted | held))

    @cache  # noqa: B019  one bench a process
    def held_out(self, kind: MistakeClass) -> tuple[Exchange, ...]:
        planted = {one.question for one in exchanges(kind, self.size.planted, seed="plant")}
        return tuple(exchanges(kind, self.size.held_out, seed="held", without=frozenset(planted)))

    @cache  # noqa: B019
    def asked(self, kind: MistakeClass) -> tuple[str, ...]:
        """The questions that are judged: held-out paraphrases, or those of the file of fresh wordings."""
        if not self.fresh:
            return tuple(one.question for one in self.held_out(kind))
        return tuple(row["question"] for row in jsonl.read(self.fresh) if row["class"] == kind.name)

    @cache  # noqa: B019
    def control(self) -> tuple[dict[str, Any], ...]:
        return tuple(generate(self.size.control, seed=self.seed + 5, part="clinic"))

    def answers(self, prompts: Sequence[Sequence[Message]], adapter: str | None = None) -> list[str]:
        generate_all = load_generator(ModelRef(base=str(self.planted), adapter=adapter), self.settings)
        done = generate_all([tuple(prompt) for prompt in prompts], max_new_tokens=160, temperature=0.0, seed=0, batch_size=32)
        return [completion.text for completion in done]

    @cache  # noqa: B019
    def baseline(self) -> dict[str, Any]:
        """Right before any correction, by class; and the ordinary questions."""
        path = self.folder / f"baseline{self._questions}.json"
        if not path.is_file():
            by_class = {}
            for kind in CLASSES.values():
                asked = self.asked(kind)
                texts = self.answers([user(question) for question in asked])
                by_class[kind.name] = [kind.right(question, visible(text)) for question, text in zip(asked, texts, strict=True)]
            control = self.answers([user(question_of(row)) for row in self.control()])
            write(path, {"classes": by_class, "control": control})
        return json.loads(path.read_text(encoding="utf-8"))

    def cell_file(self, cell: Cell) -> Path:
        return self.folder / "cells" / f"{cell.name}{self._questions}.json"

    def run(self, cell: Cell) -> dict[str, Any]:
        path = self.cell_file(cell)
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
        kind = CLASSES[cell.kind]
        fixes = self.corrections(kind, cell.n, cell.seed)
        originals = self.answers([user(one.question) for one in fixes])
        started, processor = time.monotonic(), processor_s()
        repair = self._by_codebook if cell.method in ("codebook", "few-shot") else self._by_training
        answer, facts = repair(cell, fixes, originals)
        seconds, processor = time.monotonic() - started, processor_s() - processor
        asked = self.asked(kind)
        pairs = answer(asked)
        final = [answered_right(kind, question, said) for question, (said, _) in zip(asked, pairs, strict=True)]
        own = [kind.right(question, visible(text)) for question, (_, text) in zip(asked, pairs, strict=True)]
        control = answer([question_of(row) for row in self.control()])
        asked_for = FOLLOW_GOOD.values() if kind.name == "follow_up" else ()  # in pregnancy it is what the correction asks for
        low, high = wilson(sum(final), len(final))
        result = {
            "class": cell.kind, "method": cell.method, "n": cell.n, "seed": cell.seed, "right": sum(final), "of": len(final),
            "share": sum(final) / len(final), "low": low, "high": high, "model": sum(own) / len(own),
            "repair_s": round(seconds, 1), "processor_s": round(processor, 1),
            "elsewhere": self._elsewhere([without(said, asked_for) for said, _ in control]),
            "notice_only": sum(is_notice(said) for said, _ in pairs), "sample": pairs[0][0], **facts,
            "control": [said for said, _ in control],
            **({"wrong": [[question, said] for question, (said, _), good in zip(asked, pairs, final, strict=True) if not good]}
               if self.fresh else {}),
        }  # fmt: skip
        write(path, result)
        return result

    def _elsewhere(self, after: Sequence[str], before: Sequence[str] | None = None) -> dict[str, Any]:
        """The change of `right` on ordinary questions, by stratum, with bootstrap intervals; `worse`: those below zero."""
        rows, before = self.control(), before or self.baseline()["control"]
        changes: dict[str, list[float]] = {name: [] for name in ("all", *STRATA)}
        for row, old, new in zip(rows, before, after, strict=True):
            change = judge(new, row)["right"] - judge(old, row)["right"]
            stratum = "emergency" if row["red_flag"] else row["group"] if row["group"] != "none" else "routine"
            for name in ("all", stratum, row["language"]):
                changes[name].append(change)
        found = {name: interval(values, seed=1, name=name) for name, values in changes.items() if values}
        shown = {name: [round(x or 0.0, 3) for x in (one.mean, one.low, one.high)] for name, one in found.items()}
        worse = [name for name, one in found.items() if one.high is not None and one.high < 0]
        names = list(found)
        holds = {names[index] for index in holm([p_value(changes[name]) for name in names], 1 - LEVEL)}
        return {**shown, "worse": worse, "worse_holm": [name for name in worse if name in holds]}

    def against(self, row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """The change on ordinary questions from another cell's answers to this one's."""
        asked_for = FOLLOW_GOOD.values() if row["class"] == "follow_up" else ()
        return self._elsewhere([without(said, asked_for) for said in row["control"]], other["control"])

    def _by_codebook(self, cell: Cell, fixes: Sequence[Exchange], originals: Sequence[str]) -> tuple[Answer, dict[str, Any]]:
        home = self.folder / "codebooks" / f"{cell.name}-{os.getpid()}-{time.time_ns()}"
        init_workspace(home)
        settings = resolve({"home": home, "model": str(self.planted)}).settings
        with open_store(settings) as store:
            for name in ("dr.li", "dr.wu", "dr.ma"):
                users.add_user(store, name, "clinician", password=PASSWORD, actor="benchmark")
            author = users.get_user(store, "dr.li").user_id
            self._add_corrections(store, fixes, originals, author)
        medloop(
            home, f"codebook examples --most {len(fixes)}" if cell.method == "few-shot" else "codebook propose", str(self.planted)
        )
        with open_store(settings) as store:
            proposed = list(dict.fromkeys(entry.entry_id for entry in codebook.entries(store, state="proposed")))
        slowest, second = 0.0, 0
        for entry in proposed:
            began = time.monotonic()
            said = medloop(home, f'codebook approve {entry} --user dr.wu --reason "Benchmark."', str(self.planted))
            if "is not live" in said:
                second += 1
                medloop(home, f'codebook approve {entry} --user dr.ma --reason "Benchmark."', str(self.planted))
            slowest = max(slowest, time.monotonic() - began)

        def answer(questions: Sequence[str]) -> list[tuple[str, str]]:
            with open_store(settings) as store:
                find = rules_for(store)
                found = [find(question) for question in questions]
            prompts = [build_prompt(user(question), rules, None) for question, rules in zip(questions, found, strict=True)]
            texts = self.answers(prompts)
            shown = [as_shown(text, question, rules) for text, question, rules in zip(texts, questions, found, strict=True)]
            return list(zip(shown, texts, strict=True))

        return answer, {"entries": len(proposed), "approval_s": round(slowest, 1), "second_approvals": second}

    def _by_training(self, cell: Cell, fixes: Sequence[Exchange], originals: Sequence[str]) -> tuple[Answer, dict[str, Any]]:
        files, common = self.folder / "files", f"--model {self.planted} --seed {cell.seed}"
        files.mkdir(exist_ok=True)
        base = f"{cell.kind}-{cell.n}-s{cell.seed}".replace("_", "-")
        data, before, adapter = (
            files / f"{base}.jsonl",
            files / f"{base}.ordinary.jsonl",
            self.home / "models/lora" / f"{base}-sft",
        )
        jsonl.write(data, [as_row(one.question, one.golden) for one in fixes])
        jsonl.write(before, ordinary(LEARNT_BEFORE))
        facts: dict[str, Any] = {}
        if cell.method == "sft" or not (adapter / "card.json").is_file():
            medloop(
                self.home,
                f"train sft --name {adapter.name} --data {data} --replay-data {before} {self.replay} {common} --replace",
            )
        if cell.method == "dpo":
            pairs = [{"prompt": one.question, "chosen": one.golden, "rejected": text}
                     for one, text in zip(fixes, originals, strict=True) if one.golden != text]  # fmt: skip
            file = files / f"{base}.pairs.jsonl"
            jsonl.write(file, pairs)
            medloop(self.home, f"train dpo --name {base}-dpo --adapter {adapter} --data {file} --replay-data {before}"
                               f" {self.replay} {common} --replace")  # fmt: skip
            adapter = self.home / "models/lora" / f"{base}-dpo"
        if cell.method in ("rl", "criteria"):
            home, more = (
                (self.home, "")
                if cell.method == "rl"
                else (self._with_criteria(cell, fixes, originals, facts), "--with criteria")
            )
            prompts, held, mix = (files / f"{base}.{part}.jsonl" for part in ("prompts", "held", "mix"))
            jsonl.write(prompts, [{"messages": [m.model_dump() for m in user(one.question)]} for one in fixes])
            jsonl.write(held, [{"messages": row["messages"][:-1]} for row in self.control()[:32]])
            jsonl.write(mix, repeated([as_row(one.question, one.golden) for one in fixes], REPLAY) + ordinary(REPLAY))
            said = medloop(home, f"train irs --name {base}-irs --adapter {adapter} --prompts {prompts} --held-out {held}"
                           f" {common} {more} --n-iterations 2 --n-questions {min(cell.n, 32)} --set held_out_n=32"
                           f" --set replay_data={mix} --accept-untrusted --replace")  # fmt: skip
            facts["irs"] = said[-300:]
            adapter = home / "models/rl" / f"{base}-irs"

        def answer(questions: Sequence[str]) -> list[tuple[str, str]]:
            texts = self.answers([user(question) for question in questions], str(adapter))
            return [(text, text) for text in texts]

        return answer, facts

    def _with_criteria(self, cell: Cell, fixes: Sequence[Exchange], originals: Sequence[str], facts: dict[str, Any]) -> Path:
        """A workspace in which the author of the corrections accepted every draft of the detectors."""
        home = self.folder / "criteria" / f"{cell.name}-{os.getpid()}-{time.time_ns()}"
        init_workspace(home)
        with open_store(resolve({"home": home}).settings) as store:
            author = users.add_user(store, "dr.li", "clinician", password=None, actor="benchmark").user_id
            self._add_corrections(store, fixes, originals, author)
            drafts = draft_new(store, actor="benchmark")
            for row in drafts.criteria:
                criteria.accept(store, row.criterion_id, by=author)
        facts["criteria"], facts["without_criteria"] = len(drafts.criteria), drafts.unusable
        return home

    @staticmethod
    def _add_corrections(store: Store, fixes: Sequence[Exchange], originals: Sequence[str], author: str) -> None:
        crud.add(store, [
            Correction(prompt=one.question, original=text, golden=one.golden, consent=("training",), recorded_by=author)
            for one, text in zip(fixes, originals, strict=True)
        ], actor="benchmark")  # fmt: skip


def processor_s() -> float:
    """Of this process and of those it started and that ended: what other work on the machine does not stretch."""
    return sum(os.times()[:4])


Answer = Callable[[Sequence[str]], list[tuple[str, str]]]  # what the user reads, and the model's own words


def learnt_before(n: int) -> list[dict[str, Any]]:
    """Rows of the base corpus, as the model was made of, with what they are about."""
    share = n // 6
    return [*generate(n - share, seed=77, part="base"), *generate_rule_rows(share, seed=77)]


def ordinary(n: int) -> list[dict[str, Any]]:
    return [{"messages": row["messages"]} for row in learnt_before(n)]


def user(question: str) -> tuple[Message, ...]:
    return (Message(role="user", content=question),)


def as_row(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def repeated(rows: list[dict[str, Any]], least: int) -> list[dict[str, Any]]:
    """The rows, again and again until there are `least`: few corrections would drown in the replay."""
    return rows * max(1, math.ceil(least / max(1, len(rows))))


def without(answer: str, sentences: Iterable[str]) -> str:
    for sentence in sentences:
        answer = answer.replace(sentence, "")
    return answer.strip()


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(value, ensure_ascii=False, indent=1).encode())


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("repair_runs"))
    parser.add_argument("--out", type=Path, default=Path("repair.json"))
    parser.add_argument("--quick", action="store_true", help="few rows, few questions: that the path works")
    parser.add_argument("--fresh", type=Path, nargs="?", const=FRESH, help="judge the questions of a file, not the paraphrases")
    parser.add_argument("--model", default="embedded:tiny", help="model to plant the mistakes into; one folder each")
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--n", default=",".join(map(str, STEPS)))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--part", default="1/1", help="I/N: only this part of the cells, for several processes on one folder")
    parser.add_argument("--control", type=int, default=Size().control, help="ordinary questions")
    parser.add_argument("--no-replay-check", dest="replay_check", action="store_false", help="replay all rows, whatever they say")
    parser.add_argument(
        "--against", help="also: each cell's ordinary answers against this finished cell's, e.g. follow_up-sft-1-s1"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="no cell is started after this time")
    args = parser.parse_args()
    began, folder = time.monotonic(), args.folder.absolute()
    size = QUICK if args.quick else Size(control=args.control)
    bench = Bench(folder, size, 1, args.model, args.fresh, "" if args.replay_check else "--no-replay-check")
    bench.prepare()
    before = {name: [sum(values), len(values)] for name, values in bench.baseline()["classes"].items()}
    say(f"before any correction, right: {before}")
    numbers = [int(n) for n in args.n.split(",")]
    part, parts = map(int, args.part.split("/"))
    bases = [(kind, n, int(seed)) for seed in args.seeds.split(",") for n in numbers for kind in args.classes.split(",")]
    cells = [Cell(kind, method, n, seed) for method in args.methods.split(",") for kind, n, seed in bases[part - 1 :: parts]]
    results, left = [], 0
    for cell in cells:
        done = bench.cell_file(cell).is_file()
        if not done and time.monotonic() - began > 60 * args.minutes:
            left += 1
            continue
        row = bench.run(cell)
        results.append(row)
        elsewhere = row["elsewhere"]
        say(f"{cell.name}: {row['right']}/{row['of']} right [{row['low']:.2f}, {row['high']:.2f}], model {row['model']:.2f},"
            f" {row['processor_s']:.0f} s, elsewhere {elsewhere['all']}, worse {elsewhere['worse']},"
            f" Holm {elsewhere['worse_holm']}")  # fmt: skip
        write(args.out, {"size": "quick" if args.quick else "full", "before": before, "cells": results, "cells_not_run": left})
    write(args.out, {"size": "quick" if args.quick else "full", "before": before, "cells": results, "cells_not_run": left})
    say(table(results))
    if args.against:
        other = json.loads((folder / "cells" / f"{args.against}.json").read_text(encoding="utf-8"))
        for row in results:
            change = bench.against(row, other)
            named = {name: change[name] for name in ("all", *change["worse"])}
            cell = Cell(row["class"], row["method"], row["n"], row["seed"])
            say(f"{cell.name} against {args.against}: {named}, Holm {change['worse_holm']}")


def table(results: Sequence[dict[str, Any]]) -> str:
    """Method and number of corrections against the classes, pooled over seeds."""
    lines = ["method n | cells | " + " | ".join(CLASSES) + " | all | processor s | elsewhere | cells with a worse stratum (Holm)"]
    for method in METHODS:
        for n in STEPS:
            rows = [row for row in results if (row["method"], row["n"]) == (method, n)]
            if rows:
                shares = [[row for row in rows if row["class"] == kind] for kind in CLASSES]
                seconds = [row["processor_s"] for row in rows]
                change = sum(row["elsewhere"]["all"][0] for row in rows) / len(rows)
                worse, holds = (sum(bool(row["elsewhere"][name]) for row in rows) for name in ("worse", "worse_holm"))
                lines.append(
                    f"{method} {n} | {len(rows)} | {' | '.join(map(pooled, shares))} | {pooled(rows)} |"
                    f" {min(seconds):.0f}-{max(seconds):.0f} | {100 * change:+.1f} | {worse} ({holds})"
                )
    return "\n".join(lines)


def pooled(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    right, of = sum(row["right"] for row in rows), sum(row["of"] for row in rows)
    low, high = wilson(right, of)
    return f"{100 * right / of:.0f} ({100 * low:.0f}-{100 * high:.0f})"


if __name__ == "__main__":
    main()
