"""The default tests in parallel; the few that failed run once more, alone.

    python tools/suite.py [ARGS OF PYTEST ...]      # `make test` runs this

A test that fails beside others and passes alone depends on timing or on order. Like CPython's own runner (`python -m test
--rerun`), this one names such tests and does not fail for them: mend them before there are many. More than LIMIT failures, an
error while tests are collected, or anything else that is not a failed test ends the run at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIMIT = 20
PARALLEL = ("-n", "3", "--dist", "worksteal")  # on two cores: tests wait for servers and processes for about a third of the time
TESTS_FAILED = 1  # pytest's exit code for "tests ran, some failed"; all others but 0 mean that not everything ran


def run_pytest(cache: Path, *args: str) -> int:
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *args], check=False).returncode


def failed_tests(cache: Path) -> list[str]:
    """What pytest keeps for --last-failed. A test leaves this list only by passing (or skipping itself)."""
    file = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []


def main(args: list[str]) -> int:
    cache = Path.cwd() / ".pytest_cache"
    # --maxfail=0: a run that ended early and passed again would pass without the rest. --cache-clear: failures of this run only.
    code = run_pytest(cache, *PARALLEL, *args, "--maxfail=0", "--cache-clear")
    failed = failed_tests(cache)
    whole = all("::" in name for name in failed)  # a file that could not be imported stands there by its path
    if code != TESTS_FAILED or not whole or not 0 < len(failed) <= LIMIT:
        return code
    sys.stdout.write(f"\n{len(failed)} failed. Running {'it' if len(failed) == 1 else 'them'} once more, alone.\n")
    code = run_pytest(cache, *args, "-n", "0", "--maxfail=0", "--last-failed", "--last-failed-no-failures", "none")
    still = failed_tests(cache)
    if passed := [name for name in failed if name not in still]:
        sys.stdout.write("\npassed only when run alone: depends on timing or on order; mend it\n")
        sys.stdout.writelines(f"  {name}\n" for name in passed)
    return code or (TESTS_FAILED if still else 0)  # one that could not be found again has not passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
