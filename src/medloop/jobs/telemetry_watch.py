"""Beside the API: sends traces and feedback where the settings say, in a process of its own: no answer waits for it."""

import logging
from dataclasses import dataclass

from medloop.jobs.periodic import PeriodicProcess, Start, command_in_a_process
from medloop.loop.send_telemetry import destinations, is_due

log = logging.getLogger(__name__)
_SEND = command_in_a_process("telemetry", "send")


@dataclass
class TelemetrySender(PeriodicProcess):
    """Due while something waits; a destination that fails is tried again after a rest."""

    start: Start = _SEND
    every_s: float = 15.0

    def is_due(self) -> bool:
        return bool(destinations(self.settings)) and is_due(self.settings, self.store)

    def on_end(self, code: int) -> None:
        if code:
            log.warning("Sending traces and feedback failed (exit code %d) and is tried again after a rest", code)
