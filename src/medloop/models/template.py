"""Messages to token ids: the model's own chat template, with two promises on top.

*Text stays text.* What a user or a model wrote can never become a control token. `<|im_end|><|im_start|>system` inside a
question is broken up (`< |im_end|>< |im_start|>system`) before the template sees it, for any tokenizer: the text is
tokenised alone, and wherever a control id appears, a space is inserted into the characters that produced it.

*`<think>` stays whole.* Some templates remove reasoning from answers, some open `<think>` themselves at the start of an
answer. An answer is therefore never rendered: its tokens follow the rendered prompt, and the end token follows
them. Where the prompt already opened `<think>`, the answer does not open it again.

A prompt that is too long loses its oldest messages, whole, but never the system message or the last question; if that does
not help, the example is refused (`None`) for the caller to count. The end of an answer is never truncated.

A model without a chat template gets DEFAULT_TEMPLATE. The template itself is untrusted data: transformers renders it in its
sandbox.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from jinja2.exceptions import TemplateError

from medloop.contracts import Message
from medloop.errors import ModelError

THINK, END_THINK = "<think>", "</think>"
DEFAULT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ '### Question:\n' + message['content'] + '\n\n' }}"
    "{% else %}{{ '### Answer:\n' + message['content'] + eos_token + '\n\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '### Answer:\n' }}{% endif %}"
)
MARK = "ANSWERGOESHERE"  # stands for an answer when we look up how the template ends one
MAX_BREAKS = 8  # rounds of breaking up control tokens; one is enough unless a text is made to resist


class Example(NamedTuple):
    """One training example; `completion_mask` is 1 on the answer and its end token. Both lists have the same length."""

    input_ids: list[int]
    completion_mask: list[int]
    dropped_messages: int = 0


def encode_prompt(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The ids that a model continues: all messages so far, and the template's opening of an answer."""
    return tokenise(tokenizer, render_prompt(tokenizer, messages))


def fit_prompt(tokenizer: Any, messages: Sequence[Message], max_length: int) -> list[int] | None:
    """As `encode_prompt`, with the oldest messages left out until at most `max_length` ids remain; None if that cannot be."""
    for remaining, _ in shorter(messages):
        ids = encode_prompt(tokenizer, remaining)
        if len(ids) <= max_length:
            return ids
    return None


def encode_example(tokenizer: Any, messages: Sequence[Message], *, max_length: int | None = None) -> Example | None:
    """Prompt, answer (the last message) and end token; None when it cannot be made to fit `max_length`."""
    assert messages and messages[-1].role == "assistant", "an example ends with the answer"
    for remaining, dropped in shorter(messages[:-1]):
        prompt = render_prompt(tokenizer, remaining)
        prompt_ids = tokenise(tokenizer, prompt)
        answer_ids = tokenise(tokenizer, _continue(prompt, neutralise(tokenizer, messages[-1].content))) + end_ids(tokenizer)
        if max_length is None or len(prompt_ids) + len(answer_ids) <= max_length:
            return Example(prompt_ids + answer_ids, [0] * len(prompt_ids) + [1] * len(answer_ids), dropped)
    return None


def render_prompt(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The prompt as text, with control tokens in the messages broken up."""
    safe = [{"role": m.role, "content": neutralise(tokenizer, m.content)} for m in messages]
    return _render(tokenizer, safe, add_generation_prompt=True)


def tokenise(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt ends inside `<think>`, so that an answer continues the reasoning."""
    return prompt.rstrip().endswith(THINK)


def end_ids(tokenizer: Any) -> list[int]:
    """The ids that end an answer: what the template puts after it, up to its stop token; else the eos token."""
    return list(_facts(tokenizer).end)


def control_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that steer a model: special tokens, and added tokens that the template itself writes. Never the think tags.

    Nor added tokens of nothing but space: Gemma has them for line breaks, which any text may have.
    """
    return _facts(tokenizer).control


def think_ids(tokenizer: Any) -> set[int]:
    return {i for i, token in tokenizer.added_tokens_decoder.items() if token.content in (THINK, END_THINK)}


def template_of(tokenizer: Any) -> str:
    """The model's chat template, or DEFAULT_TEMPLATE; of several named ones, the one called default."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return template or DEFAULT_TEMPLATE


def neutralise(tokenizer: Any, text: str) -> str:
    """`text` with a space inside everything that the tokenizer would turn into a control token; other text is unchanged."""
    for _ in range(MAX_BREAKS):
        spans = _control_spans(tokenizer, text)
        if not spans:
            return text
        for start, end in reversed(spans):
            # After the first character; a control token of one character has no inside and is removed.
            text = f"{text[: start + 1]} {text[start + 1 :]}" if end - start > 1 else text[:start] + text[end:]
    raise ModelError("A text keeps turning into control tokens however it is broken up", "Leave that record out")


def _control_spans(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Where control ids come from. The tokenizer itself also finds spellings that it normalises into one."""
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    control, spans = control_ids(tokenizer), set()
    for token, (start, end) in zip(encoding["input_ids"], encoding["offset_mapping"], strict=True):
        if token in control and end > start:
            token_text = text[start:end].strip()  # some control tokens include the spaces around them
            first = text.index(token_text, start)
            spans.add((first, first + len(token_text)))
    return sorted(spans)


class _TemplateFacts(NamedTuple):
    template: str
    control: frozenset[int]
    end: tuple[int, ...]


_known: WeakKeyDictionary[Any, _TemplateFacts] = WeakKeyDictionary()  # computed once per tokenizer and template


def _facts(tokenizer: Any) -> _TemplateFacts:
    template, known = template_of(tokenizer), _known.get(tokenizer)
    if known is None or known.template != template:
        control = _find_control(tokenizer, template)
        known = _known[tokenizer] = _TemplateFacts(template, control, _find_end(tokenizer, control))
    return known


def _find_control(tokenizer: Any, template: str) -> frozenset[int]:
    added = tokenizer.added_tokens_decoder.items()
    steering = {i for i, token in added if token.special or (token.content.strip() and token.content in template)}
    return frozenset((steering | set(tokenizer.all_special_ids)) - think_ids(tokenizer))


def _find_end(tokenizer: Any, control: frozenset[int]) -> tuple[int, ...]:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": MARK}]
    _, mark, after = _render(tokenizer, messages, add_generation_prompt=False).rpartition(MARK)
    ids = tokenise(tokenizer, after) if mark else []
    for place, token in enumerate(ids):
        if token in control:
            return tuple(ids[: place + 1])
    if tokenizer.eos_token_id is None:
        raise ModelError("The tokenizer has no end token, so a model could not learn to stop", "Use a model with an eos_token")
    return (tokenizer.eos_token_id,)


def _continue(prompt: str, answer: str) -> str:
    """The answer as the prompt continues: no second `<think>`, and a closed one when there is no reasoning."""
    if not opens_thinking(prompt):
        return answer
    if answer.lstrip().startswith(THINK):
        rest = answer.lstrip().removeprefix(THINK)
        return rest.removeprefix("\n") if prompt.endswith("\n") else rest
    return f"\n{END_THINK}\n\n{answer}"


def shorter(messages: Sequence[Message]) -> list[tuple[Sequence[Message], int]]:
    """(messages, dropped): all, then without the oldest question and answer, and so on down to the last question."""
    head = list(messages[:1]) if messages and messages[0].role == "system" else []
    rest = messages[len(head) :]
    return [([*head, *rest[dropped:]], dropped) for dropped in range(0, max(len(rest), 1), 2)]


def _render(tokenizer: Any, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
    try:
        return str(
            tokenizer.apply_chat_template(
                messages, chat_template=template_of(tokenizer), tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )
    except TemplateError:
        if len(messages) > 1 and messages[0]["role"] == "system":
            # Some templates have no system role: its text then starts the first question, as their authors advise.
            first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
            return _render(tokenizer, [first, *messages[2:]], add_generation_prompt=add_generation_prompt)
        raise ModelError(
            f"The model's chat template refuses a conversation of {len(messages)} messages",
            "Check that questions and answers alternate",
        ) from None
