"""Guards around an answer: those that read what the user wrote, and those that read the answer while it comes.

    acts = read_input(guards, texts)                          # before the model is asked
    checked = GuardedAnswer(guards, question)
    checked.feed("Take 400 mg")                               # -> "": nothing is shown before a sentence is complete
    checked.feed(" now. Rest")                                # -> "Take 400 mg now."
    checked.finish()                                          # -> " Rest"

Streamed or not, an answer takes the same way sentence by sentence, so both are the same text. A guard that crashes does not open
the door: the act says that it crashed, its notice is shown, and the answer is marked as not checked.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from medloop.contracts.assistant import GuardAct, InputGuard, OutputGuard

log = logging.getLogger(__name__)
CRASHED = "crashed"
LONGEST_HELD = 600  # characters without the end of a sentence, which are read and shown anyway
CONTEXT = 600  # characters before a sentence that its guards see as well
NEAR = 8  # characters before a piece in which the mark may stand that this piece makes the end of a sentence
_MAY_END = re.compile(r"[。！？!?；;\n.]")
_END = re.compile(r"[。！？!?；;\n]+[”’\"')）】]*|\.[”’\"')]*(?=\s)")


@dataclass(frozen=True)
class NamedInputGuard:
    """`on_crash` is the notice that is shown when the guard cannot speak."""

    name: str
    guard: InputGuard
    on_crash: str = ""


@dataclass(frozen=True)
class NamedOutputGuard:
    """`instead` is shown at the end where the guard took out everything."""

    name: str
    guard: OutputGuard
    on_crash: str = ""
    instead: str = ""


def read_input(guards: Iterable[NamedInputGuard], texts: Sequence[str]) -> tuple[GuardAct, ...]:
    """What the guards say about the user's messages, oldest first. All of them speak, also when one wants to stop."""
    acts = []
    for named in guards:
        try:
            act = named.guard(texts)
        except Exception as error:  # whatever went wrong, the answer must not pass as checked
            log.error("guard %s crashed: %s", named.name, type(error).__name__)
            act = GuardAct(guard=named.name, finding=CRASHED, notice=named.on_crash)
        if act is not None:
            acts.append(act)
    return tuple(acts)


@dataclass
class GuardedAnswer:
    """An answer on its way to the reader; `acts` are what its guards did."""

    guards: Sequence[NamedOutputGuard]
    question: str
    acts: list[GuardAct] = field(default_factory=list)
    text: str = ""  # what was shown so far
    stopped: bool = False
    _held: str = ""

    def feed(self, text: str) -> str:
        """The next piece of the model's text; returns what may be shown now."""
        if self.stopped:
            return ""
        near = self._held[-NEAR:] + text
        self._held += text
        if len(self._held) < LONGEST_HELD and not _MAY_END.search(near):
            return ""
        end = self._last_end()
        if end == 0:
            return ""
        ready, self._held = self._held[:end], self._held[end:]
        return self._release(ready)

    def finish(self) -> str:
        """The rest, when the model has said everything."""
        ready, self._held = self._held, ""
        return (self._release(ready) if ready and not self.stopped else "") + self._instead()

    def _instead(self) -> str:
        """What stands for an answer of which nothing is left."""
        dropping = {act.guard for act in self.acts if act.drop}
        if not dropping or self.stopped or self.text.rpartition("</think>")[2].strip():
            return ""
        text = next((named.instead for named in self.guards if named.name in dropping), "")
        self.text += text
        return text

    def _last_end(self) -> int:
        end = 0
        for match in _END.finditer(self._held):
            if match.end() < len(self._held) or match[0][0] != "\n":
                end = match.end()
        return end if end or len(self._held) < LONGEST_HELD else len(self._held)

    def _release(self, ready: str) -> str:
        shown = "".join(self._checked(sentence) for sentence in sentences_of(ready))
        return shown

    def _checked(self, sentence: str) -> str:
        if self.stopped:
            return ""
        before = f"{self.question}\n{self.text[-CONTEXT:]}"
        for named in self.guards:
            try:
                act = named.guard(before, sentence)
            except Exception as error:  # as above
                log.error("guard %s crashed: %s", named.name, type(error).__name__)
                if any(known.guard == named.name and known.finding == CRASHED for known in self.acts):
                    continue
                act = GuardAct(guard=named.name, finding=CRASHED, notice=named.on_crash)
            if act is None:
                continue
            self.acts.append(act)
            if act.drop:
                sentence = act.replacement
                break
            if act.replacement:
                before_words = sentence[: len(sentence) - len(sentence.lstrip())]
                sentence = before_words + act.replacement + sentence[len(sentence.rstrip()) :]
            if act.notice:
                sentence = f"{act.notice}\n\n{sentence}"
            if act.stop:
                self.stopped = True
                break
        self.text += sentence
        return sentence


def sentences_of(text: str) -> list[str]:
    """The sentences of a text; joined they are the text."""
    ends = [match.end() for match in _END.finditer(text)]
    starts = [0, *ends]
    return [part for start, end in zip(starts, [*ends, len(text)], strict=True) if (part := text[start:end])]
