"""The vetted sentences of the gateway, in English and Chinese (notices.yaml)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from medloop.contracts import sha256_id
from medloop.lexicon.language import detect_language

_FILE = Path(__file__).parent / "notices.yaml"


@cache
def notices() -> dict[str, tuple[str, str]]:
    """(English, 中文) by key."""
    content = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {key: (en, zh) for key, (en, zh) in content.items()}


@cache
def notices_hash() -> str:
    return sha256_id(_FILE.read_bytes())


def notice(key: str, question: str) -> str:
    """In the language of the question; in both where that is neither or cannot be told."""
    english, chinese = notices()[key]
    language = detect_language(question)
    if language == "zh":
        return chinese
    return english if language == "en" else f"{english}\n{chinese}"


def without_notices(answer: str) -> str:
    """What the model or an expert said in an answer, without the gateway's own sentences."""
    for texts in notices().values():
        for text in texts:
            answer = answer.replace(text, "")
    return answer.strip()
