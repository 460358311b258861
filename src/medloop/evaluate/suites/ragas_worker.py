"""Runs in the environment of RAGAS (`make ragas-env`), not in ours: reads a request from stdin, writes one JSON line per score.

    {"url": ..., "key": ..., "model": ..., "embedding_model": ..., "timeout_s": 120, "in_flight": 4, "rows": [{"id": ..., ...}]}
    {"id": "c1", "metric": "faithfulness", "value": 0.8}
    {"id": "c1", "metric": "context_recall", "missing": "InstructorRetryException"}

It imports nothing of medloop. A failure is named by its type alone: its message may repeat the texts.
"""

import asyncio
import json
import math
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ["RAGAS_DO_NOT_TRACK"] = "true"

import httpx
from openai import AsyncOpenAI
from ragas.embeddings.base import embedding_factory
from ragas.llms import llm_factory
from ragas.metrics.collections import AnswerRelevancy, ContextPrecision, ContextRecall, Faithfulness

MAX_TOKENS = 2048  # of one reply of the judge


async def score_all(request: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    http = httpx.AsyncClient(trust_env=False, timeout=request["timeout_s"])  # texts for this machine pass no proxy
    client = AsyncOpenAI(base_url=request["url"], api_key=request["key"] or "none", max_retries=1, http_client=http)
    llm = llm_factory(request["model"], client=client, max_tokens=MAX_TOKENS)
    embeddings = embedding_factory("openai", model=request["embedding_model"], client=client, interface="modern")
    metrics = {
        "faithfulness": Faithfulness(llm=llm),
        "answer_relevancy": AnswerRelevancy(llm=llm, embeddings=embeddings),
        "context_precision": ContextPrecision(llm=llm),
        "context_recall": ContextRecall(llm=llm),
    }
    slots = asyncio.Semaphore(request["in_flight"])

    async def score(row: dict[str, Any], name: str) -> None:
        async with slots:
            write({"id": row["id"], "metric": name, **await _score(metrics[name], _arguments(row, name), request["timeout_s"])})

    async with asyncio.TaskGroup() as group:
        for row in request["rows"]:
            for name in metrics:
                if row["reference"] or name not in ("context_precision", "context_recall"):
                    group.create_task(score(row, name))


def _arguments(row: dict[str, Any], name: str) -> dict[str, Any]:
    if name == "answer_relevancy":
        return {"user_input": row["question"], "response": row["answer"]}
    contexts = {"user_input": row["question"], "retrieved_contexts": row["contexts"]}
    return {**contexts, "response": row["answer"]} if name == "faithfulness" else {**contexts, "reference": row["reference"]}


async def _score(metric: Any, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    try:
        result = await asyncio.wait_for(metric.ascore(**arguments), timeout_s)
    except TimeoutError:
        return {"missing": f"no score within {timeout_s:g} s"}
    except Exception as error:  # whatever a service sends back must cost this score alone
        return {"missing": f"RAGAS failed with {type(error).__name__}"}
    value = result.value
    if not isinstance(value, int | float) or math.isnan(value):
        return {"missing": "RAGAS gave no number"}
    return {"value": float(value)}


def main() -> None:
    results = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print must not stand among the results

    def write(row: dict[str, Any]) -> None:
        results.write(json.dumps(row) + "\n")

    request = json.load(sys.stdin)
    write({"ragas": version("ragas")})
    asyncio.run(score_all(request, write))
    write({"done": True})


if __name__ == "__main__":
    main()
