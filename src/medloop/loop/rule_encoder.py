"""Likeness of rules by meaning: the sentence encoder of the workspace, loaded when two rules have to be compared.

    propose_new(store, actor="usr_1", embed=rule_encoder(settings))

It is the encoder that searches documents (`loop/knowledge.py`): `reward.encoder`, else BAAI/bge-m3 where it is installed, else
embedded:minilm. A text in a language that it does not read is like no other; without an encoder, the words decide alone.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from medloop.codebook.similar import Embed
from medloop.lexicon.language import detect_language
from medloop.loop.knowledge import encoder_place, load_text_encoder
from medloop.serve.agent.search import TextEncoder
from medloop.settings import Settings


def rule_encoder(settings: Settings) -> Embed | None:
    """Rows of length 1, rows of zeros for texts that it does not read; None where no encoder is installed."""
    if encoder_place(settings) is None:
        return None

    @cache
    def encoder() -> TextEncoder | None:
        return load_text_encoder(settings)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        loaded = encoder()
        if loaded is None:
            return np.zeros((len(texts), 1), np.float32)
        rows = np.zeros((len(texts), loaded.width), np.float32)
        readable = [index for index, text in enumerate(texts) if loaded.reads_chinese or detect_language(text) == "en"]
        if readable:
            rows[readable] = loaded.encode([texts[index] for index in readable])
        return rows

    return embed
