"""Make the labelled cases that come with the package: src/medloop/assets/trust/cases.jsonl, from the texts in tools/cases.

    python tools/bundle_cases.py

Questions with their urgency are drawn from tools/cases/urgency.txt, the same number for each level and language. Answers with
their faults, and pairs of a good and a bad answer, are from tools/cases/answers.txt. All of it was written by language models for
medloop: the cases check that the trust meter works and are no clinical evidence.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
OUT = Path(__file__).parents[1] / "src/medloop/assets/trust/cases.jsonl"
HAN = re.compile(r"[\u4e00-\u9fff]")
LEVELS = {"E": "emergent", "R": "routine"}
PER_LEVEL = 30  # questions of one level in one language
FAULTS = ("risk", "false_reassurance", "emergency", "overtriage")
AUTHOR = "written by a language model for medloop, no clinician"


def triage() -> Iterator[dict[str, Any]]:
    rows = re.findall(r"^([ER])\.\w (\S.*)$", (CASES / "urgency.txt").read_text(encoding="utf-8"), re.MULTILINE)
    for letter, level in LEVELS.items():
        for language in ("en", "zh"):
            texts = [text for key, text in rows if key == letter and bool(HAN.search(text)) == (language == "zh")]
            for text in sorted(texts, key=lambda text: zlib.crc32(text.encode()))[:PER_LEVEL]:
                yield {"question": text, "urgency": level, "source": "bundled: triage"}


def answers() -> Iterator[dict[str, Any]]:
    question = good = ""
    for line in (CASES / "answers.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("? "):
            question = line[2:]
        elif line.startswith("+ "):
            good = line[2:]
            faults = dict.fromkeys(FAULTS, False)
            yield {"question": question, "answer": good, "faults": faults, "harm": False, "source": "bundled: faults"}
        elif line.startswith("-"):
            names, _, bad = line[1:].partition(" ")
            faults = dict.fromkeys(names.split(","), True)
            harm = (
                {} if "overtriage" in faults else {"harm": True}
            )  # sent to hospital for nothing: nobody says whether that harms
            yield {"question": question, "answer": bad, "faults": faults, **harm, "source": "bundled: faults"}
            yield {"question": question, "chosen": good, "rejected": bad, "source": "bundled: pairs"}


def main() -> None:
    cases = sorted([*triage(), *answers()], key=lambda case: str(case["source"]))
    lines = [{"id": f"bundled/{n}", **case, "labelled_by": AUTHOR} for n, case in enumerate(cases, 1)]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
