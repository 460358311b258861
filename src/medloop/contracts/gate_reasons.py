"""Sentences of the gate as keys and values, so that a verdict can be read in Chinese, too. The texts: gate_reasons.yaml.

parts = (reason("incidents_open", n=2),)
said(parts)             # 2 safety incidents are open; two people have to close them.
said(parts, "zh")       # 有 2 起安全事件未关闭，需两人关闭。
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files

import yaml
from pydantic import Field

from medloop.contracts.base import Contract, Text

LANGUAGES = ("en", "zh")
SLOT = re.compile(r"\{(\w+)\}")


class ReasonPart(Contract):
    """A part of a reason: a key of gate_reasons.yaml and the values of its slots, written as they are shown."""

    key: Text
    values: dict[str, str] = Field(default_factory=dict)


@cache
def reason_texts() -> Mapping[str, tuple[str, str]]:
    text = (files("medloop.contracts") / "gate_reasons.yaml").read_text(encoding="utf-8")
    return {key: (english, chinese) for key, (english, chinese) in yaml.safe_load(text).items()}


def reason(key: str, **values: object) -> ReasonPart:
    slots = {*SLOT.findall(reason_texts()[key][0])}
    assert slots == values.keys(), f"{key} has the slots {sorted(slots)}"
    return ReasonPart(key=key, values={name: str(value) for name, value in values.items()})


def said(parts: Iterable[ReasonPart], language: str = "en", value: Callable[[str], str] = str) -> str:
    """The sentences in a language; `value` may translate what stands in the slots."""
    place = LANGUAGES.index(language)
    filled = (
        SLOT.sub(lambda slot, part=part: value(part.values[slot[1]]), reason_texts()[part.key][place])  # type: ignore[misc]
        for part in parts
    )
    return "".join(filled).strip()
