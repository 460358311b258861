"""How fast rules and detectors score, on one core, beside a plain-regex baseline in the same run.

    python benchmarks/rules.py --out rules.json            # about half a minute
    python benchmarks/rules.py --file 20000                # also the whole command `medloop reward score FILE` on so many answers

Answers of the embedded corpus, cut or joined to a median of 300 characters, zh and en in turn, each with its chain of thought.
Every number is the best of the rounds, as processor time and as wall time: other work on the machine moves the second one more.

    rules        every rule is called for every answer, as RL calls them one by one
    mix          the default mix scores all answers in one call: rules, gates, weights and reasons
    alone        every answer has its own question; "in groups of 8", eight answers share one; "zh" and "en" are the halves of
                 "alone" by language
    urgency      questions per second of the urgency detector alone, without the encoder: one at a time, and many in one call, as
                 `medloop reward detect` reads a file
    adversarial  keyword stuffing, repeated words, brackets, denials everywhere, words that nearly match, one sign drawn out,
                 think tags in think tags, a few words behind a chain of thought, and nothing but phrases of the lexicon in
                 chain and answer
    long         the same kinds of text with 4,000 and with 16,000 characters: the cost may grow with the length, so up to four
                 times (six are allowed: a cold start and other work on the machine are in it)
    plain regex  the baseline: one alternation of every phrase in the lexicon, no negation, no doses, no reasons

`compiled` says whether the modules came from `make compile`; run it once with and once without. The targets are 2,000 answers/s,
5,000 questions/s, adversarial text at no more than twice the cost, and cost in proportion to the length; `met` says whether this
run reached them.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from medloop.contracts import Rule, Sample
from medloop.embedded.corpus import generate
from medloop.lexicon import scan
from medloop.lexicon.load import load_lexicon
from medloop.reward.detect.urgency import detector, urgency
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rules import RULES

SIZE = 300  # characters
TARGET_PER_SECOND, URGENCY_PER_SECOND, MAX_ADVERSARIAL_COST = 2000, 5000, 2.0
LONG, MAX_GROWTH = (4_000, 16_000), 6.0  # characters; times the cost for four times the length
BASELINE_ANSWERS = 4  # the baseline takes a tenth of a second for one
Pair = tuple[str, str]


def corpus(count: int) -> list[Pair]:
    """Answers of about SIZE characters: English ones are cut at sentence ends, Chinese ones get sentences of their neighbours."""
    rows = [_pair(row) for row in generate(count * 3, seed=9)]
    en = [(question, _cut(answer)) for question, answer in rows if answer.isascii() and "</think>" in answer]
    zh = [(question, answer) for question, answer in rows if not answer.isascii() and "</think>" in answer]
    more = "".join(answer.partition("</think>")[2] for _, answer in zh)
    longer = [(q, a + more[n * 160 : n * 160 + max(0, SIZE - len(a))]) for n, (q, a) in enumerate(zh)]
    return [pair for zh_and_en in zip(longer, en, strict=False) for pair in zh_and_en][:count]


def _pair(row: dict[str, Any]) -> Pair:
    by_role = {message["role"]: message["content"] for message in row["messages"]}
    return by_role["user"], by_role["assistant"]


def _cut(answer: str) -> str:
    """Chain and body of half the size each, whole sentences."""
    chain, _, body = answer.partition("</think>")
    half = SIZE // 2
    return f"{chain[: chain.rfind('.', 0, half + 30) + 1]}\n</think>{body[: body.rfind('.', 0, half + 30) + 1]}"


def adversarial(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The same sizes, filled with what costs most."""
    stuffings = {
        "keywords zh": "危险信号可能原因建议就医孕妇立即拨打120急诊不用担心布洛芬400毫克每天三次",
        "keywords en": "red flag likely cause plan child call 911 emergency department now take ibuprofen 400 mg no worries ",
        "repeated": "没有胸痛。no chest pain. ",
        "brackets": "<think></think><!-- --> [ ] { } ",
        "digits": "1 2 3 mg 每天 1 次 400 毫克 ",
        "denials zh": "没有胸痛，不要吃布洛芬，否认发热，不用去急诊，",
        "denials en": "no chest pain, do not take ibuprofen, denies fever, never call 911, ",
        "near matches": "chest-pai can'tbreathe 胸 疼疼 ibuprofe 12 0 911x emergency-departmen ",
        "drawn out": "aaaaaaaaaaaaaaaaaaaaaaa ",
        "nested": "<think><think>胸痛</think> call 911 <!-- <think> -->",
    }
    texts: dict[str, list[Pair]] = {
        name: [(q, (text * (len(a) // len(text) + 1))[: len(a)]) for q, a in pairs] for name, text in stuffings.items()
    }
    texts["long chain"] = [(q, f"<think>{a[: max(0, len(a) - 30)]}</think>多喝水。") for q, a in pairs]
    for language in ("zh", "en"):
        texts[f"lexicon {language}"] = [(q, stuffed(len(a), seed, language)) for seed, (q, a) in enumerate(pairs)]
    return texts


def stuffed(size: int, seed: int, language: str) -> str:
    """Nothing but phrases of the lexicon, none twice, half of them in the chain: the most that can be found in a text."""
    phrases = [phrase for phrase in all_phrases() if phrase.isascii() == (language == "en")]
    words = random.Random(seed).sample(phrases, 80)
    text = (" " if language == "en" else "，").join(words)
    return f"<think>{text[: size // 2]}。</think>{text[size // 2 : size - 16]}"


def score_all(pairs: Sequence[Pair]) -> None:
    rules = tuple(RULES.values())
    for question, answer in pairs:
        for rule in rules:
            rule.score(question, answer)


def ask_urgency(pairs: Sequence[Pair]) -> None:
    for question, _ in pairs:
        urgency(question)


def read_urgency(pairs: Sequence[Pair]) -> None:
    detector().read([question for question, _ in pairs])


def long_texts(size: int) -> dict[str, list[Pair]]:
    """One answer of this size of every adversarial kind, and the same as a question."""
    texts = adversarial([("My chest hurts and I feel sick.", "x" * size)])
    for language, joint in (("zh", "，"), ("en", " ")):  # as many phrases of the lexicon as the size takes
        phrases = [phrase for phrase in all_phrases() if phrase.isascii() == (language == "en")]
        random.Random(1).shuffle(phrases)
        texts[f"lexicon {language}"] = [("My chest hurts.", (joint.join(phrases) + joint)[:size])]
    asked = {f"{name}, asked": [(answer, "Call a doctor now.") for _, answer in pairs] for name, pairs in texts.items()}
    return texts | asked


def growth() -> dict[str, float]:
    """How many times as long the longer text of each kind takes; the least of three different texts, because texts are cached."""
    score_all([pair for pairs in long_texts(LONG[0]).values() for pair in pairs])  # compiles every expression
    cost: dict[str, list[float]] = {}
    for size in LONG:
        for name, pairs in long_texts(size).items():
            texts = [[(f"{n} {question}", f"{n} {answer}")] for n in range(3) for question, answer in pairs]
            cost.setdefault(name, []).append(min(microseconds(score_all, text, 1)[0] for text in texts))
    return {name: round(long / short, 1) for name, (short, long) in cost.items()}


def score_one(rule: Rule, pairs: Sequence[Pair]) -> None:
    for question, answer in pairs:
        rule.score(question, answer)


@cache
def all_phrases() -> tuple[str, ...]:
    return tuple(sorted({phrase for pattern in load_lexicon().matcher.patterns for part in pattern.parts for phrase in part}))


def plain_regex() -> Callable[[Sequence[Pair]], None]:
    pattern = re.compile("|".join(re.escape(phrase) for phrase in sorted(all_phrases(), key=len, reverse=True)))

    def find(pairs: Sequence[Pair]) -> None:
        for question, answer in pairs:
            pattern.findall(question.lower())
            pattern.findall(answer.lower())

    return find


def mixed() -> Callable[[Sequence[Pair]], None]:
    mix = build_mix(MixConfig())

    def score(pairs: Sequence[Pair]) -> None:
        mix.score([Sample(id=str(n), question=question, answer=answer) for n, (question, answer) in enumerate(pairs)])

    return score


def microseconds(work: Callable[[Sequence[Pair]], None], pairs: Sequence[Pair], rounds: int) -> tuple[float, float]:
    """Processor and wall time per answer, best of the rounds; there are more texts than the lexicon caches."""
    times = []
    for _ in range(rounds):
        cpu, wall = time.process_time(), time.perf_counter()
        work(pairs)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    return tuple(round(min(column) / len(pairs) * 1e6, 1) for column in zip(*times, strict=True))


def per_second(work: Callable[[Sequence[Pair]], None], pairs: Sequence[Pair], rounds: int) -> dict[str, int]:
    cpu, wall = microseconds(work, pairs, rounds)
    return {"cpu": round(1e6 / cpu), "wall": round(1e6 / wall)}


def command_on_file(pairs: Sequence[Pair], count: int) -> dict[str, Any]:
    """`medloop reward score FILE` as a user runs it, with start and output, on answers that differ."""
    with tempfile.TemporaryDirectory() as folder:
        medloop = [sys.executable, "-m", "medloop", "--home", f"{folder}/home"]
        subprocess.run([sys.executable, "-m", "medloop", "init", f"{folder}/home"], check=True, capture_output=True)
        rows = ((n, *pairs[n % len(pairs)]) for n in range(count))
        lines = [{"id": f"a{n}", "question": question, "answer": f"{answer} ({n})"} for n, question, answer in rows]
        file = Path(folder, "answers.jsonl")
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*medloop, "reward", "score", str(file)], check=True, capture_output=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = {"cpu_seconds": round(cpu, 1), "wall_seconds": round(wall, 1)}
    return {"answers": count, **seconds, "answers_per_second": {"cpu": round(count / cpu), "wall": round(count / wall)}}


def measure(count: int, rounds: int) -> dict[str, Any]:
    pairs, mix = corpus(count), mixed()
    score_all(pairs[:20])
    samples = {"alone": pairs, "in groups of 8": [(pairs[n - n % 8][0], answer) for n, (_, answer) in enumerate(pairs)]}
    rules = {name: per_second(score_all, sample, rounds) for name, sample in samples.items()}
    by_language = {"zh": pairs[::2], "en": pairs[1::2]}
    asked = list(dict(pairs).items())
    questions = {"one at a time": per_second(ask_urgency, asked, rounds), "in one call": per_second(read_urgency, asked, rounds)}
    few = pairs[: max(20, count // 4)]
    normal = microseconds(score_all, few, rounds)[0]
    hard = {name: microseconds(score_all, sample, 2)[0] for name, sample in adversarial(few).items()}
    worst = max(hard.values()) / normal
    longer = growth()
    baseline = microseconds(plain_regex(), pairs[:BASELINE_ANSWERS], 1)[0]
    return {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "compiled": not str(getattr(scan.__spec__, "origin", "")).endswith(".py"),
        "rules": {name: rule.version for name, rule in RULES.items()},
        "answers": len(pairs),
        "median_characters": statistics.median(len(answer) for _, answer in pairs),
        "answers_per_second": {
            "rules": rules,
            "rules by language": {name: per_second(score_all, sample, rounds) for name, sample in by_language.items()},
            "mix": {name: per_second(mix, sample, rounds) for name, sample in samples.items()},
            "plain regex": round(1e6 / baseline),
        },
        "urgency_questions_per_second": questions,
        "microseconds_of_a_rule_alone": {name: microseconds(partial(score_one, rule), few, 2)[0] for name, rule in RULES.items()},
        "adversarial_microseconds": hard,
        "adversarial_cost": round(worst, 2),
        "cost_of_four_times_the_length": longer,
        "times_faster_than_plain_regex": round(baseline * rules["alone"]["cpu"] / 1e6, 1),
        "met": {
            "2,000 answers/s": {name: speed["cpu"] >= TARGET_PER_SECOND for name, speed in rules.items()},
            "5,000 questions/s": {name: speed["cpu"] >= URGENCY_PER_SECOND for name, speed in questions.items()},
            "adversarial at most twice": worst <= MAX_ADVERSARIAL_COST,
            "cost in proportion to the length": max(longer.values()) <= MAX_GROWTH,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=320)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--file", type=int, metavar="N", help="also run `medloop reward score` on a file of N answers")
    parser.add_argument("--out", type=Path, default=Path("rules.json"))
    args = parser.parse_args()
    result = measure(args.answers, args.rounds)
    if args.file:
        result["command_on_file"] = command_on_file(corpus(args.answers), args.file)
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    args.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
