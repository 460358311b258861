"""`medloop knowledge add` with an encoder that needs no model, for a test that kills it: HOME FILE…"""

import sys
import time
from collections.abc import Sequence

import numpy as np
from knowledge_world import word_encoder

from medloop.cli import main
from medloop.loop import knowledge
from medloop.serve.agent.search import TextEncoder


def slow_encoder() -> TextEncoder:
    encoder = word_encoder()

    def encode(texts: Sequence[str]) -> np.ndarray:
        print("encoding", flush=True)  # noqa: T201
        time.sleep(0.05)
        return encoder.encode(texts)

    return TextEncoder(encoder.name, encoder.sha256, encoder.width, encoder.reads_chinese, encode)


if __name__ == "__main__":
    knowledge.load_text_encoder = lambda settings: slow_encoder()
    sys.argv = ["medloop", "--home", sys.argv[1], "knowledge", "add", *sys.argv[2:]]
    main()
