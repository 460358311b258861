"""`report.html` of an RL run: the result on held-out questions and alarms first, then curves, answers before and after, numbers.

One file without scripts, for light and dark. Answers are scrubbed, as `held_out.jsonl` stores them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from medloop import plots
from medloop.contracts import Missing, Reward, Sample, Score, TrainingCard
from medloop.train.rl.checks import Answers
from medloop.train.rl.curves import Series, Steps, panels_of
from medloop.train.runs.model_card import alarm_sentence, held_out_sentence, metric_rows

SHOWN_EACH = 3  # answers that gained most, and as many that lost most
STYLE = """:root{color-scheme:light dark;--ink:#17202b;--dim:#566270;--back:#fff;--soft:#f3f5f8;--line:#d4d8de;--bad:#a61b1b}
@media(prefers-color-scheme:dark){:root{--ink:#e9eef4;--dim:#9aa6b5;--back:#141a22;--soft:#1e2530;--line:#3a4350;--bad:#ff8a80}}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1rem;background:var(--back);color:var(--ink)}
h1{overflow-wrap:anywhere}h3{font-size:.95rem;margin:.4rem 0}.dim{color:var(--dim);font-size:.9rem;overflow-wrap:anywhere}
.alarm{border-left:.3rem solid var(--bad);padding:.2rem .9rem;background:var(--soft)}.alarm strong{color:var(--bad)}
.plots,.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr));gap:1rem}
figure{margin:0;min-width:0}svg{width:100%;height:auto}.value{font-size:1.6rem;font-weight:600;margin:0}
article{border:1px solid var(--line);border-radius:.5rem;padding:.8rem;margin:1rem 0}
.text{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);border-radius:.35rem;padding:.5rem .7rem;margin:.3rem 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}summary{cursor:pointer;color:var(--dim);font-size:.9rem}
th,td{text-align:left;padding:.2rem .9rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}"""


@dataclass(frozen=True)
class RunReport:
    """Everything the page shows. `checks` are the answers of the held-out checks by step, `history` the dynamic weights."""

    card: TrainingCard
    table: Steps
    alarms: Sequence[str] | None
    checks: Mapping[int, Answers]
    notes: Sequence[str] = ()
    history: Mapping[str, Any] | None = None

    def page(self) -> str:
        card = self.card
        title = escape(f"{card.method.upper()} run {card.name}")
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        steps = [str(row["step"]) for row in self.table]
        figures = "".join(_figure(name, steps, series) for name, series in panels_of(self.table).items())
        audit = _alarms(self.alarms, alarm_sentence(card))
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p class="dim">Base model {escape(card.base)}; {len(self.table)} steps with numbers. Not a medical device.</p>
{audit if self.alarms else ""}
{f'<p class="alarm" role="alert"><strong>{escape(card.degraded)}</strong></p>' if card.degraded else ""}
<p{' class="alarm"' if card.held_out_verdict == "fell" or card.stopped else ""}>{escape(held_out_sentence(card))}</p>
{"".join(f'<p class="alarm">{escape(warning)}</p>' for warning in card.warnings)}
{"" if self.alarms else audit}
{f"<ul>{notes}</ul>" if notes else ""}
<h2>Curves</h2><div class="plots">{figures}</div>
{_weights(self.history) if self.history else ""}
{_samples(self.checks)}
<h2>Numbers</h2>{_table(("", ""), metric_rows(card.metrics))}
<p class="dim">rewards.csv: a row per step. samples.jsonl: answers of each step. held_out.jsonl: all answers of the checks.</p>
</body></html>
"""


def _alarms(alarms: Sequence[str] | None, summary: str | None) -> str:
    if alarms is None:
        return '<p class="dim">The reward-hacking panel has not looked at this run.</p>'
    if not alarms:
        return "<p>The reward-hacking panel raised no alarms.</p>"
    first = f"<p>{escape(summary)}</p>" if summary else ""
    rows = "".join(f"<li><strong>Alarm:</strong> {escape(alarm)}</li>" for alarm in alarms)
    return f'<div class="alarm" role="alert">{first}<ul>{rows}</ul></div>'


def _figure(title: str, steps: Sequence[str], series: Series) -> str:
    """Lines over the steps and the same numbers as a table; where each line is one point, the values."""
    series = {name: values for name, values in series.items() if any(value is not None for value in values)}
    if not series:
        return ""
    known = {name: [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
             for name, values in series.items()}  # fmt: skip
    if all(len(points) == 1 for points in known.values()):
        values = "".join(
            f'<p class="value">{points[0][1]:.4g}</p><p class="dim">{escape(name)}, step {points[0][0]}</p>'
            for name, points in known.items()
        )
        return f"<figure><h3>{escape(title)}</h3>{values}</figure>"
    about = ", ".join(f"{name} {points[0][1]:.3g} to {points[-1][1]:.3g}" for name, points in known.items())
    rows = [
        (step, *("–" if values[n] is None else f"{values[n]:.4g}" for values in series.values())) for n, step in enumerate(steps)
    ]
    table = f"<details><summary>{escape(title)} as a table</summary>{_table(('step', *series), rows)}</details>"
    curves = {name: {int(step) if step.isdigit() else 0: value for step, value in points} for name, points in known.items()}
    return f"<figure>{plots.curves(curves, title=title, about=about)}{table}</figure>"


def _weights(history: Mapping[str, Any]) -> str:
    """How dynamic weights moved: a line per reward, and a table with the mean of each reward in a round."""
    start, rounds = history["config"]["initial_weights"], history["rounds"]
    steps = ["start", *(str(number) for number in range(1, len(rounds) + 1))]
    series: Series = {name: [start[name], *(entry["weights"][name] for entry in rounds)] for name in start}
    means: Series = {f"mean {name}": [None, *(entry["means"].get(name) for entry in rounds)] for name in start}
    figures = _figure("Weight of each reward in the next round", steps, series)
    figures += _figure("Mean of each reward in a round", steps, means) if rounds else ""
    return f'<h2>Weights of the reward</h2><div class="plots">{figures}</div>'


def _samples(checks: Mapping[int, Answers]) -> str:
    """The answers that lost and gained most between the first and the last held-out check, side by side."""
    if len(checks) < 2:
        return ""
    first, last = min(checks), max(checks)
    before = {answer[0].id: answer[:2] for answer in reversed(checks[first])}  # of several answers the first one
    after = {answer[0].id: answer[:2] for answer in reversed(checks[last])}
    pairs = [(*before[id_], *after[id_]) for id_ in reversed(after) if id_ in before]
    known = [pair for pair in pairs if pair[1].value is not None and pair[3].value is not None]
    ranked = sorted(known, key=lambda pair: (pair[3].value or 0.0) - (pair[1].value or 0.0))
    shown = ranked if len(ranked) <= 2 * SHOWN_EACH else [*ranked[:SHOWN_EACH], *ranked[-SHOWN_EACH:]]
    articles = "".join(
        f'<article><h3>Question</h3><div class="text">{escape(old.question)}</div><div class="pair">'
        f"{_answer(f'Before (step {first})', old, was)}{_answer(f'After (step {last})', new, now)}</div></article>"
        for old, was, new, now in shown
    )
    about = "Held-out questions whose reward fell most come first, then those whose reward rose most. Identifiers are removed."
    return f'<h2>Answers before and after</h2><p class="dim">{about}</p>{articles}' if shown else ""


def _answer(title: str, sample: Sample, reward: Reward) -> str:
    rows = [(part.name, _value(part), part.reason) for part in reward.parts]
    parts = f"<details><summary>Parts of the reward</summary>{_table(('part', 'value', 'reason'), rows)}</details>"
    value = "missing" if reward.value is None else f"{reward.value:.3f}"
    text = escape(sample.answer or "(no answer)")
    return f'<div><h3>{escape(title)}: reward {value}</h3><div class="text">{text}</div>{parts}</div>'


def _value(part: Score | Missing) -> str:
    if isinstance(part, Missing):
        return "missing"
    return f"{part.value:.3f}" if part.applies else "does not apply"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>" if any(head) else ""
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    label = escape(", ".join(head) if any(head) else "numbers")
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{titles}{lines}</table></div>'
