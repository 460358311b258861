"""Questions of `medloop demo` to the live assistant, and its answers as the reader sees them."""

from typing import Any

import httpx

from medloop.cli import ui

ASK_S = 120.0


def ask(address: str, key: str, question: str) -> dict[str, Any]:
    """One question to the live assistant, as any client of OpenAI's protocol sends it."""
    body = {"model": "medloop", "messages": [{"role": "user", "content": question}], "max_tokens": 160, "temperature": 0}
    headers = {"Authorization": f"Bearer {key}"}
    reply = httpx.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=ASK_S, trust_env=False)
    answer: dict[str, Any] = reply.raise_for_status().json()
    return answer


def show_answer(kind: str, question: str, answer: dict[str, Any]) -> None:
    said = answer["choices"][0]["message"]["content"]
    about = answer["medloop"]
    ui.say(f"\nPOST /v1/chat/completions ({kind})\n  asked     {question}")
    ui.say("  answered  " + " ".join(said.split())[:240])
    ui.say(f"  version   {about.get('version')}, snapshot {str(about.get('snapshot'))[:19]}…, inference {about['inference_id']}")
