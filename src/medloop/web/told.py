"""Sentences that cycles, experiments, deployments and jobs wrote in English, for the reader of a page.

    told("error_rate: 12% of 50 answers failed.", t)     # GateWords("错误率：50 个回答中 12% 失败。", "zh")

The forms are in words/told.yaml, without the full stop where a sentence also stands inside another one. What a person wrote is
never given to `told`.
"""

import re

from medloop.web.gate_words import GateWords
from medloop.web.words import Translator, table

LONGEST = 1000  # characters; nothing of ours is longer, and each piece is held against every form
_JOINT = re.compile(r"(?<=\.) |; ")


def told(text: str, t: Translator) -> GateWords:
    """The text in the language of the page; one without a known form stays English, and says so."""
    if t.language == "en" or not text or len(text) > LONGEST:
        return GateWords(text, "en")
    translated = _Teller(t).text(text)
    return GateWords(text, "en") if translated is None else GateWords(translated, t.language)


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
        return self.t.sentence(text, self.keys, self._part)

    def _part(self, part: str) -> str:
        """What stands in a slot may be a sentence, too, such as what a server said; else it stays as it is."""
        translated = self.text(part)
        return part if translated is None else translated.removesuffix("。")
