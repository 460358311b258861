"""The guards of the live assistant, made of detectors that other stages own. docs/stages/gateway.md has what each one finds.

emergency   red flags in anything the user wrote: the vetted notice comes first; a language that is not read is said to be so
injection   somebody tries to change or to read the instructions: a vetted refusal instead of an answer
off_topic   a question that has nothing to do with health: the same
calm        where the emergency guard spoke: sentences that calm, or speak against seeking help, are taken out of the answer
dose        a dose above the highest usual one in the answer: the sentence is replaced
phi         identifiers in the answer that the user did not write: they are replaced by placeholders
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from medloop import lexicon
from medloop.contracts import canonical_json, sha256_id
from medloop.contracts.assistant import GuardAct
from medloop.contracts.rule import ForbiddenAct
from medloop.lexicon.health_topic import is_about_body, is_about_health
from medloop.lexicon.language import is_read
from medloop.loop.rule_guard import ForbiddenGuard
from medloop.privacy.phi.find import find
from medloop.privacy.phi.scrub import VERSION as PHI_VERSION
from medloop.privacy.phi.scrub import Scrubber
from medloop.reward.detect.doses import MAY_HAVE_DOSE
from medloop.reward.detect.urgency import detector, urgency
from medloop.reward.rules.risk import Risk, overdoses
from medloop.serve.gateway.guards import NamedInputGuard, NamedOutputGuard
from medloop.serve.gateway.notices import notice, notices, notices_hash

VERSION = "4"
EMERGENCY: Final = "emergency"
CALM: Final = "calm"
CALMING: Final[tuple[ForbiddenAct, ...]] = ("reassures", "urges_care_now/negated", "sends_to_doctor/negated")
# Kinds that identify somebody. Dates, ages, places and organisations are ordinary words of an answer.
IDENTIFYING: Final = frozenset({"ID", "CARD", "SSN", "IBAN", "EMAIL", "RECORD", "PHONE", "ADDRESS", "NAME"})
FEWEST_WORDS: Final = 4  # of a question that can be off topic: "thank you so much" is not one
LONG_SENTENCE: Final = 2_000  # characters, from which on the search for identifiers has a time limit
_INVISIBLE: Final = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_NOT_PUNCTUATION: Final = re.compile(r"[^\u2026\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+")
_HAN: Final = re.compile(r"[\u4e00-\u9fff]")
_PATTERNS: Final = Path(__file__).parent / "guard_patterns.yaml"


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """One list of guard_patterns.yaml."""
    lists = yaml.safe_load(_PATTERNS.read_text(encoding="utf-8"))
    joined = "|".join(f"(?:{part})" for part in lists[name]).replace("{rules}", lists["rules"])
    return re.compile(joined, re.IGNORECASE | re.MULTILINE)


def emergency_guard(texts: Sequence[str]) -> GuardAct | None:
    """Red flags in anything the user wrote, each message by itself and all of them together."""
    together = ["\n".join(texts)] if len(texts) > 1 else []
    for text in (*reversed(texts), *together):
        for found in map(urgency, _readings(text)):
            if found.level == "emergent":
                first = notice(EMERGENCY, texts[-1])
                return GuardAct(guard=EMERGENCY, finding="emergent", confidence=found.confidence, notice=first)
    if not all(map(is_read, texts)):
        return GuardAct(guard=EMERGENCY, finding="unread", notice="\n".join(notices()["unread"]))
    return None


def is_emergent(text: str) -> bool:
    """As the guard reads one message."""
    return any(urgency(reading).level == "emergent" for reading in _readings(text))


def _readings(text: str) -> tuple[str, ...]:
    """The text as it stands and, where that is another one, without invisible characters and special forms of letters. Chinese
    punctuation stays as it is: the detector knows it."""
    plain = _NOT_PUNCTUATION.sub(lambda part: unicodedata.normalize("NFKC", part[0]), _INVISIBLE.sub("", text))
    return (text,) if plain == text else (text, plain)


def injection_guard(texts: Sequence[str]) -> GuardAct | None:
    """Refuses for an earlier message as well: the client writes the history. The gateway leaves out what was refused before."""
    for finding, said in (("injection", texts[-1:]), ("earlier", texts[:-1])):
        if any(_pattern("injection").search(_plain(text)) for text in said):
            return GuardAct(guard="injection", finding=finding, stop=True, replacement=notice("injection", texts[-1]))
    return None


def off_topic_guard(texts: Sequence[str]) -> GuardAct | None:
    """Stops only what asks for something else in so many words and has nothing about health; what merely has no word of health
    is noted, since many real questions have none ("any idea what these bumps are?")."""
    question = texts[-1]
    words = len(_HAN.findall(question)) / 2 + len(re.findall(r"[A-Za-z']+", question))
    if words < FEWEST_WORDS or _pattern("small_talk").match(question) or not is_read(question):
        return None
    if any(_is_health(text) for text in texts) or any(
        urgency(reading).level in ("emergent", "urgent") for reading in _readings(question)
    ):
        return None
    if _pattern("other_topics").search(_plain(question)):
        return GuardAct(guard="off_topic", finding="off_topic", stop=True, replacement=notice("off_topic", question))
    return GuardAct(guard="off_topic", finding="no_word_of_health")


def _is_health(text: str) -> bool:
    return is_about_health(text) or is_about_body(text) or bool(lexicon.find_drugs(text) or lexicon.find_conditions(text))


def calm_guard(question: str) -> NamedOutputGuard:
    """Of an answer below the notice of an emergency: "it will pass by itself" would take the notice back. First aid stays."""
    return NamedOutputGuard(CALM, ForbiddenGuard(CALM, [(None, CALMING)], question), on_crash="\n".join(notices()["unchecked"]))


def dose_guard(before: str, sentence: str) -> GuardAct | None:
    if not MAY_HAVE_DOSE.search(sentence) or not overdoses(before, sentence):
        return None
    return GuardAct(guard="dose", finding="out_of_range", replacement=notice("dose", sentence))


def phi_guard(before: str, sentence: str) -> GuardAct | None:
    named = _pattern("names").search(sentence) is not None
    found = {
        span.kind
        for span in (find(sentence) if len(sentence) <= LONG_SENTENCE else Scrubber().assess(sentence).spans)
        if span.kind in IDENTIFYING and (span.kind != "NAME" or named) and sentence[span.start : span.end] not in before
    }
    if not found:
        return None
    return GuardAct(guard="phi", finding=min(found).lower(), replacement=notice("phi", sentence))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))


def input_guards() -> tuple[NamedInputGuard, ...]:
    unchecked = "\n".join(notices()["unchecked"])
    return (
        NamedInputGuard(EMERGENCY, emergency_guard, on_crash="\n".join(notices()[EMERGENCY])),
        NamedInputGuard("injection", injection_guard, on_crash=unchecked),
        NamedInputGuard("off_topic", off_topic_guard, on_crash=unchecked),
    )


def output_guards() -> tuple[NamedOutputGuard, ...]:
    unchecked = "\n".join(notices()["unchecked"])
    return (NamedOutputGuard("dose", dose_guard, on_crash=unchecked), NamedOutputGuard("phi", phi_guard, on_crash=unchecked))


def guard_hash() -> str:
    """Of everything that decides what the guards do."""
    names = [*(named.name for named in input_guards()), CALM, *CALMING, *(named.name for named in output_guards())]
    versions = {"guards": VERSION, "urgency": detector().version, "risk": Risk.version, "phi": PHI_VERSION}
    return sha256_id(
        canonical_json({"names": names, **versions, "notices": notices_hash(), "patterns": sha256_id(_PATTERNS.read_bytes())})
    )
