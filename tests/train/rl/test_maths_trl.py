"""TRL's GRPOTrainer as the oracle: the same batch gives the same loss and the same gradients of every parameter."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from medloop.models.rollout.decode import position_ids
from medloop.testing.models import tiny_model
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.rl.losses import Window, aggregate, policy_losses
from medloop.train.rl.maths import kl_k3

TEMPERATURE, MAX_LENGTH, PROMPT, ROWS = 0.7, 9, 4, 6


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., GRPOTrainer]:
    """Trainers of one small model; each keeps its own copy."""
    folder = tiny_model(tmp_path_factory.mktemp("oracle") / "base")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def make(out: Path, **options) -> GRPOTrainer:
        config = GRPOConfig(
            output_dir=str(out),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=ROWS,
            num_generations=2,
            temperature=TEMPERATURE,
            max_completion_length=MAX_LENGTH,
            gradient_checkpointing=False,
            **options,
        )
        trainer = GRPOTrainer(
            copy.deepcopy(model),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "a"}] * ROWS),
            processing_class=tokenizer,
        )
        trainer.current_gradient_accumulation_steps = config.gradient_accumulation_steps  # train() would set it
        trainer.model.train()
        return trainer

    return make


def a_batch(trainer: GRPOTrainer, seed: int = 0) -> dict[str, torch.Tensor]:
    """Left-padded prompts, right-padded answers, old and reference log-probabilities so far off that clips are active."""
    draw = torch.Generator().manual_seed(seed)
    prompt_mask = torch.arange(PROMPT) >= torch.tensor([[0], [1], [2], [3], [0], [2]])
    mask = torch.arange(MAX_LENGTH - 1) < torch.tensor([[8], [1], [5], [3], [8], [2]])
    batch = {
        "prompt_ids": torch.randint(5, 200, (ROWS, PROMPT), generator=draw),
        "prompt_mask": prompt_mask.long(),
        "completion_ids": torch.randint(5, 200, (ROWS, MAX_LENGTH - 1), generator=draw),
        "completion_mask": mask.long(),
        "advantages": torch.randn(ROWS, generator=draw),
        "num_items_in_batch": mask.sum(),
    }
    with torch.no_grad():
        now = ours(trainer.model, batch)
    noise = torch.randn(2, *now.shape, generator=draw)
    return {**batch, "old_per_token_logps": now + 0.4 * noise[0], "ref_per_token_logps": now + 0.6 * noise[1]}


def ours(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Log-probabilities of the answers, from hidden states, with positions told."""
    tokens = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    hidden = model.model(
        input_ids=tokens, attention_mask=attention, position_ids=position_ids(attention.bool())
    ).last_hidden_state
    return token_logprobs(
        hidden[:, PROMPT - 1 : -1],
        model.lm_head.weight,
        batch["completion_ids"],
        temperature=TEMPERATURE,
        mask=batch["completion_mask"].bool(),
        chunk=5,
    ).logprobs


def our_loss(model, batch, kind: str, beta: float, window: Window, **clips) -> torch.Tensor:
    mask, old = batch["completion_mask"].bool(), batch["old_per_token_logps"]
    logprobs = ours(model, batch)
    losses, stats = policy_losses(logprobs, old, batch["advantages"], mask, **clips)
    assert stats.means()["ratio"] != 1  # old is off, so that ratios and clips matter
    if beta:
        losses = losses + beta * kl_k3(logprobs, batch["ref_per_token_logps"], mask, old_logprobs=old)
    return aggregate(losses, mask, window, kind)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad()
    return gradients


def assert_same(loss: torch.Tensor, mine: list[torch.Tensor], actual: dict, expected: dict) -> None:
    torch.testing.assert_close(torch.stack(mine).sum(), loss, atol=1e-5, rtol=1e-5)
    assert max(g.abs().max() for g in expected.values()) > 1e-2  # nothing is equal because all is 0
    for name, grad in expected.items():
        torch.testing.assert_close(actual[name], grad, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("head", ["trained", "frozen"])  # the two ways of the backward pass through the projection
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_loss_and_every_gradient_equal_trl(oracle, tmp_path: Path, kind: str, beta: float, head: str) -> None:
    trainer = oracle(tmp_path, loss_type=kind, beta=beta, epsilon_high=0.28, steps_per_generation=1)
    trainer.model.lm_head.weight.requires_grad_(head == "trained")
    batch = a_batch(trainer)
    theirs = trainer._compute_loss(trainer.model, batch)
    theirs.backward()
    expected = gradients(trainer.model)
    window = Window.of(batch["completion_mask"].bool(), MAX_LENGTH)
    mine = our_loss(trainer.model, batch, kind, beta, window, clip_high=0.28)
    mine.backward()
    assert_same(theirs.detach(), [mine.detach()], gradients(trainer.model), expected)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "dapo"])
def test_an_accumulated_step_in_uneven_pieces_equals_trl_in_one(oracle, tmp_path: Path, kind: str) -> None:
    trainer = oracle(tmp_path, loss_type=kind, beta=0.3, steps_per_generation=1)
    batch = a_batch(trainer, seed=1)
    theirs = trainer._compute_loss(trainer.model, batch)
    theirs.backward()
    expected, mine = gradients(trainer.model), []
    window = Window.of(batch["completion_mask"].bool(), MAX_LENGTH)
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        piece = {name: x[rows] if x.dim() else x for name, x in batch.items()}
        loss = our_loss(trainer.model, piece, kind, 0.3, window)
        loss.backward()
        mine.append(loss.detach())
    assert_same(theirs.detach(), mine, gradients(trainer.model), expected)
