"""How often the mark of the privacy review is on the name that a text was held for.

    python benchmarks/review_marks.py

Sentences with an invented name are scanned. Those that are held while the name itself was not removed are marked; counted is how
many marks cover the name. The names are combined from syllables and characters.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from medloop.feedback.review.quarantine_marks import marks
from medloop.privacy.phi.scrub import assess

SYLLABLES = "ka lo mi ren tas vel dor quin bru wex hal ster nor pim gra zel".split()
ENGLISH = (
    "grandpa {} fell again and thinks it is the pills",
    "{} says the new inhaler makes her cough. Is that normal?",
    "my neighbour {} takes warfarin and drinks grapefruit juice",
    "can {} stop metformin before the scan",
    "the rash on {} got worse overnight, what now",
    "asked nurse {} about the dose, she was not sure. Should I wait?",
    "i care for {} who has dementia and will not eat",
)
SURNAMES = "王李张刘陈杨黄赵周吴徐孙朱马胡林郭何高罗郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余叶蒋杜苏魏程吕丁沈任姚卢傅钟常乐安"
GIVEN = "明华芳丽伟强军娜静敏秀英霞玲建国平刚桂香春梅可心小满嘉怡宇航子涵思远若曦清和知非"
CHINESE = (
    "邻居{}让我试试二甲双胍",
    "昨天{}说吃完海鲜就起疹子",
    "护工{}给他喂了药，要紧吗",
    "{}的血压一直降不下来，怎么办",
    "孩子跟着{}去过游泳馆，现在起疹子",
    "听{}说头孢不能配酒，是真的吗",
)


def measure(sentences: tuple[str, ...], name: Callable[[], str], texts: int, rng: random.Random) -> dict[str, float]:
    held = covered = 0
    marked = seconds = 0.0
    for _ in range(texts):
        person = name()
        text = rng.choice(sentences).format(person)
        start = text.index(person)
        end, result = start + len(person), assess(text)
        if not result.quarantined or any(span.start < end and start < span.end for span in result.spans):
            continue
        started = time.process_time()
        (text_marks,) = marks([text])
        seconds += time.process_time() - started
        doubts = [mark for mark in text_marks if mark.what == "doubt"]
        held, covered = held + 1, covered + any(mark.start <= start and end <= mark.end for mark in doubts)
        marked += sum(mark.end - mark.start for mark in doubts) / len(text)
    n = max(1, held)
    return {"texts": texts, "held": held, "on_name": covered / n, "marked": marked / n, "ms": 1000 * seconds / n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1500, help="sentences of each language")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    names: dict[str, tuple[tuple[str, ...], Callable[[], str]]] = {
        "English": (ENGLISH, lambda: "".join(rng.sample(SYLLABLES, rng.choice((2, 3))))),
        "Chinese": (CHINESE, lambda: rng.choice(SURNAMES) + "".join(rng.sample(GIVEN, rng.choice((1, 2))))),
    }
    results = {language: measure(*inputs, args.texts, rng) for language, inputs in names.items()}
    for language, result in results.items():
        held = f"{result['held']:.0f} of {result['texts']:.0f} held with the name in them"
        share = f"mark on the name {result['on_name']:.0%}, text marked {result['marked']:.0%}"
        print(f"{language}: {held}; {share}; {result['ms']:.1f} ms each")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
