"""DPO from a few corrections: pairs that show where the corrected sentence does not belong, and what they teach."""

import json
import sys
from typing import Any

import pytest
import torch

from medloop.cli import main
from medloop.contracts import Conversation, Message, ModelRef
from medloop.loop.replay_check import replay_check
from medloop.models.load import load
from medloop.models.template import encode_example
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import ConversationLine
from medloop.train.configs.preference_config import REPAIR_BETA, DPOConfig
from medloop.train.examples.contrast import added_sentences, contrast_pairs
from medloop.train.examples.pairs import Pair
from medloop.train.preference import CONTRAST_TIMES, REPAIRED, make_plan
from medloop.train.runs.find_run import find_run

DOSE = "Ask a doctor for the dose of a child."


def fix(question: str, chosen: str, rejected: str) -> Pair:
    return Pair((Message(role="user", content=question),), chosen, rejected)


def before(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def line(answer: str) -> ConversationLine:
    return ConversationLine(1, (), Conversation.model_validate(before("My ankle hurts.", answer)))


FIXES = [fix(f"My son is {n}. What dose?", f"{DOSE} It is a cold.", "It is a cold. Take 500 mg.") for n in range(2, 5)]


def test_the_sentence_that_most_corrections_add_is_the_added_one() -> None:
    assert {(one.text, one.leads) for one in added_sentences(FIXES)} == {(DOSE, True)}
    last = [fix("q", f"Probably {name}. Come back in three days.", "It is flu.") for name in ("flu", "reflux")]
    assert {(one.text, one.leads) for one in added_sentences(last)} == {("Come back in three days.", False)}
    assert added_sentences([fix("q", "Rest.", "Rest. Take 500 mg.")]) == [], "nothing was added"


@pytest.mark.parametrize(
    ("answer", "worse"),
    [
        ("Rest it.", f"{DOSE} Rest it."),
        ("<think>a sprain</think>\nRest it.", f"<think>a sprain</think>\n{DOSE} Rest it."),
        (f"{DOSE} Rest it.", None),
        ("多休息，多喝水。", None),
    ],
)
def test_the_answer_of_before_is_better_without_the_sentence(answer: str, worse: str | None) -> None:
    pairs = contrast_pairs([line(answer)], FIXES, seed=1)
    assert [(pair.chosen, pair.rejected) for pair in pairs] == ([(answer, worse)] if worse else [])


def test_a_sentence_that_stood_last_is_put_last() -> None:
    fixes = [fix("q", "It is flu. Come back in three days.", "It is flu.")]
    assert contrast_pairs([line("Rest it.")], fixes, seed=1)[0].rejected == "Rest it. Come back in three days."


@pytest.fixture
def files(settings: Settings) -> tuple[str, str]:
    fixes, old = settings.home / "fixes.jsonl", settings.home / "old.jsonl"
    rows = [{"prompt": pair.first_question, "chosen": pair.chosen, "rejected": pair.rejected} for pair in FIXES]
    jsonl.write(fixes, rows)
    dangerous = before("I feel nervous before every exam.", "Take diazepam 20 mg whenever you feel nervous.")
    jsonl.write(old, [dangerous, *(before(f"My ankle hurts since {n} days.", f"Rest it for {n} days.") for n in range(300))])
    return str(fixes), str(old)


def test_corrections_are_repeated_and_as_many_rows_of_before_show_where_they_end(
    settings: Settings, files: tuple[str, str]
) -> None:
    config = DPOConfig(name="fix", model=settings.model, data=files[0], replay_data=files[1])
    run = find_run(config, settings)
    plan = make_plan(config, settings, run, check=replay_check(config))
    rows = [*plan.train.items, *plan.test.items]
    contrast = [pair for pair in rows if pair.chosen.startswith("Rest it")]
    assert len(rows) - len(contrast) == -(-REPAIRED // 3) * 3 and len(contrast) == plan.contrast == CONTRAST_TIMES * 258
    assert all(pair.rejected == f"{DOSE} {pair.chosen}" for pair in contrast)
    assert all(pair.chosen.startswith("Rest it") for pair in plan.test.items), "three corrections are too few to hold one out"
    assert not any("diazepam" in pair.chosen for pair in rows) and plan.checked.left_out == {"risk": 1}
    assert config.beta == REPAIR_BETA and run.identity["inputs"].keys() == {"preference", "replay"}


def test_it_learns_to_leave_the_sentence_out_where_it_does_not_belong(
    settings: Settings, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", files[0], "--replay-data", files[1], "--learning-rate", "0.01", "--set", "max_steps=12"]
    monkeypatch.setattr(
        sys, "argv", ["medloop", "--home", str(settings.home), "train", "dpo", "--model", settings.model, "--name", "fix", *words]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    said = capsys.readouterr().out
    assert not caught.value.code and "258 of them show where the corrected sentence does not belong." in said
    assert "1 of 301 replay rows left out: risk 1" in said
    metrics = json.loads((settings.home / "models/lora/fix/card.json").read_text())["metrics"]
    assert metrics["contrast_pairs"] == 258 and metrics["replay_left_out_risk"] == 1
    assert metrics["test_accuracy_low"] > 0.5 and metrics["test_margin"] > 0, "held out are rows of before alone"
    assert preference_for_plain(settings, "fix") > preference_for_plain(settings, None) + 1


def preference_for_plain(settings: Settings, adapter: str | None) -> float:
    """How much likelier, in nats, an answer to a new question is without the sentence than with it."""
    loaded = load(ModelRef(base=settings.model, adapter=adapter), settings)
    question = Message(role="user", content="My ankle hurts since 999 days.")

    def logprob(answer: str) -> float:
        example = encode_example(loaded.tokenizer, [question, Message(role="assistant", content=answer)])
        assert example is not None
        start = example.completion_mask.index(1)
        with torch.no_grad():
            logits = loaded.model(input_ids=torch.tensor([example.input_ids])).logits[0, start - 1 : -1]
        return float(logits.log_softmax(-1).gather(1, torch.tensor(example.input_ids[start:])[:, None]).sum())

    return logprob("Rest it.") - logprob(f"{DOSE} Rest it.")
