"""Passwords as slow hashes (scrypt, RFC 7914). Each hash names its parameters, so that they can be raised later.

N = 2^15, r = 8, p = 3 is one of the equivalent settings in OWASP's Password Storage Cheat Sheet; it takes 32 MiB.
"""

import base64
import hashlib
import hmac
import re
import secrets
import threading
import unicodedata

COST, BLOCK, PARALLEL = 2**15, 8, 3
FORM = re.compile(r"scrypt\$([0-9]+)\$([0-9]+)\$([0-9]+)\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")
_AT_ONCE = threading.Semaphore(2)  # each takes 32 MiB and a core; without a limit, many logins at once would exhaust the server


def hash_password(password: str) -> str:
    """`scrypt$N$r$p$salt$hash`."""
    salt = secrets.token_bytes(16)
    hashed = _scrypt(password, salt, COST, BLOCK, PARALLEL)
    return f"scrypt${COST}${BLOCK}${PARALLEL}${_text(salt)}${_text(hashed)}"


def verify_password(password: str, stored: str | None) -> bool:
    """Whether this is the password. The work is the same for an unknown user, so that timing reveals nothing."""
    match = FORM.fullmatch(stored or "")
    if match is None:
        _scrypt(password, bytes(16), COST, BLOCK, PARALLEL)
        return False
    n, r, p = (int(number) for number in match.group(1, 2, 3))
    salt, expected = (base64.b64decode(part) for part in match.group(4, 5))
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), expected)


def generate_password() -> str:
    """Five groups of five letters and digits that are hard to confuse: 123 bits."""
    letters = "abcdefghijkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(5)) for _ in range(5))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    typed = unicodedata.normalize("NFKC", password).encode("utf-8", errors="replace")
    with _AT_ONCE:
        return hashlib.scrypt(typed, salt=salt, n=n, r=r, p=p, maxmem=2 * 128 * n * r, dklen=32)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
