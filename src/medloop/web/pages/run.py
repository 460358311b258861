"""Training runs: alarms first, then where a run is, its reward, how its weights moved, some answers, and its cost. Read-only."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from medloop import plots
from medloop.api.deps import settings_of
from medloop.api.policy import Caller, allow
from medloop.jobs import keyboard_runs, queue
from medloop.jobs.job_row import unknown
from medloop.settings import Settings
from medloop.teacher import usage
from medloop.web.measures import metric_name, part_name
from medloop.web.render import Figure, show, translator_of
from medloop.web.run_samples import cost_of, samples_of
from medloop.web.told import told
from medloop.web.words import Translator, table

router = APIRouter(prefix="/web", include_in_schema=False)

RunReader = Annotated[Caller, Depends(allow("engineer", "admin", scope="jobs"))]
MAX_RUNS = 20
STEADY = 0.02  # a weight that moves less is not drawn
REWARDED = ("PPO", "GRPO", "IRS")  # what the reward-hacking panel reads
Row = dict[str, Any]


class Sentence(NamedTuple):
    text: str
    language: str


@router.get("/run")
def run_page(request: Request, caller: RunReader, job: Annotated[str, Query(max_length=80)] = "") -> Response:
    """The newest runs, and one of them: the named one, else the newest."""
    settings, t = settings_of(request), translator_of(request)
    filed = queue.page(settings, limit=MAX_RUNS, pools=("train",)).jobs
    typed = keyboard_runs.newest(settings, limit=MAX_RUNS)
    runs = [*((queue.submitted(run.job_id), run) for run in filed), *typed]
    jobs = [run for _, run in sorted(runs, key=lambda run: run[0], reverse=True)][:MAX_RUNS]
    logs = _teacher_log(settings)
    context: Row = {"jobs": jobs, "run": None, "asked": usage.by_job(logs), "today": usage.today(logs)}
    context["typed_ids"] = {run.job_id for _, run in typed}
    if job or jobs:
        context |= _moving(settings, job or jobs[0].job_id, t)
    return show(request, caller, "run.html", **context)


@router.get("/run/{job}/live")
def run_live(request: Request, caller: RunReader, job: str) -> Response:
    """The part of a run's page that moves; no page of its own."""
    answer = show(request, caller, "run_live.html", **_moving(settings_of(request), job, translator_of(request)))
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _teacher_log(settings: Settings) -> Path:
    return settings.workspace.logs / "deepseek_teacher"


def _moving(settings: Settings, job: str, t: Translator) -> Row:
    if typed := keyboard_runs.RUN_ID.fullmatch(job) is not None:
        status, lines = keyboard_runs.status_of(job, settings), keyboard_runs.lines_of(job, settings)
    else:
        status, lines = queue.status_of(job, settings), queue.metrics_of(job, settings)
    if not status.job_id.startswith("train_"):
        raise unknown(status.job_id)
    asked = usage.by_job(_teacher_log(settings)).get(status.job_id)
    context: Row = {"run": status, "objective": status.objective, "alarms": _alarms(lines, t), "missing": _missing(lines, t)}
    context["notes"] = [_in_language(note, t) for note in (status.objective.notes if status.objective else ())]
    context["message"] = told(status.detail.message or "", t)
    context["typed"], context["rewarded"] = typed, status.stage.upper() in REWARDED
    context["part_name"] = partial(metric_name, t=t)
    context |= {"samples": samples_of(settings.workspace.jobs / status.job_id), "cost": cost_of(lines, asked)}
    kl = _kl(lines, t, _target_kl(settings.workspace.jobs / status.job_id))
    drawn = (_rewards(lines, t), _losses(lines, t), kl, _parts(lines, t), _weights(lines, t))
    context["figures"] = [figure for figure in drawn if figure is not None]
    return context


def _target_kl(folder: Path) -> float | None:
    """The KL that the run aims at, from its settings; None where it has none."""
    try:
        target = json.loads((folder / "config.json").read_bytes())["identity"]["config"].get("target_kl")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return float(target) if isinstance(target, int | float) else None


def _alarms(lines: Sequence[Row], t: Translator) -> list[Sentence] | None:
    """What the reward-hacking panel said at the last held-out check; None before it has looked."""
    checks = [extra["alarms"] for line in lines if "alarms" in (extra := line.get("extra") or {})]
    return [_in_language(alarm.removeprefix("now: "), t) for alarm in checks[-1]] if checks else None


def _missing(lines: Sequence[Row], t: Translator) -> list[str]:
    """Parts of the reward that did not score every answer so far, as when the teacher was away."""
    extras: list[Row] = [line.get("extra") or {} for line in lines]
    summaries: list[Row] = [summary for extra in extras if "missing_parts" in (summary := extra.get("held_out") or extra)]
    counts = Counter[str]()
    for summary in summaries:
        counts.update(summary["missing_parts"])
    answers = sum(summary["answers"] for summary in summaries)
    return [t("run_missing_part", part=name, missing=f"{count:,}", answers=f"{answers:,}") for name, count in counts.items()]


def _in_language(text: str, t: Translator) -> Sentence:
    """A sentence of the panel or of the reward, which write English, for this reader."""
    forms = (key for key in table() if key.startswith(("run_alarm_", "run_note_")))
    translated = t.sentence(text, forms, lambda value: part_name(value, t))
    return Sentence(text, "en") if translated is None else Sentence(translated, t.language)


def _rewards(lines: Sequence[Row], t: Translator) -> Figure | None:
    """The reward in training and on the held-out questions with its interval, by iteration."""
    held_out, bands = t("run_reward_held_out"), dict[int, tuple[float, float]]()
    for line in lines:
        interval = ((line.get("extra") or {}).get("held_out") or {}).get("reward_interval")
        if interval:
            bands[line["iter"]] = (interval[0], interval[1])
    columns = {t("run_reward_training"): _column(lines, "METRICS"), held_out: _column(lines, "HELD_OUT")}
    hint = t("run_reward_hint") if not bands else t.sentences(t("run_reward_hint"), t("run_reward_band"))
    known = {name: column for name, column in columns.items() if column}
    return _trend(t("run_reward"), hint, known, t, bands={held_out: bands} if bands else None)


def _parts(lines: Sequence[Row], t: Translator) -> Figure | None:
    """The parts of the reward on the held-out questions, by check: those that moved most, as many as there are colours."""
    summaries = {line["iter"]: (line.get("extra") or {}).get("held_out") or {} for line in lines if line["phase"] == "HELD_OUT"}
    checks = {step: summary["parts"] for step, summary in summaries.items() if summary.get("parts")}
    names = list(dict.fromkeys(name for parts in checks.values() for name in parts))
    columns = {metric_name(name, t): {step: parts[name] for step, parts in checks.items() if name in parts} for name in names}
    return _trend(t("run_parts"), t("run_parts_hint"), _most_moved(columns), t) if len(checks) > 1 else None


def _losses(lines: Sequence[Row], t: Translator) -> Figure | None:
    """The loss of a run that learns from examples, on its training rows and on its dev set, by step."""
    if any(line.get("avg_reward") is not None for line in lines):
        return None  # of a policy that learns from rewards: a lower loss is no better one
    training = {line["iter"]: float(line["loss"]) for line in lines if line.get("loss") is not None}
    dev = {line["iter"]: float(extra["dev_loss"]) for line in lines if "dev_loss" in (extra := line.get("extra") or {})}
    columns = {t("run_reward_training"): training, t("run_loss_dev"): dev}
    return _trend(t("run_loss"), t("run_loss_hint"), {name: column for name, column in columns.items() if column}, t)


def _kl(lines: Sequence[Row], t: Translator, target: float | None) -> Figure | None:
    """How far the policy has moved from its reference, by iteration, and how far it should."""
    column = {line["iter"]: float(extra["kl"]) for line in lines if "kl" in (extra := line.get("extra") or {})}
    return _trend(
        t("run_kl"), t("run_kl_hint"), {"KL": column} if column else {}, t, marks={t("run_kl_target"): target} if target else None
    )


def _weights(lines: Sequence[Row], t: Translator) -> Figure | None:
    """The weights of the reward by iteration, where they are dynamic: missing parts alone move them a little."""
    weights = {line["iter"]: line["weights"] for line in lines if line["phase"] == "METRICS" and line.get("weights")}
    names = list(dict.fromkeys(name for entry in weights.values() for name in entry))
    columns = {metric_name(name, t): {step: entry[name] for step, entry in weights.items() if name in entry} for name in names}
    moved = {name: column for name, column in columns.items() if _range(column) > STEADY}
    return _trend(t("run_weights"), t("run_weights_hint"), _most_moved(columns), t) if moved else None


def _range(column: Mapping[int, float]) -> float:
    return max(column.values()) - min(column.values())


def _most_moved(columns: Mapping[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """As many lines as there are colours, those that moved most."""
    return {name: columns[name] for name in sorted(columns, key=lambda name: -_range(columns[name]))[: len(plots.COLOURS)]}


def _column(lines: Sequence[Row], phase: str) -> dict[int, float]:
    return {line["iter"]: line["avg_reward"] for line in lines if line["phase"] == phase and line.get("avg_reward") is not None}


def _trend(
    title: str,
    caption: str,
    columns: Mapping[str, Mapping[int, float]],
    t: Translator,
    *,
    bands: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
    marks: Mapping[str, float] | None = None,
) -> Figure | None:
    """One line per column; an iteration without a value is a dash in the table."""
    steps = sorted({step for column in columns.values() for step in column})
    if not steps:
        return None

    def cell(name: str, step: int) -> str:
        if step not in columns[name]:
            return "–"
        low_high = (bands or {}).get(name, {}).get(step)
        return f"{columns[name][step]:.3f}" + (f" ({low_high[0]:.3f} – {low_high[1]:.3f})" if low_high else "")

    rows = [(str(step), *(cell(name, step) for name in columns)) for step in steps]
    about = t("list_comma").join(f"{name} {column[max(column)]:.3f}" for name, column in columns.items())
    svg = Markup(
        plots.curves(columns, title=title, bands=bands, marks=marks, about=about, step_name=t("run_iteration").lower())
    )  # plots escapes its texts itself
    return Figure(title, svg, caption, (t("run_iteration"), *columns), rows)
