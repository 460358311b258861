"""Beside the API: looks for drift of the rewards with a card, as often as `reward.drift_hours` says, and logs new alerts."""

import logging
from dataclasses import dataclass, field
from datetime import timedelta

from medloop.contracts import utc_now
from medloop.feedback.insight.alerts import sentence, standing_alerts
from medloop.jobs.periodic import PeriodicProcess, Start, command_in_a_process
from medloop.loop.judge_drift import read_record
from medloop.loop.trust import cards

log = logging.getLogger(__name__)
_LOOK = command_in_a_process("reward", "drift", "--all")


@dataclass
class DriftWatch(PeriodicProcess):
    """Due when the last look at any reward is long enough ago; a look by hand counts, too."""

    start: Start = _LOOK
    every_s: float = 60.0
    told: set[str] = field(default_factory=set)  # alerts that stood before the process began

    def is_due(self) -> bool:
        if not self.settings.reward.drift_hours:
            return False
        records = [read_record(self.settings, card.reward_version) for card in cards(self.settings)]
        looks = [record.checked for record in records if record]
        is_due = bool(records) and (not looks or utc_now() - max(looks) >= timedelta(hours=self.settings.reward.drift_hours))
        if is_due:
            self.told = self._standing()
        return is_due

    def on_end(self, code: int) -> None:
        if code:
            log.warning("The look for drift of the rewards failed (exit code %d) and is tried again after a rest", code)
        for words in sorted(self._standing() - self.told):
            log.warning("Alert: %s", words)

    def _standing(self) -> set[str]:
        return {sentence(alert) for alert in standing_alerts(self.settings.workspace)}
