"""What the server says no to, in the shape that OpenAI's clients and vLLM's callers expect."""

from __future__ import annotations

from typing import Any

KINDS = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError", 503: "ServiceUnavailableError"}


class Refusal(Exception):
    """An answer with an error status. `message` never quotes a prompt or an answer."""

    def __init__(
        self, status: int, message: str, *, kind: str = "", param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.retry_after_s = status, message, param, retry_after_s
        self.kind = kind or KINDS.get(status, "BadRequestError")

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
