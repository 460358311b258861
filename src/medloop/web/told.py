"""Sentences that cycles, experiments, deployments and jobs wrote in English, for the reader of a page.

    told("error_rate: 12% of 50 answers failed.", t)     # GateWords("错误率：50 个回答中 12% 失败。", "zh")

The forms are in words/told.yaml and told_errors.yaml, those of the gate in contracts/gate_reasons.yaml; without the full stop
where a sentence also stands inside another one. What a person wrote is never given to `told`.
"""

import re
from functools import cache

from medloop.contracts.gate_reasons import SLOT, reason_texts
from medloop.web.gate_words import GateWords
from medloop.web.words import Translator, table

LONGEST = 1000  # characters; nothing of ours is longer, and each piece is held against every form
_KIND = re.compile(r"^[a-z]+(_[a-z]+)+(?=: )")  # of an alarm, such as critical_flags
_JOINT = re.compile(r"(?<=\.) |; ")


def told(text: str, t: Translator) -> GateWords:
    """The text in the language of the page; one without a known form stays English, and says so."""
    if t.language == "en":
        return GateWords(_KIND.sub(lambda kind: kind[0].replace("_", " ").capitalize(), text), "en")
    if not text or len(text) > LONGEST:
        return GateWords(text, "en")
    translated = _Teller(t).text(text)
    return GateWords(text, "en") if translated is None else GateWords(translated, t.language)


@cache
def _gate_forms() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The sentences of the gate as patterns with a group for each slot, and their Chinese."""
    texts = {key: pair for key, pair in reason_texts().items() if not SLOT.fullmatch(pair[0].strip())}
    return tuple((_pattern(english.strip().removesuffix(".")), chinese) for english, chinese in texts.values())


def _pattern(text: str) -> re.Pattern[str]:
    parts, known = SLOT.split(text), set[str]()  # plain, slot, plain, …
    pieces = []
    for place, part in enumerate(parts):
        slot = f"(?P={part})" if part in known else f"(?P<{part}>.+?)"
        pieces.append(slot if place % 2 else re.escape(part))
        known |= {part} if place % 2 else set()
    return re.compile("".join(pieces), re.S)


class _Teller:
    """Translates one text, and each piece of it once."""

    def __init__(self, t: Translator) -> None:
        self.t, self.keys = t, [key for key in table() if key.startswith("told_")]
        self.known = dict[str, str | None]()

    def text(self, text: str) -> str | None:
        """One sentence, or several of which each has a form."""
        if text not in self.known:
            self.known[text] = self._joined(text) or self._sentence(text)
        return self.known[text]

    def _joined(self, text: str) -> str | None:
        for joint in _JOINT.finditer(text):
            if (tail := self.text(text[joint.end() :])) and (head := self._sentence(text[: joint.start()])):
                return self.t.sentences(head, tail) if joint[0] == " " else f"{head}；{tail}"
        return None

    def _sentence(self, text: str) -> str | None:
        whole = self.t.sentence(text.removesuffix("."), self.keys, self._part)
        if whole is not None:
            return whole + "。" if text.endswith(".") else whole
        return self.t.sentence(text, self.keys, self._part) or self._of_gate(text)

    def _of_gate(self, text: str) -> str | None:
        """What the gate says, by itself or inside a sentence of a deployment."""
        for form, chinese in _gate_forms():
            if match := form.fullmatch(text.removesuffix(".")):
                told = SLOT.sub(lambda slot: self._part(match[slot[1]]), chinese).removesuffix("。")
                return told + "。" if text.endswith(".") else told
        return None

    def _part(self, part: str) -> str:
        """What stands in a slot may be a sentence, too, such as what a server said; else it stays as it is."""
        translated = self.text(part)
        return part if translated is None else translated.removesuffix("。")
