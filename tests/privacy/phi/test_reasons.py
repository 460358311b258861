"""Reasons that people give for a decision: words of models are nobody, people are still found, and too long is said first."""

import pytest

from medloop.errors import InputError
from medloop.privacy.phi.reason import checked_reason, kept_text
from medloop.store.records.codebook import checked_reason as rule_reason


@pytest.mark.parametrize(
    "reason",
    [
        "back to the sft version", "the sft version was better", "dpo is worse", "rl hurt the answers", "回到 sft 版本",
        "回到版本 2", "SFT版本更好", "kto and grpo failed",
    ],
)  # fmt: skip
def test_methods_and_versions_name_nobody(reason: str) -> None:
    assert checked_reason(reason) == reason and kept_text(reason) == reason


@pytest.mark.parametrize(
    "reason", ["back to sft for Mr. Okonjo", "王小明说 sft 版本更好", "sft, 13812345678", "回到版本 13812345678"]
)
def test_a_person_beside_these_words_is_found(reason: str) -> None:
    with pytest.raises(InputError, match="may name a person"):
        checked_reason(reason)
    assert kept_text("Mr. Okonjo asked for sft") == "[NAME_1] asked for sft"


def test_too_long_is_said_before_anybody_looks_for_names() -> None:
    with pytest.raises(InputError, match=r"more than 200 characters"):
        checked_reason("Mr. Okonjo asked. " * 20)
    with pytest.raises(InputError, match=r"more than [0-9]+ characters"):
        rule_reason("Mr. Okonjo asked. " * 500)
    with pytest.raises(InputError, match="reason is missing"):
        rule_reason(" ", required=True)
