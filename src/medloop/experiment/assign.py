"""Which arm a user gets: a keyed hash of the user and the experiment's own random salt, so it needs no memory and never changes.

    salt = new_salt()
    arm_of(salt, user="u_3f…", episode="s_1", split=0.5, enrolled=0.2)      # "champion", "challenger", or None: not enrolled

Two independent draws: whether a user takes part (`enrolled`, which may only grow), and which arm they get (`split`, which never
changes). A ramp therefore moves users from outside into the experiment and nobody from one arm to the other. Somebody without a
name is drawn by episode, so the same conversation keeps its arm.
"""

import hmac
import secrets

from medloop.contracts.assistant import Champion

SALT_BYTES = 32
_RANGE = float(2**64)


def new_salt() -> str:
    return secrets.token_hex(SALT_BYTES)


def unit_of(user: str, episode: str) -> str:
    """Whom the arm is drawn for."""
    return user or f"episode:{episode}"


def draw(salt: str, purpose: str, unit: str) -> float:
    """A number in [0, 1) that only somebody with the salt can foresee."""
    digest = hmac.digest(bytes.fromhex(salt), f"{purpose}\0{unit}".encode(), "sha256")
    return int.from_bytes(digest[:8], "big") / _RANGE


def arm_of(salt: str, *, user: str, episode: str, split: float, enrolled: float) -> Champion | None:
    """The arm; None for a user who does not take part, and gets the champion."""
    unit = unit_of(user, episode)
    if draw(salt, "enrol", unit) >= enrolled:
        return None
    return "challenger" if draw(salt, "arm", unit) < split else "champion"
