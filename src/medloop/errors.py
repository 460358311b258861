"""Everything a person, a file or a service can cause, as one small tree.

    MedloopError                what went wrong, with which value, and what to do
    ├── ConfigError             a setting, a flag or a run file is wrong
    ├── InputError              a file or record from outside is wrong (names file and line)
    ├── ModelError              a model cannot be found, or is refused because it is unsafe
    ├── StoreError              the database or a folder of the workspace cannot be used as it is
    │   ├── BusyError           another process holds it, or it cannot be reached: try again later
    │   ├── IntegrityError      bytes on disk are not what was written
    │   ├── KeyUnavailableError the encryption key is missing, unsafe or does not fit
    │   └── NoSpaceError        the disk is full
    ├── MissingExtraError       an optional dependency is not installed
    └── ResultError             the work was done, but the result may not be used

A message is one sentence about the reader's own value plus one about what to do. It never quotes the content
of a record: patient text stays out of logs and exceptions. What only a bug can cause is an `assert`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


class MedloopError(Exception):
    """A failure with a reader: `what` happened and what `to_do` about it."""

    exit_code = 1

    def __init__(self, what: str, to_do: str = "") -> None:
        self.what = what.rstrip(".")
        self.to_do = to_do.rstrip(".")
        super().__init__(f"{self.what}. {self.to_do}." if self.to_do else f"{self.what}.")


class ConfigError(MedloopError):
    exit_code = 2


class InputError(MedloopError):
    exit_code = 3

    @classmethod
    def at(cls, path: str | os.PathLike[str], line: int | None, what: str, to_do: str = "") -> InputError:
        """The error of one place in one file; `line` counts from 1."""
        place = os.fspath(path) if line is None else f"{os.fspath(path)}, line {line}"
        return cls(f"{place}: {what}", to_do)


class ModelError(MedloopError):
    exit_code = 4


class StoreError(MedloopError):
    exit_code = 5


class BusyError(StoreError):
    pass


class IntegrityError(StoreError):
    exit_code = 6


class KeyUnavailableError(StoreError):
    exit_code = 7


class NoSpaceError(StoreError):
    exit_code = 8


class MissingExtraError(MedloopError):
    exit_code = 9

    @classmethod
    def of(cls, what: str, extra: str) -> MissingExtraError:
        return cls(f"{what} needs packages that are not installed", f'Install them with: pip install "medloop[{extra}]"')


class ResultError(MedloopError):
    exit_code = 10


@contextmanager
def explain_os_errors(path: str | os.PathLike[str], *, writing: bool = False) -> Iterator[None]:
    """Turn the operating system's errors about `path` into sentences; `writing` if the block creates or changes it."""
    try:
        yield
    except OSError as error:
        raise explain_os_error(error, os.fspath(path), writing=writing) from error


def explain_os_error(error: OSError, path: str, *, writing: bool = False) -> MedloopError:
    """The sentence for one operating-system error about `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(f"No space left on the disk that holds {path}", "Free some space and run the same command again")
    if error.errno == errno.ENOENT and writing:
        return InputError(f"Cannot create {path}", "Choose a folder where you can write")
    if error.errno == errno.ENOENT:
        return InputError(f"{path} does not exist", "Check the path")
    if error.errno in (errno.EACCES, errno.EPERM):
        return InputError(f"No permission to {'write' if writing else 'read'} {path}", "Check its owner and mode")
    if error.errno == errno.EISDIR:
        return InputError(f"{path} is a folder, but a file was expected", "Name a file inside it")
    if error.errno == errno.ENOTDIR:
        return InputError(f"{path} is a file, but a folder was expected", "Name a folder")
    return StoreError(f"Cannot {'write' if writing else 'use'} {path}: {error.strerror or type(error).__name__}")
