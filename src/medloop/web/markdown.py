"""Answers as people read them: Markdown as safe HTML, and the reasoning apart from the answer.

Raw HTML stays visible as text. Links and images are not turned into anything a reader could click or load: the address stays
readable where the model wrote it. What comes out has only the tags of TAGS, with no attribute but the first number of a list.

A rater has to see every word. Markdown hides some (cells beyond the last column, very deep lists); where a letter or a digit
would be missing, the text is shown as it was written.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

TAGS = frozenset(
    "p br hr h4 h5 h6 ul ol li strong em s code pre blockquote table thead tbody tr th td".split()
)  # a page has its own h1 to h3
_LIST_NUMBER = re.compile(r"(?m)^([\s>*+-]*)\d{1,9}[.)](?=\s|$)")
_REASONING = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class AnswerView:
    """What the model wrote for itself (`<think>`), and what it said."""

    reasoning: str
    text: str


def split_reasoning(answer: str) -> AnswerView:
    """An unclosed `<think>` is reasoning to the end, as for a patient who sees nothing of it."""
    chains = [chain.strip() for chain in _REASONING.findall(answer)]
    return AnswerView("\n\n".join(chain for chain in chains if chain), _REASONING.sub("", answer).strip())


def reasoning_spans(answer: str) -> list[tuple[int, int, bool]]:
    """The stretches of an answer without the marks of its reasoning; True for those that are reasoning."""
    spans, end = list[tuple[int, int, bool]](), 0
    for match in _REASONING.finditer(answer):
        spans += [(end, match.start(), False), (*match.span(1), True)]
        end = match.end()
    return [*spans, (end, len(answer), False)]


def render_markdown(text: str) -> Markup:
    tokens = _PARSER.parse(text)
    for token in _walk(tokens):
        _simplify(token)
    written, shown = _letters([_LIST_NUMBER.sub(r"\1", text)]), _letters(token.content for token in _walk(tokens, leaves=True))
    if written - shown:
        return Markup("<pre>{}</pre>").format(text)
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))


def _letters(texts: Iterable[str]) -> Counter[str]:
    return Counter(letter for text in texts for letter in text if letter.isalnum())


def _walk(tokens: Iterable[Token], *, leaves: bool = False) -> Iterator[Token]:
    for token in tokens:
        if not (leaves and token.children):
            yield token
        yield from _walk(token.children or (), leaves=leaves)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.enable(["table", "strikethrough"])
    return parser.disable(["link", "image", "autolink", "reference", "entity", "html_block", "html_inline"])


def _simplify(token: Token) -> None:
    """Without attributes, and headings below those of the page."""
    token.attrs = {name: value for name, value in token.attrs.items() if name == "start" and token.tag == "ol"}
    if token.info and token.type == "fence":  # what stands beside the fence is part of the text; it would become a class
        token.content, token.info = f"{token.info}\n{token.content}", ""
    if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
        token.tag = f"h{min(6, int(token.tag[1]) + 3)}"


_PARSER = _parser()
