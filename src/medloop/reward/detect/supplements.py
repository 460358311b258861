"""Whether what an answer stops is a supplement and nothing else: vitamins are no prescribed medicine."""

from typing import Final

from medloop import lexicon
from medloop.lexicon.scan import fold
from medloop.patterns import lazy_pattern

_SUPPLEMENT: Final = lazy_pattern(r"\b(?:vitamins?|(?<!iron )supplements?|ginkgo|krill oil|herbal)\b|维生素|保健品|鱼油|钙片")
_MEDICINE: Final = lazy_pattern(  # anything else that could be stopped, or taken instead
    r"\b(?:pills?|tablets?|medic\w+|drugs?|meds|capsules?|doses?|insulin|inhalers?|injections?|shots?|prescri\w+|treatment|therapy|everything"
    r"|all of|instead|replace|(?<!stop )(?<!quit )(?:take|use|try|start|switch))\b|药|[^钙]片|胶囊|针|治疗|全部|所有|改|代替|换"
)


def only_supplements(question: str, sentence: str) -> bool:
    """Whether a sentence that stops something speaks of supplements and of no medicine, and neither does the question."""
    if not _SUPPLEMENT.search(sentence) or _MEDICINE.search(sentence):
        return False
    return not (_MEDICINE.search(fold(question)) or lexicon.find_drugs(question) or lexicon.find_drugs(sentence))
