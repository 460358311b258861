"""README.md of a trained model: how to use it, what went in, and its numbers under names that people read. No torch."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from medloop.contracts import TrainingCard

INPUTS = {
    "train": "Training data", "dev": "Dev data", "pairs": "Preference pairs", "preference": "Preference data",
    "prompts": "Training prompts", "held_out": "Held-out prompts", "adapter": "Start adapter", "reference": "Reference model",
    "reference adapter": "Reference adapter",
}  # fmt: skip
BACKENDS = {
    "fast": "the fast decoder", "cuda_graph": "the fast decoder in a CUDA graph", "vllm": "a vLLM server",
    "fast_bfloat16": "the fast decoder, which multiplied in bfloat16",
    "mixed": "the fast decoder, and the library's forward pass where texts were too long for it",
    "library": "the library's forward pass, on a GPU many times slower than the fast decoder",
}  # fmt: skip
UPDATES = {
    "fast": "our own forward pass", "graph": "our own forward pass as CUDA graphs", "library": "the library's forward pass",
    "mixed": "our own forward pass, and the library's where texts were too long for it",
    "direct": "the library's forward pass, with the output layer on answer tokens only",
}  # fmt: skip
TRAINED_BY = {
    "fast": "medloop's fast code", "graph": "medloop's fast code with CUDA graphs", "library": "the transformers library",
    "mixed": "medloop's fast code, and by the transformers library where texts were too long for it",
    "direct": "the transformers library, without the parts that do not matter for the answers",
}  # fmt: skip
# A row of the table: its label, the metrics it shows, and how. A row is left out where one of its metrics is missing.
ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Steps", ("steps",), "{:,.0f}"),
    ("Learning rate", ("learning_rate",), "{:.3g}"),
    ("Tokens", ("tokens",), "{:,.0f}"),
    ("Training examples", ("examples",), "{:,.0f}"),
    ("Training pairs", ("pairs",), "{:,.0f}"),
    ("Training rows", ("rows",), "{:,.0f}"),
    ("Training questions", ("questions",), "{:,.0f}"),
    ("Training loss, first → last", ("train_loss_first", "train_loss_last"), "{:.4f} → {:.4f}"),
    ("Dev loss, before → after", ("dev_loss_before", "dev_loss_after"), "{:.4f} → {:.4f}"),
    ("Held-out loss, before → after", ("test_loss_before", "test_loss_after"), "{:.4f} → {:.4f}"),
    ("Held-out pairs", ("test_pairs",), "{:,.0f}"),
    ("Held-out rows", ("test_rows",), "{:,.0f}"),
    ("Training accuracy", ("train_accuracy",), "{:.1%}"),
    (
        "Held-out accuracy (95 % CI)",
        ("test_accuracy", "test_accuracy_low", "test_accuracy_high"),
        "{:.1%} [{:.1%}, {:.1%}]",
    ),
    ("Baseline: longer answer", ("baseline_longer",), "{:.1%}"),
    ("Baseline: shorter answer", ("baseline_shorter",), "{:.1%}"),
    ("Baseline: bag of words", ("baseline_bag_of_words",), "{:.1%}"),
    ("Calibration error", ("calibration_error",), "{:.3f}"),
    ("Brier score", ("brier",), "{:.3f}"),
    ("Score: mean and standard deviation of the logit", ("score_mean", "score_std"), "{:+.3f}, {:.3f}"),
    ("Held-out margin", ("test_margin",), "{:+.3f}"),
    (
        "Held-out implicit reward, chosen and rejected",
        ("test_reward_chosen", "test_reward_rejected"),
        "{:+.3f}, {:+.3f}",
    ),
    (
        "Chosen answer is the likelier one, before → after",
        ("test_likelier_before", "test_likelier_after"),
        "{:.1%} → {:.1%}",
    ),
    ("Liked answer ranks higher (AUC), before → after", ("test_auc_before", "test_auc"), "{:.1%} → {:.1%}"),
    ("Reward, first → last", ("reward_first", "reward_last"), "{:.3f} → {:.3f}"),
    (
        "Held-out gain (95 % CI)",
        ("held_out_gain", "held_out_gain_low", "held_out_gain_high"),
        "{:+.3f} [{:+.3f}, {:+.3f}]",
    ),
    ("Held-out questions", ("held_out",), "{:,.0f}"),
    ("KL to reference", ("kl_last",), "{:.3f} nats per answer"),
    ("Sampler's distance from the policy", ("drift_last",), "{:.2g} nats per token"),
    ("Answer length, first → last", ("length_first", "length_last"), "{:.1f} → {:.1f} tokens"),
    ("Answers without a score from the teacher", ("missing_teacher", "scored_answers"), "{:,.0f} of {:,.0f}"),
    (
        "Teacher's rankings in opposite orders: pairs that agree",
        ("teacher_agreement", "teacher_groups_checked"),
        "{:.0%} ({:,.0f} groups)",
    ),
    ("Skipped steps", ("skipped_steps",), "{:,.0f}"),
    ("Alarms of the audit", ("alarms",), "{:,.0f}"),
    ("Published policy is of step", ("published_step",), "{:,.0f}"),
)


def metric_rows(metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """(label, value) of each row; a metric that no row shows comes last, under its own name."""
    shown: set[str] = set()
    for label, names, form in ROWS:
        if all(name in metrics for name in names):
            shown.update(names)
            yield label, form.format(*(metrics[name] for name in names))
    for name in metrics:
        if name not in shown:
            yield name.replace("_", " ").capitalize(), f"{metrics[name]:,.6g}"


def alarm_sentence(card: TrainingCard) -> str | None:
    """The alarms of the audit in an RL run and what became of it; None without one."""
    if not card.alarms:
        return None
    more = f" and {len(card.alarms) - 1} more (report.html)" if len(card.alarms) > 1 else ""
    published = int(card.metrics.get("published_step", 0))
    outcome = {
        "stopped": f"The run was stopped, and the result is the policy of step {published}, the last one without an alarm.",
        "undone": "The steps with an alarm were undone.",
        "warned": "The run went on. Do not use its result before you have read report.html.",
    }
    action = outcome[card.alarm_action] if card.alarm_action else "It was so before training, too."
    return f"ALARM: {card.alarms[0].rstrip('.')}{more}. {action}"


def result_sentence(card: TrainingCard) -> str:
    """An alarm first, then what was missing in the reward, then the held-out reward."""
    return " ".join(sentence for sentence in (alarm_sentence(card), card.degraded, held_out_sentence(card)) if sentence)


def held_out_sentence(card: TrainingCard) -> str:
    """What an RL run changed on held-out questions; a fall is said in capitals, with what to do about it.

    A run that was stopped says so before that.
    """
    if card.stopped:
        return f"{card.stopped} {held_out_sentence(card.model_copy(update={'stopped': None}))}"
    if card.held_out_verdict is None:
        return "No gain shown: no held-out questions were measured."
    gain, low, high = (card.metrics[f"held_out_gain{end}"] for end in ("", "_low", "_high"))
    interval = f"95 % CI {low:+.3f} to {high:+.3f}, {card.metrics['held_out']:,.0f} questions"
    if card.held_out_verdict == "fell":
        return f"The held-out reward FELL by {-gain:.3f} ({interval}). Use the model that this run started from instead."
    if card.held_out_verdict == "no_gain_shown":
        return f"No gain shown: the held-out reward changed by {gain:+.3f} ({interval}), and the interval contains 0."
    alone = "" if "audit_judge" in card.metrics else " Only the reward says so: no second judge has read the answers."
    return f"The held-out reward rose by {gain:.3f} ({interval}).{alone}"


def readme(card: TrainingCard, target: Path, about: Sequence[str] = ()) -> str:
    """The page for people; `target` is where the result lies, `about` are more lines on what it is."""
    share = card.trainable_parameters / max(card.total_parameters, 1)
    kind = "All weights" if card.config.get("full") else f"A LoRA adapter of rank {card.config.get('lora_r')}"
    if card.config.get("encoder") in ("frozen", "none"):
        kind = "An ensemble of heads, no weights"
    shown = card.held_out_verdict or card.stopped
    sentences = (alarm_sentence(card), card.degraded, held_out_sentence(card) if shown else None, *card.warnings)
    verdict = [f"**{sentence}**\n" for sentence in sentences if sentence]
    lines = [
        f"# {card.name}",
        "",
        *verdict,
        f"{kind} for `{card.base}`, trained by `medloop train {card.method}` on {card.finished:%Y-%m-%d}.",
        "",
        "```",
        *_evaluation(card, target),
        f"medloop {usage(card, target, _from_workspace(target))}",
        "```",
        "",
        *about,
        "| | |",
        "|---|---|",
        f"| Base model | `{card.base}` (`{card.base_sha256[:19]}…`) |",
        *(f"| {INPUTS.get(role, role)} | `{digest[:19]}…` |" for role, digest in sorted(card.inputs.items())),
        f"| Trained parameters | {card.trainable_parameters:,} of {card.total_parameters:,} ({share:.1%}) |",
        f"| Seed | {card.seed} |",
        *([f"| Answers sampled by | {BACKENDS[card.backend]} |"] if card.backend else []),
        *([f"| Updates computed by | {UPDATES[card.update_backend]} |"] if card.update_backend else []),
        *(f"| {label} | {value} |" for label, value in metric_rows(card.metrics)),
        "",
        "`card.json` has every setting and version, `metrics.jsonl` one line per step, `MANIFEST.json` the hash of each file.",
        "",
        "Not a medical device. Evaluate it before anybody relies on it.",
    ]
    return "\n".join(lines) + "\n"


def usage(card: TrainingCard, target: Path, shown: Callable[[Path], str]) -> str:
    """The command that uses the result, without `medloop`; `shown` writes a path as it is typed there."""
    home, name = target.parents[2], shlex.quote(shown(target))
    files = [home / "data/processed/test.jsonl", *(Path(str(card.config[k])) for k in ("data", "prompts") if card.config.get(k))]
    questions = next((shlex.quote(shown(home / path)) for path in files if (home / path).is_file()), "QUESTIONS.jsonl")
    base = shlex.quote(card.base)
    if card.method == "reward":
        return f"reward score {questions} --set parts.model.weight=0.5 --set parts.model.given=true --with model={name}"
    model = f"--model {name}" if card.config.get("full") else f"--model {base} --adapter {name}"
    return f"predict {questions} --output answers.jsonl {model}"


def _evaluation(card: TrainingCard, target: Path) -> list[str]:
    """The command that compares the result with its base; a reward model is not compared so."""
    if card.method == "reward":
        return []
    folder = _from_workspace(target)(target)
    result = folder if card.config.get("full") else f"{card.base}+{folder}"
    return [f"medloop eval --model {shlex.quote(card.base)} --model {shlex.quote(result)}"]


def _from_workspace(target: Path) -> Callable[[Path], str]:
    """Paths as they are typed in the workspace, which is three folders above a result."""
    home = target.parents[2]
    return lambda path: str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
