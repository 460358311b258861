"""The limit on the share of the parameters that a LoRA run trains: the setting `max_trainable_share`. No torch."""

import math

from medloop.errors import ConfigError
from medloop.train.configs.run_config import RunConfig

SMALLEST = 1_000_000  # parameters; in a smaller base model, which only tests use, rank 1 may already exceed the limit


def check_trained_share(
    config: RunConfig, rank: int, *, parameters: int, per_rank: int, head: int, adapter: int | None = None
) -> None:
    """Refuse a run that would train too large a share of base model, adapter and head.

    `parameters` are those of the base model, `per_rank` those that a fresh adapter has for each rank, `adapter` those of the
    adapter to start from.
    """
    trained = (rank * per_rank if adapter is None else adapter) + head
    total, limit = parameters + trained, config.max_trainable_share
    if parameters < SMALLEST or trained / total < limit:
        return
    most = math.ceil((limit / (1 - limit) * parameters - head) / per_rank) - 1  # a limit of 1 has allowed everything above
    smaller = f"Use lora_r {most} or lower" if adapter is None else f"Start from an adapter of rank {most} or lower"
    share = math.floor(100 * trained / total + 1) / 100
    raise ConfigError(
        f"The run would train {trained:,} of {total:,} parameters ({trained / total:.2%}), but max_trainable_share is {limit:g}",
        f"{smaller if most > 0 else 'Use a larger base model'}, or set max_trainable_share to {share:g}",
    )
