"""How urgent a question is: emergent, urgent, routine, or unknown, with confidence and evidence.

    urgency("My father's mouth droops and he cannot lift his arm")        -> Urgency(level="emergent", evidence=(...), ...)

Four tiers speak, the precise ones first:

    lexicon   red flags that are not denied and not an aside (framing.py) add to the score
    numbers   vital signs, fever by age, blood values, pills taken (vitals.py); an emergent one decides
    model     the n-gram model scores the whole text and every two neighbouring sentences: one clause in a long story counts
    encoder   optional, English: a head on a sentence encoder (encoder_head.py), where the settings ask for it

The score is compared with two limits. Above the upper one the question is emergent, below the lower one routine, unless it names
a condition that can kill within hours: then it is unknown. In between it is urgent where the model gives routine less than an
even chance, and unknown otherwise. A plain complaint ("my back hurts") that only the model calls emergent is an alarm where the
model is clear about it. What is denied or only talked about is hidden from the models (framing.py). Limits were set on lay
medical posts and, for terse notes and Chinese, on texts of that kind: docs/stages/reward.md has the numbers. "Routine"
never means safe.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from medloop import lexicon
from medloop.contracts.dataset import Language
from medloop.contracts.detect import Evidence, Urgency, UrgencyLevel
from medloop.lexicon.language import detect_language
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE
from medloop.reward.detect.framing import FramedText, frame_flags, is_aside, names_grave_condition, sentence_around
from medloop.reward.detect.ngrams import Floats, Kind, NgramModel, ScoredText, load_ngrams
from medloop.reward.detect.vitals import find_numbers

if TYPE_CHECKING:
    from medloop.reward.detect.encoder_head import EncoderHead

VERSION = "7"
ASSETS: Final = Path(__file__).parent.parent.parent / "assets/urgency"
CLASSES: Final = ("emergent", "urgent", "routine")  # in the order of the models' logits
LEXICON_WEIGHT: Final[dict[Kind, float]] = {"en": 4.0, "zh": 6.0}
WINDOW_WEIGHT: Final = 0.5  # of the most urgent two sentences, beside the whole text
ENCODER_WEIGHT: Final = 0.5
BLOCK: Final = 64  # questions that are read together


@dataclass(frozen=True)
class Limits:
    """From `emergent` on a score is an alarm, up to `routine` it is routine."""

    emergent: float
    routine: float


LIMITS: Final = {"en": Limits(-0.4, -3.0), "terse": Limits(-0.1, -5.5), "zh": Limits(-0.3, -3.3)}
ENCODER_LIMITS: Final = {"en": Limits(-0.6, -4.0), "terse": Limits(0.0, -7.5)}
_WORD: Final = lazy_pattern(r"[A-Za-z]{2}")
_TERSE_WORDS: Final = 6
_PLAIN_WORDS: Final = 8  # of a plain complaint
_CHARACTERS_PER_WORD: Final = 1.75  # in Chinese
_SHORT: Final = 40  # characters
_LETTERS: Final = {"en": 5, "zh": 3}  # from so many on the n-gram model may judge a text on its own: "hi" and 发烧 say too little
_SMALL_TALK: Final = frozenset(
    ("HI", "HEY", "YO", "OK", "YES", "NO", "SI", "BYE", "HELP", "HELPME", "PLEASEHELP", "PLEASEHELPME")
)  # shouted
_CRY: Final = lazy_pattern(
    r"\W*(?:(?:please|pls|god|oh) )*help(?: (?:me|us|please|pls|now|out))*\W*"
    r"|\W*(?:快|谁来|有人)?(?:救命|救救?我|帮帮我)[啊呀吧]*\W*"
)
CLEAR: Final = 0.6  # the model's probability of emergent from which a plain complaint is an alarm
_SPOKEN: Final = lazy_pattern(  # words of someone who talks; a note on a triage sheet has none
    r"\b(?:i|i'm|im|i've|my|me|is|are|was|am|be|have|has|had|do|does|did|can|could|should|would|will|what|how|why|when|where|who|which"
    r"|he|she|it|they|you|your|his|her|we|the|this|that|if|need|want|help|get|got|best|any|anyone|think|ever)\b|\?"
)


@dataclass(slots=True)
class Reading:
    """What the tiers found in one text."""

    text: str  # without the flags that do not count
    language: Language
    kind: Kind | None  # which model reads it
    terse: bool
    score: float = 0.0
    logits: tuple[float, ...] = (0.0, 0.0, 0.0)  # in the order of CLASSES
    evidence: list[Evidence] = field(default_factory=list)
    decisive: bool = False  # an emergent number
    at_least_urgent: bool = False
    grave: bool = False  # names a condition that can kill within hours


@dataclass(frozen=True)
class UrgencyDetector:
    """The tiers in memory; `head` is the optional encoder."""

    models: dict[Kind, NgramModel]
    version: str
    head: EncoderHead | None = None

    def read(self, questions: Sequence[str]) -> list[Urgency]:
        """The urgency of each question, in order."""
        return [self._decide(reading) for reading in self.readings(questions)]

    def readings(self, questions: Sequence[str]) -> list[Reading]:
        """What the tiers found in each question, before the limits are applied; benchmarks/urgency.py --limits reads them."""
        readings: list[Reading] = []
        for start in range(0, len(questions), BLOCK):
            readings += self._read_block(questions[start : start + BLOCK])
        if self.head is not None:
            self._ask_encoder(readings, self.head)
        return readings

    def _read_block(self, questions: Sequence[str]) -> list[Reading]:
        """Tier by tier, not question by question: each tier finds its own code and tables in the processor's cache."""
        framed = [_frame(question) for question in questions]
        for kind, model in self.models.items():
            own = [(reading, frame) for reading, frame, _ in framed if reading.kind == kind]
            for (reading, frame), scored in zip(own, model.read_all([reading.text for reading, _ in own]), strict=True):
                _ask_model(reading, scored, frame.sentences)
        for reading, frame, folded in framed:
            _add_signs(reading, frame, folded)
        return [reading for reading, _, _ in framed]

    def _ask_encoder(self, readings: Sequence[Reading], head: EncoderHead) -> None:
        """English texts only: the encoder does not read Chinese."""
        english = [reading for reading in readings if reading.kind == "en"]
        if not english:
            return
        for reading, row in zip(english, head.logits([reading.text for reading in english]), strict=True):
            logits = tuple(row.tolist())
            reading.score += ENCODER_WEIGHT * _margin(logits)
            reading.logits = tuple(own + ENCODER_WEIGHT * new for own, new in zip(reading.logits, logits, strict=True))
            level = _leader(logits)
            reading.evidence.append(Evidence.trusted(source="encoder", id=level, start=0, end=len(reading.text)))

    def _decide(self, reading: Reading) -> Urgency:
        level = self._level(reading)
        return Urgency.trusted(
            level=level, confidence=round(_confidence(reading, level), 4), evidence=tuple(reading.evidence),
            language=reading.language, version=self.version,
        )  # fmt: skip

    def _level(self, reading: Reading) -> UrgencyLevel:
        if reading.decisive:
            return "emergent"
        if _says_too_little(reading):
            return "unknown"
        if reading.kind is None:
            return "emergent" if reading.score > 0 else "unknown"
        limits = self._limits(reading)
        if reading.score >= limits.emergent and not _is_doubtful(reading):
            return "emergent"
        if reading.at_least_urgent:
            return "urgent"
        if reading.score <= limits.routine:
            return "unknown" if reading.grave else "routine"
        return "urgent" if _shares(reading.logits)[2] < 0.5 else "unknown"

    def _limits(self, reading: Reading) -> Limits:
        if reading.kind == "zh":
            return LIMITS["zh"]
        return (LIMITS if self.head is None else ENCODER_LIMITS)["terse" if reading.terse else "en"]


@lru_cache(maxsize=CACHE_SIZE)  # several rules ask about one question
def urgency(question: str) -> Urgency:
    """How urgent a question is, without an encoder."""
    return detector().read([question])[0]


@cache
def detector() -> UrgencyDetector:
    """The detector without an encoder; its weights are read once."""
    models: dict[Kind, NgramModel] = {"en": load_ngrams(ASSETS / "en.npz"), "zh": load_ngrams(ASSETS / "zh.npz")}
    weights = hashlib.sha256(b"".join((ASSETS / f"{kind}.npz").read_bytes() for kind in ("en", "zh"))).hexdigest()[:8]
    return UrgencyDetector(models, f"{VERSION}(lexicon-{lexicon.VERSION},ngrams@{weights})")


def _frame(text: str) -> tuple[Reading, FramedText, str]:
    """A question with nothing read but its language and frame, and its folded text."""
    language = detect_language(text)
    kind = _kind(text, language)
    folded = lexicon.folded(text)
    framed = frame_flags(text, folded, kind == "zh")
    reading = Reading(framed.visible, language, kind, kind == "en" and is_terse(folded))
    reading.grave = names_grave_condition(folded, kind == "zh")
    return reading, framed, folded


def _ask_model(reading: Reading, scored: ScoredText, sentences: Sequence[tuple[int, int]]) -> None:
    reading.logits = tuple(scored.logits().tolist())
    whole = _margin(reading.logits)
    best, (start, end) = whole, (0, len(reading.text))
    if len(sentences) > 2:  # two are the whole text
        spans = [(first[0], second[1]) for first, second in pairwise(sentences)]
        margins = [_margin(logits) for logits in scored.windows(spans)]
        best = max(margins)
        start, end = spans[margins.index(best)]
    reading.score = (whole + WINDOW_WEIGHT * best) / (1 + WINDOW_WEIGHT)
    level = _leader(reading.logits)
    reading.evidence.append(Evidence.trusted(source="model", id=level, start=start, end=end))


def _add_signs(reading: Reading, framed: FramedText, folded: str) -> None:
    """Red flags and numbers."""
    for flag in framed.flags:
        reading.evidence.append(Evidence.trusted(source="lexicon", id=flag.id, start=flag.start, end=flag.end))
    reading.score += LEXICON_WEIGHT[reading.kind or "en"] * bool(framed.flags)
    for finding in find_numbers(folded):
        if not is_aside(sentence_around(folded, framed.sentences, finding.start), folded, reading.kind == "zh"):
            reading.evidence.append(Evidence.trusted(source="numbers", id=finding.id, start=finding.start, end=finding.end))
            reading.decisive |= finding.level == "emergent"
            reading.at_least_urgent = True


def margin(logits: Floats) -> Floats:
    """How far emergent leads, half against routine alone and half against both others; one row per text."""
    emergent, urgent, routine = logits[..., 0], logits[..., 1], logits[..., 2]
    return np.asarray(emergent - 0.5 * (routine + np.logaddexp(urgent, routine)), np.float32)


def _margin(logits: tuple[float, ...]) -> float:
    """`margin` of one text, without the cost of arrays."""
    emergent, urgent, routine = logits
    high, low = max(urgent, routine), min(urgent, routine)
    return emergent - 0.5 * (routine + high + math.log1p(math.exp(low - high)))


def _leader(logits: tuple[float, ...]) -> str:
    return CLASSES[logits.index(max(logits))]


def _shares(logits: tuple[float, ...]) -> list[float]:
    """The model's probability of each class."""
    highest = max(logits)
    shares = [math.exp(logit - highest) for logit in logits]
    return [share / sum(shares) for share in shares]


def _says_too_little(reading: Reading) -> bool:
    """A greeting, a single short word or a bare cry for help: only a red flag or a number makes anything of it."""
    precise = (evidence.source in ("lexicon", "numbers") for evidence in reading.evidence)
    if reading.kind is None or len(reading.text) > _SHORT or any(precise):
        return False
    letters = "".join(letter for letter in reading.text if letter.isalpha())
    if letters.isupper() and letters not in _SMALL_TALK:  # "LOC" on a triage sheet
        return False
    return len(letters) < _LETTERS[reading.kind] or (len(letters) < 20 and bool(_CRY.fullmatch(reading.text.casefold())))


def _is_doubtful(reading: Reading) -> bool:
    """Only the model speaks: it is not clear about a few plain words ("my back hurts", "腰疼"), or leans to routine on a line."""
    if reading.terse or any(evidence.source in ("lexicon", "numbers") for evidence in reading.evidence):
        return False
    visible = reading.text.split()
    words = len("".join(visible)) / _CHARACTERS_PER_WORD if reading.kind == "zh" else len(visible)
    if words <= _PLAIN_WORDS:
        return _shares(reading.logits)[0] < CLEAR
    return words <= 2 * _PLAIN_WORDS and _leader(reading.logits) == "routine"


def is_terse(folded: str) -> bool:
    """Whether a text is a note ("Lt hemiparesis, 2 h") and not someone talking."""
    return folded.count(" ") < _TERSE_WORDS and not _SPOKEN.search(folded)


def _kind(text: str, language: Language) -> Kind | None:
    """Which model reads a text; none for other scripts and for a text without letters."""
    if language in ("zh", "mixed"):
        return "zh"
    # A note without small words ("CP, SOB, diaphoresis, hx MI, BP 90/60 ...") looks like no language, but is plain ASCII.
    return "en" if (language == "en" or text.isascii()) and _WORD.search(text) else None


def _confidence(reading: Reading, level: UrgencyLevel) -> float:
    """The models' own probability of the level; at least 0.9 where a number or a red flag decided, and 0 where nothing spoke."""
    if level == "unknown":
        return 0.0
    precise = any(evidence.source in ("lexicon", "numbers") for evidence in reading.evidence)
    if reading.kind is None:
        return 0.9
    own = _shares(reading.logits)[CLASSES.index(level)]
    return max(own, 0.9) if precise and level == "emergent" else own
