"""Parquet, in batches. pyarrow is an extra (`medloop[parquet]`) and is imported when the first file is read."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from medloop.data.sources.text import SourceRow
from medloop.errors import InputError, MissingExtraError, explain_os_errors

BATCH = 1_000  # rows held at once


def rows(path: Path, encoding: str) -> Iterator[SourceRow]:
    """One row per record; `line` is its number. The encoding is part of the format, so the argument has no effect."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError:
        raise MissingExtraError.of("Reading Parquet", "parquet") from None
    number = 0
    try:
        with explain_os_errors(path), ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                for values in batch.to_pylist():
                    number += 1
                    yield SourceRow(number, {name: _plain(value) for name, value in values.items()})
    except ArrowException:
        raise InputError.at(path, number + 1, "the Parquet file is damaged", "Copy or download it again") from None


def _plain(value: Any) -> Any:
    """NaN is how tables say 'nothing'."""
    return None if isinstance(value, float) and math.isnan(value) else value
