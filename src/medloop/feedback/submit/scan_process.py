"""One process that scans texts: a list of records a line in, a list of doubts a line out, as JSON through pipes.
`scan_workers.py` has several.

It imports little, because a server waits for its first one, and ends by itself when its server is gone.
"""

import gc
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from medloop.feedback.submit.doubt import Doubt, doubt_about, doubts_about
from medloop.isolation import isolated, python_command
from medloop.privacy.phi import allowed

Records = Sequence[Sequence[str]]


class ScanProcess:
    """One worker."""

    def __init__(self, allow_file: Path, nice: int = 0) -> None:
        self.process = subprocess.Popen(
            python_command(__name__, str(allow_file), str(nice)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=Path(sys.prefix), env=isolated(os.environ),
        )  # fmt: skip

    def ask(self, records: Records, limit_s: float) -> list[Doubt | None]:
        """A doubt about each record; TimeoutError or another OSError when the process is late or gone."""
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps([list(texts) for texts in records]).encode() + b"\n")
            self.process.stdin.flush()
            answers = json.loads(self._answer(limit_s))
            return [None if answer is None else Doubt(answer[0], tuple(answer[1])) for answer in answers]
        except ValueError as error:  # a closed pipe, half a line
            raise OSError(str(type(error))) from None

    def _answer(self, limit_s: float) -> bytes:
        """One line, all of it in time."""
        assert self.process.stdout
        poll, deadline, data = select.poll(), time.monotonic() + limit_s, b""  # select() is for the first 1024 files only
        poll.register(self.process.stdout, select.POLLIN)
        while not data.endswith(b"\n"):
            if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                raise TimeoutError
            if not (more := os.read(self.process.stdout.fileno(), 65536)):
                raise BrokenPipeError
            data += more
        return data

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert pipe
                pipe.close()


def main() -> None:
    """The worker, until the pipe ends."""
    allowed.use(Path(sys.argv[1]))
    os.nice(int(sys.argv[2]))
    doubt_about(["warm"])  # the word lists take a second, and are never freed: the garbage collector need not walk them
    gc.collect()
    gc.freeze()
    for line in sys.stdin.buffer:
        doubts = doubts_about(json.loads(line))
        answers = [None if doubt is None else [doubt.value, list(doubt.reasons)] for doubt in doubts]
        sys.stdout.buffer.write(json.dumps(answers).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
