"""The Prefect API that a job reports to: whether one is configured and answers, and an embedded one if not."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchjobs.errors import Refused

_START_S = 120  # the first start migrates an empty database; on a slow disk that takes a minute


def api_configured() -> bool:
    """Whether `PREFECT_API_URL`, a settings file or the active profile names a Prefect API. Starts nothing."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    if "prefect" not in sys.modules and not any(file.exists() for file in _settings_files()):
        return False  # spares those without Prefect a second of importing it
    from prefect.settings import get_current_settings

    return get_current_settings().api.url is not None


def _settings_files() -> list[Path]:
    """Where Prefect looks for settings."""
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
    return [profiles, *map(Path, (".env", "prefect.toml", "pyproject.toml"))]


def api_url() -> str | None:
    """The configured address."""
    from prefect.settings import get_current_settings

    return get_current_settings().api.url


def api_answers(timeout_s: float = 5) -> bool:
    """Whether the configured API answers within `timeout_s` seconds. Starts nothing."""
    if not api_configured():
        return False
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"timeout": timeout_s}, sync_client=True) as client,
        ):
            return client.api_healthcheck() is None
    except Exception:  # entering the client asks for the server's version, and raises in many ways
        return False


def require_api(so: str) -> None:
    """Raises Refused if there is no API that answers; `so` says what that means for what was asked."""
    if not api_configured():
        raise Refused(
            f"No Prefect API is configured, so {so}. Start one with `make ui` or `prefect server start` and say "
            "`prefect config set PREFECT_API_URL=http://127.0.0.1:4200/api`. A job runs without one: batchjobs run."
        )
    if not api_answers():
        raise Refused(
            f"The Prefect API at {api_url()} does not answer, so {so}. Is `prefect server start` running there?"
        )


@contextmanager
def some_api() -> Iterator[None]:
    """The configured API or, where there is none, Prefect's embedded server (without a UI) until this process ends."""
    if api_configured():
        yield
        return
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_API_URL, temporary_settings

    server = SubprocessASGIServer()
    with _ctrl_c_held_back():
        server.start(timeout=_START_S)
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        yield


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """What is started inside never sees Ctrl-C (a signal mask is inherited): the server has to outlive a stopped job,
    to be told how it ended. SIGTERM still stops it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def impatient() -> Iterator[None]:
    """For a person who waits for their prompt: an API that went away holds the end up for a minute, not for ten.

    What `give_up_on_api` changes inside is undone at the end. Settings that somebody has made stay as they are.
    """
    from prefect.events.worker import EventsWorker
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    try:
        with temporary_settings(set_defaults={PREFECT_CLIENT_MAX_RETRIES: 2, PREFECT_API_REQUEST_TIMEOUT: 10}):
            yield
    finally:
        EventsWorker.set_client_override(None)


def give_up_on_api() -> None:
    """Inside `impatient`, when the API is gone: what is sent to it from now on is dropped, or tried once.

    Prefect would try again for minutes: at the end of the run, and in the exit handlers of its log and event workers.
    """
    from prefect.events.clients import NullEventsClient
    from prefect.events.worker import EventsWorker
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    settings.client.max_retries = 0
    settings.logging.to_api.enabled = False
    EventsWorker.set_client_override(NullEventsClient)
