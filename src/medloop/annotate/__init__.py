"""Annotation in Label Studio: what a task asks, what its answer may say, and the server's API. `loop/annotate_*.py` use it."""
