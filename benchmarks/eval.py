"""How fast `medloop eval` is: the second run against the first, and answers in batches against plain `generate`.

    python benchmarks/eval.py --out eval.json                            # 1,000 questions, three models
    python benchmarks/eval.py --questions 100 --out eval.json            # a quick look

Questions of the embedded clinic, in Chinese and English; the models are embedded:tiny and two LoRA adapters on it. Both runs are
the command in a process of its own, timed from start to end. The second finds that nothing has changed; then another report of
the same models is made, from the answers and scores in the cache. Neither loads a model.
Then the same prompts are answered by `TorchGenerator`, in batches, and one at a time by `model.generate`, greedily and to the
same length; each way is timed twice in turns, by the wall and by processor time, and the answers are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from transformers import AutoModelForCausalLM

from medloop.contracts import Message, ModelRef, Record
from medloop.data.text.risk import strata_of
from medloop.embedded.corpus import generate
from medloop.loop.workspace import init_workspace
from medloop.models.adapter import fresh_lora, save_adapter
from medloop.models.generate import TorchGenerator, load_generator
from medloop.models.template import encode_prompt
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.testing.records import make_record

TINY = Path(__file__).parent.parent / "src/medloop/assets/tiny"


def make_workspace(home: Path, questions: int) -> list[Record]:
    """A workspace with the questions as its gold set, and two adapters that are not zero."""
    init_workspace(home)
    rows: dict[str, dict[str, Any]] = {}
    for row in generate(10 * questions, seed=1):
        rows.setdefault(row["messages"][-2]["content"], row)
    records = [
        make_record(n, question, row["messages"][-1]["content"], language=row["language"], strata=strata_of(question))
        for n, (question, row) in enumerate(list(rows.items())[:questions])
    ]
    jsonl.write(home / "data/processed/gold_set.jsonl", records)
    for seed, name in enumerate(("first", "second")):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
        policy = get_peft_model(model, fresh_lora(model, r=8, lora_alpha=16, lora_dropout=0.0))
        for weight_name, weight in policy.named_parameters():
            if "lora_B" in weight_name:
                torch.nn.init.normal_(weight, std=0.01)
        (home / "models/lora" / name).mkdir()
        save_adapter(home / "models/lora" / name, policy, "embedded:tiny")
    return records


def run_eval(home: Path, questions: int, max_new_tokens: int, name: str = "bench") -> tuple[float, float]:
    """The command, from start to end: seconds by the wall and of the processor."""
    models = [f"--model=embedded:tiny{adapter}" for adapter in ("", "+first", "+second")]
    command = [sys.executable, "-m", "medloop", "--home", str(home), "eval", *models, "--split=gold", f"--n={questions}"]
    wall, before = time.perf_counter(), os.times()
    subprocess.run([*command, f"--max-new-tokens={max_new_tokens}", f"--name={name}"], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - wall, processor


def plain_generate(generator: TorchGenerator, prompts: list[tuple[Message, ...]], max_new_tokens: int) -> list[str]:
    """One prompt after the other, as the library's own method does it."""
    model, tokenizer = generator.loaded.model, generator.loaded.tokenizer
    answers = []
    for prompt in prompts:
        ids = torch.tensor([encode_prompt(tokenizer, prompt)])
        with torch.inference_mode():
            output = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        answers.append(tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True))
    return answers


def compare_ways(settings: Settings, records: list[Record], max_new_tokens: int, batch_size: int) -> dict[str, Any]:
    torch.set_num_threads(1)  # a second thread makes either way wait on a busy machine
    generator = load_generator(ModelRef(base="embedded:tiny"), settings)
    prompts = [record.conversation.prompt for record in records]

    def batched() -> list[str]:
        completions = generator(prompts, max_new_tokens=max_new_tokens, batch_size=batch_size)
        return [completion.text for completion in completions]

    ways: dict[str, Callable[[], list[str]]] = {
        "batched": batched,
        "plain": lambda: plain_generate(generator, prompts, max_new_tokens),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    texts: dict[str, list[str]] = {}
    batched()  # warm
    for _ in range(2):
        for name, way in ways.items():
            wall, processor = time.perf_counter(), time.process_time()
            texts[name] = way()
            seconds[name].append((time.perf_counter() - wall, time.process_time() - processor))
    best = {name: [min(run[column] for run in runs) for column in (0, 1)] for name, runs in seconds.items()}
    same = sum("".join(a.split()) == "".join(b.split()) for a, b in zip(texts["batched"], texts["plain"], strict=True))
    return {
        "prompts": len(prompts),
        "batch_size": batch_size,
        "wall_s": {name: round(row[0], 2) for name, row in best.items()},
        "processor_s": {name: round(row[1], 2) for name, row in best.items()},
        "speedup_wall": round(best["plain"][0] / best["batched"][0], 1),
        "speedup_processor": round(best["plain"][1] / best["batched"][1], 1),
        "same_answers": same,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--plain-questions", type=int, default=64, help="prompts for the comparison with plain generate")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("eval.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "clinic"
        records = make_workspace(home, options.questions)
        first = run_eval(home, options.questions, options.max_new_tokens)
        second = run_eval(home, options.questions, options.max_new_tokens)
        other = run_eval(home, options.questions, options.max_new_tokens, "other")
        asked = records[: options.plain_questions]
        ways = compare_ways(Settings(home=home, threads=1), asked, options.max_new_tokens, options.batch_size)
    result = {
        "questions": len(records),
        "models": 3,
        "max_new_tokens": options.max_new_tokens,
        "first_run": {"wall_s": round(first[0], 1), "processor_s": round(first[1], 1)},
        "second_run": {"wall_s": round(second[0], 1), "processor_s": round(second[1], 1)},
        "second_run_speedup": round(first[0] / second[0], 1),
        "second_run_speedup_processor": round(first[1] / second[1], 1),
        "another_report": {"wall_s": round(other[0], 1), "processor_s": round(other[1], 1)},
        "another_report_speedup_processor": round(first[1] / other[1], 1),
        "batches_against_plain_generate": ways,
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
