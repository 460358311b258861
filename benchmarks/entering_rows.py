"""Would it pay that new rows enter a batch as others end? Computed from real lengths and the measured cost of a step.

    python benchmarks/entering_rows.py --home WORKSPACE --adapter sft                           # answers sampled here
    python benchmarks/entering_rows.py --home WORKSPACE --model embedded:smollm2 --answers data/processed/train.jsonl
    python benchmarks/entering_rows.py --home WORKSPACE --model embedded:smollm2 --answers en_medquad_qa.jsonl.gz --longest 1024

Lengths are those of sampled answers, or of the answers of a file in the model's tokens, as of a model after SFT on it. On a CPU a
step is measured here for some numbers of rows and columns; on a GPU it is 1.79 ms and 0.006 ms a row (1.5B shape, H200, from
docs/log.md), and reading prompts is 8 ms, a guess. Nothing else is counted: no compaction, no drawing beyond the step.
"""

import argparse
import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from medloop.contracts import Message, ModelRef
from medloop.models.rollout.decode import sample_tokens
from medloop.models.template import encode_prompt
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.rl.policy import Policy, open_policy

ROWS, COLUMNS = (1, 2, 4, 8, 16, 32, 64, 128), (64, 128, 224, 320)
LEAVE, CHECK, MIN_ROWS, ENTER = 0.9, 16, 8, 8


def of_file(policy: Policy, path: Path, language: str | None) -> list[tuple[list[int], int]]:
    """Prompt and length of the answer."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    pairs = []
    for row in rows:
        messages = row.get("conversation", row).get("messages")
        question, answer = (messages[-2]["content"], messages[-1]["content"]) if messages else (row["question"], row["answer"])
        if language is None or language == row.get("language", row.get("lang")):
            pairs.append((question[:600], answer))
    random.Random(1).shuffle(pairs)
    tokenizer = policy.loaded.tokenizer
    return [
        (list(encode_prompt(tokenizer, [Message(role="user", content=question)])), len(tokenizer(answer)["input_ids"]) + 1)
        for question, answer in pairs[:800]
    ]


def sampled(policy: Policy, home: Path, longest: int) -> list[tuple[list[int], int]]:
    questions = [row["messages"] for row in jsonl.read(home / "data/rl/training_prompts.jsonl")]
    random.Random(1).shuffle(questions)
    asked = [list(encode_prompt(policy.loaded.tokenizer, [Message(**m) for m in messages])) for messages in questions[:100]]
    prompts = [prompt for prompt in asked for _ in range(8)]
    answers = policy.sampler()(prompts, [f"row {n}" for n in range(len(prompts))], max_new_tokens=longest)
    return [(prompt, len(answer.tokens)) for prompt, answer in zip(prompts, answers, strict=True)]


@torch.inference_mode()
def step_seconds(policy: Policy) -> np.ndarray:
    """(rows, columns): the fastest of three, in processor time."""
    decoder = policy.sampler().fast_decoder
    assert decoder is not None
    table = np.zeros((len(ROWS), len(COLUMNS)))
    for i, rows in enumerate(ROWS):
        for j, columns in enumerate(COLUMNS):
            cache, mask = decoder.new_cache(rows, columns + 1), torch.ones(rows, columns + 1, dtype=torch.bool)
            times = []
            for _ in range(3):
                began = time.process_time()
                hidden = decoder.step(torch.full((rows,), 5), torch.full((rows,), columns), mask, cache, columns)
                sample_tokens(decoder.logits(hidden), 1.0, torch.full((rows,), 0.5, dtype=torch.float64))
                times.append(time.process_time() - began)
            table[i, j] = min(times)
    return table


def on_cpu(table: np.ndarray, lengths: list[tuple[int, int]], size: int, *, enter: bool) -> float:
    """Seconds of all steps. Rows that end leave at once where others enter, else when a tenth has ended."""
    waiting, live, rows, total = list(lengths), list[list[int]](), 0, 0.0
    while waiting or live:
        if waiting and (len(live) <= LEAVE * size if enter else not live):
            live += [[prompt, answer, 1] for prompt, answer in waiting[: size - len(live)]]
            del waiting[: len(live) if not enter else size - rows]
            rows = len(live)
        live = [row for row in live if row[2] < row[1]]
        rows = len(live) if enter or len(live) <= LEAVE * rows else rows
        if not live:
            continue
        columns = max(prompt + done for prompt, _, done in live)
        by_rows = table[:, -1] + (columns - COLUMNS[-1]) * (table[:, -1] - table[:, 0]) / (COLUMNS[-1] - COLUMNS[0])
        if columns <= COLUMNS[-1]:
            by_rows = np.array([np.interp(columns, COLUMNS, times) for times in table])
        total += float(np.interp(rows, ROWS, by_rows))
        for row in live:
            row[2] += 1
    return total


def on_gpu(lengths: list[tuple[int, int]], size: int, longest: int, *, enter: bool) -> float:
    """Seconds, with looks every 16 steps; half of the places are given up where none waits."""
    waiting, live, places, total = [answer for _, answer in lengths], list[list[int]](), size, 0.0
    while waiting or live:
        if waiting and ((size - len(live)) * ENTER >= size if enter else not live):
            taken, places, total = size - len(live), min(size, len(live) + len(waiting)), total + 8e-3
            live += [[answer, 1] for answer in waiting[:taken]]
            del waiting[:taken]
        elif not (waiting and enter):
            while len(live) <= places // 2 >= MIN_ROWS:
                places //= 2
        steps = min(CHECK, *(longest - done for _, done in live))
        total += steps * (1.79e-3 + 6e-6 * places)
        live = [[answer, done + steps] for answer, done in live if done + steps < min(answer, longest)]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--model", default="embedded:tiny")
    parser.add_argument("--adapter")
    parser.add_argument("--answers", type=Path, help="file of questions and answers; without it they are sampled")
    parser.add_argument("--language", help="of the file's rows")
    parser.add_argument("--longest", type=int, default=160, help="tokens of an answer")
    args = parser.parse_args()
    settings = Settings(home=args.home, model=args.model, offline=True)
    policy = open_policy(ModelRef(base=args.model, adapter=args.adapter), settings, lora_r=8, lora_alpha=16)
    rows = of_file(policy, args.answers, args.language) if args.answers else sampled(policy, args.home, args.longest)
    lengths = [(len(prompt), min(answer, args.longest)) for prompt, answer in rows]
    order = sorted(range(len(rows)), key=lambda row: (-lengths[row][0], rows[row][0]))
    report: dict[str, Any] = {"answers": len(rows), "mean": float(np.mean(lengths, 0)[1]), "sd": float(np.std(lengths, 0)[1])}
    table = step_seconds(policy)
    for count, size in ((800, 16), (800, 64)):
        part = [lengths[row] for row in order if row < count]
        batches = on_cpu(table, part, size, enter=False)
        as_asked, entering = on_cpu(table, lengths[:count], size, enter=False), on_cpu(table, part, size, enter=True)
        by_length = on_cpu(table, sorted(part, key=lambda row: -row[1]), size, enter=True)
        report[f"cpu, {count} answers, {size} at once"] = {
            "seconds in batches": round(batches, 2), "times: entering": round(batches / entering, 2),
            "entering, longest answers first": round(batches / by_length, 2), "batches as asked": round(batches / as_asked, 2),
        }  # fmt: skip
    for count, size in ((128, 64), (256, 128), (400, 256), (400, 128), (800, 64)):
        part = [lengths[row] for row in order if row < count]
        batches, entering = (on_gpu(part, size, args.longest, enter=enter) for enter in (False, True))
        by_length = on_gpu(sorted(part, key=lambda row: -row[1]), size, args.longest, enter=True)
        report[f"gpu, {count} answers, {size} at once"] = {
            "seconds in batches": round(batches, 2), "times: entering": round(batches / entering, 2),
            "entering, longest answers first": round(batches / by_length, 2),
        }  # fmt: skip
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
