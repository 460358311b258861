"""Our log-likelihoods beside those of lm-evaluation-harness, which runs by its own command in an environment of its own.

    make lm-eval-env && make test-lm-eval
    make test-lm-eval QUESTIONS=cmexam.jsonl.gz:pubmedqa.jsonl.gz      # 200 questions of each of these files

Without files the questions are made from the embedded corpus. The harness builds its prompts itself, from templates like its own tasks.
"""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from medloop.contracts import ModelRef, Score
from medloop.contracts.suite import LogLikelihood, SuiteConfig
from medloop.embedded.table import conditions
from medloop.evaluate.suites.choice_file import ChoiceQuestion
from medloop.evaluate.suites.multiple_choice import MultipleChoice, letter_choices, text_choices
from medloop.models.find import resolve_chat_model
from medloop.models.load import load
from medloop.models.log_likelihood import log_likelihoods
from medloop.settings import Settings
from medloop.testing.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow
PYTHON = Path(os.environ.get("LM_EVAL_PYTHON") or Path(__file__).parents[3] / ".venv-lm-eval/bin/python")
LISTED = "{% for letter in letters %}{{ letter }}. {{ options[loop.index0] }}\n{% endfor %}"
TEMPLATES = {  # language and form: prompt, and what stands between it and a choice
    ("en", "text"): ("{% if context %}Abstract: {{ context }}\n{% endif %}Question: {{ question }}\nAnswer:", " "),
    ("en", "letter"): (
        "{% if context %}Abstract: {{ context }}\n{% endif %}Question: {{ question }}\n" + LISTED + "Answer:",
        " ",
    ),
    ("zh", "text"): ("{% if context %}摘要：{{ context }}\n{% endif %}问题：{{ question }}\n答案：", ""),
    ("zh", "letter"): ("{% if context %}摘要：{{ context }}\n{% endif %}问题：{{ question }}\n" + LISTED + "答案：", ""),
}


def made_questions(path: Path) -> Path:
    """Which advice belongs to a complaint? 200 questions in Chinese and English, with options of very different lengths."""
    generator, rows = random.Random(7), []
    for number in range(200):
        language = "zh" if number % 2 else "en"
        right, *others = generator.sample(conditions(language), 4)
        options = [generator.choice([c.advice[0], c.medicine, c.danger]) for c in (right, *others)]
        order = generator.sample(range(4), 4)
        asks = f"{right.symptoms[0]}，怎么办？" if language == "zh" else f"What helps against {right.symptoms[0]}?"
        rows.append(
            {
                "id": str(number),
                "question": asks,
                "options": [options[place] for place in order],
                "answer_index": order.index(0),
                "lang": language,
            }
        )
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def run_harness(folder: Path, model: Path, questions: list[ChoiceQuestion], language: str, form: str) -> list[dict[str, Any]]:
    """What `lm_eval` writes about every question, in order."""
    documents = [
        {
            "number": number,
            "question": q.question,
            "options": list(q.options),
            "letters": list(q.letters),
            "answer": q.answer,
            "context": "\n".join(q.contexts),
        }
        for number, q in enumerate(questions)
    ]
    folder.mkdir(parents=True)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in documents), encoding="utf-8")
    prompt, delimiter = TEMPLATES[language, form]
    task = {
        "task": "medloop_choice", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test",
        "output_type": "multiple_choice", "doc_to_text": prompt, "doc_to_choice": "options" if form == "text" else "letters",
        "doc_to_target": "answer", "target_delimiter": delimiter,
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_bytes")],
    }  # fmt: skip
    (folder / "task.yaml").write_text(yaml.safe_dump(task, allow_unicode=True), encoding="utf-8")
    command = [
        str(PYTHON), "-m", "lm_eval", "--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--tasks", "medloop_choice",
        "--include_path", str(folder), "--device", "cpu", "--batch_size", "8", "--log_samples", "--output_path", str(folder / "out"),
    ]  # fmt: skip
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    (samples,) = (folder / "out").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: int(row["doc"]["number"]))


def question_files(tmp_path: Path) -> list[Path]:
    named = os.environ.get("LM_EVAL_QUESTIONS", "")
    return [Path(name) for name in named.split(":")] if named else [made_questions(tmp_path / "made.jsonl")]


def test_likelihoods_and_accuracies_are_those_of_lm_evaluation_harness(tmp_path: Path):
    if not PYTHON.is_file():
        pytest.skip(f"{PYTHON} does not exist, so nothing was compared; make the environment with: make lm-eval-env")
    settings = Settings(home=tmp_path, device="cpu", threads=1)
    loaded, folder = (
        load(ModelRef(base="embedded:tiny"), settings),
        resolve_chat_model(ModelRef(base="embedded:tiny"), settings).folder,
    )
    for path in question_files(tmp_path):
        suite = MultipleChoice(path)
        drawn = {case.id for case in suite.run(ScriptedModel(), SuiteConfig(n=200), lambda done, total: None).cases}
        questions = [question for question in suite.file.questions if question.id in drawn]
        for language in sorted({question.language for question in questions}):
            for form, choices_of in (("text", text_choices), ("letter", letter_choices)):
                asked = [q for q in questions if q.language == language and (form == "text" or q.letters)]
                if not asked:
                    continue
                rows = run_harness(tmp_path / "runs" / path.name / f"{language}_{form}", folder, asked, language, form)
                choices = [choices_of(question) for question in asked]
                pairs = [(choice.prompt, text) for choice in choices for text in choice.continuations]
                ours = dict(zip(pairs, log_likelihoods(loaded, pairs), strict=True))
                theirs = {
                    (choice.prompt, text): (float(response[0][0]), str(response[0][1]) == "True")
                    for choice, row in zip(choices, rows, strict=True)
                    for text, response in zip(choice.continuations, row["resps"], strict=True)
                }
                largest = max(abs(ours[pair].total - theirs[pair][0]) for pair in pairs)
                accuracy = compare_accuracies(suite, asked, rows, ours, form)
                truncated = sum(value.truncated > 0 for value in ours.values())
                print(  # noqa: T201
                    f"{path.name} {language} {form}: {len(asked)} questions, {len(pairs)} options ({truncated} truncated), largest difference {largest:.2e}; {accuracy}"
                )
                assert largest < 1e-4
                assert all(ours[pair].greedy == theirs[pair][1] for pair in pairs)


def compare_accuracies(
    suite: MultipleChoice, asked: list[ChoiceQuestion], rows: list[dict[str, Any]], ours: dict[Any, LogLikelihood], form: str
) -> str:
    """Every question that fits into the model is right or wrong by both."""
    model = ScriptedModel(lambda prompt, text: ours.get((prompt, text), -1.0))
    suite = MultipleChoice(suite.path)
    cases = {case.id: case for case in suite.run(model, SuiteConfig(n=200), lambda done, total: None).cases}
    names = {"accuracy": "acc", "accuracy_norm": "acc_bytes"} if form == "text" else {"accuracy_letter": "acc"}
    told = []
    for metric, name in names.items():
        scores = [next(s for s in cases[question.id].scores if s.name == metric) for question in asked]
        pairs = [(s.value, float(row[name])) for s, row in zip(scores, rows, strict=True) if isinstance(s, Score)]
        assert [mine for mine, _ in pairs] == [theirs for _, theirs in pairs]
        told.append(f"{metric} {sum(mine for mine, _ in pairs) / max(len(pairs), 1):.3f} of {len(pairs)}")
    return ", ".join(told)
