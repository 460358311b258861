"""Count which two Chinese characters stand side by side in many medical texts: such a pair is a word, not part of a name.

    python tools/phi_pairs_zh.py zh_toyhom_dialogue.jsonl.gz zh_cmtmedqa_multiturn.jsonl.gz ...

Reads the even rows of each file (the odd ones are for measuring) and writes src/medloop/assets/phi/pairs_zh.txt: on each line a
character, those that follow it in at least 40 rows, a space, those in at least 6, a space, and those in at least 3. Only
counts enter the file, no text.
"""

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RARE, LEAST, OFTEN = 3, 6, 40
OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/pairs_zh.txt"
HAN = re.compile(r"[\u4e00-\u9fff]+")


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part)


def main() -> None:
    rows_with = Counter[str]()
    for name in sys.argv[1:]:
        with gzip.open(name, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if number % 2 == 0:
                    runs = [run for text in texts(json.loads(line)) for run in HAN.findall(text)]
                    rows_with.update({run[i : i + 2] for run in runs for i in range(len(run) - 1)})
    groups = tuple[dict[str, str], ...](({}, {}, {}))  # often, seldom, rarely
    for pair in sorted(pair for pair, count in rows_with.items() if count >= RARE):
        part = groups[(rows_with[pair] < OFTEN) + (rows_with[pair] < LEAST)]
        part[pair[0]] = part.get(pair[0], "") + pair[1]
    firsts = sorted(set().union(*groups))
    lines = (f"{first}{' '.join(part.get(first, '') for part in groups)}\n" for first in firsts)
    OUT.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
