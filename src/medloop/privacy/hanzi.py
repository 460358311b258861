"""Chinese names: every surname in the text with one or two characters behind it is weighed by what stands in and around it.

The weights (assets/phi/hanzi.json) are learned by tools/train_phi.py from sentences we generate. A candidate is worth the sum
of its features: its characters, the two characters on each side, and whether it is cut out of an ordinary word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from medloop.privacy import lists

_HAN = re.compile(r"[\u4e00-\u9fff]")


# Words of records and letters about somebody; in such a text a name is likelier than in an article or an exam question.
_RECORD = re.compile(
    r"姓名|家属|我叫|他叫|她叫|叫做|名叫|本人|签名|签字|签署|\d床|床号|收件|收货|快递|地址|邮箱|户名|登记号|护照|来电|查房|值班|随访|交班|转账|退款|参保|身份证"
    r"|手机|电话|住院号|门诊号|病历号|挂号|挂不到|的号|我爱人|我丈夫|我妻子|我老公|我外甥|护士|助手|执笔|伤者|见证|\d{7}|[患病][者人人][^的可应有在，。]{2,3}[，,]"
)


class Candidate(NamedTuple):
    start: int
    given: int
    end: int


@lru_cache(maxsize=1)
def _surnames() -> tuple[frozenset[str], frozenset[str]]:
    every = lists.lines("surnames_zh.txt")
    return frozenset(s for s in every if len(s) == 1), frozenset(s for s in every if len(s) == 2)


@lru_cache(maxsize=1)
def words() -> frozenset[str]:
    """Ordinary words that hold a surname: 高血压, 白芍, 张力, 方法."""
    return frozenset(lists.lines("words_zh.txt"))


@lru_cache(maxsize=1)
def _starts() -> re.Pattern[str]:
    single, double = _surnames()
    return re.compile(f"(?=({'|'.join(sorted(double))}|[{''.join(sorted(single))}])[\u4e00-\u9fff])")


def candidates(text: str) -> Iterator[Candidate]:
    for match in _starts().finditer(text):
        start, given = match.start(1), match.end(1)
        for end in (given + 1, given + 2):
            if end <= len(text) and _HAN.match(text, end - 1):
                yield Candidate(start, given, end)
            else:
                break


def features(text: str, found: Candidate) -> list[str]:
    """What speaks for and against this candidate."""
    start, given, end = found
    surname, first, last = text[start:given], text[given], text[end - 1]
    size = end - given
    one = text[start - 1] if start else "^"
    two = text[start - 2] if start > 1 else "^"
    three = text[start - 3 : start - 1] if start > 2 else "^"
    after = text[end] if end < len(text) else "$"
    later = text[end + 1] if end + 1 < len(text) else "$"
    one, two, after, later = _sign(one), _sign(two), _sign(after), _sign(later)
    known = words()
    out = [
        f"n{size}",
        f"s{surname}",
        f"s{surname}{size}",
        f"f{size}{first}",
        f"l{size}{last}",
        f"g{text[given:end]}",
        f"-{one}",
        f"-{two}{one}",
        f"-{three}{one}",
        f"+{after}",
        f"+{after}{later}",
        f"+{size}{after}",
        f"{one}_{after}",
    ]
    cut = [mark for mark, is_cut in _cuts(text, found, known) if is_cut]
    return out + (cut or [f"whole{size}", f"whole{surname}", f"whole-{one}", f"whole+{after}"])


def _cuts(text: str, found: Candidate, known: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Is the candidate cut out of ordinary words? Each way by itself."""
    start, given, end = found
    size = end - given
    yield "w3", size == 2 and text[start:end] in known
    yield f"w2{size}", text[start : given + 1] in known
    yield "wg", size == 2 and text[given:end] in known
    yield "wl", start > 0 and text[start - 1 : given] in known
    yield "wll", start > 1 and text[start - 2 : given] in known
    yield f"wr{size}", text[end - 1 : end + 1] in known
    yield f"wx{size}", text[start : end + 1] in known or text[start : end + 2] in known


def _sign(char: str) -> str:
    """Punctuation in Chinese and Latin form is one thing; so are digits and Latin letters."""
    if char in "^$" or "\u4e00" <= char <= "\u9fff":
        return char
    if char.isdigit():
        return "0"
    if char.isalpha():
        return "a"
    return {"，": ",", "。": ".", "：": ":", "；": ";", "（": "(", "）": ")", "、": ",", "\n": "^"}.get(char, char)


class Names:
    """`find` gives the names of a text and how close the best of the others came (below zero)."""

    def __init__(self, weights: dict[str, float], bias: float, in_records: float) -> None:
        self.weights, self.bias, self.in_records = weights, bias, in_records

    def score(self, text: str, found: Candidate) -> float:
        get = self.weights.get
        return sum(get(feature, 0.0) for feature in features(text, found))

    def find(self, text: str) -> tuple[list[tuple[int, int]], float]:
        bias = self.in_records if _RECORD.search(text) else self.bias
        scored = sorted(((self.score(text, c) + bias, c) for c in candidates(text)), key=lambda pair: (-pair[0], pair[1]))
        taken: list[tuple[int, int]] = []
        nearest = -1e9
        used = bytearray(len(text))
        for score, (start, _, end) in scored:
            if any(used[start:end]):
                continue
            if score > 0:
                used[start:end] = b"\1" * (end - start)
                taken.append((start, end))
            else:
                nearest = max(nearest, score)
        return sorted(taken), nearest


@lru_cache(maxsize=1)
def load() -> Names:
    held = json.loads((lists.FOLDER / "hanzi.json").read_text(encoding="utf-8"))
    return Names({name: weight / 100 for name, weight in held["weights"].items()}, held["bias"] / 100, held["in_records"] / 100)
