"""Context passages of a record stand in its training prompt as they do in RL and prediction, for SFT, DPO and KTO."""

import json
from pathlib import Path

import pytest

from medloop.loop.workspace import init_workspace
from medloop.models.load import load_tokenizer
from medloop.settings import Settings
from medloop.testing.models import tiny_model
from medloop.train import preference, sft
from medloop.train.configs.preference_config import DPOConfig, KTOConfig
from medloop.train.configs.sft_config import SFTConfig
from medloop.train.rl.experience import read_prompts
from medloop.train.runs.find_run import find_run

PASSAGES = ["Paracetamol helps a fever.", "Children drink much water."]
LONG = ["Fever is common in children. " * 60]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("context")
    init_workspace(home / "clinic")
    return Settings(home=home / "clinic", model=str(tiny_model(home / "base")), device="cpu", threads=1, offline=True)


def prompts(settings: Settings, method: str, context: list[str] | None, **values: object) -> list[list[int]]:
    """The prompts of the training examples, as token ids, from a file of five questions as any door reads it."""
    rows = []
    for n in range(5):
        row = {"question": f"Fever {n}?", "answer": "Drink.", "chosen": "Drink.", "rejected": "Wait."}
        row |= {"messages": [{"role": "user", "content": f"Fever {n}?"}, {"role": "assistant", "content": "Drink."}]}
        row |= {"prompt": f"Fever {n}?", **({} if context is None else {"context": context})}
        rows.append(row if method == "sft" else {key: row[key] for key in row.keys() - {"messages", "question", "answer"}})
    path = settings.home / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kind = {"sft": SFTConfig, "dpo": DPOConfig, "kto": KTOConfig}[method]
    config = kind(model=settings.model, data=str(path), lora_r=1, max_trainable_share=1, **values)
    plan = (sft if method == "sft" else preference).make_plan(config, settings, find_run(config, settings))
    if method == "sft":
        columns = zip(plan.train.rows["input_ids"], plan.train.rows["labels"], strict=True)
        return sorted([token for token, label in zip(*row, strict=True) if label == -100] for row in columns)
    assert plan.train.with_context == (0 if not context or values.get("top_k") == 0 else len(plan.train.items))
    return sorted(list(ids) for ids in plan.train.table["prompt_ids"])


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_passages_are_in_the_tokens_of_a_training_example_as_rl_shows_them(settings: Settings, method: str) -> None:
    tokenizer, bare = load_tokenizer(Path(settings.model)), prompts(settings, method, None)
    for context in (PASSAGES, LONG):
        shown = prompts(settings, method, context)
        rl = {tuple(p.token_ids) for p in read_prompts(settings.home / "rows.jsonl", tokenizer, max_tokens=256).prompts}
        assert shown and all(tuple(ids) in rl for ids in shown)
    text = tokenizer.decode(prompts(settings, method, PASSAGES)[0])
    first = tokenizer.decode(prompts(settings, method, PASSAGES, top_k=1)[0])
    assert all(passage in text for passage in PASSAGES) and PASSAGES[0] in first and PASSAGES[1] not in first
    assert prompts(settings, method, PASSAGES, top_k=0) == bare == prompts(settings, method, [])


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_a_long_passage_gives_way_to_the_question_and_the_answer(settings: Settings, method: str) -> None:
    tokenizer, bare = load_tokenizer(Path(settings.model)), prompts(settings, method, None)
    room = max(map(len, bare)) + 160
    shown = prompts(settings, method, LONG, max_length=room)
    assert len(shown) == len(bare) and all(len(ids) <= room for ids in shown) and shown != bare
    assert all("Fever" in tokenizer.decode(ids)[-60:] for ids in shown)
