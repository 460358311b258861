"""A labelled case that names a fault which no part of the reward looks for."""

from collections.abc import Iterable, Set

from medloop.contracts.validity import LabelledCase
from medloop.errors import ConfigError


class UnknownFaultError(ConfigError):
    """`case_id` leads whoever has the file to its line."""

    def __init__(self, case_id: str, fault: str, known: Iterable[str]) -> None:
        self.case_id = case_id
        self.problem = f"'{fault}' is no part of the reward"
        self.names = f"Faults are named like the parts of the reward: {', '.join(sorted(known))}"
        super().__init__(f"The case '{case_id}': {self.problem}", self.names)


def check_faults(cases: Iterable[LabelledCase], known: Set[str]) -> None:
    """A label of a rule that this reward leaves out is skipped; a name that nothing has is a mistake."""
    for case in cases:
        if unknown := sorted(set(case.faults) - known):
            raise UnknownFaultError(case.id, unknown[0], known)
