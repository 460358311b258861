"""Does the assistant find the right passage, and does it say so when there is none?

    python benchmarks/knowledge.py --data DIR                  # the half of the questions that the number is for
    python benchmarks/knowledge.py --data DIR --split dev      # the half that fusion was chosen on; all: every question

Documents: rag_en_openem_emergency80 (80, emergency medicine), rag_en_nih_cdc_leaflets (104, patients), the Chinese text of
rag_zh_en_covid_protocol (13). All of them are in one index, added by the functions of `medloop knowledge add`.

The 100 questions with a known passage (knowledge_questions.jsonl) were made like this: with a fixed seed, lines of the documents
were drawn (36 documents of OpenEM and 32 leaflets, one line each of 80 or 90 to 420 characters; 32 of all lines of the protocol
with 14 characters or more), and for each line the author of this benchmark wrote one question that it answers, in other words
than the line where there are others, naming the disease and nothing else of the document. No drawn line was replaced. Questions
with even numbers are for development (`dev`), those with odd ones for the result (`test`). After that result the thresholds
were changed, so 30 more were drawn with another seed and written before they were asked (`fresh`), and later 40 more over
documents that no question is about so far (`held_out`; the protocol: over lines), of which nothing was chosen. The file holds
questions and the offsets of the lines, no text of the documents.

The 80 questions that are not covered are rows of judge_en_kqa_must_have (40, patients) and zh_huatuo26m_test_qa (40), chosen by
reading them beside the list of documents: drugs and complaints that no document is about.

A question is found when one of the first five passages holds at least half of its line. A citation is right when characters
`start` to `end` of the page it names are the text it quotes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from medloop.contracts.knowledge import DocumentPage
from medloop.loop.knowledge import load_text_encoder
from medloop.serve.agent.documents import ReadDocument, tidy
from medloop.serve.agent.library import Library
from medloop.serve.agent.search import KnowledgeIndex, open_index
from medloop.settings import Settings

QUESTIONS = Path(__file__).with_name("knowledge_questions.jsonl")
SETS = {
    "rag_en_openem_emergency80": ("title", "text"),
    "rag_en_nih_cdc_leaflets": ("title", "text"),
    "rag_zh_en_covid_protocol": ("title_zh", "text_zh"),
}


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def add_documents(home: Path, data: Path) -> dict[str, tuple[str, str]]:
    """The document and the text of each row, by the row's id."""
    library, added = Library(home), {}
    for name, (title, text) in SETS.items():
        for number, row in enumerate(rows_of(data, name)):
            clean = tidy(row[text])
            if clean.strip():
                sha256 = f"sha256:{len(added):08x}{number:056x}"
                read = ReadDocument(row[title] or row["id"], "jsonl", row["id"], sha256, (DocumentPage(text=clean),))
                added[row["id"]] = (library.add(read, actor="benchmark").document.document_id, row[text])
    return added


def line_of(question: dict[str, Any], raw: str) -> tuple[int, int]:
    """Where the line stands in the text as it was kept."""
    line, text = tidy(raw[question["start"] : question["end"]]).strip(), tidy(raw)
    start = text.find(line, max(0, question["start"] - 50))
    return start, start + len(line)


def is_found(
    index: KnowledgeIndex, library: Library, question: dict[str, Any], document: str, raw: str
) -> tuple[bool, bool, int, int]:
    """Whether the line is among the passages, among the candidates before the threshold; exact citations, citations."""
    start, end = line_of(question, raw)
    result = index.examine(question["question"])
    passages = result.found.passages
    pages = {passage.document: library.pages(passage.document) for passage in passages}
    exact = sum(pages[p.document][0].text[p.start : p.end] == p.text for p in passages)
    holds = [
        p for p in result.candidates if p.document == document and min(p.end, end) - max(p.start, start) >= (end - start) / 2
    ]
    return bool(holds) and bool(passages), bool(holds), exact, len(passages)


def share(values: list[bool]) -> str:
    return f"{sum(values) / len(values):.3f} ({sum(values)} of {len(values)})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Recall of passages, and questions that the documents do not cover.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the rag_* files")
    parser.add_argument("--split", choices=["dev", "test", "fresh", "held_out", "tune", "all"], default="test")
    parser.add_argument("--words-only", action="store_true", help="without an encoder")
    parser.add_argument("--home", type=Path, help="keep documents and vectors here for the next run")
    args = parser.parse_args()
    questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    parts = {"tune": ("dev", "fresh"), "all": ("dev", "test", "fresh", "held_out")}.get(args.split, (args.split,))
    questions = [question for question in questions if question["split"] in parts]
    with tempfile.TemporaryDirectory() as temp:
        home = args.home or Path(temp)
        measure(home, args.data, questions, words_only=args.words_only)


def measure(home: Path, data: Path, questions: list[dict[str, Any]], *, words_only: bool) -> None:
    began = time.perf_counter()
    added = add_documents(home, data)
    print(f"{len(added)} documents read, scanned for identifiers and kept: {time.perf_counter() - began:.1f} s")
    encoder = None if words_only else load_text_encoder(Settings(home=home))
    began = time.perf_counter()
    index = open_index(home, encoder)
    assert index is not None
    print(f"{len(index.chunks):,} passages, {index.backend}: {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    index = open_index(home, encoder)
    assert index is not None
    print(f"opened again: {time.perf_counter() - began:.1f} s")

    library, times = Library(home), []
    results: dict[str, list[bool]] = defaultdict(list)
    missed, exact, cited = [], 0, 0
    for question in (question for question in questions if "document" in question):
        began = time.perf_counter()
        index.search(question["question"])
        times.append(time.perf_counter() - began)
        hit, ranked, right, passages = is_found(index, library, question, *added[question["document"]])
        results["all, before the threshold"].append(ranked)
        exact, cited = exact + right, cited + passages
        for key in ("all", question["set"], question["language"]):
            results[key].append(hit)
        if not hit:
            missed.append(question["id"])
    for key, hits in results.items():
        print(f"recall@5 {key:25} {share(hits)}")
    print(f"missed: {', '.join(missed) or 'none'}")
    print(f"citations that quote their page exactly: {exact} of {cited}")

    silent: dict[str, list[bool]] = defaultdict(list)
    rows = {
        name: {row["id"]: row["question"] for row in rows_of(data, name)}
        for name in {q["file"] for q in questions if "file" in q}
    }
    for question in (question for question in questions if "file" in question):
        said = not index.search(rows[question["file"]][question["row"]]).passages
        for key in ("all", question["language"]):
            silent[key].append(said)
    for key, values in silent.items():
        print(f"'not in the documents' for questions that they do not cover, {key}: {share(values)}")
    times.sort()
    print(f"one question: median {statistics.median(times) * 1000:.0f} ms, worst {times[-1] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
