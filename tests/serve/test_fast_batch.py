"""Rows that enter and leave at any step are computed as the library computes them alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from medloop.contracts import ModelRef
from medloop.models.load import Loaded, load
from medloop.serve.server.adapter_file import read_adapter
from medloop.serve.server.fast_batch import Entering, FastBatch
from medloop.serve.server.lora_slots import AdapterSlot
from medloop.serve.server.prefix_cache import PrefixCache
from medloop.settings import Settings


@pytest.fixture(scope="module")
def loaded(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(ModelRef(base=str(base)), Settings(home=tmp_path_factory.mktemp("home"), device="cpu", threads=1, offline=True))


def slot_of(batch: FastBatch, loaded: Loaded, name: str, folder: Path) -> AdapterSlot:
    weights = read_adapter(folder, loaded.model, base=loaded.name, base_sha256=loaded.sha256)
    return AdapterSlot(name, str(folder), weights.sha256, weights.rank, batch.payload(weights))


def plain_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0, -1]


@pytest.mark.parametrize("seed", range(3))
def test_rows_come_and_go_and_the_logits_stay_those_of_a_plain_forward(
    seed: int, loaded: Loaded, base: Path, adapters: dict[str, Path]
) -> None:
    """Long and short prompts, a small cache (rows are moved often), three adapters' worth of rows, common beginnings."""
    dice, vocabulary = random.Random(seed), len(loaded.tokenizer)
    batch = FastBatch(loaded, max_rows=4, max_length=96, prefix_bytes=2**20)
    slots: list[AdapterSlot | None] = [None, *(slot_of(batch, loaded, name, folder) for name, folder in adapters.items())]
    models = [AutoModelForCausalLM.from_pretrained(base)]
    models += [PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder) for folder in adapters.values()]
    common = [dice.randrange(vocabulary) for _ in range(40)]
    rows: list[tuple[int, list[int]]] = []  # which adapter, tokens so far

    def check(logits: torch.Tensor, some: list[tuple[int, list[int]]]) -> None:
        for row, (which, tokens) in zip(logits, some, strict=True):
            torch.testing.assert_close(row, plain_logits(models[which], tokens)[:vocabulary], atol=2e-4, rtol=1e-4)

    for _ in range(60):
        for place in reversed(range(len(rows))):
            if len(rows[place][1]) >= 95 or dice.random() < 0.08:
                batch.leave(place)
                rows[place] = rows[-1]
                rows.pop()
        new = []
        while len(rows) + len(new) < 4 and dice.random() < 0.3:
            prompt = common[: dice.choice([0, 16, 33, 40])] + [dice.randrange(vocabulary) for _ in range(dice.randint(1, 30))]
            new.append((dice.randrange(3), prompt))
        if new:
            rows += new
            check(batch.enter([Entering(prompt, slots[which]) for which, prompt in new]), new)
        if rows:
            for _, tokens in rows:
                tokens.append(dice.randrange(vocabulary))
            check(batch.step([tokens[-1] for _, tokens in rows]), rows)
    assert batch.prefix_hit_tokens > 0


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
def test_captured_steps_are_as_near_to_float32_as_plain_ones(
    seed: int, base: Path, adapters: dict[str, Path], tmp_path: Path
) -> None:
    """Rows come and go, adapters are mixed, the cache grows, one adapter is freed and loaded again."""
    dice = random.Random(seed)
    loaded = load(ModelRef(base=str(base)), Settings(home=tmp_path, device="cuda", threads=1, offline=True))
    vocabulary, options = len(loaded.tokenizer), {"max_rows": 12, "max_length": 400, "prefix_bytes": 0}
    captured, plain = FastBatch(loaded, **options), FastBatch(loaded, **options)
    assert captured.graphs is not None and captured.backend == "cuda_graph"
    plain.graphs = None
    folders = list(adapters.items())
    slots = [[None, *(slot_of(batch, loaded, *item) for item in folders)] for batch in (captured, plain)]
    models = [AutoModelForCausalLM.from_pretrained(base)]
    models += [PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder) for folder in adapters.values()]
    rows: list[tuple[int, list[int]]] = []
    far: list[tuple[float, float]] = []
    for step in range(150):
        for place in reversed(range(len(rows))):
            if dice.random() < 0.04:
                for batch in (captured, plain):
                    batch.leave(place)
                rows[place] = rows[-1]
                rows.pop()
        new = []
        while len(rows) + len(new) < 12 and dice.random() < 0.4:
            prompt = [dice.randrange(vocabulary) for _ in range(dice.randint(1, 90))]
            new.append((dice.randrange(3), prompt))
        for batch, own in zip((captured, plain), slots, strict=True):
            if new:
                batch.enter([Entering(prompt, own[which]) for which, prompt in new])
        rows += new
        if step % 40 == 39 and not any(which == 1 for which, _ in rows):
            for batch, own in zip((captured, plain), slots, strict=True):
                assert own[1] is not None
                batch.free(own[1], bytes_in_use=False)
                own[1] = slot_of(batch, loaded, *folders[0])
        if rows:
            for _, tokens in rows:
                tokens.append(dice.randrange(vocabulary))
            last = [tokens[-1] for _, tokens in rows]
            both = [batch.step(last).float().cpu() for batch in (captured, plain)]
            for place, (which, tokens) in enumerate(rows):
                exact = plain_logits(models[which], tokens)[:vocabulary]
                far.append(tuple(float((logits[place] - exact).abs().mean()) for logits in both))
    ours, theirs = (sum(column) / len(far) for column in zip(*far, strict=True))
    assert ours <= 1.25 * theirs and max(mine for mine, _ in far) <= 2 * max(other for _, other in far)


def test_a_common_beginning_is_kept_by_the_bytes_of_the_adapter() -> None:
    cache, tokens = PrefixCache(10**6), list(range(40))
    keys = torch.randn(2, 2, 1, 40, 4)
    cache.store("sha256:a", tokens, keys)
    assert cache.find("sha256:b", tokens) is None
    found = cache.find("sha256:a", [*tokens[:20], 99, 98])
    assert found is not None and torch.equal(found, keys[:, :, :, :16])
    assert cache.find("sha256:a", tokens[:16]) is None  # at least the last token is computed
    cache.forget("sha256:a")
    assert cache.find("sha256:a", tokens) is None and cache.bytes == 0


def test_the_least_recently_used_beginning_goes_first() -> None:
    one = torch.zeros(1, 2, 1, 16, 4)
    cache = PrefixCache(2 * one.numel() * 4)
    prompts = [[number] * 17 for number in range(3)]
    cache.store("x", prompts[0], one)
    cache.store("x", prompts[1], one)
    assert cache.find("x", prompts[0]) is not None
    cache.store("x", prompts[2], one)
    assert [cache.find("x", prompt) is not None for prompt in prompts] == [True, False, True]
    assert cache.bytes <= cache.limit_bytes
