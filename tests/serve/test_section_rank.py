"""Inside the best document, what is asked about the disease decides, not the disease's name."""

import numpy as np

from medloop.contracts.knowledge import Chunk
from medloop.serve.agent.section_rank import WEIGHT, SectionRanking
from medloop.serve.agent.vectors import ExactNearest
from medloop.serve.agent.words import query_words

TEXTS = ("Tetanus, tetanus, tetanus: an overview of tetanus.", "Wounds are cleaned at once.", "The booster lasts ten years.")


def chunk(document: str, number: int, text: str) -> Chunk:
    return Chunk(
        document=document, page_index=0, page=1, start=100 * number, end=100 * number + len(text), headings=(), text=text
    )


CHUNKS = [*(chunk("doc_a", number, text) for number, text in enumerate(TEXTS)), chunk("doc_b", 0, "A booster for a rocket.")]
NONE = np.zeros((0, 0), np.float32)
SCORES = np.array([1.0, 0.5, 0.6, 0.2], np.float32)  # over all documents the name decides


def test_the_section_about_what_is_asked_gains_most_and_other_documents_nothing() -> None:
    ranking = SectionRanking(CHUNKS, {"doc_a": "Tetanus", "doc_b": "Rockets"}, ExactNearest(NONE).rows)
    gained = ranking.bonus(SCORES, query_words("How long does the tetanus booster last?"), None)
    assert gained.argmax() == 2 and gained[2] == WEIGHT and gained[0] < WEIGHT / 2 and gained[3] == 0


def test_meaning_counts_by_what_sets_a_section_apart() -> None:
    same, own = np.array([1, 0, 0], np.float32), np.array([0, 1, 0], np.float32)
    vectors = np.stack([same, same + 0.1 * np.array([0, 0, 1], np.float32), same + 0.5 * own, own]).astype(np.float32)
    ranking = SectionRanking(CHUNKS, {"doc_a": "Tetanus", "doc_b": "Rockets"}, ExactNearest(vectors).rows)
    gained = ranking.bonus(SCORES, [], (same + 0.3 * own) / np.linalg.norm(same + 0.3 * own))
    assert gained.argmax() == 2 and gained[2] == WEIGHT and gained[3] == 0


def test_nothing_found_and_a_document_of_one_piece_gain_nothing() -> None:
    ranking = SectionRanking(CHUNKS, {"doc_a": "Tetanus", "doc_b": "Rockets"}, ExactNearest(NONE).rows)
    assert not ranking.bonus(np.zeros(4, np.float32), ["x"], None).any()
    assert not ranking.bonus(np.array([0, 0, 0, 1], np.float32), ["booster"], None).any()
    assert not SectionRanking([], {}, ExactNearest(NONE).rows).bonus(np.zeros(0, np.float32), [], None).any()
