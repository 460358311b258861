"""Train the weights that choose among the candidates of the second Chinese network (assets/phi/second_choice_zh.json).

    python tools/train_phi_second_choice.py --carriers texts.jsonl.gz ... --tagged 199801.txt --reviews pos.txt neg.txt

After hanzi_second.npz; same texts: same file. Names stand for a relative or a pronoun in real questions and answers (every fifth
even row, which the networks were not trained on), and in the texts of the trainers; the same rows as they are, newspaper lines
without a person, reviews, and questions and answers that we generate say what is no name. By Newton's method.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from phi_contexts_zh import KIN, ContextMaker, measured_names, review_sentences
from phi_corpus import strings
from phi_corpus_zh import NAMED, SENTENCE, Span
from phi_tagged_zh import frequent_nouns, tagged_sentences
from train_phi_choice import Sample, fit

from medloop.embedded.corpus import generate
from medloop.privacy.phi.chinese import names, network, second_opinion
from medloop.privacy.phi.chinese.cues import TITLED_BEHIND
from medloop.privacy.phi.normalize import fold

OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/second_choice_zh.json"
NAMED_TEXTS, OWN, LONGEST = 4000, 1000, 500
GENERATED = 0.5  # what a candidate in a generated text counts
NEWS, NO_MEDICINE, RIDGE = 2, 0.5, 1.0  # which lines of the newspaper, and what a candidate in it or in a review counts


def whole_texts(paths: Sequence[Path]) -> list[str]:
    """Texts of every fifth even row."""
    texts = list[str]()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if number % 10 == 8:
                    texts += [text[:LONGEST] for text in strings(json.loads(line)) if not NAMED.search(text)]
    return texts


def samples(text: str, spans: Sequence[Span], weight: float) -> Iterable[Sample]:
    folded = fold(text)
    if len(folded) != len(text) or not names._HAN.search(folded):
        return
    first = names.candidates(folded, network.load())
    if len(folded) > second_opinion.NOTE:
        opinion = second_opinion.opinion_on_long(folded, first, [])
    else:
        opinion = second_opinion.SecondOpinion(folded)
    for start, end, best in opinion.candidates() if opinion else ():
        if not spans and TITLED_BEHIND.match(folded, end):
            continue  # somebody may be named here
        seen = max((chance for begin, last, chance in first if begin < end and last > start), default=0.0)
        yield opinion.features_of(start, end, best, seen), any(begin < end and last > start for begin, last in spans), weight


def with_name(maker: ContextMaker, text: str) -> tuple[str, list[Span]]:
    """The text, or a sentence of it, with a name in the place of a relative or a pronoun."""
    match = maker.rng.choice(list(KIN.finditer(text)))
    name, start, end = maker.person(), 0, len(text)
    if maker.rng.random() < 0.5:
        start = max((text.rfind(sign, 0, match.start()) for sign in "。！？\n"), default=-1) + 1
        end = min((place for sign in "。！？\n" if (place := text.find(sign, match.end())) >= 0), default=len(text))
    before = text[start : match.start()]
    return before + name + text[match.end() : end], [(len(before), len(before) + len(name))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carriers", type=Path, nargs="+", required=True)
    parser.add_argument("--tagged", type=Path, required=True)
    parser.add_argument("--reviews", type=Path, nargs="+", required=True, help="plain text, a review a line")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    texts, tagged = whole_texts(args.carriers), tagged_sentences(args.tagged)
    reviews = review_sentences(args.reviews)
    maker = ContextMaker(992, texts, tagged, reviews, frequent_nouns(args.tagged), measured_names())
    rows = list[Sample]()
    for _ in range(NAMED_TEXTS):
        rows += samples(*with_name(maker, maker.rng.choice(maker.about_kin)), 1.0)
        rows += samples(*maker.text(), GENERATED)
    own = dict.fromkeys(message["content"] for row in generate(OWN, seed=8) for message in row["messages"])
    for piece in [*texts, *(piece for text in texts for piece in SENTENCE.findall(text)), *own]:
        rows += samples(piece, [], 1.0)
    for piece in [*maker.no_news[::NEWS], *reviews]:
        rows += samples(piece, [], NO_MEDICINE)
    weights = fit(rows, RIDGE)
    args.out.write_text(json.dumps(weights, indent=1) + "\n")
    print(
        f"{len(rows)} candidates, {sum(is_name for _, is_name, _ in rows)} of them names; {len(weights)} weights", file=sys.stderr
    )


if __name__ == "__main__":
    main()
