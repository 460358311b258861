"""What happened to rows that are not trained on as they are, in words."""

from collections.abc import Iterable

Counts = Iterable[tuple[int, str]]


def longer_than(max_length: int) -> str:
    return f"longer than max_length ({max_length:,} tokens)"


def left_out_words(out: Counts, changed: Counts) -> str:
    """`left out: 45 longer than max_length (512 tokens); 3 with context passages`; empty where nothing happened."""
    first, second = (", ".join(f"{count:,} {what}" for count, what in counts if count) for counts in (out, changed))
    return "; ".join(part for part in (f"left out: {first}" if first else "", second) if part)
