"""What all contracts share: frozen values, one canonical JSON form, an id that is the hash of that form.

Canonical JSON: keys sorted, no spaces, UTF-8 as it is, `None` left out (so a new optional field does not change
old ids), no NaN or infinity. The id carries its scheme: `sha256:<64 hex>`.
"""

import hashlib
import json
import os
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """The one text form of a JSON value; raises ValueError on NaN and infinity."""
    return _CANONICAL.encode(value)  # json.dumps would make an encoder each time, at twice the cost


def sha256_id(data: bytes | str) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def uuid7() -> str:
    """A time-sortable random id (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
    millis = time.time_ns() // 1_000_000
    rand = int.from_bytes(os.urandom(10), "big")
    value = (millis & (2**48 - 1)) << 80 | 7 << 76 | (rand >> 68 & 0xFFF) << 64 | 0b10 << 62 | rand & (2**62 - 1)
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def utc_now() -> datetime:
    return datetime.now(UTC)


def iso_utc(time: datetime) -> str:
    """A time in UTC as the API and the files write it, with a `Z` at its end."""
    return time.isoformat().replace("+00:00", "Z")


def to_utc(value: datetime) -> datetime:
    """A time with a zone in UTC; ValueError at the ends of the calendar, where another zone has no such year."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("this time is out of range; use years 1 to 9999 in UTC, for example 2026-02-03T12:00:00Z") from None


def _require_zone(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a time zone, for example 2026-02-03T12:00:00Z")
    return to_utc(value)


Timestamp = Annotated[datetime, AfterValidator(_require_zone)]
Text = Annotated[str, Field(min_length=1)]
Hash = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
Json = dict[str, Any]
_set = object.__setattr__


class Contract(BaseModel):
    """A frozen value. Two equal values have the same canonical JSON and so the same id."""

    # Without "constants", pydantic would write NaN inside a Json field as null; so canonical_json meets it and raises.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants", protected_namespaces=()
    )

    def canonical_json(self) -> str:
        return canonical_json(self.model_dump(mode="json", exclude_none=True))

    def content_id(self) -> str:
        return sha256_id(self.canonical_json())

    @classmethod
    def trusted(cls, **values: Any) -> Self:
        """The value without validation, in a fifth of the time: every field is given, in order, valid and of its own type."""
        value = cls.__new__(cls)
        _set(value, "__dict__", values)
        _set(value, "__pydantic_fields_set__", set(values))
        _set(value, "__pydantic_extra__", None)
        _set(value, "__pydantic_private__", None)
        return value

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.model_validate_json(text)
