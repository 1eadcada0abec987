"""An S3 over HTTP that counts what it is asked, and misbehaves on request: a layer around moto's server."""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn
from urllib.parse import parse_qs


@dataclass
class Asked:
    """One request: `operation` is put, get, head, list, delete; of a multipart upload begin, part, complete, abort."""

    operation: str
    key: str  # bucket/key; of a listing, bucket/prefix
    range: str = ""
    sent: int = 0  # bytes of the request's body
    received: int = 0  # bytes of the answer's body
    status: int = 0  # of the answer; 0 if none came

    def __str__(self) -> str:
        return f"{self.operation} {self.key}"


Kind = Literal["refuse", "cut request", "cut answer", "lose answer"]
_CHANGES = ("put", "delete", "begin", "part", "complete", "abort")


@dataclass
class Fault:
    """What goes wrong, with requests whose `operation key` begins with one of these texts, `times` times."""

    kind: Kind
    where: tuple[str, ...]
    times: int = 1
    status: int = 500
    code: str = "InternalError"
    struck: list[Asked] = field(default_factory=list)

    def strikes(self, asked: Asked) -> bool:
        return len(self.struck) < self.times and str(asked).startswith(self.where)


class WatchedS3:
    """The server; `asked` is every request since `forget`."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.only_key = ""  # the access key that is let in; empty lets in everybody
        self.dies_at = 0  # the change, counted from 1, that is the last one to be carried out; 0 for never
        self.seen: Callable[[Asked], None] = lambda asked: None  # called before a request is carried out
        self._lock = threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def get_host_and_port(self) -> tuple[str, int]:
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forget(self) -> None:
        """Nothing was asked, and nothing goes wrong any more."""
        self.asked, self.faults, self.dies_at = [], [], 0

    def fault(self, kind: Kind, *where: str, **fields: Any) -> Fault:
        """From now on, this goes wrong."""
        self.faults.append(Fault(kind, where, **fields))
        return self.faults[-1]

    def count(self, *where: str) -> Counter[str]:
        """Requests by operation, of those whose `operation key` begins with one of these texts."""
        return Counter(asked.operation for asked in self.asked if not where or str(asked).startswith(where))

    def received(self, *where: str) -> int:
        """Bytes that clients received."""
        return sum(asked.received for asked in self.asked if not where or str(asked).startswith(where))

    @property
    def changes(self) -> int:
        """Requests that change something."""
        return sum(asked.operation in _CHANGES for asked in self.asked)

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        asked = _asked(environ)
        with self._lock:
            self.asked.append(asked)
            fault = next((fault for fault in self.faults if fault.strikes(asked)), None)
            if fault is not None:
                fault.struck.append(asked)
            last = self.dies_at and self.changes == self.dies_at and asked.operation in _CHANGES
            closed = self.dies_at and self.changes >= self.dies_at and not last
        self.seen(asked)
        kind = fault.kind if fault is not None else None
        if kind == "cut request":
            environ["wsgi.input"].read(asked.sent // 2)
            _hang_up(environ, asked.sent - asked.sent // 2)
        body = environ["wsgi.input"].read(asked.sent)
        if fault is not None and kind == "refuse":
            return _error(start, asked, fault.status, fault.code)
        if closed or (self.only_key and f"Credential={self.only_key}/" not in environ.get("HTTP_AUTHORIZATION", "")):
            return _error(start, asked, 403, "InvalidAccessKeyId")
        said: list[Any] = []
        answer = b"".join(self._app({**environ, "wsgi.input": io.BytesIO(body)}, lambda *what: said.extend(what[:2])))
        asked.status, asked.received = int(said[0].split()[0]), len(answer)
        if kind == "lose answer":
            _hang_up(environ)
        if last:
            return _error(start, asked, 403, "AccessDenied")
        start(*said)
        return _half(environ, answer) if kind == "cut answer" else [answer]


def _asked(environ: dict[str, Any]) -> Asked:
    method, query = environ["REQUEST_METHOD"], parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    key = environ["PATH_INFO"].strip("/")
    operation = {"PUT": "put", "GET": "get", "HEAD": "head", "DELETE": "delete", "POST": "post"}[method]
    if "uploads" in query:
        operation = "begin" if method == "POST" else "uploads"
    elif "uploadId" in query:
        operation = {"PUT": "part", "POST": "complete", "DELETE": "abort"}.get(method, operation)
    elif method == "GET" and ("list-type" in query or "/" not in key):
        operation, key = "list", f"{key}/{query.get('prefix', [''])[0]}"
    return Asked(operation, key, environ.get("HTTP_RANGE", ""), int(environ.get("CONTENT_LENGTH") or 0))


def _error(start: Any, asked: Asked, status: int, code: str) -> Iterable[bytes]:
    asked.status = status
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as asked by the test</Message></Error>".encode()
    start(f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
    return [b"" if asked.operation == "head" else text]


def _hang_up(environ: dict[str, Any], unread: int = 0) -> NoReturn:
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        environ["wsgi.input"].read(unread)  # or it would be taken for the next request
    raise ConnectionAbortedError  # which the server takes quietly


def _half(environ: dict[str, Any], answer: bytes) -> Iterator[bytes]:
    yield answer[: len(answer) // 2]
    _hang_up(environ)
