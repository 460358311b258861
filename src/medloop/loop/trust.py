"""How far the reward of this workspace can be trusted: measured on labelled cases, kept as a card, asked for before training.

card = validate(settings, cases, mix)          # reports/trust/VERSION/validity.json and validity.md
for line in check(settings, objective): ...    # what to say before training; raises when a judge is untrusted
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from medloop.contracts.score import ABSENT, Objective
from medloop.contracts.validity import JudgeTrust, LabelledCase, ValidityCard
from medloop.data.text.risk import strata_of
from medloop.errors import ConfigError
from medloop.reward import trust_page
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import RewardMix
from medloop.reward.trust import MIX, TrustConfig, measure
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write

CARD = "validity.json"
NOTHING = "Nobody has compared this reward with people's judgement yet: medloop reward validate CASES"


def card_folder(settings: Settings, version: str) -> Path:
    return settings.workspace.reports / "trust" / version


def validate(
    settings: Settings,
    cases: Sequence[LabelledCase],
    mix: RewardMix,
    *,
    config: TrustConfig,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[ValidityCard, Path]:
    """Measure a reward on labelled cases and keep the card; a later one for the same version replaces it."""
    card = measure(cases, mix, config=config, urgency=urgency, strata=strata_of, progress=progress)
    folder = card_folder(settings, card.reward_version)
    atomic_write(folder / CARD, card.model_dump_json(indent=2) + "\n")
    atomic_write(folder / "validity.md", trust_page.page(card))
    return card, folder


def read_card(settings: Settings, version: str) -> ValidityCard | None:
    path = card_folder(settings, version) / CARD
    return ValidityCard.from_json(path.read_text(encoding="utf-8")) if path.is_file() else None


def cards(settings: Settings) -> list[ValidityCard]:
    """Every card of the workspace, the newest first."""
    folder = settings.workspace.reports / "trust"
    every = [ValidityCard.from_json(path.read_text(encoding="utf-8")) for path in folder.glob(f"*/{CARD}")]
    return sorted(every, key=lambda card: card.created, reverse=True)


def verdicts(settings: Settings, objective: Objective) -> list[JudgeTrust] | None:
    """One verdict for the whole reward and one for each part that is there; None without a card."""
    card = read_card(settings, objective.version)
    if card is None:
        return None
    parts = {name: part.version for name, part in objective.parts.items() if part.version != ABSENT}
    return [card.verdict_on(MIX, objective.version), *(card.verdict_on(name, version) for name, version in parts.items())]


def check(settings: Settings, objective: Objective, *, accept_untrusted: bool = False) -> tuple[str, ...]:
    """What to say about trust before a run; ConfigError for an untrusted reward that nobody accepted."""
    rows = verdicts(settings, objective)
    if rows is None:
        return (NOTHING,)
    untrusted = [f"{row.judge} ({row.reason})" for row in rows if row.verdict == "untrusted"]
    if untrusted and not accept_untrusted:
        hint = "Mend the part, set its weight to 0, or train all the same with --accept-untrusted; the card will say so"
        raise ConfigError(f"People disagree with this reward: {'; '.join(untrusted)}", hint)
    notes = [f"Untrusted, and accepted: {name}." for name in untrusted]
    if unmeasured := [row.judge for row in rows if row.verdict == "unmeasured"]:
        notes.append(f"Not measured against people's judgement: {', '.join(unmeasured)}.")
    if trusted := [row.judge for row in rows if row.verdict == "trusted"]:
        notes.append(f"Measured against people's judgement: {', '.join(trusted)}.")
    return tuple(notes)
