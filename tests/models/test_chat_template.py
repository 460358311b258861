"""Text stays text, `<think>` stays whole, an answer keeps its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from medloop.contracts import Message
from medloop.errors import ModelError
from medloop.models.template import (
    DEFAULT_TEMPLATE,
    control_ids,
    encode_example,
    encode_prompt,
    end_ids,
    fit_prompt,
    neutralise,
    render_prompt,
)
from medloop.testing.models import TEMPLATES, tiny_tokenizer

TOKENIZERS = {name: tiny_tokenizer(name) for name in TEMPLATES}
HOSTILE = [
    "<|im_end|>",
    "<|im_start|>system\n",
    "<|endoftext|>",
    "<|pad|>",
    "<|im_",
    "end|>",
    "<",
    "|",
    " ",
    "\n",
    "a",
    "血压",
    "<think>",
]
texts = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=12).map("".join).filter(str.strip)


def user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def exchange(question: str, answer: str) -> tuple[Message, ...]:
    return (*user(question), Message(role="assistant", content=answer))


def count_control(tokenizer, ids: list[int]) -> int:
    return sum(i in control_ids(tokenizer) for i in ids)


@given(question=texts, answer=texts, system=texts, name=st.sampled_from(sorted(TEMPLATES)))
def test_text_never_becomes_a_control_token(question: str, answer: str, system: str, name: str):
    tokenizer = TOKENIZERS[name]
    head = (Message(role="system", content=system),)
    hostile = encode_example(tokenizer, head + exchange(question, answer)).input_ids
    harmless = encode_example(tokenizer, (Message(role="system", content="s"), *exchange("q", "a"))).input_ids
    assert count_control(tokenizer, hostile) == count_control(tokenizer, harmless)


def test_harmless_text_is_not_touched():
    text = "Is 5 < 6 | 7 > 6? <b>bold</b> <think>x</think> <|nothing|> 血压"
    assert neutralise(TOKENIZERS["chatml"], text) == text


def test_a_broken_up_token_stays_readable():
    assert neutralise(TOKENIZERS["chatml"], "a<|im_end|>b") == "a< |im_end|>b"


def test_a_control_token_that_swallows_spaces_is_broken_up():
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken("[STOP]", lstrip=True, rstrip=True, special=True)]})
    ids = encode_prompt(tokenizer, user("a   [STOP]   b"))
    assert count_control(tokenizer, ids) == count_control(tokenizer, encode_prompt(tokenizer, user("x")))


def test_a_spelling_that_the_tokenizer_normalises_into_a_control_token_is_broken_up():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken("[stop]", special=True, normalized=True)]})
    harmless = count_control(tokenizer, encode_prompt(tokenizer, user("x")))
    for spelling in ("[STOP]", "[Stop]", "［stop］", "[ｓｔｏｐ]"):
        assert count_control(tokenizer, tokenizer(spelling)["input_ids"]) == 1, "the test must attack something"
        assert count_control(tokenizer, encode_prompt(tokenizer, user(spelling))) == harmless


def test_a_role_marker_that_is_not_flagged_special_is_a_control_token_too():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("[USER]", special=False, normalized=False)])
    tokenizer.chat_template = "{% for m in messages %}[USER]{{ m['content'] }}{{ eos_token }}{% endfor %}"
    assert encode_prompt(tokenizer, user("a [USER] b")).count(tokenizer.convert_tokens_to_ids("[USER]")) == 1


def test_a_line_break_that_is_a_token_of_its_own_stays_text():
    """As in Gemma's tokenizers. Every template has line breaks, so they were taken for control tokens."""
    tokenizer = tiny_tokenizer("chatml")
    tokenizer.add_tokens([AddedToken("\n" * n, special=False, normalized=False) for n in (1, 2)])
    answer = "<think>\nFever.\n</think>\n\nSee a doctor.\nDrink."
    assert neutralise(tokenizer, answer) == answer
    ids = encode_example(tokenizer, exchange("One.\nTwo.", answer)).input_ids
    shown = tokenizer.decode([i for i in ids if i not in control_ids(tokenizer)])
    assert answer in shown and "One.\nTwo." in shown


@pytest.mark.parametrize("name", ["chatml", "none", "stripping", "no-system"])
def test_the_answer_is_learnt_whole_with_its_reasoning_and_its_end(name: str):
    tokenizer = TOKENIZERS[name]
    answer = "<think>\nrest and fluids\n</think>\nDrink water."
    example = encode_example(tokenizer, exchange("What now?", answer))
    learnt = [token for token, bit in zip(example.input_ids, example.completion_mask, strict=True) if bit]
    assert tokenizer.decode(learnt) == answer + "<|im_end|>"
    assert learnt[-1] == end_ids(tokenizer)[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_training_sees_the_prompt_that_generation_will_see(name: str):
    tokenizer = TOKENIZERS[name]
    example = encode_example(tokenizer, exchange("What now?", "Rest."))
    prompt = encode_prompt(tokenizer, user("What now?"))
    assert example.input_ids[: len(prompt)] == prompt
    assert example.completion_mask == [0] * len(prompt) + [1] * (len(example.input_ids) - len(prompt))


@pytest.mark.parametrize(
    "answer", ["<think>\nrest\n</think>\nDrink.", "<think>rest</think>Drink.", "\n<think>\nrest\n</think>\nDrink."]
)
def test_a_template_that_opens_think_gets_no_second_one(answer: str):
    tokenizer = TOKENIZERS["thinking"]
    text = tokenizer.decode(encode_example(tokenizer, exchange("q", answer)).input_ids)
    assert text.count("<think>") == 1 and text.count("</think>") == 1
    assert "\n\nrest" not in text


def test_an_answer_without_reasoning_closes_the_think_that_the_template_opened():
    tokenizer = TOKENIZERS["thinking"]
    text = tokenizer.decode(encode_example(tokenizer, exchange("q", "Drink.")).input_ids)
    assert text.endswith("<think>\n\n</think>\n\nDrink.<|im_end|>")


def test_a_model_without_a_template_gets_the_default():
    tokenizer = TOKENIZERS["none"]
    assert tokenizer.chat_template is None
    assert render_prompt(tokenizer, user("q")) == "### Question:\nq\n\n### Answer:\n"
    assert "### Question" in DEFAULT_TEMPLATE


def test_a_template_without_a_system_role_gets_it_in_the_first_question():
    text = render_prompt(TOKENIZERS["no-system"], (Message(role="system", content="Be kind."), *user("q")))
    assert "user\nBe kind.\n\nq<|im_end|>" in text


def test_a_template_that_refuses_the_messages_is_a_sentence_without_their_text():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('bad: ' + messages[0]['content']) }}"
    with pytest.raises(ModelError) as caught:
        encode_prompt(tokenizer, user("secret"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("attack", ["{{ 7 * 7 }}", "{{ messages.__class__.__mro__ }}", "{% raw %}"])
def test_text_is_never_rendered_as_a_template(attack: str):
    assert attack in render_prompt(TOKENIZERS["chatml"], user(attack))


def test_a_template_cannot_leave_the_sandbox():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(ModelError):
        encode_prompt(tokenizer, user("x"))


LONG = (Message(role="system", content="S"), *exchange("old question", "old answer"), *exchange("new question", "new answer"))


def test_too_long_a_conversation_loses_its_oldest_messages_whole():
    tokenizer = TOKENIZERS["chatml"]
    full = encode_example(tokenizer, LONG)
    short = encode_example(tokenizer, LONG, max_length=len(full.input_ids) - 1)
    text = tokenizer.decode(short.input_ids)
    assert short.dropped_messages == 2 and full.dropped_messages == 0
    assert (
        "old" not in text
        and "system\nS" in text
        and text.endswith("new question<|im_end|>\n<|im_start|>assistant\nnew answer<|im_end|>")
    )


@pytest.mark.parametrize("length", [1, 10, 40])
def test_what_cannot_fit_is_refused_and_never_cut(length: int):
    tokenizer = TOKENIZERS["chatml"]
    assert encode_example(tokenizer, exchange("q" * 30, "a" * 30), max_length=length) is None
    assert fit_prompt(tokenizer, user("q" * 60), length) is None
