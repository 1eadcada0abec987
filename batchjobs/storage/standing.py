"""What stands of a part whose failed rows run again: every other row, as it is."""

from __future__ import annotations

from batchjobs.rows.results import Result, of_stored
from batchjobs.storage.checkpoint import read_commit, read_part
from batchjobs.storage.store import Store
from schemas.records import RESULT_COLUMNS


class StandingResults:
    """Reads parts that are to be replaced."""

    def __init__(self, store: Store, prefix: str, retry: frozenset[str]) -> None:
        self._store, self._retry = store, retry
        self._columns = [prefix + name for name in RESULT_COLUMNS]

    def of(self, shard: int) -> tuple[dict[int, Result], int]:
        """The results that stay, by row, and the revision of the part that will replace this one."""
        table = read_part(self._store, shard, columns=self._columns)
        columns = [table.column(name).to_pylist() for name in self._columns]
        results = (of_stored(values) for values in zip(*columns, strict=True))
        standing = {result.row: result for result in results if result.error_code not in self._retry}
        return standing, read_commit(self._store, shard).revision + 1
