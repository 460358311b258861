"""Pairs that show where a corrected sentence does not belong: the answer of before, and the same answer with that sentence in it.

    contrast_pairs(lines, corrections, seed=42)     -> [Pair(prompt, "Rest.", "Ask for the weight of the child. Rest."), ...]

Pairs of corrections say that the sentence is better than none, and no pair says where it is worse: DPO on them alone said a
child's dose in 69 of 120 ordinary answers (docs/log.md#repair). An answer that has the sentence, or is in a language of which
there is no correction, gives no pair. Whether a question of before needs the sentence nobody knows: its answer stands as the
better one.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from medloop import lexicon
from medloop.lexicon.language import detect_language
from medloop.models.template import END_THINK
from medloop.store.files.answer_lines import ConversationLine
from medloop.train.examples.pairs import Pair


class AddedSentence(NamedTuple):
    """What a correction added, and whether it stood first."""

    text: str
    leads: bool


def contrast_pairs(lines: Iterable[ConversationLine], corrections: Sequence[Pair], *, seed: int) -> list[Pair]:
    """For each line a pair, with a sentence of one of the corrections in its language, drawn by the seed."""
    rng, pairs = random.Random(f"contrast-{seed}"), []
    added: dict[str, list[AddedSentence]] = {}
    for sentence in added_sentences(corrections):
        added.setdefault(detect_language(sentence.text), []).append(sentence)
    for line in lines:
        answer = line.conversation.answer or ""
        thoughts, mark, visible = answer.rpartition(END_THINK)
        if choices := added.get(detect_language(visible)):
            sentence = rng.choice(choices)
            if sentence.text not in visible:
                worse = f"{thoughts}{mark}{_with(visible, sentence)}"
                pairs.append(Pair(line.conversation.prompt, answer, worse, passages=line.passages))
    return pairs


def added_sentences(corrections: Sequence[Pair]) -> list[AddedSentence]:
    """Of each correction the new sentence that most of them have; of equals the first."""
    new = [_new_sentences(pair) for pair in corrections]
    frequency = Counter(sentence.text for sentences in new for sentence in set(sentences))
    return [max(sentences, key=lambda sentence: frequency[sentence.text]) for sentences in new if sentences]


def _new_sentences(pair: Pair) -> list[AddedSentence]:
    chosen, rejected = (_sentences(answer) for answer in (pair.chosen, pair.rejected))
    return [AddedSentence(text, number == 0) for number, text in enumerate(chosen) if text not in rejected]


def _sentences(answer: str) -> list[str]:
    visible = answer.rpartition(END_THINK)[2].strip()
    return [visible[start:end].strip() for start, end in lexicon.sentences(visible)]


def _with(visible: str, sentence: AddedSentence) -> str:
    """The answer with the sentence in front or at the end, as in the correction."""
    text = visible.lstrip()
    space = "" if detect_language(sentence.text) == "zh" else " "
    start = visible[: len(visible) - len(text)]
    return f"{start}{sentence.text}{space}{text}" if sentence.leads else f"{visible.rstrip()}{space}{sentence.text}"
