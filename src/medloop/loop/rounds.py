"""Rounds of RL: each starts from the last accepted one, and only one that the gate lets pass is accepted.

    start = start_of_round(settings, store, 2)          # the adapter that round 2 starts from
    accept(store, 2, actor=…)                           # in use from now on; RoundRefusedError, with the reason, by the gate
    roll_back(store, 0, actor=…)                        # SFT is in use again, at once

A round is the folder models/rl/roundN. Nothing is moved or deleted by a decision: what is in use is a row of the store, and every
folder stays as it was. The row has the hash of the folder: other bytes under the same name are not the round that was accepted.
"""

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from medloop.contracts.gate_reasons import said
from medloop.contracts.rounds import RoundEvent
from medloop.errors import ConfigError, InputError, IntegrityError, ModelError, ResultError
from medloop.models.find import adapter_folder, adapters_named
from medloop.privacy.phi.reason import checked_reason
from medloop.registry.reconcile import reconcile
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import registry
from medloop.store.records.champion import champion_artifact
from medloop.store.records.registry import StoredVersion, taint_of
from medloop.store.records.rounds import SFT_ROUND, add_rollback, decide, in_use, round_events
from medloop.store.records.routes import live_route

SFT_NAME = "sft"
RoundState = Literal["in use", "accepted", "refused", "undecided", "start"]


class RoundRefusedError(ResultError):
    """The gate does not let this round pass, or its data was erased; what was in use stays."""


@dataclass(frozen=True)
class RoundStart:
    """What a round starts from: `number` is 0 for SFT."""

    number: int
    adapter: str


@dataclass(frozen=True)
class ListedRound:
    """A round as people see it; `start` is the adapter it was trained from."""

    number: int
    path: str
    state: RoundState
    start: str = ""
    method: str = ""
    event: RoundEvent | None = None


def round_name(number: int) -> str:
    return f"round{number}"


def is_round(name: str) -> bool:
    """Whether a folder of this name under models/rl is a round."""
    return name.startswith("round") and name[5:].isdecimal()


def round_path(number: int) -> str:
    return f"models/rl/{round_name(number)}"


def report_path(number: int) -> str:
    return f"reports/rl_stage/eval_report_{round_name(number)}.md"


def start_of_round(settings: Settings, store: Store, number: int, adapter: str | None = None) -> RoundStart:
    """The last accepted round before this one, else the SFT adapter; `adapter` names that one, and nothing but it."""
    last = in_use(round_events(store), before=number)
    if last is None or last.number == SFT_ROUND:
        return RoundStart(SFT_ROUND, adapter or sft_path(settings))
    if adapter is not None:
        raise ConfigError(
            f"Round {number} starts from {last.path}, the last accepted one, so --adapter {adapter} does not fit",
            "Leave --adapter out, or name the result with --name instead of --round",
        )
    _check_bytes(settings, last)
    return RoundStart(last.number, last.path)


def sft_path(settings: Settings) -> str:
    """The SFT adapter that the rounds came from: as the first one says, else the one named 'sft'."""
    for folder in round_folders(settings):
        start = str(_card(folder).get("config", {}).get("adapter") or "")
        if start and not start.startswith("models/rl/round"):
            return start
    named = adapters_named(SFT_NAME, settings)
    if len(named) != 1:
        problem = "there is no adapter named 'sft'" if not named else "several adapters are named 'sft'"
        raise ModelError(
            f"The rounds start from an SFT adapter, but {problem}", "Name it with --adapter, or make it with: medloop train sft"
        )
    return named[0].relative_to(settings.home).as_posix()


def round_folders(settings: Settings) -> list[Path]:
    """The rounds that were trained, in their order."""
    folders = [path for path in (settings.workspace.models / "rl").glob("round*") if is_round(path.name) and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name[5:]))


def accept(store: Store, number: int, *, actor: str) -> RoundEvent:
    """Put a round into use. A refusal is stored with its reason, and what was in use stays."""
    path = round_path(number)
    event = decide(store, number=number, path=path, artifact=_artifact(store.settings.home / path, number), actor=actor)
    if event.event == "refused":
        raise RoundRefusedError(f"Round {number} is refused: {event.reason.rstrip('.')}", f"{_stays(store)} stays in use")
    return event


@dataclass(frozen=True)
class RolledBack:
    """What is in use again. `champion` is the version that got the alias back; else `kept` says why the alias stays where it is,
    and `command` how to move it. `served` is the version that still answers on the model servers; `lag` says why MLflow does not
    know of it yet."""

    event: RoundEvent
    champion: int | None = None
    kept: str = ""
    command: str = ""
    served: int | None = None
    lag: str | None = None


def roll_back(store: Store, number: int, *, actor: str, reason: str = "") -> RolledBack:
    """Use SFT (0) or an earlier accepted round again, unless it is tainted. No gate is asked: it must work in an incident.

    The champion follows in the same transaction, where these bytes have been the champion before.
    """
    reason, settings = checked_reason(reason), store.settings
    accepted = _accepted(round_events(store))
    if number != SFT_ROUND and number not in accepted:
        known = ", ".join(map(str, sorted({SFT_ROUND, *accepted})))
        raise InputError(
            f"Round {number} was never accepted, so it cannot be used again", f"Rounds to go back to: {known} (0 is SFT)"
        )
    path = sft_path(settings) if number == SFT_ROUND else round_path(number)
    artifact = (
        verify_artifact(adapter_folder(path, settings)).sha256
        if number == SFT_ROUND
        else _check_bytes(settings, accepted[number])
    )
    follows = _Follows()

    def champion() -> StoredVersion | None:
        nonlocal follows
        if taint := taint_of(store, artifact):
            raise RoundRefusedError(
                f"{_in_words(number, path)} is tainted by an erasure ({taint})",
                f"{_stays(store)} stays in use; train again on the data that is left",
            )
        follows = _champion_follows(store, artifact, _in_words(number, path), path)
        return follows.version

    event = add_rollback(store, number=number, path=path, artifact=artifact, actor=actor, reason=reason, champion=champion)
    version = follows.version
    lag = None if version is None else reconcile(store)
    route = live_route(store)
    served = route.version if route is not None and route.artifact != artifact else None
    return RolledBack(
        event, None if version is None else version.record.version, follows.kept, follows.command, served, lag
    )  # fmt: skip


@dataclass(frozen=True)
class _Follows:
    """The version that becomes the champion again, or why none does and how to change that."""

    version: StoredVersion | None = None
    kept: str = ""
    command: str = ""


def _champion_follows(store: Store, artifact: str, words: str, path: str) -> _Follows:
    """Whether the alias goes to these bytes, too. Without a champion now or ever there is nothing to say."""
    model = store.settings.registry.model
    held = registry.current(store, model).get("champion")
    now = None if held is None or held.version is None else registry.get_version(store, model, held.version)
    if champion_artifact(store) is None or (now is not None and now.record.artifact == artifact):
        return _Follows()
    stays = "No version is the champion" if now is None else f"The champion is still version {now.record.version}"
    target = next((row for row in registry.versions(store, model) if row.record.artifact == artifact), None)
    if target is None:
        return _Follows(None, f"{stays}: {words} is not in the registry", f"registry add {shlex.quote(path)}")
    promote = f"registry promote {target.record.version}"
    if now is None:
        return _Follows(None, f"{stays}: somebody took the alias away", promote)
    if parts := registry.alias_refusal(store, target.record, "champion", "rollback"):
        return _Follows(None, f"{stays}: {said(parts).rstrip('.')}", promote)
    return _Follows(target)


def check_replaceable(store: Store, name: str) -> None:
    """ConfigError for the name of a round that was accepted: its bytes are what the gate examined and others start from."""
    if is_round(name) and (number := int(name[5:])) in _accepted(round_events(store)):
        raise ConfigError(
            f"Round {number} was accepted, so it is not trained again over {round_path(number)}",
            "Train the next round, or name the result with --name",
        )


def list_rounds(settings: Settings, store: Store) -> list[ListedRound]:
    """SFT and every round that was trained or decided about, in their order."""
    events = round_events(store)
    last = {event.number: event for event in events if event.event != "rolled_back"}
    used = in_use(events)
    current = SFT_ROUND if used is None else used.number
    folders = {int(folder.name[5:]): folder for folder in round_folders(settings)}
    rounds = []
    for number in sorted({*folders, *last} - {SFT_ROUND}):
        card, event = _card(folders[number]) if number in folders else {}, last.get(number)
        decided: RoundState = "undecided" if event is None else "accepted" if event.event == "accepted" else "refused"
        start = str(card.get("config", {}).get("adapter") or "")
        state: RoundState = "in use" if number == current else decided
        rounds.append(ListedRound(number, round_path(number), state, start, str(card.get("method", "")), event))
    try:
        sft = [ListedRound(SFT_ROUND, sft_path(settings), "in use" if current == SFT_ROUND else "start")]
    except ModelError:
        sft = []  # there is nothing to start from yet
    return [*sft, *rounds]


def path_in_use(settings: Settings, store: Store) -> str:
    """The adapter that is in use, from the workspace; IntegrityError if its folder has other bytes than were accepted."""
    used = in_use(round_events(store))
    if used is None or used.number == SFT_ROUND:
        return sft_path(settings)
    _check_bytes(settings, used)
    return used.path


def _accepted(events: Iterable[RoundEvent]) -> dict[int, RoundEvent]:
    """The last acceptance of each round that has one."""
    return {event.number: event for event in events if event.event == "accepted"}


def _check_bytes(settings: Settings, event: RoundEvent) -> str:
    """The hash of a round's folder, which has to be that of the decision about it."""
    artifact = verify_artifact(settings.home / event.path).sha256
    if artifact != event.artifact:
        raise IntegrityError(
            f"{event.path} has other bytes ({artifact[:19]}…) than round {event.number} had when it was accepted "
            f"({event.artifact[:19]}…)",
            f"Restore the folder from a copy, or let the gate examine it and run: medloop rounds accept {event.number}",
        )
    return artifact


def _stays(store: Store) -> str:
    used = in_use(round_events(store))
    if used is None or used.number == SFT_ROUND:
        return _in_words(SFT_ROUND, sft_path(store.settings))
    return _in_words(used.number, used.path)


def _in_words(number: int, path: str) -> str:
    return f"SFT ({path})" if number == SFT_ROUND else f"Round {number} ({path})"


def _artifact(folder: Path, number: int) -> str:
    if not (folder / "card.json").is_file():
        raise InputError(
            f"Round {number} has not been trained: {folder} does not exist", f"Train it with: medloop train ppo --round {number}"
        )
    return verify_artifact(folder).sha256


def _card(folder: Path) -> dict[str, Any]:
    file = folder / "card.json"
    return json.loads(file.read_bytes()) if file.is_file() else {}
