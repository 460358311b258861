"""Collect words that medical texts write in small letters: drugs, germs and diseases, which are nobody when they have a capital.

    python tools/phi_terms_en.py en_medquad_qa.jsonl.gz en_pubmedqa_labeled.jsonl.gz ...

Reads the even rows of each file (the odd ones are for measuring) and writes src/medloop/assets/phi/terms_en.txt: words that stand
in at least three rows in small letters, are not in the list of ordinary words, and are no first name or surname. No text is kept.
"""

import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path

from phi_pairs_zh import texts

from medloop.privacy.phi.lists import NAMES, UNLISTED, is_listed, tier

LEAST = 3
OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/terms_en.txt"
WORD = re.compile(r"(?<![A-Za-z\-'’])[a-z]{4,30}(?![A-Za-z'’])")


def main() -> None:
    rows_with = Counter[str]()
    for name in sys.argv[1:]:
        with gzip.open(name, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if number % 2 == 0:
                    # A text without capitals says nothing: names are in small letters there, too.
                    mixed = (text for text in texts(json.loads(line)) if text != text.lower())
                    rows_with.update({word for text in mixed for word in WORD.findall(text)})
    words = sorted(
        word for word, count in rows_with.items() if count >= LEAST and tier(word) == UNLISTED and not is_listed(word, NAMES)
    )
    OUT.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


if __name__ == "__main__":
    main()
