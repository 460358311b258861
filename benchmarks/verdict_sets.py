"""Texts for `verdicts.py`: the sets on which the rules were mended, and others that were kept apart for a second blind reader.

MENDED    consultations, health chat, an encyclopaedia, general chat: the last answer, or all answers of a consultation
FRESH     earlier answers of general chats, exam items, instructions, graded retrieval: no text of MENDED. Visits are in
              neither: the patient sits before a doctor there
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise

from acts import SETS, Answer, Row

Reader = Callable[[Row], Iterator[Answer]]


def turns(row: Row) -> Iterator[Answer]:
    """A dialogue: all that the patient has said, and each answer."""
    messages = row.get("messages") or row["prompt"]
    said: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "user":
            said.append(message["content"])
        elif message["role"] == "assistant" and said:
            yield f"{row['id']}#{index}", "\n".join(said), message["content"]
    if isinstance(row.get("ideal_completion"), str):
        yield f"{row['id']}#ideal", "\n".join(said), row["ideal_completion"]


def last_turn(*names: str) -> Reader:
    def rows(row: Row) -> Iterator[Answer]:
        for name in names:
            yield f"{row['id']}#{name}", row["prompt"][-1]["content"], row[name]

    return rows


def ranked(row: Row) -> Iterator[Answer]:
    for index, answer in enumerate(row["responses_best_first"]):
        yield f"{row['id']}#{index}", row["prompt"][-1]["content"], answer


def earlier_turns(row: Row) -> Iterator[Answer]:
    """What was answered before the last question, each to the question before it."""
    for index, (asked, answered) in enumerate(pairwise(row["prompt"])):
        if asked["role"] == "user" and answered["role"] == "assistant":
            yield f"{row['id']}#turn{index}", asked["content"], answered["content"]


def supported(row: Row) -> Iterator[Answer]:
    """A talk with a supporter: earlier turns, as they stand in the context of the last one."""
    parts = re.split(r"\[(seeker|supporter)\]", row["context"])[1:]
    lines = list(zip(parts[::2], parts[1::2], strict=False))
    for index, ((asker, said), (answerer, answer)) in enumerate(pairwise(lines)):
        if (asker, answerer) == ("seeker", "supporter"):
            yield f"{row['id']}#turn{index}", said, answer


def exam(row: Row) -> Iterator[Answer]:
    """An exam item with each of its options, and with its explanation."""
    for letter, option in row["options"].items():
        yield f"{row['id']}#{letter}", row["question"], str(option)
    yield f"{row['id']}#why", row["question"], str(row.get("explanation") or "")


def instructed(row: Row) -> Iterator[Answer]:
    for name in ("response1", "response2"):
        yield f"{row['id']}#{name}", f"{row['instruction']}\n{row['input']}".strip(), row[name]


MENDED: dict[str, Reader] = {
    **SETS,
    "zh_cmtmedqa_multiturn": turns, "pref_zh_disc_medllm_gpt4_scores": turns, "healthbench_examples": turns,
    "healthbench_meta_eval97": lambda row: iter(
        [(str(row["id"]), "\n".join(m["content"] for m in row["prompt"] if m["role"] == "user"), row["completion"])]
    ),
    "en_medquad_qa": lambda row: iter([(row["id"], row["question"], row["answer"])][: zlib.crc32(row["id"].encode()) % 4 == 2]),
    "pref_zh_oasst_ranked": ranked,
    "pref_en_hh_harmless": last_turn("chosen", "rejected"),
    "pref_zh_en_dpo_demo": last_turn("chosen", "rejected"),
}  # fmt: skip
FRESH: dict[str, Reader] = {
    "pref_en_hh_harmless": earlier_turns, "pref_zh_oasst_ranked": earlier_turns, "pref_zh_en_dpo_demo": earlier_turns,
    "safety_zh_mental_health_dialogue": supported,
    "rater_en_pandalm_3annotators": instructed, "zh_cmexam_val_explained": exam,
    "rank_en_liveqa_medquad_judged": lambda row: iter([(str(row["id"]), row["question"], row["answer"])]),
    "en_pubmedqa_labeled": lambda row: iter([(str(row["id"]), row["question"], row["long_answer"])]),
    "judge_en_judgebench_health": lambda row: (
        (f"{row['id']}#{name}", row["question"], row[name]) for name in ("response_A", "response_B")
    ),
    "zh_cmb_clin_cases": lambda row: (
        (f"{row['id']}#{index}", f"{row['case']}\n{item['question']}", item["answer"]) for index, item in enumerate(row["qa"])
    ),
}  # fmt: skip
