"""Is a candidate of the network a name? Learned weights for what the network, the lists and the place of the characters say.

The table of situations (names.py) asks one number of the network in each situation. This adds up all that is known about a
candidate: a word of the lists at the beginning of a note may be a name, the same word inside a sentence is not. A logistic
regression; the weights (assets/phi/choice_zh.json) are learned by tools/train_phi_choice.py.
"""

import json
import math
from functools import lru_cache

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese.cues import PERSON_WORD, RECORD
from medloop.privacy.phi.guards import lazy_pattern

SURE = 0.5  # from here a candidate is a name
SURE_OF_WORD = 0.8  # the same for a word that begins with a surname
SURE_OF_TERM = 0.95  # the same for a term
UNLIKELY = 0.1  # below this it is not, whatever the situation asks
UNLIKELY_IN_LONG = 0.4  # the same in a text that is longer than a note
UNLIKELY_ALONE = 0.3  # the same where neither a role, a title nor a verb says that this is a person
UNLIKELY_IN_LONG_ALONE = 0.6  # the same in a longer text
SURE_OF_SEEN = 0.85  # the same for characters that stand side by side in medical texts
DOUBTFUL = 0.05  # from here a candidate that is left is a reason to doubt
DOUBTFUL_GIVEN = 0.12  # the same for a candidate without a surname
DOUBTFUL_WORD = 0.4  # the same for such a word
DOUBTFUL_SEEN = 0.8  # the same for characters that stand side by side in medical texts, with nothing that names a person
_DIGIT = lazy_pattern(r"\d")


@lru_cache(maxsize=4)
def is_record(text: str) -> bool:
    return RECORD.search(text) is not None


def text_features(text: str, has_certain: bool) -> dict[str, float]:
    """What is the same for all candidates of a text. `has_certain`: the network is certain of one of them."""
    known = {
        "record": is_record(text), "person": PERSON_WORD.search(text) is not None, "certain": has_certain,
        "short text": len(text) < 60, "long text": len(text) > 200, "digits": _DIGIT.search(text) is not None,
    }  # fmt: skip
    return {name: float(value) for name, value in known.items()}


def chance(features: dict[str, float]) -> float:
    weights = _weights()
    total = weights["always"] + sum(weights[name] * value for name, value in features.items() if value)
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


@lru_cache(maxsize=1)
def _weights() -> dict[str, float]:
    weights: dict[str, float] = json.loads((lists.FOLDER / "choice_zh.json").read_text(encoding="utf-8"))
    return weights
