"""How much context stands in the prompt of a model: as much as it was trained to read. No torch here.

trained_limits([ModelRef(base="embedded:tiny", adapter="irs")], settings)   -> top_k and max_prompt of its training card
"""

from collections.abc import Sequence

from medloop.contracts import Contract, ModelRef
from medloop.errors import ConfigError
from medloop.models.find import adapter_folder
from medloop.models.safety import read_json
from medloop.settings import Settings


class ContextLimits(Contract):
    """The first `top_k` passages of a question, in a prompt of at most `max_prompt` tokens; the defaults of the RL trainers."""

    top_k: int = 3
    max_prompt: int = 256


def trained_limits(
    models: Sequence[ModelRef], settings: Settings, *, top_k: int | None = None, max_prompt: int | None = None
) -> ContextLimits:
    """The limits that these models were trained with, by the cards of their adapters; `top_k` and `max_prompt` override them."""
    cards = (_card_limits(ref.adapter, settings) for ref in models if ref.adapter is not None)
    trained = list(dict.fromkeys(limits for limits in cards if limits is not None))
    if len(trained) > 1 and (top_k is None or max_prompt is None):
        values = " and ".join(f"top_k {limits.top_k}, max_prompt {limits.max_prompt}" for limits in trained)
        raise ConfigError(f"These models were trained with different prompts ({values})", "Give --top-k and --max-prompt for all")
    limits = trained[0] if trained else ContextLimits()
    return ContextLimits(top_k=top_k or limits.top_k, max_prompt=max_prompt or limits.max_prompt)


def _card_limits(adapter: str, settings: Settings) -> ContextLimits | None:
    """None where no card says: an adapter of SFT, or one that was made elsewhere."""
    path = adapter_folder(adapter, settings) / "card.json"
    config = read_json(path).get("config") if path.is_file() else None
    if not isinstance(config, dict) or not all(isinstance(config.get(name), int) for name in ContextLimits.model_fields):
        return None
    return ContextLimits(top_k=config["top_k"], max_prompt=config["max_prompt"])
