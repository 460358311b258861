"""A release, composed: the files of a model that the gate let pass, the reports about it, and the safety ledger, sealed by hash.

    made = make_release(settings, store, "v1.0-rl", ModelRef(base="embedded:tiny", adapter="models/rl/round1"), actor=…)
    verify_release(settings, store, "v1.0-rl")          # every byte, and whether the model may still be used

The folder is models/rl/NAME and can be loaded like the adapter it was made from: the files that decide how the model behaves are
the same bytes, so its fingerprint is the same. What is not there is named in the ledger with the reason; nothing is made up.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from medloop.contracts import ModelRef, Objective, canonical_json
from medloop.contracts.release import SafetyLedger
from medloop.errors import ConfigError, InputError, IntegrityError, ResultError
from medloop.loop.release_facts import ReleaseFacts, gather_facts, objective_of
from medloop.loop.scoring import given_parts, rules_text
from medloop.loop.train import STAGES
from medloop.models.find import resolve_chat_model
from medloop.models.safety import fingerprint, read_json
from medloop.release.ledger_page import ledger_page
from medloop.release.pipeline import config_yaml, pipeline_page
from medloop.reward.mix import MixConfig, build_mix
from medloop.settings import Settings
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import MANIFEST, new_artifact, verify_artifact
from medloop.store.records.gates import get_gate, promotion_refusal

LEDGER, PAGE, PIPELINE, TAUGHT = "safety_ledger.json", "safety_ledger.html", "rl_pipeline.md", "taught_by.jsonl"
RULES, JUDGEMENTS, CONFIG = "reward_rules.md", "teacher_judgements.jsonl", "config.yaml"
NOT_RELEASED = ("samples.jsonl", "held_out.jsonl")  # questions and answers of the training; they stay in the folder of the run
REPORT_ENDINGS = (".md", ".html", ".json")
KIND = "release"  # in the catalog
DO_NOT_USE = "Do not use it; release the model again under another name"


@dataclass(frozen=True)
class Release:
    """`already`: the same release was there before."""

    folder: Path
    ledger: SafetyLedger
    already: bool = False


@dataclass(frozen=True)
class ReleaseCheck:
    """`refusal` says why the gate would not let the model pass today; the bytes themselves are as they were."""

    folder: Path
    ledger: SafetyLedger
    files: int
    refusal: str | None


def release_folder(settings: Settings, name: str) -> Path:
    return settings.workspace.models / "rl" / name


def make_release(settings: Settings, store: Store, name: str, model: ModelRef, *, actor: str) -> Release:
    """Seal models/rl/NAME. ResultError, with the gate's reason, for a model that may not be promoted."""
    resolved = resolve_chat_model(model, settings)
    if resolved.adapter is None:
        raise ConfigError(f"{model.base} alone cannot be released", "Name a model with an adapter: --model BASE+ADAPTER")
    artifact = verify_artifact(resolved.adapter).sha256
    if refusal := promotion_refusal(store, artifact):
        raise ResultError(f"{resolved.name} may not be released: {refusal.rstrip('.')}", "Nothing was written")
    if catalog.find(store, artifact) is None:  # a model that was copied into this workspace
        content = read_json(resolved.adapter / "card.json")
        catalog.register(store, "adapter", resolved.adapter, content, actor=actor)
    target = release_folder(settings, name)
    facts = gather_facts(store, name, resolved, artifact, actor=actor)
    if (known := _same_release(store, target, facts.ledger)) is not None:
        _register(store, target, known, actor)  # a kill may have come between the folder and its entry
        return Release(target, known, already=True)
    with new_artifact(target) as folder:
        ledger = _fill(folder, facts, settings, resolved.adapter)
        assert fingerprint(folder) == ledger.fingerprint, "a release behaves as the adapter it was made from"
    _register(store, target, ledger, actor)
    return Release(target, ledger)


def _register(store: Store, target: Path, ledger: SafetyLedger, actor: str) -> None:
    card = ledger.model_dump(mode="json", include={"release", "method", "fingerprint", "records"})
    inputs = {"adapter": ledger.artifact, "gate": ledger.gate_id, "evaluation": ledger.gate.report}
    catalog.register(store, KIND, target, {**card, "name": ledger.release, "inputs": inputs}, actor=actor)


def verify_release(settings: Settings, store: Store, name: str) -> ReleaseCheck:
    """Every file against the manifest, the manifest against the catalog, the ledger against the gate's record, and the weights
    against the adapter that the gate examined."""
    folder = release_folder(settings, name)
    manifest = verify_artifact(folder)
    ledger = read_ledger(folder)
    if manifest.sha256 not in {entry.sha256 for entry in catalog.genuine_entries_at(store, KIND, folder)}:
        raise IntegrityError(
            f"{folder} is not a release that this workspace made: the catalog does not have its bytes", DO_NOT_USE
        )
    if get_gate(store, ledger.gate_id) != ledger.gate:
        raise IntegrityError(f"The ledger of {name} has another verdict of the gate than the store", DO_NOT_USE)
    _check_weights(store, folder, ledger)
    return ReleaseCheck(folder, ledger, len(manifest.files), promotion_refusal(store, ledger.artifact, against_champion=False))


def _check_weights(store: Store, folder: Path, ledger: SafetyLedger) -> None:
    """The weights are those of the adapter that the gate examined, as the catalog knows them."""
    examined = {entry.fingerprint for entry in catalog.genuine_entries(store, ledger.gate.artifact)}
    if ledger.artifact != ledger.gate.artifact or examined != {fingerprint(folder)} or ledger.fingerprint not in examined:
        raise IntegrityError(f"The weights in {folder} are not those that the gate examined", DO_NOT_USE)


def read_ledger(folder: Path) -> SafetyLedger:
    try:
        return SafetyLedger.from_json((folder / LEDGER).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        raise InputError(
            f"{folder} has no safety ledger, so it is not a release", "Make one with: medloop release NAME"
        ) from None


def _same_release(store: Store, target: Path, ledger: SafetyLedger) -> SafetyLedger | None:
    """A release is made once: the same model and verdict under this name are that release, anything else is refused."""
    if not target.exists() or not any(target.iterdir()):
        return None
    manifest = verify_artifact(target)
    known = read_ledger(target)
    if (known.artifact, known.gate) != (ledger.artifact, ledger.gate):
        raise ConfigError(f"{target} is the release of another model or gate result", "A release never changes; use another name")
    _check_weights(store, target, known)
    entries = catalog.genuine_entries_at(store, KIND, target)
    if entries and manifest.sha256 not in {entry.sha256 for entry in entries}:
        raise IntegrityError(f"{target} was changed after it was released", DO_NOT_USE)
    return known


def _fill(folder: Path, facts: ReleaseFacts, settings: Settings, adapter: Path) -> SafetyLedger:
    """All files but the manifest; the ledger last, because it names the others and what is missing."""
    missing = dict(facts.ledger.missing)
    for source in sorted(path for path in adapter.rglob("*") if path.is_file() and path != adapter / MANIFEST):
        relative = source.relative_to(adapter)
        if relative.as_posix() not in NOT_RELEASED:
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / relative)
    if not (folder / "value_head.safetensors").is_file():
        missing["value_head.safetensors"] = f"The method {facts.card.method} trains no value head"
    known = next((set(stage.config.model_fields) for stage in STAGES.values() if stage.name.lower() == facts.card.method), set())
    (folder / CONFIG).write_text(config_yaml(facts.card, known), encoding="utf-8")
    for name, reason in (*_reward_rules(folder, facts, settings), *_judgements(folder, facts, settings), *_report(folder, facts)):
        missing[name] = reason
    jsonl.write(folder / TAUGHT, (row.model_dump(mode="json") for row in facts.taught))
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    files = tuple(sorted({*names, LEDGER, PAGE, PIPELINE}))
    ledger = facts.ledger.model_copy(update={"missing": missing, "files": files})
    (folder / PIPELINE).write_text(pipeline_page(ledger, facts.cards), encoding="utf-8")
    (folder / LEDGER).write_text(canonical_json(ledger.model_dump(mode="json", exclude_none=True)) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(ledger_page(ledger), encoding="utf-8")
    return ledger


def _reward_rules(folder: Path, facts: ReleaseFacts, settings: Settings) -> Iterator[tuple[str, str]]:
    """The page of the reward that the model was trained with; yields what is missing of it."""
    objective = objective_of(facts.card)
    if objective is None:
        yield RULES, f"The method {facts.card.method} has no reward"
        return
    page = settings.workspace.rl / RULES
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if f"`{objective.version}`" not in text:
        text = _default_rules(settings, objective)
    if not text:
        rows = [f"| {name} | {part.weight:+g} | `{part.version}` |" for name, part in objective.parts.items()]
        text = "\n".join([f"# Reward `{objective.version}`", "", "| part | weight | version |", "|---|---|---|", *rows, ""])
        yield (
            f"{RULES} (definitions)",
            (f"data/rl/{RULES} is of another version than {objective.version}; the page has the parts and weights from the card"),
        )
    (folder / RULES).write_text(text, encoding="utf-8")


def _default_rules(settings: Settings, objective: Objective) -> str:
    """The definitions of the default mix, if that is what the model was trained with; else nothing."""
    given = given_parts(settings, {}, load_models=False)
    mix = build_mix(MixConfig(), given)
    return rules_text(mix, given) if mix.version == objective.version else ""


def _judgements(folder: Path, facts: ReleaseFacts, settings: Settings) -> Iterator[tuple[str, str]]:
    if facts.ledger.teacher is None:
        yield JUDGEMENTS, "No teacher judged answers in the training of this model"
        return
    source = settings.workspace.rl / JUDGEMENTS
    if not source.is_file():
        yield JUDGEMENTS, f"data/rl/{JUDGEMENTS} is not there any more"
        return
    shutil.copyfile(source, folder / JUDGEMENTS)


def _report(folder: Path, facts: ReleaseFacts) -> Iterator[tuple[str, str]]:
    """The report that the gate decided by, as long as its file still has the same content."""
    if facts.report is None:
        yield "eval_report", "The report that the gate decided by is not in the workspace any more, or was changed"
        return
    for ending in REPORT_ENDINGS:
        source = facts.report.with_suffix(ending)
        if source.is_file():
            shutil.copyfile(source, folder / f"eval_report{ending}")
        else:
            yield f"eval_report{ending}", f"{source.name} is not beside the report any more"
