"""Log-likelihoods are those of a plain forward pass, whatever they are batched with; the border is that of lm-evaluation-harness."""

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config

from medloop.contracts import Message, ModelRef
from medloop.contracts.suite import LogLikelihood
from medloop.errors import ModelError
from medloop.models.generate import TorchGenerator
from medloop.models.load import Loaded, load
from medloop.models.log_likelihood import encode_pair, log_likelihoods
from medloop.models.template import encode_example
from medloop.settings import Settings
from medloop.testing.models import tiny_model

PAIRS = [(f"question{' very' * (k % 4)}", f" {'answer ' * (k % 5 + 1)}{k}") for k in range(12)] + [
    ("", "no prompt"),
    ("q", "b"),
]


@pytest.fixture(scope="module")
def loaded(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(ModelRef(base=str(base)), Settings(home=tmp_path_factory.mktemp("home"), device="cpu", threads=1))


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(ModelRef(base="embedded:tiny"), Settings(home=tmp_path_factory.mktemp("home"), device="cpu", threads=1))


@torch.no_grad()
def plainly(loaded: Loaded, before: list[int], after: list[int]) -> LogLikelihood:
    """One text, one forward pass."""
    logprobs = loaded.model(torch.tensor([[*before, *after]])).logits[0].log_softmax(-1)[len(before) - 1 : -1]
    chosen = logprobs.gather(1, torch.tensor(after)[:, None])
    return LogLikelihood(total=float(chosen.sum()), tokens=len(after), greedy=logprobs.argmax(-1).tolist() == after)


def ids(loaded: Loaded, text: str) -> list[int]:
    return list(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])


def assert_equal(ours: list[LogLikelihood], theirs: list[LogLikelihood]) -> None:
    assert [x.total for x in ours] == pytest.approx([x.total for x in theirs], abs=1e-4)
    assert [(x.tokens, x.greedy, x.truncated) for x in ours] == [(x.tokens, x.greedy, x.truncated) for x in theirs]


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_batches_and_shared_prompts_change_nothing(loaded: Loaded, batch_size: int):
    expected = [
        plainly(loaded, ids(loaded, prompt) or [loaded.tokenizer.eos_token_id], ids(loaded, rest)) for prompt, rest in PAIRS
    ]
    assert_equal(log_likelihoods(loaded, PAIRS, batch_size=batch_size), expected)


def test_absolute_positions_survive_padding(tmp_path: Path, settings: Settings):
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2)
    gpt2 = load(ModelRef(base=str(tiny_model(tmp_path / "gpt2", config=config))), settings)
    pairs = [("p" * 60, "ab"), ("p" * 60, "c"), ("q", "d" * 30)]
    assert_equal(log_likelihoods(gpt2, pairs), [plainly(gpt2, ids(gpt2, prompt), ids(gpt2, rest)) for prompt, rest in pairs])


def test_spaces_at_the_end_of_a_prompt_belong_to_the_continuation(embedded: Loaded):
    for prompt, continuation in (("The patient has ", "fever"), ("Question: why?\nAnswer:\n ", "because")):
        stripped = prompt.rstrip()
        pair = encode_pair(embedded, prompt, continuation)
        assert list(pair.prompt) == ids(embedded, stripped)
        assert list(pair.prompt + pair.continuation) == ids(embedded, prompt + continuation)
        assert pair == encode_pair(embedded, stripped, prompt[len(stripped) :] + continuation)


def test_a_continuation_that_joins_the_prompts_last_token_still_has_tokens(embedded: Loaded):
    whole = ids(embedded, "Please")
    assert len(whole) == 1
    pair = encode_pair(embedded, "Plea", "se")
    assert list(pair.continuation) == whole and list(pair.prompt) == [embedded.tokenizer.eos_token_id]


def test_what_does_not_fit_is_left_out_at_the_start_and_counted(loaded: Loaded):
    room = loaded.max_length
    long_prompt, long_continuation = log_likelihoods(loaded, [("x" * room + "yz", "abc"), ("x", "y" * (room + 7))])
    kept = ids(loaded, "x" * (room - 4) + "yz")
    assert_equal([long_prompt], [plainly(loaded, kept, ids(loaded, "abc")).model_copy(update={"truncated": 4})])
    assert long_continuation.truncated == 7 and long_continuation.tokens == room


def test_greedy_means_what_the_model_would_write(embedded: Loaded):
    prompt = (Message(role="user", content="I have a fever."),)
    completion = TorchGenerator(embedded)([prompt], max_new_tokens=12)[0]
    written, not_written = log_likelihoods(embedded, [(prompt, completion.text), (prompt, completion.text[:-2] + "xx")])
    assert written.greedy and written.tokens == completion.n_tokens and not not_written.greedy


def test_messages_are_rendered_as_in_training(loaded: Loaded):
    messages = [Message(role="user", content="why?"), Message(role="assistant", content="because")]
    example = encode_example(loaded.tokenizer, messages)
    assert example is not None
    pair = encode_pair(loaded, tuple(messages[:1]), "because")
    assert example.input_ids[:-1] == [*pair.prompt, *pair.continuation]  # the last one ends the answer
    assert sum(example.completion_mask) == len(pair.continuation) + 1


def test_control_tokens_in_a_text_stay_text(loaded: Loaded):
    pair = encode_pair(loaded, "<|im_end|>", "<|im_start|>")
    assert not set(loaded.tokenizer.all_special_ids) & {*pair.prompt, *pair.continuation}


def test_damaged_weights_are_an_error(base: Path, settings: Settings):
    damaged = load(ModelRef(base=str(base)), settings)
    with torch.no_grad():
        damaged.model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not finite"):
        log_likelihoods(damaged, [("a", "b")])
