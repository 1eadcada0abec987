"""An object store with faults: the fsspec protocol `faulty`."""

from __future__ import annotations

from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from tests.faults import Faults, short


class FaultyObjects(MemoryFileSystem):  # type: ignore[misc]
    """An object store: a put is whole or not at all, create-if-absent, and there are no folders to make."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults = Faults()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.replace("faulty://", "memory://"))
        return stripped

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        path = self._strip_protocol(path)

        def put() -> None:
            if mode == "create" and path in self.store:
                raise FileExistsError(path)
            self.store[path] = MemoryFile(self, path, value)

        self.faults.do(f"put {short(path)}", put)

    def cat_file(self, path: str, **options: Any) -> Any:
        return self.faults.do(f"get {short(path)}", lambda: super(FaultyObjects, self).cat_file(path, **options))

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return self.faults.do(f"open {short(path)}", lambda: super(FaultyObjects, self).open(path, mode, **options))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return self.faults.do(f"list {short(path)}", lambda: super(FaultyObjects, self).ls(path, detail, **options))

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        self.faults.do(f"delete {short(path)}", lambda: self.store.pop(path, None))


fsspec.register_implementation("faulty", FaultyObjects, clobber=True)
