"""What an RL run will take, before its first step."""

import math
from dataclasses import replace

from medloop.settings import Settings
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.state import MICRO_BATCH_SIZE
from medloop.train.runs import estimate


def cost(plan: RLPlan, settings: Settings) -> estimate.Cost:
    """Time, memory and disk, from the model's shape and a matrix product timed on this machine."""
    shape, device = estimate.model_shape(plan.config.model, settings, lora_r=plan.config.lora_r)
    seconds, memory = estimate.rl(shape, work(plan), device=device)
    memory = memory if plan.sizing is None else plan.sizing.estimate
    return replace(estimate.cost(shape, seconds, memory, device), rate=plan.config.rate_for(shape.parameters))


def work(plan: RLPlan) -> estimate.RLWork:
    """Tokens of the steps that are left; held-out checks included, answers at their full length."""
    config = plan.config
    left = max(config.steps - (plan.steps_done or 0), 1)
    questions = getattr(config, "prompts_per_step", 0) or config.n_questions
    prompt_tokens = math.ceil(sum(len(prompt.token_ids) for prompt in plan.prompts) / len(plan.prompts))
    answers = left * questions * config.samples
    checks = (1 + left // config.eval_every) * len(plan.held_out)
    row = prompt_tokens + config.max_new_tokens
    return estimate.RLWork(
        sampled=(answers + checks) * config.max_new_tokens, scored=answers * (prompt_tokens + 2 * row),
        trained=answers * row * config.epochs, per_micro_batch=(config.micro_batch_size or MICRO_BATCH_SIZE) * row,
        cached=min(config.rollout_batch_size, questions * config.samples) * row,
    )  # fmt: skip
