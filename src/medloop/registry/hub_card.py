"""The model card of a version in the Hugging Face form: README.md with YAML metadata, and the same facts for people.

    hub_card(store, record)            # hashes, numbers and verdicts; never a text of a record

Metadata as in huggingface.co/docs/hub/model-cards: `base_model` stands only for a base that a hub knows, `model-index` has the
scores of the evaluation.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from medloop.contracts import GateResult, Interval, ModelVersion, utc_now
from medloop.store.db import Store
from medloop.store.records.gates import approvals, latest_gate, waivers_of

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
OUTCOMES = {"pass": "passed", "fail": "failed", "not_enough_evidence": "not enough evidence"}
NOT_A_DEVICE = "This is not a medical device. A clinician has to decide about every patient."


def hub_card(store: Store, record: ModelVersion, *, unreleased: str | None = None) -> str:
    """README.md of a version as it is now: with the gate's newest verdict on its bytes.

    `unreleased` says why it may not be used; the card says it first, for people and for programs.
    """
    gate = latest_gate(store, record.artifact)
    warning = [] if unreleased is None else [f"**Unreleased: this model may not be used for patients.** {_cell(unreleased)}"]
    sections = [*warning, "\n".join(_about(record)), *_scores(record), _gate(store, gate), *_warnings(record)]
    front = yaml.safe_dump(metadata(record, unreleased), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n# {record.name}\n\n" + "\n\n".join(sections) + f"\n\n{NOT_A_DEVICE}\n"


def metadata(record: ModelVersion, unreleased: str | None = None) -> dict[str, Any]:
    """The YAML part, which hubs and MLflow's pages can search."""
    base = {"base_model": record.base} if HUB_ID.fullmatch(record.base) else {}
    results = [
        {
            "task": {"type": "text-generation"},
            "dataset": {"name": name.partition(".")[0], "type": name.partition(".")[0]},
            "metrics": [{"type": name.partition(".")[2] or name, "value": score.mean}],
        }
        for name, score in record.scores.items()
        if score.mean is not None
    ]
    index = {"model-index": [{"name": record.name, "results": results}]} if results else {}
    tags = ["medloop", "medical", "lora", record.method, *(["unreleased"] if unreleased is not None else [])]
    known = {"library_name": "peft", "pipeline_tag": "text-generation", "language": ["zh", "en"], "tags": tags}
    facts = {"version": record.label, "artifact": record.artifact, "base": record.base, "base_sha256": record.base_sha256}
    return {**base, **known, **index, "medloop": {**facts, **({"unreleased": unreleased} if unreleased is not None else {})}}


def _about(record: ModelVersion) -> Iterator[str]:
    yield f"Version {record.version} of `{record.model}`: a LoRA adapter for `{record.base}`, by {record.method.upper()}."
    yield "\n| | |\n|---|---|"
    yield f"| Bytes | `{record.artifact}` |"
    yield f"| Base model | `{record.base_sha256}` |"
    named = {
        "Parent": record.parent,
        "Evaluation report": record.report,
        "Reward": record.reward,
        "Chat template": record.template,
    }
    named |= {f"Data: {name}": sha256 for name, sha256 in record.inputs.items()}
    yield from (f"| {name} | `{value}` |" for name, value in named.items() if value is not None)
    yield from (f"| {name.replace('_', ' ')} | {value:.6g} |" for name, value in record.losses.items())
    yield f"| Registered | {record.timestamp:%Y-%m-%d} |"


def _scores(record: ModelVersion) -> Iterator[str]:
    if record.scores:
        rows = "\n".join(f"| {name} | {shown(score)} | {score.n} |" for name, score in record.scores.items())
        yield f"## Evaluation\n\n| split and metric | mean [95 % interval] | n |\n|---|---|---|\n{rows}"


def shown(score: Interval) -> str:
    """`0.812 [0.790, 0.834]`, or a dash for what could not be measured."""
    if score.mean is None:
        return "–"
    return f"{score.mean:.3f}" + (
        f" [{score.low:.3f}, {score.high:.3f}]" if score.low is not None and score.high is not None else ""
    )


def _gate(store: Store, gate: GateResult | None) -> str:
    if gate is None:
        return "## Gate\n\nThe gate has not examined this model."
    rows = "\n".join(f"| {check.name} | {OUTCOMES[check.outcome]} | {_cell(check.reason)} |" for check in gate.checks)
    waived = [
        f"The check {waiver.check} {'is' if utc_now() < waiver.expires else 'was'} waived until {waiver.expires:%Y-%m-%d}."
        for waiver in waivers_of(store, gate.artifact)
    ]
    signed = f"signed by {len(approvals(store, gate))} of {gate.needs_sign_offs}"
    lines = [
        f"Verdict `{gate.content_id()}`: {OUTCOMES[gate.outcome]}, {signed}.",
        *waived,
    ]
    return "## Gate\n\n" + "\n".join(lines) + f"\n\n| check | outcome | reason |\n|---|---|---|\n{rows}"


def _warnings(record: ModelVersion) -> Iterator[str]:
    if record.warnings:
        yield "## Warnings\n\n" + "\n".join(f"- {warning}" for warning in record.warnings)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
