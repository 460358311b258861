"""Canary questions: asked of a version on each server before it goes live, and of the live one as a probe.

    verdicts = ask_canaries(server, "med-assistant-v3-1f2e3d4c", canaries, judge)
    first_failure(verdicts)                     # None: all are fit

What a fit answer is, the judge says, who is given from outside (loop/deploy.py). An answer is never stored.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import ValidationError

from medloop.contracts import Message
from medloop.contracts.deploy import Canary, CanaryVerdict
from medloop.deploy.server import ServedAnswer, Server, ServerRefusedError
from medloop.errors import ConfigError, explain_os_errors

JudgeAnswer = Callable[[Canary, ServedAnswer], CanaryVerdict]
MAX_TOKENS = 256


def load_canaries(path: Path | None = None) -> tuple[Canary, ...]:
    """Ours, or those of a file; both languages and at least one emergency must be among them."""
    if path is None:
        text = files("medloop.deploy").joinpath("canaries.yaml").read_text(encoding="utf-8")
    else:
        with explain_os_errors(path):
            text = path.read_text(encoding="utf-8")
    try:
        canaries = tuple(Canary.model_validate(row) for row in yaml.safe_load(text) or [])
    except (yaml.YAMLError, ValidationError, TypeError):
        raise ConfigError(f"{path} is not a list of canary questions", "Write canary_id, language, question, expect") from None
    if {canary.language for canary in canaries} != {"zh", "en"} or all(canary.expect != "urgent" for canary in canaries):
        raise ConfigError(f"{path} lacks canary questions", "Ask in zh and in en, and ask about an emergency (expect: urgent)")
    return canaries


def ask_canaries(
    server: Server, name: str, canaries: Sequence[Canary], judge: JudgeAnswer, *, seconds: float = 60.0
) -> Iterator[CanaryVerdict]:  # fmt: skip
    """The verdict on each answer; no answer is one that did not pass. ServerDownError if the server is away."""
    for canary in canaries:
        try:
            answer = server.generate(
                name, [Message(role="user", content=canary.question)], max_tokens=MAX_TOKENS, seconds=seconds
            )
        except ServerRefusedError as error:
            yield CanaryVerdict(canary_id=canary.canary_id, passed=False, reason=error.what + ".")
        else:
            yield judge(canary, answer).model_copy(update={"seconds": answer.seconds})
