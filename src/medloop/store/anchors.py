"""Anchors: the newest number and hash of the audit log, kept where somebody with the workspace and its keys cannot reach.

    results = write_anchors(store)              # to every place that the settings name
    report = check_anchors(store)               # every anchor must be on the chain
    check_against(store, text)                  # anchors in any text, such as a file of the system's log

    audit.anchor_file        a file on another disk; one line per anchor
    audit.syslog             the system's log, /dev/log or udp://HOST:PORT; it is compared with --against
    audit.timestamp_url      a time-stamping service (RFC 3161); its signed token lies beside the line

Every line also goes to `logs/audit.anchors`. An `accepted` line says that a person accepted the log as it is (a restore, or
--new-head): the lines before it stay, and only those from it on are compared.
"""

import base64
import binascii
import hashlib
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from pydantic import Field

from medloop.contracts import AuditEvent, Contract, utc_now
from medloop.contracts.base import Text, Timestamp, iso_utc
from medloop.errors import ConfigError, IntegrityError, MedloopError, explain_os_errors
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.timestamp import TimestampError, check_token, request_token

ANCHOR = "audit.anchor"
_IN_TEXT = re.compile(r"medloop-anchor seq=(\d{1,18}) hash=([0-9a-f]{64})")
_FACILITY_AUDIT_NOTICE = 13 * 8 + 5


class AnchorLine(Contract):
    """One anchor; `token` is what the time-stamping service signed, in base64."""

    time: Timestamp
    seq: int = Field(ge=0)
    hash: Text
    accepted: bool = False
    token: str | None = None


@dataclass(frozen=True)
class AnchorResult:
    """Whether an anchor reached one place."""

    place: str
    problem: str | None = None


@dataclass(frozen=True)
class AnchorReport:
    """How many anchors are on the chain, the newest row that one covers, and what does not fit."""

    checked: int = 0
    newest: int = 0
    stamped: int = 0  # of them, those with a valid token
    problem: str | None = None

    def joined(self, other: "AnchorReport") -> "AnchorReport":
        """Both reports as one: a problem of either is a problem."""
        counts = (max(self.checked, other.checked), max(self.newest, other.newest), max(self.stamped, other.stamped))
        return AnchorReport(*counts, self.problem or other.problem)


def write_anchors(store: Store, *, actor: str, accepted: bool = False) -> list[AnchorResult]:
    """Anchor the log as it is now; a place that fails does not keep the others from getting theirs."""
    settings = store.settings.audit
    report = audit.verify(store)
    if not report.ok:
        raise IntegrityError(f"The audit log is damaged, so it was not anchored: {report.problem}", "Run: medloop audit verify")
    line = AnchorLine(time=utc_now(), seq=report.rows, hash=report.last_hash, accepted=accepted)
    results: list[AnchorResult] = []
    if settings.timestamp_url:
        token, problem = _stamp(store.settings, line)
        line = line.model_copy(update={"token": token})
        results.append(AnchorResult(settings.timestamp_url, problem))
    results += [_append(path, line) for path in anchor_files(store.settings)]
    if settings.syslog:
        results.append(_send(settings.syslog, line))
    detail: dict[str, str | int | float | bool] = {
        "hash": line.hash, "places": sum(result.problem is None for result in results),
        "failed": sum(result.problem is not None for result in results), "accepted": accepted,
    }  # fmt: skip
    with store.write() as conn:
        audit.append(conn, AuditEvent(actor=actor, action=ANCHOR, subject=str(line.seq), detail=detail))
    return results


def is_configured(settings: Settings) -> bool:
    return bool(settings.audit.anchor_file or settings.audit.syslog or settings.audit.timestamp_url)


def anchor_files(settings: Settings) -> list[Path]:
    own = settings.workspace.logs / "audit.anchors"
    return [own, settings.audit.anchor_file] if settings.audit.anchor_file else [own]


def check_anchors(store: Store) -> AnchorReport:
    """Compare every anchor with the log, in each file; the first problem ends it."""
    checked = newest = stamped = 0
    for path in anchor_files(store.settings):
        try:
            lines = _read(path)
            fits = [_fits(store, line) for line in lines]
        except (TimestampError, MedloopError) as error:
            return AnchorReport(checked, newest, stamped, f"{path}: {getattr(error, 'what', error)}")
        if False in fits:
            line = lines[fits.index(False)]
            problem = f"{path}: {_not_on_chain(line.seq)}; anchored at {iso_utc(line.time)}"
            return AnchorReport(checked, newest, stamped, problem)
        checked, newest = max(checked, len(lines)), max([newest, *(line.seq for line in lines)])
        stamped = max(stamped, sum(line.token is not None for line in lines))
    if checked == 0 and any(row["action"] == ANCHOR for row in audit.page(store, audit.AuditFilter(action=ANCHOR), limit=1)):
        return AnchorReport(problem="the log was anchored, but no anchor is left where the settings name one")
    return AnchorReport(checked, newest, stamped)


def check_against(store: Store, text: str) -> AnchorReport:
    """Compare the anchors in any text with the log."""
    anchors = [(int(seq), last) for seq, last in _IN_TEXT.findall(text)]
    for seq, last in anchors:
        if audit.hash_at(store, seq) != last:
            return AnchorReport(len(anchors), problem=_not_on_chain(seq))
    return AnchorReport(len(anchors), max([0, *(seq for seq, _ in anchors)]))


def _not_on_chain(seq: int) -> str:
    return f"this is not the log that was anchored, row {seq} is missing or differs"


def _read(path: Path) -> list[AnchorLine]:
    """The lines from the last accepted one on."""
    lines = list(jsonl.read(path, AnchorLine)) if path.exists() else []
    start = max((index for index, line in enumerate(lines) if line.accepted), default=0)
    return lines[start:]


def _fits(store: Store, line: AnchorLine) -> bool:
    if line.token is not None:
        try:
            token = base64.b64decode(line.token, validate=True)
        except binascii.Error:
            raise TimestampError(f"the timestamp of row {line.seq} cannot be read") from None
        try:
            check_token(token, _digest(line), _certificates(store.settings))
        except TimestampError as error:
            raise TimestampError(f"the timestamp of row {line.seq} is not valid: {error}") from None
    return audit.hash_at(store, line.seq) == line.hash


def _digest(line: AnchorLine) -> bytes:
    return hashlib.sha256(f"medloop audit {line.seq} {line.hash}".encode()).digest()


def _stamp(settings: Settings, line: AnchorLine) -> tuple[str | None, str | None]:
    try:
        token = request_token(settings.audit.timestamp_url, _digest(line), _certificates(settings))
    except TimestampError as error:
        return None, str(error)
    return base64.b64encode(token).decode(), None


def _certificates(settings: Settings) -> Sequence[x509.Certificate]:
    path = settings.audit.timestamp_certificate
    if path is None:
        raise ConfigError(
            "A time-stamping service needs a certificate that its tokens are checked with",
            "Set audit.timestamp_certificate to a PEM file of the service or of its issuer",
        )
    with explain_os_errors(path):
        try:
            return x509.load_pem_x509_certificates(path.read_bytes())
        except ValueError:
            raise ConfigError(f"{path} does not hold a certificate (audit.timestamp_certificate)", "Name a PEM file") from None


def _append(path: Path, line: AnchorLine) -> AnchorResult:
    try:
        jsonl.append(path, line)
    except MedloopError as error:
        return AnchorResult(str(path), error.what)
    return AnchorResult(str(path))


def _send(address: str, line: AnchorLine) -> AnchorResult:
    """One message to the system's log (RFC 5424). UDP does not say whether it arrived."""
    text = f"medloop-anchor seq={line.seq} hash={line.hash}" + (" accepted" if line.accepted else "")
    message = f"<{_FACILITY_AUDIT_NOTICE}>1 {iso_utc(line.time)} {socket.gethostname()} medloop - audit - {text}".encode()
    try:
        if address.startswith("/"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix:
                unix.sendto(message, address)
        else:
            parts = urlsplit(address)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.sendto(message, (parts.hostname or "", parts.port or 514))
    except (OSError, ValueError) as error:
        return AnchorResult(address, f"cannot be reached ({type(error).__name__})")
    return AnchorResult(address)
