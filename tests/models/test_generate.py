"""Answers do not depend on their neighbours, stop where they should, and keep their reasoning."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config

from medloop.contracts import Message, ModelRef
from medloop.errors import ConfigError, ModelError, ResultError
from medloop.models.generate import TorchGenerator, load_generator
from medloop.models.load import Loaded
from medloop.models.rollout.decode import sample_tokens
from medloop.models.template import encode_prompt
from medloop.testing.models import tiny_model

PROMPTS = [(Message(role="user", content=f"question {'very ' * (k % 4)}{k}"),) for k in range(8)]


@pytest.fixture(scope="module")
def generate(base: Path, tmp_path_factory: pytest.TempPathFactory) -> TorchGenerator:
    from medloop.settings import Settings

    return load_generator(ModelRef(base=str(base)), Settings(home=tmp_path_factory.mktemp("home"), device="cpu", threads=1))


class Scripted(torch.nn.Module):
    """Says what it was told to say: row by row, the next token of the script that belongs to the row's prompt."""

    def __init__(self, like, script: dict[tuple[int, ...], list[int]], fail_above: int = 10**9) -> None:
        super().__init__()
        self.config, self.generation_config, self.inner = like.config, like.generation_config, like
        self.script, self.fail_above, self.largest = script, fail_above, 0

    def forward(self, input_ids, attention_mask, **more):
        if len(input_ids) > self.fail_above:
            raise torch.OutOfMemoryError("out of memory")
        self.largest = max(self.largest, len(input_ids))
        out = self.inner(input_ids=input_ids, attention_mask=attention_mask, **more)
        if input_ids.shape[1] > 1:  # the prompt; later calls bring one token for each row that has not ended
            rows = zip(input_ids, attention_mask, strict=True)
            self.left = [list(self.script[tuple(ids[mask.bool()].tolist())]) for ids, mask in rows]
        self.left = [row for row in self.left if row]
        out.logits = torch.full_like(out.logits, -9.0)
        for index, row in enumerate(self.left):
            out.logits[index, -1, row.pop(0)] = 9.0
        return out


def test_a_batch_of_eight_equals_one_by_one(generate: TorchGenerator):
    alone = [generate([p], max_new_tokens=24)[0] for p in PROMPTS]
    assert generate(PROMPTS, max_new_tokens=24, batch_size=8) == alone
    assert generate(PROMPTS, max_new_tokens=24, batch_size=3) == alone
    assert len({a.text for a in alone}) > 4, "the answers must differ for this to say anything"


def test_absolute_positions_survive_left_padding(tmp_path: Path, settings):
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2)
    generate = load_generator(ModelRef(base=str(tiny_model(tmp_path / "gpt2", config=config))), settings)
    assert generate(PROMPTS, max_new_tokens=24) == [generate([p], max_new_tokens=24)[0] for p in PROMPTS]


def test_greedy_answers_are_those_of_transformers(generate: TorchGenerator, base: Path):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    for prompt in PROMPTS[:3]:
        ids = torch.tensor([encode_prompt(tokenizer, prompt)])
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)[0, ids.shape[1] :]
        assert generate([prompt], max_new_tokens=20)[0].text == tokenizer.decode(theirs, skip_special_tokens=True)


def test_sampling_depends_on_the_seed_and_not_on_the_batch(generate: TorchGenerator):
    first = generate(PROMPTS, max_new_tokens=16, temperature=1.0, seed=1)
    assert first == [generate([p], max_new_tokens=16, temperature=1.0, seed=1)[0] for p in PROMPTS]
    assert first[::-1] == generate(PROMPTS[::-1], max_new_tokens=16, temperature=1.0, seed=1, batch_size=5)
    assert [a.text for a in first] != [a.text for a in generate(PROMPTS, max_new_tokens=16, temperature=1.0, seed=2)]


def test_rows_that_end_early_leave_the_others_as_they_were(generate: TorchGenerator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generate.loaded.model.generation_config, "eos_token_id", list(range(40)))  # some end soon, some late
    short = TorchGenerator(generate.loaded)
    for temperature in (0.0, 1.0):
        alone = [short([p], max_new_tokens=16, temperature=temperature)[0] for p in PROMPTS]
        assert short(PROMPTS, max_new_tokens=16, temperature=temperature) == alone
        assert len({a.n_tokens for a in alone}) > 1


def test_the_same_prompt_twice_is_sampled_twice(generate: TorchGenerator):
    first, second = generate([PROMPTS[0]] * 2, max_new_tokens=16, temperature=1.5, seed=1)
    assert first.text != second.text and first.prompt_id == second.prompt_id


def test_sampling_follows_the_softmax_at_its_temperature():
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]])
    uniform = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:-1]
    drawn, _ = sample_tokens(logits.expand(20_000, 4), 0.7, uniform)
    share = torch.bincount(drawn, minlength=4) / 20_000
    torch.testing.assert_close(share, torch.softmax(logits[0] / 0.7, -1), rtol=0, atol=1e-3)


def scripted(generate: TorchGenerator, script: list[list[int]], **more) -> TorchGenerator:
    old = generate.loaded
    by_prompt = {tuple(encode_prompt(old.tokenizer, p)): tokens for p, tokens in zip(PROMPTS, script, strict=False)}
    return TorchGenerator(Loaded(Scripted(old.model, by_prompt, **more), old.tokenizer, "scripted", old.sha256, old.device))


def test_each_row_stops_at_its_own_end_and_any_end_token_counts(generate: TorchGenerator, monkeypatch: pytest.MonkeyPatch):
    tokenizer = generate.loaded.tokenizer
    end, also_end, a = (
        tokenizer.eos_token_id,
        tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        tokenizer.convert_tokens_to_ids("a"),
    )
    monkeypatch.setattr(generate.loaded.model.generation_config, "eos_token_id", [end, also_end])
    answers = scripted(generate, [[a, end], [a, a, a, also_end], [a] * 6, [end]])(PROMPTS[:4], max_new_tokens=6)
    assert [x.text for x in answers] == ["a", "aaa", "aaaaaa", ""]
    assert [x.finish_reason for x in answers] == ["stop", "stop", "length", "stop"]
    assert [x.n_tokens for x in answers] == [2, 4, 6, 1]


def test_think_survives_decoding_and_control_tokens_do_not(generate: TorchGenerator):
    tokenizer = generate.loaded.tokenizer
    script = tokenizer("<think>why</think>x<|im_start|>y<|im_end|>")["input_ids"]
    assert scripted(generate, [script])(PROMPTS[:1], max_new_tokens=20)[0].text == "<think>why</think>xy"


def test_a_think_opened_by_the_template_is_part_of_the_answer(tmp_path: Path, settings):
    generate = load_generator(ModelRef(base=str(tiny_model(tmp_path / "r1", template="thinking"))), settings)
    assert generate(PROMPTS[:1], max_new_tokens=4)[0].text.startswith("<think>\n")


def test_out_of_memory_halves_the_batch_and_changes_nothing(generate: TorchGenerator):
    tokenizer = generate.loaded.tokenizer
    script = [tokenizer(f"answer {k}<|im_end|>")["input_ids"] for k in range(8)]
    small = scripted(generate, script, fail_above=3)
    answers = small(PROMPTS, max_new_tokens=12)
    assert [x.text for x in answers] == [f"answer {k}" for k in range(8)]
    assert small.loaded.model.largest == 2


def test_no_memory_for_a_single_prompt_is_an_error(generate: TorchGenerator):
    with pytest.raises(ResultError, match="not enough memory"):
        scripted(generate, [[1]], fail_above=0)(PROMPTS[:1], max_new_tokens=2)


def test_a_prompt_too_long_for_the_model_is_an_error_completion(generate: TorchGenerator):
    long = (Message(role="user", content="x" * 600),)
    answers = generate([PROMPTS[0], long], max_new_tokens=8)
    assert [a.finish_reason for a in answers] == ["length", "error"]
    assert answers[1].text == "" and answers[1].n_tokens == 0


def test_more_tokens_than_the_model_holds_is_refused(generate: TorchGenerator):
    with pytest.raises(ConfigError, match="holds 512 tokens"):
        generate(PROMPTS, max_new_tokens=512)


def test_output_that_is_not_finite_is_an_error(tmp_path: Path, settings):
    generate = load_generator(ModelRef(base=str(tiny_model(tmp_path / "nan"))), settings)
    with torch.no_grad():
        generate.loaded.model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not finite"):
        generate(PROMPTS[:2], max_new_tokens=4)


def test_progress_reaches_the_total(generate: TorchGenerator):
    seen: list[tuple[int, int]] = []
    generate(
        [*PROMPTS, (Message(role="user", content="x" * 600),)],
        max_new_tokens=2,
        batch_size=3,
        progress=lambda a, b: seen.append((a, b)),
    )
    assert seen[-1] == (9, 9) and [a for a, _ in seen] == sorted(a for a, _ in seen)


def test_each_batch_is_handed_out_at_once_and_a_slow_one_tells_its_rows(
    generate: TorchGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medloop.models.rollout.sampler.PULSE_S", 0.0)
    batches, counts = [], []
    answers = generate(
        PROMPTS,
        max_new_tokens=6,
        batch_size=3,
        on_answers=batches.append,
        progress=lambda done, total: counts.append((done, total)),
    )
    assert [len(batch) for batch in batches] == [3, 3, 2]
    assert [{**batches[0], **batches[1], **batches[2]}[index] for index in range(8)] == answers
    assert len(counts) > 3 and counts == sorted(counts) and counts[-1] == (8, 8) and (3, 8) in counts
