"""What `medloop codebook` prints: entries, proposals, trials, versions."""

from medloop.cli import ui
from medloop.contracts import CodebookEntry, CodebookTrial, CodebookVersion
from medloop.loop.codebook import Proposals
from medloop.store.records import codebook_votes

VERDICTS = {"better": "better", "same": "no difference", "worse": "WORSE", "critical": "WORSE in a critical case"}


def say_proposals(proposals: Proposals, json_: bool) -> None:
    if json_:
        ui.say_json({"proposed": [as_json(entry) for entry in proposals.entries], "known": proposals.known,
                     "unusable": proposals.unusable})  # fmt: skip
        return
    table(proposals.entries, {})
    ui.say(f"Proposals: {len(proposals.entries)}. Corrections that have one already: {proposals.known}.")
    for why, count in sorted(proposals.unusable.items()):
        ui.say(f"Corrections without a rule because {why}: {count}.")
    if not (proposals.entries or proposals.known or proposals.unusable):
        say_no_corrections()
    if proposals.entries:
        ui.next_step(f"codebook show {proposals.entries[0].entry_id}")


def say_empty(has_new: bool, *, others: int, state: str | None) -> None:
    """A list without entries: 'codebook propose' comes next only where it has corrections to look at."""
    if others:
        ui.say(f"No entry is {state}; entries in other states: {others:,}.")
    else:
        ui.say("The codebook has no entries yet. Corrections on the pages become proposals.")
    if has_new:
        ui.next_step("codebook propose")
    else:
        say_no_corrections()


def say_no_corrections() -> None:
    ui.say("Nobody has corrected an answer since the last look. Correct one on the pages ('medloop api serve'),")
    ui.say("or write a rule yourself: medloop codebook propose --text TEXT --user NAME")


def as_json(entry: CodebookEntry, counts: codebook_votes.VoteCounts | None = None) -> dict[str, object]:
    numbers = counts or codebook_votes.VoteCounts()
    return {**entry.model_dump(mode="json", exclude_none=True), "helpful": numbers.helpful, "harmful": numbers.harmful}


def table(entries: list[CodebookEntry], counts: dict[str, codebook_votes.VoteCounts]) -> None:
    rows = []
    for entry in entries:
        votes = counts.get(entry.entry_id, codebook_votes.VoteCounts())
        text = ui.printable(entry.text)
        cells = (entry.entry_id, str(entry.revision), entry.kind, entry.scope, entry.state)
        rows.append((*cells, f"+{votes.helpful} -{votes.harmful}", text if len(text) <= 80 else f"{text[:79]}…"))
    if rows:
        ui.table(("entry", "rev.", "kind", "scope", "state", "votes", "text"), rows)


def say_trial(trial: CodebookTrial) -> None:
    better, worse = trial.count(before=False, after=True), trial.count(before=True, after=False)
    ui.say(
        f"Tried with {trial.model} on {len(trial.cases) + trial.unchanged} cases ({len(trial.cases)} with another prompt): "
        f"{better} better, {worse} worse: {VERDICTS[trial.verdict]}."
    )
    for case in trial.cases:
        if case.before and not case.after:
            ui.say(f"  worse: {case.case_id} ({case.source}{', critical' if case.critical else ''})")
    if trial.reached:
        ui.say(f"  It reaches {trial.reached} questions that no rule comes from: where that is many, narrow the triggers.")
    if trial.ordinary:
        lowered = ": it LOWERS ordinary answers, and an approval needs a reason" if trial.lowers_quality else ""
        ui.say(f"  Quality of the {trial.ordinary} ordinary answers among them: {trial.quality_change:+.2f} (of 1){lowered}.")


def say_version(version: CodebookVersion) -> None:
    ui.say(f"Version {version.version} of the codebook is live, {version.sha256[7:19]}: entries {len(version.revisions)}.")
