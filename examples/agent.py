"""An agent that logs its answers and sends the feedback of its users: the ten lines between the marks.

    MEDLOOP_URL=http://127.0.0.1:8000 MEDLOOP_KEY=mlk_… python examples/agent.py "I have had a cough for two weeks."

Make the key with `medloop api keys new NAME --scope feedback:write`. Replace `answer` with your own agent.
"""

import os
import sys


def answer(question: str) -> str:
    """Stands in for your model."""
    return "Do you also have a fever?" if "cough" in question else "Please tell me more."


# ---- ten lines ----
from medloop.client import Client, UnsentError  # noqa: E402

medloop = Client(os.environ["MEDLOOP_URL"], os.environ["MEDLOOP_KEY"], deadline=5)


def answer_and_log(session_id: str, question: str) -> tuple[str, str]:
    reply = answer(question)
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
    return reply, medloop.log_trace(session_id=session_id, agent_name="triage", model_version="stand-in@1", messages=messages)


def rate(trace_id: str, up: bool, comment: str | None = None) -> None:
    medloop.feedback(trace_id=trace_id, thumb="up" if up else "down", comments=comment)


# ---- that was it ----


if __name__ == "__main__":
    try:
        reply, trace = answer_and_log("example", " ".join(sys.argv[1:]) or "I have had a cough for two weeks.")
        rate(trace, up=True, comment="Asks about fever.")
    except UnsentError as error:  # an unreachable feedback server must not keep the patient from getting the answer
        sys.exit(str(error))
    sys.stdout.write(f"{reply}\nlogged and rated: {trace}\n")
