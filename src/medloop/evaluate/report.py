"""The report: `eval_report.md` for people, `eval_report.json` (EvalReport) for programs; `report_page.py` makes the HTML."""

import re
from collections.abc import Iterator, Mapping, Sequence

from medloop.bootstrap import LEVEL
from medloop.contracts import Difference, EvalReport, Interval, Missing, ModelResult, ScoredSample
from medloop.evaluate.compare import MIN_PAIRS, regressions
from medloop.evaluate.markup import group_name, markdown_table
from medloop.evaluate.report_issues import baseline_rows, critical_headlines, issue_section, metrics_of, suite_section

SHOWN = 600  # characters of a question or an answer
REFERENCE = "reference answers"
CHAIN = "chain"  # the rule that reads the reasoning before an answer

MEANING = """\
## What the numbers mean

- Each cell is a mean with its {level} interval: `0.62 [0.55, 0.70]`. The interval says how far the mean would move if other
  questions of the same kind had been drawn (percentile bootstrap, {resamples} resamples, seed {seed}). It says nothing about
  questions of another kind, nor whether the rule itself is right. If all samples have the same score, the interval has no width.
- `n` counts the samples a metric applies to, `missing` those without a score. Missing is never counted as 0.
- **better** and **worse** compare both models on the same questions: the interval of the paired differences excludes 0. "yes"
  under *separated* means that the models' own intervals do not overlap. *Also after correction* means that the difference holds
  for all comparisons of this report together (Holm).
{asked}- {penalties}
- *{reference}* are the answers in the data, scored by the same rules: what imitation alone could reach.
"""


def render(report: EvalReport, worse: Mapping[str, Sequence[tuple[ScoredSample, ScoredSample]]] | None = None) -> str:
    """The Markdown of a report; `worse` holds, per model, samples that lost most against the first model."""
    config, penalties = report.config, set(report.config.get("penalties", ()))
    bad = ", ".join(f"`{name}`" for name in sorted(penalties))
    about = f"Lower is better for {bad}; higher is better for the others." if bad else "Higher is better for every metric."
    meaning = MEANING.format(
        level=level_of(report), resamples=config.get("resamples"), seed=config.get("seed"), penalties=about, reference=REFERENCE,
        asked=_asked(report),
    )  # fmt: skip
    parts = [
        f"# Evaluation: {_line(report.name)}\n",
        f"{report.timestamp:%Y-%m-%d %H:%M} UTC. Report {report.content_id()[:19]}….\n",
        *(f"**{_line(sentence)}**\n" for sentence in headlines(report)),
        f"{_line(judged_by(report))}\n",
        *_regression_section(report),
        "## Results\n",
        *(_split_table(report, split) for split in splits_of(report)),
        *_cut_off(report),
        *suite_section(report),
        *issue_section(report),
        *_difference_section(report),
        meaning,
        *_part_section(report),
        *(_worst_section(result) for result in report.results if result.label != REFERENCE),
        *(_worse_section(label, pairs) for label, pairs in (worse or {}).items() if pairs),
        _inputs_section(report),
    ]
    return "\n".join(parts)


def level_of(report: EvalReport) -> str:
    """`95 %`; several declared looks at the precision make it more."""
    return f"{100 * float(report.config.get('level', LEVEL)):.4g} %"


def _asked(report: EvalReport) -> str:
    config = report.config
    if "looks" not in config:
        return ""
    looks = ", ".join(map(str, config["looks"]))
    return (
        f"- The precision of {config['precision']:g} was looked at after {looks} questions, and {config['asked']} were asked. "
        f"The intervals are those of {len(config['looks'])} looks, so that all of them hold together with 95 %.\n"
    )


def cell(interval: Interval | None) -> str:
    """`0.62 [0.55, 0.70]`, or a dash when there is nothing to average; a single case says nothing about others."""
    if interval is None or interval.mean is None:
        return "–"
    if interval.n == 1:
        return f"{interval.mean:.2f} (1 case)"
    return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def counts(result: ModelResult, split: str) -> str:
    """`emergency 38, others 100` samples, and how many are missing."""
    metrics = result.metrics[split]
    missing = max((interval.missing for interval in metrics.values()), default=0)
    return ", ".join(f"{name} {interval.n}" for name, interval in metrics.items()) + (f"; {missing} missing" if missing else "")


def splits_of(report: EvalReport) -> list[str]:
    return list(dict.fromkeys(split for result in report.results for split in result.metrics))


def headlines(report: EvalReport) -> list[str]:
    """Alarms and new critical failures first; then one sentence per model against the first.

    What got worse in any stratum is part of it.
    """
    pairs = dict.fromkeys((difference.first, difference.second) for difference in report.differences)
    alarms = [f"ALARM {label}: {' '.join(alarms)}" for label, alarms in report.config.get("alarms", {}).items()]
    return [*alarms, *critical_headlines(report), *(_headline(report, *pair) for pair in pairs)]


TRUST_WORDS = {"trusted": "trusted", "untrusted": "UNTRUSTED, and accepted", "unmeasured": "not measured"}


def judged_by(report: EvalReport) -> str:
    """What judged, and how far people agree with it."""
    rows = report.config.get("trust", {})
    judges = [f"{name} {version} ({_trust(rows.get(name, {}))})" for name, version in report.rules.items()]
    suites = [f"{suite.suite} {suite.version}" for suite in report.suites]
    examined = f"Examined by {', '.join(suites)}." if suites else ""
    if (counts := report.config.get("judged_by_people")) is not None:
        answers = ", ".join(f"{count} of {label}" for label, count in counts.items())
        examined = f"{examined} Answers that people have judged: {answers}.".strip()
    if not judges:
        return examined
    sentence = f"Judged by {', '.join(judges)}. Not measured means that nobody has compared it with people's labels."
    return " ".join(part for part in (sentence, _without_chain(report), examined) if part)


def _without_chain(report: EvalReport) -> str:
    """Where no answer reasons aloud, all are 0 by the rule of chains, also the reference answers."""
    if not report.config.get("no_chain"):
        return ""
    others = " ".join(f"--rule {name}" for name in report.rules if name != CHAIN) or "--rule NAME"
    return f"No answer has a chain of thought, so '{CHAIN}' says nothing: leave it out with {others}."


def _trust(row: Mapping[str, str]) -> str:
    word = TRUST_WORDS[row.get("verdict", "unmeasured")]
    return f"{word}: {row['reason']}, card {row['card']}" if row.get("card") else word


def _headline(report: EvalReport, first: str, label: str) -> str:
    """Worse is whatever looks worse; better is only what holds after the correction for all comparisons of the report."""
    mine = [difference for difference in report.differences if (difference.first, difference.second) == (first, label)]
    better, worse = [d for d in mine if d.verdict == "better" and d.holm], [d for d in mine if d.verdict == "worse"]
    overall = {(True, False): "better overall", (False, True): "WORSE overall", (True, True): "better and WORSE overall"}
    sentence = f"{label} is {overall.get((bool(better), bool(worse)), 'not clearly different overall')}"
    if better and not worse and label in report.config.get("alarms", {}):
        sentence = f"{label} cannot be called better because of the alarm"
    details = [f"better on {', '.join(map(_change, better))}"] if better else []
    details += [f"WORSE on {', '.join(map(_change, worse))}"] if worse else []
    sentence += f" ({'; '.join(details)})" if details else ""
    if losses := regressions(report.stratum_differences, first, label):
        by_stratum: dict[str, list[Difference]] = {}
        for row in losses:
            by_stratum.setdefault(group_name(row.stratum or ""), []).append(row)
        places = [f"{name} ({', '.join(map(_change, rows))})" for name, rows in by_stratum.items()]
        sentence += f", WORSE in: {'; '.join(places)}"
    return f"Against {first}, {sentence}."


def _change(difference: Difference) -> str:
    """`gold risk 0.04 → 0.31`."""
    numbers = (
        "" if difference.before is None or difference.after is None else f" {difference.before:.2f} → {difference.after:.2f}"
    )
    return f"{difference.split} {difference.metric}{numbers}"


def strata_note(report: EvalReport) -> str:
    """How many comparisons the strata are, what chance alone would do, and which strata are too small to judge."""
    rows = report.stratum_differences
    tested = [row for row in (*report.differences, *rows) if row.difference.n >= MIN_PAIRS]
    small = dict.fromkeys(f"{row.split} {group_name(row.stratum or '')}" for row in rows if 0 < row.difference.n < MIN_PAIRS)
    note = (
        f"{len(tested)} comparisons of models, splits, strata and languages were made. Where nothing changed, about "
        f"{len(tested) * 0.025:.1f} of them would still look worse by chance. All are listed, because a missed regression costs "
        'more than a second look; "also after correction" says which ones hold for all comparisons together (Holm).'
    )
    return note + (
        f" Not judged, because they have fewer than {MIN_PAIRS} pairs in a metric: {', '.join(small)}." if small else ""
    )


def regression_rows(report: EvalReport) -> list[list[str]]:
    """A row per stratum and metric that got worse."""
    return [
        [f"{d.second} − {d.first}", group_name(d.stratum or ""), d.split, d.metric,
         _change(d).removeprefix(f"{d.split} {d.metric} "), signed(d.difference), str(d.difference.n), "yes" if d.holm else "no"]
        for pair in dict.fromkeys((difference.first, difference.second) for difference in report.differences)
        for d in regressions(report.stratum_differences, *pair)
    ]  # fmt: skip


REGRESSIONS = ("models", "stratum", "split", "metric", "means", "paired difference", "pairs", "also after correction")


def _regression_section(report: EvalReport) -> Iterator[str]:
    if not report.stratum_differences:
        return
    rows = [[_line(cell) for cell in row] for row in regression_rows(report)]
    body = markdown_table(REGRESSIONS, rows) if rows else "Nothing got clearly worse in any stratum or language."
    yield f"## Worse in a stratum\n\n{body}\n\n{strata_note(report)}\n"


def _split_table(report: EvalReport, split: str) -> str:
    names = metrics_of(report, split)
    head = ["model", *(_headed(report, name) for name in names), "n"]
    rows = [
        [f"`{_line(result.label)}`", *(cell(result.metrics[split].get(name)) for name in names), counts(result, split)]
        for result in report.results
        if split in result.metrics
    ]
    rows += [[f"*{_line(name)}*", *cells, ""] for name, cells in baseline_rows(report, split)]
    return f"### {split}\n\n{markdown_table(head, rows)}\n"


def _cut_off(report: EvalReport) -> Iterator[str]:
    for label, cut in report.config.get("cut_off", {}).items():
        limit = report.config.get("max_new_tokens")
        yield f"{cut} answers of `{_line(label)}` reached the limit of {limit} tokens and are scored as they are.\n"


def _headed(report: EvalReport, name: str) -> str:
    return f"{name} ↓" if name in report.config.get("penalties", ()) else f"{name} ↑"


def _difference_section(report: EvalReport) -> Iterator[str]:
    if not report.differences:
        return
    rows = [
        [d.split, d.metric, f"`{_line(d.second)}` − `{_line(d.first)}`", signed(d.difference), str(d.difference.n),
         "yes" if d.separated else "no", f"**{d.verdict}**" if d.verdict != "no clear difference" else d.verdict,
         "yes" if d.holm else "no"]
        for d in report.differences
    ]  # fmt: skip
    head = ["split", "metric", "difference", "mean", "pairs", "separated", "verdict", "also after correction"]
    yield f"## Differences on the same questions\n\n{markdown_table(head, rows)}\n"


def signed(interval: Interval) -> str:
    if interval.mean is None:
        return "–"
    return f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def _part_section(report: EvalReport) -> Iterator[str]:
    yield "## By risk stratum and language\n"
    for split in splits_of(report):
        names = metrics_of(report, split)
        rows = [
            [part, f"`{_line(result.label)}`", *(cell(metrics.get(name)) for name in names), str(_most(metrics))]
            for part in sorted({part for result in report.results for part in result.by_stratum.get(split, {})})
            for result in report.results
            if _most(metrics := result.by_stratum.get(split, {}).get(part, {}))
        ]
        yield f"### {split}\n\n{markdown_table(['part', 'model', *(_headed(report, name) for name in names), 'n'], rows)}\n"


def _most(metrics: Mapping[str, Interval]) -> int:
    return max((interval.n for interval in metrics.values()), default=0)


def _worst_section(result: ModelResult) -> str:
    if not result.worst:
        return f"## Worst answers of `{_line(result.label)}`\n\nNone: every answer is flawless by these rules.\n"
    shown = "\n".join(_quoted(sample) for sample in result.worst)
    return f"## Worst answers of `{_line(result.label)}`\n\n{shown}"


def _worse_section(label: str, pairs: Sequence[tuple[ScoredSample, ScoredSample]]) -> str:
    shown = "\n".join(f"{_quoted(after)}\nBefore:\n\n{_quote(before.answer)}\n\n{_reasons(before)}\n" for before, after in pairs)
    return f"## Answers that got worse with `{_line(label)}`\n\n{shown}"


def _quoted(sample: ScoredSample) -> str:
    head = f"**{sample.split}** {sample.prompt_id[:19]}…"
    return f"{head}\n\n{_quote(sample.question)}\n\n{_quote(sample.answer)}\n\n{_reasons(sample)}\n"


def _reasons(sample: ScoredSample) -> str:
    lines = []
    for score in sample.scores:
        if isinstance(score, Missing):
            lines.append(f"- {score.name}: missing ({_line(score.reason)})")
        elif score.applies:
            lines.append(f"- {score.name}: {score.value:.2f}, {_line(score.reason)}")
    return "\n".join(lines)


def _quote(text: str) -> str:
    """A block quote in which nothing of the text is Markdown or HTML; long text is cut in the middle."""
    if not text.strip():
        return "> *(empty)*"
    if len(text) > SHOWN:
        text = f"{text[: SHOWN * 2 // 3].rstrip()} … {text[-SHOWN // 3 :].lstrip()}"
    return "\n".join(f"> {escape(line)}" for line in text.splitlines() if line.strip())


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", text)


def _line(text: str) -> str:
    """One line, safe inside a table or a code span."""
    return " ".join(text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").split())


def _inputs_section(report: EvalReport) -> str:
    rules = "\n".join(f"- rule `{name}` version `{version}`" for name, version in report.rules.items())
    inputs = "\n".join(f"- {_line(name)}: `{value}`" for name, value in report.inputs.items())
    config = "\n".join(f"- {name}: `{value}`" for name, value in report.config.items() if name != "trust")
    suites = "".join(f"- suite `{suite.suite}` version `{suite.version}`\n" for suite in report.suites)
    files = "".join(f"- {_line(name)}: `{sha}`\n" for suite in report.suites for name, sha in suite.inputs.items())
    return f"## Inputs, rules and settings\n\n{inputs}\n{rules}\n{suites}{files}{config}\n"
