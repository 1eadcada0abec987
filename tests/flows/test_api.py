"""Whether there is a Prefect API is found out quickly, and without starting one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.api import api_answers, api_configured
from tests.waiting import free_port


def in_child(code: str, folder: Path, **environment: str) -> str:
    """What the code prints in a new interpreter, which has not imported Prefect."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


CONFIGURED = "import sys; from flows.api import api_configured; print(api_configured(), 'prefect' in sys.modules)"


def test_without_settings_nothing_is_configured_and_prefect_is_not_even_imported(tmp_path: Path) -> None:
    assert in_child(CONFIGURED, tmp_path, PREFECT_HOME=str(tmp_path / "none")) == "False False"


def test_the_environment_configures_an_api(tmp_path: Path) -> None:
    assert in_child(CONFIGURED, tmp_path, PREFECT_API_URL="http://127.0.0.1:1/api") == "True False"


def test_the_active_profile_configures_an_api(tmp_path: Path) -> None:
    profiles = 'active = "gpu"\n[profiles.gpu]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n'
    (tmp_path / "profiles.toml").write_text(profiles)
    assert in_child(CONFIGURED, tmp_path, PREFECT_HOME=str(tmp_path)) == "True True"


def test_nothing_is_sent_to_anybody_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import os; [os.environ.pop(k, None) for k in ('DO_NOT_TRACK', 'PREFECT_SERVER_ANALYTICS_ENABLED')]\n"
        "import flows.api; from prefect.settings import PREFECT_SERVER_ANALYTICS_ENABLED as enabled\n"
        "print(os.environ['DO_NOT_TRACK'], enabled.value())"
    )
    assert in_child(code, tmp_path) == "1 False"


def test_an_api_that_is_not_there_does_not_answer_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    began = time.monotonic()
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
        assert api_configured()
        assert not api_answers(timeout_s=2)
    assert time.monotonic() - began < 10


@pytest.mark.prefect
@pytest.mark.usefixtures("prefect_api")
def test_a_server_that_runs_answers() -> None:
    assert api_answers()
