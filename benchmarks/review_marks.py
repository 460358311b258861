"""How often the mark of the privacy review is on the name that a text was held for.

    python benchmarks/review_marks.py

Sentences with an invented name in them are scanned. Those that are held while the name itself was not taken out are marked, and
it is counted how many marks cover the name. Names are made of syllables and signs here.
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


def measure(sentences: tuple[str, ...], name: Callable[[], str], texts: int, dice: random.Random) -> dict[str, float]:
    held = covered = 0
    marked = seconds = 0.0
    for _ in range(texts):
        who = name()
        text = dice.choice(sentences).format(who)
        start = text.index(who)
        end, seen = start + len(who), assess(text)
        if not seen.quarantined or any(one.start < end and start < one.end for one in seen.spans):
            continue
        began = time.process_time()
        (found,) = marks([text])
        seconds += time.process_time() - began
        doubts = [one for one in found if one.what == "doubt"]
        held, covered = held + 1, covered + any(one.start <= start and end <= one.end for one in doubts)
        marked += sum(one.end - one.start for one in doubts) / len(text)
    many = max(1, held)
    return {"texts": texts, "held": held, "on_name": covered / many, "marked": marked / many, "ms": 1000 * seconds / many}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1500, help="sentences of each language")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    wanted = parser.parse_args()
    dice = random.Random(wanted.seed)
    names: dict[str, tuple[tuple[str, ...], Callable[[], str]]] = {
        "English": (ENGLISH, lambda: "".join(dice.sample(SYLLABLES, dice.choice((2, 3))))),
        "Chinese": (CHINESE, lambda: dice.choice(SURNAMES) + "".join(dice.sample(GIVEN, dice.choice((1, 2))))),
    }
    found = {language: measure(*made, wanted.texts, dice) for language, made in names.items()}
    for language, one in found.items():
        held = f"{one['held']:.0f} of {one['texts']:.0f} held with the name in them"
        print(
            f"{language}: {held}; mark on the name {one['on_name']:.0%}, text marked {one['marked']:.0%}; {one['ms']:.1f} ms each"
        )
    if wanted.out:
        wanted.out.parent.mkdir(parents=True, exist_ok=True)
        wanted.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
