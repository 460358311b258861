"""`medloop gate`: may a model be promoted? Decide with numbers and reasons; sign, waive and read the verdicts."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.gate_policy import policy_app
from medloop.cli.login import logged_in
from medloop.contracts import EvalReport, GateCheck, GateResult, ModelRef
from medloop.contracts.gate_config import GateConfig
from medloop.errors import ConfigError, ResultError
from medloop.knobs import load_config
from medloop.loop.evaluation import read_report
from medloop.loop.gate import examine, more_evidence
from medloop.loop.gate_policy import policy_of
from medloop.models.find import parse_model
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import gates, users

gate_app = typer.Typer(invoke_without_command=True, help="Decide whether a model may be promoted; sign verdicts, waive checks.")
OUTCOMES = {"pass": "pass", "fail": "FAIL", "not_enough_evidence": "not enough evidence"}

GateId = Annotated[str, typer.Argument(metavar="GATE", help="Id of a verdict, or its beginning, from 'medloop gate list'.")]
UserName = Annotated[str, typer.Option("--user", metavar="NAME", help="Your user name; the password is asked for.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class NotEnoughEvidenceError(ResultError):
    """The gate could neither pass nor refuse a model."""

    exit_code = 11


def register(app: typer.Typer) -> None:
    gate_app.add_typer(policy_app, name="policy")
    app.add_typer(gate_app, name="gate")


@gate_app.callback()
def gate(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="BASE[+ADAPTER]",
            help="The model to decide about: embedded:NAME, a folder, a GGUF file, or a hub id, with an adapter or not.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="BASE[+ADAPTER]", help="What it is compared with (default: the champion, else its base model); or FILE.jsonl."
        ),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answers in a file instead of a model: decided, never stored.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An eval_report.json of this workspace instead of a new evaluation.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings: a changed copy of configs/gate.yaml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting of the gate; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, and store nothing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also list the checks that passed.")] = False,
    json_: AsJson = False,
) -> None:
    """Compare a model with a baseline, check all evidence, and store the verdict with the hash of the model.

    The exit code is 0 for a pass, 10 for a fail, and 11 if the evidence is not enough. A promotion needs a pass for the same
    bytes against the champion of now (or waivers for the checks that did not pass), the sign-offs that the settings ask for, and
    no open incident. Settings that you do not choose are those of the policy; weaker ones need two clinicians.

    Example:  medloop gate --model embedded:tiny+sft
    """
    if ctx.invoked_subcommand is not None:
        return
    if (model is None) == (predictions is None):
        raise ConfigError("Name either a model or a file of answers", "Use --model BASE+ADAPTER or --predictions FILE")
    settings = ui.settings()
    candidate = parse_model("--model", model) if model is not None else predictions
    assert candidate is not None, "one of the two was given"
    with open_store(settings) as store:
        policy = policy_of(store).config.model_dump(mode="json")
        knobs = load_config(GateConfig, file=config, pairs=set_ or (), flags={}, defaults=policy)
        with ui.progress("Answering", every=10) as bar:
            examined = examine(
                settings, store, candidate=candidate, baseline=_side(baseline), report=report, config=knobs,
                progress=lambda label: lambda done, total: bar.update(done, total, label),
            )  # fmt: skip
        result, stored = examined.result, examined.bound and not dry_run
        if stored:
            gates.save_gate(store, result, actor=actor())
        refusal = gates.refusal_below_checks(store, result) if stored else None
        waived = gates.waived_checks(store, result)
    if json_:
        ui.say_json({"gate": result.content_id() if stored else None, **result.model_dump(mode="json", exclude_none=True)})
    else:
        _show(result, verbose=verbose)
        ui.say(f"Report: {ui.shown(examined.report)}")
        ui.say(_stored_sentence(result, stored=stored, bound=examined.bound))
        if stored:
            ui.say(f"Promotion: {refusal or 'allowed now.'}")
    _exit(result, read_report(examined.report), waived=waived)


def _side(spec: str | None) -> ModelRef | Path | None:
    if spec is None:
        return None
    return Path(spec) if spec.endswith(".jsonl") else parse_model("--baseline", spec)


def _stored_sentence(result: GateResult, *, stored: bool, bound: bool) -> str:
    if stored:
        return f"Stored as {result.content_id()[7:19]}, for the model {result.artifact[7:19]}."
    return "Nothing was stored." if bound else "Nothing was stored: answers in a file say nothing about the bytes of a model."


def _exit(result: GateResult, report: EvalReport, *, waived: int) -> None:
    """A verdict other than a pass ends with its own exit code, also where a waiver from before lifts what did not pass."""
    counts = Counter(check.outcome for check in result.checks)
    if waived:
        kind = ResultError if result.outcome == "fail" else NotEnoughEvidenceError
        what = f"{result.label} did not pass the gate: {_checks(waived)}, see above; waivers from before lift them"
        raise kind(what, f"What a promotion still needs: medloop gate show {result.content_id()[7:19]}")
    if result.outcome == "fail":
        raise ResultError(f"The gate refuses {result.label}: {_checks(counts['fail'])} failed, see above", "Do not promote it")
    if result.outcome == "not_enough_evidence":
        what = f"{_checks(counts['not_enough_evidence'])} without enough, see above"
        raise NotEnoughEvidenceError(
            f"The evidence is not enough to pass {result.label}: {what}", f"{more_evidence(result, report)}, or ask for a waiver"
        )


def _checks(count: int) -> str:
    return f"{count} check" if count == 1 else f"{count} checks"


def _show(result: GateResult, *, verbose: bool) -> None:
    counts = Counter(check.outcome for check in result.checks)
    ui.say(f"{OUTCOMES[result.outcome]}: {result.label} against {result.baseline}")
    rows = sorted(result.checks, key=lambda check: ("fail", "not_enough_evidence", "pass").index(check.outcome))
    shown = [check for check in rows if verbose or check.outcome != "pass" or "/" not in check.name]
    ui.table(("check", "outcome", "reason"), [(check.name, _outcome(check), check.reason) for check in shown])
    hidden = len(result.checks) - len(shown)
    rest = f" ({hidden} checks of suites and strata that passed are not listed; --verbose lists them)" if hidden else ""
    ui.say(f"{counts['pass']} passed, {counts['fail']} failed, {counts['not_enough_evidence']} without enough evidence{rest}.")
    if result.changed_settings:
        changed = ", ".join(f"{name}={value}" for name, value in result.changed_settings.items())
        ui.say(f"Settings that differ from the defaults: {ui.printable(changed)}.")
    ui.say(f"Sign-offs needed: {result.needs_sign_offs}.")


def _outcome(check: GateCheck) -> str:
    return OUTCOMES[check.outcome] + (f" (waived: {check.waiver})" if check.waiver else "")


@gate_app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """List the verdicts, newest first.

    Example:  medloop gate list
    """
    with open_store(ui.settings()) as store:
        results = gates.list_gates(store, limit=limit)
        signed = {
            result.content_id(): f"{len(gates.approvals(store, result))}/{gates.sign_offs_needed(store, result)}"
            for result in results
        }
    if json_:
        for result in results:
            ui.say_json({"gate": result.content_id(), **result.model_dump(mode="json", exclude={"checks"}, exclude_none=True)})
        return
    if not results:
        ui.say("The gate has examined no model yet.")
        return
    rows = [
        (result.content_id()[7:19], f"{result.timestamp:%Y-%m-%d %H:%M}", result.label, result.artifact[7:19],
         OUTCOMES[result.outcome], signed[result.content_id()])
        for result in results
    ]  # fmt: skip
    ui.table(("gate", "time (UTC)", "model", "artifact", "outcome", "sign-offs"), rows)


@gate_app.command("show")
def show(
    gate: GateId,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also list the checks that passed.")] = False,
    json_: AsJson = False,
) -> None:
    """Show a verdict with its checks, its sign-offs and every waiver, also those that have expired.

    Example:  medloop gate show 3f8a91c02b4d
    """
    with open_store(ui.settings()) as store:
        stored = gates.get_gate(store, gate)
        result, sign_offs = gates.with_waivers(store, stored), gates.sign_offs_of(store, stored.content_id())
        waivers = gates.waiver_rows(store, result.artifact)
        refusal, names = gates.promotion_refusal(store, result.artifact), users.names(store)
        below = gates.refusal_below_checks(store, stored)
    if json_:
        people = [row.model_dump(mode="json") for row in sign_offs]
        lifted = [row.as_json() for row in waivers]
        whole = result.model_dump(mode="json", exclude_none=True)
        ui.say_json({**whole, "sign_offs": people, "waivers": lifted, "refusal": refusal})
        return
    _show(result, verbose=verbose)
    for sign_off in sign_offs:
        verb = "signed" if sign_off.approved else "REFUSED to sign"
        who, comment = names.get(sign_off.person, sign_off.person), ui.printable(sign_off.comment)
        ui.say(f"{sign_off.timestamp:%Y-%m-%d %H:%M}Z  {who} {verb}{': ' if comment else ''}{comment}")
    for row in waivers:
        approved = f"approved by {names.get(row.approver, row.approver)}" if row.approver else "waits for a clinician to approve"
        ui.say(
            f"{row.timestamp:%Y-%m-%d %H:%M}Z  {row.waiver_id}: {row.check} waived until {row.expires:%Y-%m-%d} by "
            f"{names.get(row.author, row.author)}, {approved}: {ui.printable(row.reason)}"
        )
    ui.say(f"Promotion of this model: {below or 'allowed now.'}")


@gate_app.command("sign")
def sign(
    gate: GateId,
    user: UserName,
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Refuse to sign; needs a comment. The model is not promoted until you sign.")
    ] = False,
    comment: Annotated[
        str, typer.Option(help="What you looked at, or why you refuse. It stays for good: do not name patients.")
    ] = "",
) -> None:
    """Sign a verdict as a clinician who has read it, or refuse it. Your last word counts; all of them stay.

    Example:  medloop gate sign 3f8a91c02b4d --user dr.li --comment "Read the red-team answers."
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        sign_off = gates.sign(store, gate, by=person.user_id, approved=not refuse, comment=comment)
        refusal = gates.promotion_refusal(store, sign_off.artifact)
    ui.say(f"{user} {'refused to sign' if refuse else 'signed'} {sign_off.gate[7:19]}. Promotion: {refusal or 'allowed now.'}")


@gate_app.command("waive")
def waive(
    gate: GateId,
    check: Annotated[str, typer.Option(metavar="NAME", help="The check to lift, as the table names it.")],
    reason: Annotated[str, typer.Option(help="Why. It stays for good: do not name patients.")],
    until: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], help="Last day of the waiver (UTC).")],
    user: UserName,
) -> None:
    """Ask to lift one check that a model did not pass. It lifts nothing until a clinician other than you approves it.

    Example:  medloop gate waive 3f8a91c02b4d --check language/zh --reason "English clinic." --until 2027-01-31 --user sam
    """
    expires = until.replace(hour=23, minute=59, second=59, tzinfo=UTC)
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        artifact = gates.get_gate(store, gate).artifact
        waiver_id = gates.request_waiver(store, artifact, check=check, reason=reason, author=person.user_id, expires=expires)
    ui.say(f"{waiver_id} waits for a clinician other than {user}.")
    ui.next_step(f"gate approve {waiver_id} --user NAME", "They approve it with:")


@gate_app.command("approve")
def approve(waiver: Annotated[str, typer.Argument(metavar="WAIVER", help="Id of the waiver.")], user: UserName) -> None:
    """Approve the waiver of somebody else, as a clinician.

    Example:  medloop gate approve waiv_0198a2… --user dr.li
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        approved = gates.approve_waiver(store, waiver, by=person.user_id)
    ui.say(f"{approved.check} is waived for the model {approved.artifact[7:19]} until {approved.expires:%Y-%m-%d}.")
