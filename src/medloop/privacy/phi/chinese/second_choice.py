"""Is what the second network sees a name, and if not, a reason to doubt? Learned weights for all that is known.

Both networks, the lists and the place of the characters are added up in a logistic regression, as in choice.py. The weights
(assets/phi/second_choice_zh.json) are learned by tools/train_phi_second_choice.py from real sentences in which a name stands for
a relative.
"""

import json
import math
from functools import lru_cache

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese import names
from medloop.privacy.phi.chinese.words import is_given, is_pair, is_seen
from medloop.privacy.phi.guards import lazy_pattern

SURE = 0.8  # from here a candidate is a name
DOUBTFUL = 0.08  # from here it is a reason to doubt
DOUBTFUL_WORD = 0.35  # the same where its characters are a known pair
DOUBTFUL_TOPIC = 0.45  # the same behind 问到, where mostly a topic stands
_HAN = lazy_pattern(r"[\u3400-\u9fff]")


def features_of(text: str, start: int, end: int, chances: tuple[float, float, float], first: float) -> dict[str, float]:
    """`chances`: of the second network, the highest and the mean of these characters, and that a name begins here.

    `first`: the highest chance of the first network there.
    """
    best, mean, begins = chances
    word, name = text[start:end], names.NameCandidate(text, start, end)
    known = {
        "given": is_given(word), "twice": len(word) == 2 and word[0] == word[1], "dot": "·" in word or "•" in word,
        "long": len(word) > 4, "small": word[0] in "小阿老大", "clause": start == 0 or not _HAN.match(text, start - 1),
        "any pair": any(is_pair(text, index) for index in range(start, end - 1)),
        "seen pair": any(is_seen(text, index) for index in range(start, end - 1)),
        "any pair before": start > 0 and is_pair(text, start - 1), "any pair behind": end < len(text) and is_pair(text, end - 1),
        "next is a pair": is_pair(text, end, often=True),
    }  # fmt: skip
    features = names.features_of(name, best) | {feature: float(value) for feature, value in known.items()}
    features["logit"] = _logit(best)
    return features | {"mean": _logit(mean), "begins": _logit(begins), "first": _logit(first)}


def chance(features: dict[str, float]) -> float:
    weights = _weights()
    total = weights["always"] + sum(weights.get(name, 0.0) * value for name, value in features.items() if value)
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def _logit(share: float) -> float:
    return math.log((share + 1e-4) / (1 - share + 1e-4)) / 4


@lru_cache(maxsize=1)
def _weights() -> dict[str, float]:
    weights: dict[str, float] = json.loads((lists.FOLDER / "second_choice_zh.json").read_text(encoding="utf-8"))
    return weights
