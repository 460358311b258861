"""Children that start in milliseconds, because they are forked from a process with the heavy imports behind it."""

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext


def fork_server(*preload: str) -> ForkServerContext:
    """A fork server with these modules loaded.

    A process has only one: a server that another test started, with other modules, is ended, or each child would import all
    of this for itself.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    forkserver.ensure_running()
    return context
