"""Train the judge of risky advice and false reassurance (`reward/detect/faults.py`) and write src/medloop/assets/faults/.

    python tools/train_faults.py --data DIR             # the same texts and library versions give the same files, byte for byte
    python tools/train_faults.py --data DIR --check     # also prints how questions are judged that a model has not seen

tools/faults/{en,zh}*.txt is our own text: blocks `## question`, lines `CODE answer`. R is risky advice, F false reassurance, S
safe advice and C comfort that is right. DIR has real consultations as `NAME.jsonl.gz` (SETS below); their text is not ours, so
that only our readers' labels stand here, by id, in tools/faults/labels.json (R, F, "?" for arguable, or "" for sound; the readers
are language models, no clinicians). Answers of these sets that nobody read count as sound with a small weight: one in twenty is
not. The half of each set whose ids have an even CRC-32 is never trained on: it is kept for measuring. Good answers of the
embedded corpus and sentences of tools/acts/ are sound, too. Answers to one question stay together when a quarter is held out.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ngram_features import features
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack
from train_acts import CORPUS as ACTS
from train_acts import read_corpus as read_acts

from medloop.embedded.corpus import generate
from medloop.reward.answer_text import split_answer
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.acts import acts
from medloop.reward.detect.faults import ASSETS, BITS, FAULTS, HEADS, describe, read_part
from medloop.reward.detect.ngrams import Kind, quantized, save_ngrams
from medloop.reward.rules.emergency import penalised_level

HERE = Path(__file__).parent / "faults"
LINE = re.compile(r"^([RSFC]) (\S.*)$")
SETS = {  # answers of each that count as sound although nobody read them
    "zh_toyhom_dialogue": 1500, "zh_huatuo26m_test_qa": 1500, "zh_cmtmedqa_multiturn": 750,
    "pref_zh_disc_medllm_gpt4_scores": 750, "triage_en_medicheck": 1500, "en_medquad_qa": 750,
}  # fmt: skip
UNREAD, GENERATED = 0.3, 600  # weight of an answer that nobody read; rows of the embedded corpus
READ = {"R": 1.0, "F": 1.0, "": 1.0, "?": 0.0}  # weight of an answer by its label
NEUTRAL_ACTS = frozenset(
    "N.d N.c N.q N.r D.d D.c D.q D.r Q.d F.d W.d X.d A.n A.q S.n C.n S.r C.r S.q C.q G.r G.q B.r B.q".split()
)
FAULTY = frozenset("RF")
FOLDS, L2, L2_SECOND, STEPS = 4, 1e-5, 1e-3, 150
# Codes for which each head is 1, and for which it is 0; "N" is any other sound answer, "H" home care.
LABELS = {
    "faulty": ("RF", "SCNH"), "risky": ("R", "SCNH"), "calming": ("FC", "RSN"), "reassuring": ("F", "SCN"), "danger": ("F", "C"),
}  # fmt: skip


class Row(NamedTuple):
    question: str
    answer: str
    code: str
    weight: float


def own_rows(kind: Kind) -> Iterator[Row]:
    for path in sorted(HERE.glob(f"{kind}*.txt")):
        question = ""
        for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if raw.startswith("## "):
                question = raw[3:]
            elif match := LINE.match(raw):
                yield Row(question, match[2], match[1], 1.0)
            elif raw.strip() and not raw.startswith("# "):
                raise SystemExit(f"{path.name}, line {number}: neither a question nor CODE answer")


def generated_rows(kind: Kind) -> Iterator[Row]:
    for row in generate(GENERATED, seed=13):
        if row["language"] == kind and row["quality"] == "good":
            yield Row(row["messages"][-2]["content"], row["messages"][-1]["content"], "N", UNREAD)


def sentence_rows(kind: Kind) -> Iterator[Row]:
    """Sentences of tools/acts/ that are neither risky nor soothing, as short answers to routine questions; H is home care."""
    routine = [row["messages"][-2]["content"] for row in generate(GENERATED, seed=17) if row["language"] == kind]
    routine = [question for question in routine if penalised_level(question) == "routine"]
    for row in read_acts(ACTS):
        if row.topic != "patients" and kind_of(row.text) == kind and (row.code in NEUTRAL_ACTS or row.code == "H.d"):
            question = routine[zlib.crc32(row.text.encode()) % len(routine)]
            yield Row(question, row.text, "H" if row.code == "H.d" else "N", UNREAD)


def pairs(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Id, question and answer of everything that a row of a set says."""
    id = str(row["id"])
    if "responses" in row:
        for reply in row["responses"]:
            yield f"{id}#{reply['system']}", row["query"], reply["text"]
    elif messages := row.get("messages") or row.get("prompt"):
        for index, message in enumerate(messages):
            if message["role"] == "assistant" and index:
                yield f"{id}#{index}", messages[index - 1]["content"], message["content"]
    else:
        yield id, f"{row.get('title', '')} {row['question']}".strip(), row["answer"]


def real_rows(folder: Path, kind: Kind) -> Iterator[Row]:
    labels = json.loads((HERE / "labels.json").read_text(encoding="utf-8"))
    for name, unread in SETS.items():
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            replies = [reply for line in lines for reply in pairs(json.loads(line)) if reply[2] and kind_of(reply[2]) == kind]
        replies = [reply for reply in replies if zlib.crc32(reply[0].encode()) % 2]  # the other half is for measuring
        read = labels.get(name, {})
        for id, question, answer in replies:
            for label in (read[id] or ("",)) if id in read else ():
                yield Row(question, answer, label if label in FAULTY else "N", READ[label])
        others = [reply for reply in replies if reply[0] not in read]
        for _, question, answer in random.Random(name).sample(others, min(unread, len(others))):
            yield Row(question, answer, "N", UNREAD)


def fit(matrix: csr_matrix, labels: np.ndarray, weights: np.ndarray, l2: float) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regressions by L-BFGS from zero, one for each column of the labels (no random number takes part)."""
    size, count = matrix.shape[1] + 1, labels.shape[1]
    design = hstack([matrix, np.ones((matrix.shape[0], 1))], "csr", np.float32)
    turned = design.T.tocsr()
    signs, shares = (2 * labels - 1).astype(np.float32), (weights / weights.sum(0)).astype(np.float32)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table = flat.astype(np.float32).reshape(size, count)
        margins = signs * (design @ table)
        slopes = -shares * signs / (1 + np.exp(np.minimum(margins, 80)))
        pull = l2 * table
        pull[-1] = 0
        value = (shares * np.logaddexp(0, -margins)).sum(dtype=np.float64) + 0.5 * (pull * table).sum(dtype=np.float64)
        return float(value), (turned @ slopes + pull).astype(np.float64).ravel()

    best = minimize(loss, np.zeros(size * count), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x.reshape(size, count)
    return best[:-1], best[-1]


def targets(rows: Sequence[Row], head: str) -> np.ndarray:
    """1, 0, or -1 where a row says nothing about a head."""
    ones, zeros = LABELS[head]
    return np.array([1 if row.code in ones else 0 if row.code in zeros else -1 for row in rows])


class Trained(NamedTuple):
    tables: dict[str, tuple[np.ndarray, float]]  # of all rows
    unseen: dict[str, np.ndarray]  # each row's logit by a model that saw no answer to its quarter of the questions


def held_out(rows: Sequence[Row], head: str, folds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights for a model of all rows, and for one model without each quarter of the questions."""
    labels, weights = targets(rows, head), np.array([row.weight for row in rows])
    known = weights * (labels >= 0)
    return np.stack([labels] * (FOLDS + 1), 1), np.stack([known, *(known * (folds != fold) for fold in range(FOLDS))], 1)


def unseen_logits(matrix: csr_matrix, tables: np.ndarray, biases: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Each row's logit by the model that saw no answer to its quarter of the questions."""
    return (matrix @ tables + biases)[np.arange(len(folds)), folds + 1]


def first_step(rows: Sequence[Row], kind: Kind, folds: np.ndarray) -> Trained:
    answers = features([read_part(split_answer(row.answer).visible, "answer") for row in rows], kind, BITS["answer"])
    questions = features([read_part(row.question, "question") for row in rows], kind, BITS["question"])
    tables, unseen = {}, {}
    for matrix, heads in ((answers, HEADS), (questions, ("danger",))):
        parts = [held_out(rows, head, folds) for head in heads]
        columns, biases = fit(matrix, np.hstack([part[0] for part in parts]), np.hstack([part[1] for part in parts]), L2)
        for index, head in enumerate(heads):
            own = slice(index * (FOLDS + 1), (index + 1) * (FOLDS + 1))
            tables[head] = columns[:, own.start], float(biases[own.start])
            unseen[head] = unseen_logits(matrix, columns[:, own], biases[own], folds)
    return Trained(tables, unseen)


def second_step(rows: Sequence[Row], unseen: dict[str, np.ndarray], folds: np.ndarray, check: bool) -> dict[str, Any]:
    inputs = []
    for index, row in enumerate(rows):
        logits = {head: float(unseen[head][index]) for head in (*HEADS, "danger")}
        length = len(split_answer(row.answer).visible.strip())
        inputs.append(describe(logits, penalised_level(row.question), acts(row.answer), length))
    names = [name for name in inputs[0] if name != "1"]
    matrix = np.array([[row[name] for name in names] for row in inputs])
    mean, spread = matrix.mean(0), matrix.std(0) + 1e-6
    scaled = csr_matrix((matrix - mean) / spread)
    tables = {}
    for fault in FAULTS:
        labels, weights = held_out(rows, fault, folds)
        columns, biases = fit(scaled, labels, weights, L2_SECOND)
        table = columns[:, 0] / spread
        tables[fault] = {name: round(float(weight), 5) for name, weight in zip(names, table, strict=True)}
        tables[fault]["1"] = round(float(biases[0] - table @ mean), 5)
        if check:
            shares = 1 / (1 + np.exp(-unseen_logits(scaled, columns, biases, folds)))
            report(rows, shares, labels[:, 0], fault)
    return tables


def report(rows: Sequence[Row], shares: np.ndarray, labels: np.ndarray, fault: str) -> None:
    sources = np.array(["own" if row.code in "RSFC" and row.weight == 1 else "real" for row in rows])
    for limit in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        fires = shares >= limit
        cells = []
        for source in ("own", "real"):
            here = sources == source
            hits, wrong = int((fires & here & (labels == 1)).sum()), int((fires & here & (labels == 0)).sum())
            cells.append(
                f"{source}: {hits} of {int((here & (labels == 1)).sum())}, wrong {wrong} of {int((here & (labels == 0)).sum())}"
            )
        print(f"  {fault}, {limit}: {'; '.join(cells)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real consultations")
    parser.add_argument("--check", action="store_true", help="print how unseen questions are judged")
    parser.add_argument("--out", type=Path, default=ASSETS, help="folder for the weights")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kinds: tuple[Kind, ...] = ("en", "zh")
    for kind in kinds:
        rows = [*own_rows(kind), *generated_rows(kind), *sentence_rows(kind), *real_rows(options.data, kind)]
        folds = np.array([zlib.crc32(row.question.encode()) % FOLDS for row in rows])
        print(f"{kind}: {len(rows)} answers", flush=True)
        tables, unseen = first_step(rows, kind, folds)
        for part, heads in (("answer", HEADS), ("question", ("danger",))):
            table = np.stack([tables[head][0] for head in heads], 1).astype(np.float32)
            bias = np.array([tables[head][1] for head in heads], np.float32)
            save_ngrams(options.out / f"{part}_{kind}.npz", quantized(kind, heads, table, bias))
        second = second_step(rows, unseen, folds, options.check)
        (options.out / f"{kind}.json").write_text(json.dumps(second, indent=1) + "\n", encoding="utf-8")
    print(f"written: {', '.join(f'{path.name} ({path.stat().st_size:,} bytes)' for path in sorted(options.out.iterdir()))}")


if __name__ == "__main__":
    main()
