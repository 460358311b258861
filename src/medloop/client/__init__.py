"""Send traces and feedback to a medloop server, from any Python program. Small: httpx and nothing else of medloop's stages.

    from medloop.client import Client

    with Client("http://127.0.0.1:8000", key="mlk_…") as medloop:
        trace_id = medloop.log_trace(session_id="s1", agent_name="triage", model_version="clinic-7b@3", messages=messages)
        medloop.feedback(trace_id=trace_id, thumb="down", comments="Misses the red flag.")

Each call has one idempotency key and is tried again (network errors, 429, 503; waiting longer each time, or as Retry-After says)
until `deadline` seconds have passed. It is stored once, or raises UnsentError. An invalid call (422) raises RefusedError and
is not tried again. `AsyncClient` is the same with `await`.
"""

from medloop.client.http import AsyncClient, Client
from medloop.client.wire import Receipt, RefusedError, UnsentError

__all__ = ["AsyncClient", "Client", "Receipt", "RefusedError", "UnsentError"]
