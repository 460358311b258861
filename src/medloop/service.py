"""HTTP with a service that limits, fails and recovers: bounded retries with backoff, Retry-After, a bound on the size of answers.

    with Service("Langfuse", "https://cloud.langfuse.com", headers={...}) as service:
        service.get("/api/public/projects", {})

https is required unless the address is this machine, redirects are not followed, and no answer of the service is quoted in an
error: it may repeat a text of ours.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from medloop.errors import ConfigError, MedloopError

ATTEMPTS = 6
LONGEST_WAIT_S = 120.0  # a service that asks for more is asked again by a later run
MAX_BYTES = 64 * 2**20
RETRY = {408, 425, 429, *range(500, 600)}
AGAIN = "Run it again: it continues where it stopped"

Params = list[tuple[str, str | int | float | bool | None]]


class ServiceError(MedloopError):
    """A service did not do what it was asked; `status` is what it answered, 0 for no answer."""

    def __init__(self, what: str, to_do: str = "", status: int = 0) -> None:
        super().__init__(what, to_do)
        self.status = status


@dataclass(frozen=True)
class _Attempt:
    """What one attempt came to: an answer, or why to try again and how long the service asks to wait."""

    answer: Any = None
    problem: str = ""
    status: int = 0
    wait_s: float | None = None


def check_address(name: str, url: str, setting: str) -> str:
    """The address without a slash at its end; ConfigError unless it is https or this machine."""
    if not url:
        raise ConfigError(f"The address of {name} is not set", f"Set {setting} in medloop.yaml or in the environment")
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ConfigError(f"{setting}: {name} must be reached over https", "Only an address of this machine may be http")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Service:
    """One service for one run."""

    def __init__(
        self, name: str, url: str, *, headers: Mapping[str, str], timeout_s: float = 30.0, attempts: int = ATTEMPTS,
        backoff_s: float = 0.5, sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self.name, self.attempts, self.backoff_s, self.sleep = name, attempts, backoff_s, sleep
        self.retries = 0
        self._http = httpx.Client(base_url=url, headers=dict(headers), timeout=timeout_s, follow_redirects=False)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, params: Params, headers: Mapping[str, str] | None = None) -> Any:
        return self._request("GET", path, params=list(params), headers=dict(headers or {}))

    def post(self, path: str, content: bytes, headers: Mapping[str, str], *, attempts: int | None = None) -> Any:
        """`attempts=1` where doing it twice would do harm: the caller finds out what has arrived."""
        return self._request("POST", path, attempts=attempts, content=content, headers=dict(headers))

    def delete(self, path: str, value: Any, headers: Mapping[str, str] | None = None) -> Any:
        content = json.dumps(value).encode()
        return self._request("DELETE", path, content=content, headers={"content-type": "application/json", **(headers or {})})

    def _request(self, method: str, path: str, *, attempts: int | None = None, **given: Any) -> Any:
        attempts = attempts or self.attempts
        for attempt in range(attempts):
            result = self._attempt(method, path, given)
            if not result.problem:
                return result.answer
            wait = result.wait_s if result.wait_s is not None else self._backoff(attempt)
            if attempt + 1 == attempts or wait > LONGEST_WAIT_S:
                break
            self.retries += 1
            self.sleep(wait)
        asked = f", and asks to wait {wait:.0f} seconds" if wait > LONGEST_WAIT_S else f" ({attempt + 1} attempts)"
        raise ServiceError(f"{self.name} {result.problem}{asked}", AGAIN, result.status)

    def _backoff(self, attempt: int) -> float:
        return float(self.backoff_s * 2**attempt * random.uniform(0.9, 1.1))

    def _attempt(self, method: str, path: str, given: Mapping[str, Any]) -> _Attempt:
        try:
            with self._http.stream(method, path, **given) as response:
                body = _read(response)
        except httpx.TimeoutException:
            return _Attempt(problem="did not answer in time")
        except httpx.TransportError as error:
            return _Attempt(problem=f"could not be reached ({type(error).__name__})")
        status = response.status_code
        if body is None:
            raise ServiceError(f"{self.name} sent more than {MAX_BYTES // 2**20} MiB at once", "Ask for smaller pages", status)
        if status in RETRY:
            return _Attempt(problem=f"answered {status}", status=status, wait_s=_retry_after(response.headers))
        if status >= 300:
            raise self._refusal(status)
        try:
            return _Attempt(json.loads(body) if body.strip() else None, status=status)
        except (ValueError, RecursionError):
            return _Attempt(problem="sent an answer that is not JSON", status=status)

    def _refusal(self, status: int) -> ServiceError:
        if status in (401, 403):
            return ServiceError(f"{self.name} refused the keys ({status})", "Check its keys or its token", status)
        if status == 404:
            return ServiceError(f"{self.name} does not know this address (404)", "Check the address and its version", status)
        if status < 400:
            return ServiceError(f"{self.name} redirects elsewhere ({status})", "Set the address it redirects to", status)
        return ServiceError(
            f"{self.name} refused the request ({status})", "See docs/stages/ for the versions it must have", status
        )


def _read(response: httpx.Response) -> bytes | None:
    """The whole body; None when it is too long."""
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > MAX_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds that the service asks to wait; a date is not understood and counts as none."""
    given = headers.get("retry-after", "").strip()
    return float(given) if re.fullmatch(r"\d{1,6}(?:\.\d{1,3})?", given) else None
