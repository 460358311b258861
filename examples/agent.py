"""An agent that logs what it said and passes on what people think of it: the ten lines between the marks.

    MEDLOOP_URL=http://127.0.0.1:8000 MEDLOOP_KEY=mlk_… python examples/agent.py "I have had a cough for two weeks."

Make the key with `medloop api keys new NAME --scope feedback:write`. The agent here is a stand-in for yours.
"""

import os
import sys


def answer(question: str) -> str:
    """Your model, here as simple as can be."""
    return "Do you also have a fever?" if "cough" in question else "Please tell me more."


# ---- ten lines ----
from medloop.client import Client, UnsentError  # noqa: E402

medloop = Client(os.environ["MEDLOOP_URL"], os.environ["MEDLOOP_KEY"], deadline=5)


def answer_and_log(session_id: str, question: str) -> tuple[str, str]:
    said = answer(question)
    talk = [{"role": "user", "content": question}, {"role": "assistant", "content": said}]
    return said, medloop.log_trace(session_id=session_id, agent_name="triage", model_version="stand-in@1", messages=talk)


def rated(trace_id: str, up: bool, comment: str | None = None) -> None:
    medloop.feedback(trace_id=trace_id, thumb="up" if up else "down", comments=comment)


# ---- that was it ----


if __name__ == "__main__":
    try:
        reply, trace = answer_and_log("example", " ".join(sys.argv[1:]) or "I have had a cough for two weeks.")
        rated(trace, up=True, comment="Asks about fever.")
    except UnsentError as error:  # a feedback server that is away is no reason for silence towards a patient
        sys.exit(str(error))
    sys.stdout.write(f"{reply}\nlogged and rated: {trace}\n")
