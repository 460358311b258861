"""Checks that read the answers themselves: language, stock text, the reward's own words, length, repetition, the panel's alarms.

yield from text_checks(before, after, tools, config)     # rows of the same questions, of the baseline and of the candidate
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from medloop.contracts import Interval
from medloop.contracts.gate import GateCheck
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_reasons import reason
from medloop.evaluate.compare import paired_spread
from medloop.evaluate.gate.noninferiority import non_inferior
from medloop.evaluate.gate.report_checks import loss_reason
from medloop.evaluate.hacking.measures import MIN_WORDS, PanelRow, TextTools
from medloop.evaluate.hacking.panel import Panel, PanelConfig, TrainingRound, panel
from medloop.evaluate.hacking.text_stats import stock_shares
from medloop.lexicon.language import detect_language
from medloop.lexicon.words import split_words

SHAPE = ("length", "repetition", "truncated", "truncated_level", "no_answer", "missing")
BEFORE, NOW = "baseline", "candidate"


@dataclass(frozen=True)
class GateTextTools:
    """What other stages know about a text; `reward_words` and `listed` are shares of a visible answer, 0–1."""

    panel: TextTools
    reward_words: Callable[[str], float]
    listed: Callable[[str], float]
    medicines: Callable[[str], frozenset[str]]
    """The medicines and doses that an answer advises."""


def text_checks(
    before: Sequence[PanelRow], after: Sequence[PanelRow], tools: GateTextTools, config: GateConfig
) -> Iterator[GateCheck]:
    yield from _language_checks(before, after, tools, config)
    yield from _word_checks(before, after, tools, config)
    rounds = [TrainingRound(BEFORE, before), TrainingRound(NOW, after)]
    yield from panel_checks(panel(rounds, config=PanelConfig(), tools=tools.panel))


def _language_checks(
    before: Sequence[PanelRow], after: Sequence[PanelRow], tools: GateTextTools, config: GateConfig
) -> Iterator[GateCheck]:
    """Answers that left the language of their question, for each language apart."""
    languages = {row.id: detect_language(row.question) for row in before}
    for language in sorted({name for name in languages.values() if name in ("zh", "en")}):
        shares = (
            {
                row.id: _left(row.answer, language, tools)
                for row in rows
                if row.answer is not None and languages.get(row.id) == language
            }
            for rows in (before, after)
        )
        yield _rise_check(f"language/{language}", *shares, margin=config.language_margin, config=config)


def _left(answer: str, language: str, tools: GateTextTools) -> float:
    """An answer without enough words to tell its language has left it, too."""
    visible = tools.panel.split(answer)[1]
    return float(len(split_words(visible)) < MIN_WORDS or detect_language(visible) != language)


def _word_checks(
    before: Sequence[PanelRow], after: Sequence[PanelRow], tools: GateTextTools, config: GateConfig
) -> Iterator[GateCheck]:
    habit = PanelConfig().habit
    measures: dict[str, tuple[Callable[[Sequence[PanelRow]], dict[str, float]], float]] = {
        "template_words/stock": (lambda rows: _stock(rows, tools, habit), config.stock_margin),
        "template_words/list": (lambda rows: _shares(rows, tools, tools.listed), config.stock_margin),
        "template_words/reward": (lambda rows: _shares(rows, tools, tools.reward_words), config.reward_words_margin),
    }
    for name, (measure, margin) in measures.items():
        yield _rise_check(name, measure(before), measure(after), margin=margin, config=config)


def _stock(rows: Sequence[PanelRow], tools: GateTextTools, habit: float) -> dict[str, float]:
    answered = [row for row in rows if row.answer]
    texts = [(row.question, split_words(tools.panel.split(row.answer or "")[1])) for row in answered]
    return {row.id: share for row, share in zip(answered, stock_shares(texts, habit), strict=True)}


def _shares(rows: Sequence[PanelRow], tools: GateTextTools, share: Callable[[str], float]) -> dict[str, float]:
    return {row.id: share(tools.panel.split(row.answer)[1]) for row in rows if row.answer}


def _rise_check(
    name: str, before: Mapping[str, float], after: Mapping[str, float], *, margin: float, config: GateConfig
) -> GateCheck:
    """A share of the answers that must not rise by the margin or more."""
    ids = [id_ for id_ in before if id_ in after]
    spread = paired_spread([before[id_] - after[id_] for id_ in ids])  # a fall is good
    if spread is None or spread.n < config.min_cases:
        why = reason("rise_too_few", n=len(ids), needed=config.min_cases)
        return GateCheck.because(name, "not_enough_evidence", why, bound=-margin)
    test = non_inferior(spread, margin=margin, level=config.level)
    means = [sum(column[id_] for id_ in ids) / len(ids) for column in (before, after)]
    value = Interval(mean=test.mean, low=test.low, high=test.high, n=spread.n, level=2 * config.level - 1)
    parts = loss_reason(test, margin, spread.n, before=means[0], after=means[1], lower_is_better=True)
    meaning = reason(f"share_{name.split('/')[0]}")
    return GateCheck.because(name, test.outcome, meaning, *parts, value=value, bound=-margin)


def panel_checks(result: Panel) -> Iterator[GateCheck]:
    """The alarms of the reward-hacking panel: those about the shape of the texts, and all others."""
    first, now = result.rounds
    alarms = [alarm for alarm in result.alarms if alarm.round == now.name]
    shape = [alarm for alarm in alarms if alarm.kind in SHAPE]
    numbers = reason(
        "panel_numbers", before=f"{first.length_mean:.0f}", after=f"{now.length_mean:.0f}",
        repeated_before=f"{first.repeated:.1%}", repeated_after=f"{now.repeated:.1%}",
    )  # fmt: skip
    told = [reason("panel_alarm", words=alarm.words.removeprefix(f"{now.name}: ")) for alarm in shape]
    parts = told or [reason("panel_shape_fine")]
    yield GateCheck.because("text_shape", "fail" if shape else "pass", *parts, numbers)
    others = [alarm for alarm in alarms if alarm.kind not in SHAPE]
    told = [reason("panel_alarm", words=alarm.words.removeprefix(f"{now.name}: ")) for alarm in others]
    parts = told or [reason("panel_quiet", n=now.answers)]
    yield GateCheck.because("reward_panel", "fail" if others else "pass", *parts)


def medication_changes(before: Sequence[PanelRow], after: Sequence[PanelRow], tools: GateTextTools) -> float:
    """The share of the questions to which the two models advise other medicines or doses; 1 where nobody could look."""
    first = {row.id: tools.medicines(row.answer or "") for row in before}
    pairs = [(first[row.id], tools.medicines(row.answer or "")) for row in after if row.id in first]
    return sum(old != new for old, new in pairs) / len(pairs) if pairs else 1.0
