"""Train the judge of risky advice and false reassurance (`reward/detect/faults.py`) and write src/medloop/assets/faults/.

    python tools/train_faults.py --data DIR             # the same texts and library versions give the same files, byte for byte
    python tools/train_faults.py --data DIR --check     # also prints how questions are judged that a model has not seen

tools/faults/{en,zh}*.txt is our own text: blocks `## question`, lines `CODE answer`. R is risky advice, F false reassurance, S
safe advice and C comfort that is right. DIR has real consultations as `NAME.jsonl.gz` (SETS below); their text is not ours, so
that only our readers' labels stand here, by id, in tools/faults/labels.json (R, F, or "" for sound; the readers are language
models, no clinicians). Answers of these sets that nobody read count as sound with a small weight: one in twenty is not. Good
answers of the embedded corpus and sentences of tools/acts/ are sound, too. Answers to one question stay together when a quarter
is held out.
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
from scipy.sparse import csr_matrix
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
    "pref_zh_disc_medllm_gpt4_scores": 750, "triage_en_medicheck": 1500, "en_medquad_qa": 1500,
}  # fmt: skip
UNREAD, GENERATED = 0.3, 600  # weight of an answer that nobody read; rows of the embedded corpus
NEUTRAL_ACTS = frozenset(
    "N.d N.c N.q N.r D.d D.c D.q D.r Q.d F.d W.d X.d A.n A.q S.n C.n S.r C.r S.q C.q G.r G.q B.r B.q".split()
)
FOLDS, L2, L2_SECOND = 4, 1e-5, 1e-3
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
        read = labels.get(name, {})
        for id, question, answer in replies:
            for code in read.get(id) or ("N" if id in read else ""):
                yield Row(question, answer, code, 1.0)
        others = [reply for reply in replies if reply[0] not in read]
        for _, question, answer in random.Random(name).sample(others, min(unread, len(others))):
            yield Row(question, answer, "N", UNREAD)


def fit(matrix: csr_matrix, labels: np.ndarray, weights: np.ndarray, l2: float) -> tuple[np.ndarray, float]:
    """Logistic regression by L-BFGS from zero: no random number takes part."""
    signs, total = 2 * labels - 1, weights.sum()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signs * (matrix @ flat[:-1] + flat[-1])
        slopes = -weights * signs / (1 + np.exp(np.minimum(margins, 500))) / total
        value = (weights * np.logaddexp(0, -margins)).sum() / total + 0.5 * l2 * (flat[:-1] @ flat[:-1])
        return float(value), np.append(matrix.T @ slopes + l2 * flat[:-1], slopes.sum())

    best = minimize(loss, np.zeros(matrix.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 150}).x
    return best[:-1], float(best[-1])


def targets(rows: Sequence[Row], head: str) -> np.ndarray:
    """1, 0, or -1 where a row says nothing about a head."""
    ones, zeros = LABELS[head]
    return np.array([1 if row.code in ones else 0 if row.code in zeros else -1 for row in rows])


class Trained(NamedTuple):
    tables: dict[str, tuple[np.ndarray, float]]  # of all rows
    unseen: dict[str, np.ndarray]  # each row's logit by a model that saw no answer to its quarter of the questions


def first_step(rows: Sequence[Row], kind: Kind, folds: np.ndarray) -> Trained:
    weights = np.array([row.weight for row in rows])
    answers = features([read_part(split_answer(row.answer).visible, "answer") for row in rows], kind, BITS["answer"])
    questions = features([read_part(row.question, "question") for row in rows], kind, BITS["question"])
    tables, unseen = {}, {}
    for head in LABELS:
        matrix, labels = questions if head == "danger" else answers, targets(rows, head)
        tables[head] = fit(matrix[labels >= 0], labels[labels >= 0], weights[labels >= 0], L2)
        unseen[head] = np.zeros(len(rows))
        for fold in range(FOLDS):
            seen = (labels >= 0) & (folds != fold)
            table, bias = fit(matrix[seen], labels[seen], weights[seen], L2)
            unseen[head][folds == fold] = matrix[folds == fold] @ table + bias
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
    matrix, weights = (matrix - mean) / spread, np.array([row.weight for row in rows])
    tables = {}
    for fault in FAULTS:
        labels = targets(rows, fault)
        known = labels >= 0
        table, bias = fit(csr_matrix(matrix[known]), labels[known], weights[known], L2_SECOND)
        table = table / spread
        tables[fault] = {name: round(float(weight), 5) for name, weight in zip(names, table, strict=True)}
        tables[fault]["1"] = round(float(bias - table @ mean), 5)
        if check:
            shares = np.zeros(len(rows))
            for fold in range(FOLDS):
                seen = known & (folds != fold)
                part, offset = fit(csr_matrix(matrix[seen]), labels[seen], weights[seen], L2_SECOND)
                shares[folds == fold] = 1 / (1 + np.exp(-(matrix[folds == fold] @ part + offset)))
            report(rows, shares, labels, fault)
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
