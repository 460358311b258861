"""How far the reward of this workspace can be trusted: measured on labelled cases, kept as a card, asked for before training.

card = validate(settings, cases, judge)        # reports/trust/VERSION/validity.json and validity.md
for line in check(settings, objective): ...    # what to say before training; raises when a judge is untrusted
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from medloop.contracts.score import ABSENT, Objective
from medloop.contracts.validity import HARM, MIX, JudgeProfile, JudgeSource, JudgeTrust, LabelledCase, ValidityCard
from medloop.data.text.risk import strata_of
from medloop.errors import ConfigError, InputError
from medloop.reward import trust_page
from medloop.reward.criteria import NAME as CRITERIA
from medloop.reward.detect.urgency import urgency
from medloop.reward.trust import Judge, TrustConfig, harm_version, measure
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files.atomic import atomic_write, make_folder
from medloop.store.files.lock import locked_file
from medloop.store.records import criteria

CARD, PREVIOUS = "validity.json", "previous.json"
NOTHING = "Nobody has compared this reward with people's judgement yet: medloop reward validate CASES"
ONLY_BUNDLED = "Only the bundled cases have measured this reward; they are not clinical evidence: medloop reward validate CASES"

UNREAD_CRITERIA = (
    "Clinicians accepted criteria for corrected answers, and this reward does not read them: training may undo those corrections."
)
ADD_THEM = "Add them with --with criteria."


def trust_folder(settings: Settings) -> Path:
    return settings.workspace.reports / "trust"


def card_folder(settings: Settings, version: str) -> Path:
    return trust_folder(settings) / version


def validate(
    settings: Settings,
    cases: Sequence[LabelledCase],
    judge: Judge,
    *,
    config: TrustConfig,
    kind: str = "mix",
    source: JudgeSource = JudgeSource(),
    left_out: Mapping[str, int] | None = None,
    traffic: tuple[JudgeProfile, ...] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[ValidityCard, Path]:
    """Measure a reward on labelled cases and keep the card; the one before, if it has other cases, is kept beside it."""
    card = measure(cases, judge, config=config, urgency=urgency, strata=strata_of, progress=progress, kind=kind)
    every_left_out = {**card.left_out, **(left_out or {})}
    card = card.model_copy(update={"left_out": every_left_out, "traffic": traffic, "judge_source": source})
    make_folder(trust_folder(settings))
    with locked_file(trust_folder(settings) / ".cards.lock", wait_s=30, what="The cards of the trust meter", mode=0o600):
        return _keep(settings, card)


def _keep(settings: Settings, card: ValidityCard) -> tuple[ValidityCard, Path]:
    """Write the card, unless it is of bundled cases and one with people's labels is there."""
    folder = card_folder(settings, card.reward_version)
    try:
        before = read_card(settings, card.reward_version)
    except InputError:  # a damaged card is replaced
        before = None
    card = _with_earlier_verdicts(card, before)
    if before is not None and before.cases != card.cases and before.bundled == card.bundled:
        atomic_write(folder / PREVIOUS, before.model_dump_json(indent=2) + "\n")
    if before is not None and card.bundled and not before.bundled:
        return card, folder  # what people said is not replaced by what nobody said
    atomic_write(folder / CARD, card.model_dump_json(indent=2) + "\n")
    atomic_write(folder / "validity.md", trust_page.page(card))
    return card, folder


def _with_earlier_verdicts(card: ValidityCard, before: ValidityCard | None) -> ValidityCard:
    """What these cases do not measure keeps the verdict of the card before, so that a small file does not undo a refusal."""
    if before is None or before.bundled:
        return card
    judges = []
    for row in card.judges:
        earlier = before.verdict_on(row.judge, row.version)
        is_kept = row.verdict == "unmeasured" and earlier.verdict != "unmeasured"
        judges.append(earlier.model_copy(update={"since": earlier.since or before.created}) if is_kept else row)
    return card.model_copy(update={"judges": tuple(judges)})


def read_card(settings: Settings, version: str, name: str = CARD) -> ValidityCard | None:
    """The card of a reward; InputError if its file is damaged, because what it forbids must not be forgotten."""
    path = card_folder(settings, version) / name
    return _read(path) if path.is_file() else None


def _read(path: Path) -> ValidityCard:
    try:
        return ValidityCard.from_json(path.read_text(encoding="utf-8"))
    except ValueError:
        hint = "Measure this reward again with: medloop reward validate CASES, or remove the folder of the card"
        raise InputError(f"The card {path} is damaged, or of another version of medloop", hint) from None


def cards(settings: Settings) -> list[ValidityCard]:
    """Every card of the workspace, the newest first."""
    every = [_read(path) for path in trust_folder(settings).glob(f"*/{CARD}")]
    return sorted(every, key=lambda card: card.created, reverse=True)


def verdicts(card: ValidityCard, objective: Objective) -> list[JudgeTrust]:
    """One verdict for the whole reward, for harm, and for each part that is there."""
    parts = {name: part.version for name, part in objective.parts.items() if part.version != ABSENT}
    judges = {MIX: objective.version, HARM: harm_version(parts.items()), **parts}
    return [card.verdict_on(name, version) for name, version in judges.items() if version]


def rule_verdicts(settings: Settings, rules: Mapping[str, str]) -> dict[str, tuple[JudgeTrust, ValidityCard | None]]:
    """How far each rule can be trusted, by its version: the verdict of the newest card with people's labels that knows it."""
    known = [card for card in cards(settings) if not card.bundled]
    verdicts: dict[str, tuple[JudgeTrust, ValidityCard | None]] = {}
    for name, version in rules.items():
        rows = [(card.verdict_on(name, version), card) for card in known]
        verdicts[name] = next(
            ((row, card) for row, card in rows if row.verdict != "unmeasured"),
            (JudgeTrust(judge=name, version=version, verdict="unmeasured", reason="no card has measured this version"), None),
        )
    return verdicts


def check(settings: Settings, objective: Objective, *, accept_untrusted: bool = False) -> tuple[str, ...]:
    """What to say about trust before a run; ConfigError for an untrusted reward that nobody accepted."""
    return (*_measured(settings, objective, accept_untrusted), *_unread_criteria(settings, objective))


def _unread_criteria(settings: Settings, objective: Objective) -> tuple[str, ...]:
    """Not among the objective's own notes: they are part of a run, which a criterion accepted meanwhile must not change."""
    if CRITERIA in objective.parts:
        return ()
    with open_store(settings) as store:
        if not criteria.has_accepted(store):
            return ()
    has_dynamic_weights = any(part.dynamic for part in objective.parts.values())  # and takes no further parts
    return (UNREAD_CRITERIA if has_dynamic_weights else f"{UNREAD_CRITERIA} {ADD_THEM}",)


def _measured(settings: Settings, objective: Objective, accept_untrusted: bool) -> tuple[str, ...]:
    card = read_card(settings, objective.version)
    if card is None:
        return (NOTHING,)
    if card.bundled:  # a few cases by nobody: they stop a reward that is wrong even there, and vouch for none
        whole = [card.verdict_on(MIX, objective.version)]
        return (*refuse_untrusted(whole, accept_untrusted=accept_untrusted, who="The bundled cases"), ONLY_BUNDLED)
    rows = verdicts(card, objective)
    return (*refuse_untrusted(rows, accept_untrusted=accept_untrusted), *measured_notes(rows))


def refuse_untrusted(
    rows: Iterable[JudgeTrust], *, accept_untrusted: bool, what: str = "this reward", who: str = "People's labels"
) -> tuple[str, ...]:  # fmt: skip
    """ConfigError if a judge is untrusted, unless somebody accepted that; then the sentences that say so."""
    untrusted = "; ".join(f"{_named(row.judge)} ({row.reason})" for row in rows if row.verdict == "untrusted")
    if untrusted and not accept_untrusted:
        hint = (
            "Mend the part, set its weight to 0, or go on all the same with --accept-untrusted "
            "(accept_untrusted in a file or a request); the result will say so"
        )
        raise ConfigError(f"{who} do not support {what}: {untrusted}", hint)
    return (f"UNTRUSTED, and accepted: {untrusted}.",) if untrusted else ()


def _named(judge: str) -> str:
    return "the whole reward" if judge == MIX else judge


def measured_notes(rows: Iterable[JudgeTrust]) -> list[str]:
    rows, notes = list(rows), []
    if trusted := [f"{_named(row.judge)} ({row.reason})" for row in rows if row.verdict == "trusted"]:
        notes.append(f"People's labels support: {'; '.join(trusted)}.")
    if unmeasured := [_named(row.judge) for row in rows if row.verdict == "unmeasured"]:
        notes.append(f"Not measured, so nobody knows: {', '.join(unmeasured)}.")
    return notes
