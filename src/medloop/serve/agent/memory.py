"""What an episode remembers: its last messages, and a summary of those before, in a bounded number of characters.

    memory = EpisodeMemory(danger=lambda text: urgency(text).level == "emergent")
    memory.remember("ep_1", None, messages)
    memory.recall("ep_1")          # messages for the next prompt, oldest first; the summary is the first of them

A message that is dropped takes no danger with it: sentences of the user that are dangerous, alone or together with the one
before, stand in the summary word for word, so that every guard that reads the remembered messages finds them again. Memory is in
this process only and ends after an hour or with `forget`: what is kept for longer are the traces, which an erasure reaches.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from medloop.contracts.chat import Message
from medloop.lexicon.findings import named_findings
from medloop.lexicon.language import detect_language
from medloop.serve.agent.agent_loop import quoted

RECENT_CHARACTERS = 6_000
SUMMARY_CHARACTERS = 1_500  # beside dangerous sentences, which are all kept up to DANGER_CHARACTERS
DANGER_CHARACTERS = 4_000
EPISODES = 2_000
LIFETIME_S = 3_600.0
SENTENCES = 200  # that are read one by one, of the messages that are dropped at once; a text is read as a whole besides
_SENTENCE = re.compile(r"[^.!?。！？；;\n]+[.!?。！？；;\n]*")
_LEAD = {"en": "Quoted from earlier in this conversation, said by the user: ", "zh": "以下引自本次对话，用户早先说过："}
_HEARD = {"en": "Understood.", "zh": "好的，我记下了。"}
Danger = Callable[[str], bool]
Summarise = Callable[[str], str]


@dataclass(frozen=True)
class Remembered:
    """`summary` stands for the messages that were dropped; `danger` are their dangerous sentences."""

    recent: tuple[Message, ...]
    summary: str = ""
    danger: tuple[str, ...] = ()
    stored: float = 0.0

    @property
    def messages(self) -> tuple[Message, ...]:
        """As a conversation: user and assistant alternate."""
        told = " ".join((*self.danger, self.summary)).strip()
        if not told:
            return self.recent
        language = "zh" if detect_language(told) in ("zh", "mixed") else "en"
        lead = (
            Message(role="user", content=_LEAD[language] + quoted(told)), Message(role="assistant", content=_HEARD[language])
        )  # fmt: skip
        return (*lead, *self.recent)


def shorten(before: Remembered, messages: Sequence[Message], danger: Danger, summarise: Summarise | None = None) -> Remembered:
    """The newest messages that fit; what is dropped goes into the summary, by the model or by extraction."""
    recent = [message for message in messages if message.role != "system"]
    dropped: list[Message] = []
    while len(recent) > 2 and sum(len(message.content) for message in recent) > RECENT_CHARACTERS:
        dropped += recent[:2]  # a question with its answer
        recent = recent[2:]
    said = [message.content for message in dropped if message.role == "user"]
    said += [message.content for message in recent if message.role == "user" and len(message.content) > RECENT_CHARACTERS]
    recent = [_cut(message) for message in recent]
    if not said:
        return Remembered(tuple(recent), before.summary, before.danger)
    found: list[str] = []
    left = SENTENCES
    for text in said:
        found += dangerous(text, danger, left)
        left = max(0, left - len(_SENTENCE.findall(text)))
    kept = list(dict.fromkeys([*before.danger, *found]))
    while sum(map(len, kept)) > DANGER_CHARACTERS and len(kept) > 1:
        kept.pop(1)  # the first one stays, and the newest
    facts = " ".join([before.summary, *said]).strip()
    summary = _by_model(summarise, facts) or extract(facts)
    return Remembered(tuple(recent), summary, tuple(kept))


def _cut(message: Message) -> Message:
    if len(message.content) <= RECENT_CHARACTERS:
        return message
    return Message(role=message.role, content=message.content[:RECENT_CHARACTERS])


def dangerous(text: str, danger: Danger, most: int = SENTENCES) -> list[str]:
    """Sentences that are dangerous, alone or with the one before; the dangerous part of the text where none of the first is."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip()]
    found: list[str] = []
    for index, sentence in enumerate(sentences[:most]):
        pair = " ".join(sentences[max(0, index - 1) : index + 1])
        if danger(sentence):
            found.append(sentence)
        elif danger(pair):
            found.append(pair)
    if not found and danger(text):
        step = DANGER_CHARACTERS // 2  # parts overlap, so that nothing short is cut in two
        parts = [text[start : start + DANGER_CHARACTERS] for start in range(0, max(1, len(text) - step), step)]
        found = [next((part for part in parts if danger(part)), parts[0])]
    return found


def extract(text: str) -> str:
    """The sentences that say most about the patient (conditions, drugs, doses, ages), in their order."""
    sentences = list(dict.fromkeys(sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip()))
    sentences = [sentence for sentence in sentences if len(sentence) <= SUMMARY_CHARACTERS][: 2 * SENTENCES]
    findings = [len(named_findings(sentence)) for sentence in sentences]
    ranked = sorted(range(len(sentences)), key=lambda i: (-findings[i], i))
    chosen, size = [], 0
    for index in ranked:
        if size + len(sentences[index]) <= SUMMARY_CHARACTERS and findings[index]:
            chosen.append(index)
            size += len(sentences[index])
    return " ".join(sentences[index] for index in sorted(chosen))


def _by_model(summarise: Summarise | None, text: str) -> str:
    """The model's summary; empty where there is no model, or it failed or said too much or nothing."""
    if summarise is None:
        return ""
    try:
        summary = " ".join(summarise(text).split())
    except Exception:  # a summary is never worth an answer: the extract takes its place
        return ""
    return summary if len(summary) <= SUMMARY_CHARACTERS else ""


@dataclass
class EpisodeMemory:
    """Memory of the live episodes of this process; bounded in episodes, characters and time."""

    danger: Danger
    summarise: Summarise | None = None
    clock: Callable[[], float] = time.monotonic
    _episodes: OrderedDict[str, Remembered] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def recall(self, episode: str) -> Sequence[Message]:
        with self._lock:
            memory = self._episodes.get(episode)
            if memory is None or self._is_over(memory):
                self._episodes.pop(episode, None)
                return ()
            return memory.messages

    def remember(self, episode: str, subject: str | None, messages: Sequence[Message]) -> None:
        """Keep a conversation that now ends with an answer. What was recalled into it is not counted twice."""
        with self._lock:
            before = self._episodes.get(episode, Remembered(()))
        own = list(messages[1:] if messages and messages[0].role == "system" else messages)
        if own[: len(before.messages)] == list(before.messages):
            own = [*before.recent, *own[len(before.messages) :]]
        memory = shorten(before, own, self.danger, self.summarise)
        with self._lock:
            self._episodes[episode] = Remembered(memory.recent, memory.summary, memory.danger, self.clock())
            self._episodes.move_to_end(episode)
            while len(self._episodes) > EPISODES or self._is_over(next(iter(self._episodes.values()))):
                self._episodes.popitem(last=False)

    def _is_over(self, memory: Remembered) -> bool:
        return self.clock() - memory.stored > LIFETIME_S

    def forget(self, episode: str | None = None) -> None:
        """One episode, or all of them."""
        with self._lock:
            self._episodes.clear() if episode is None else self._episodes.pop(episode, None)
