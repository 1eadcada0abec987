"""Open a filesystem by its URL, for input and output alike, with what a night needs where the user set nothing."""

from __future__ import annotations

import os
from typing import Any

import fsspec

# URL schemes whose package is an extra of ours, by the name of the extra.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az", "hf": "hf"}
_OBJECT_STORES = _EXTRAS.keys() - {"hf"}
_S3 = ("s3", "s3a")
_S3_RETRIES = {"mode": "legacy", "total_max_attempts": 7}  # the mode "standard" does not repeat what 429 refuses
_LOGIN_FAILED = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError")


def open_url(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The fsspec filesystem of a URL or local path, and the path on it.

    Raises ImportError, naming the extra to install, ValueError for an unknown scheme, and what the filesystem itself
    raises for wrong options.
    """
    scheme = scheme_of(url)
    try:
        fs, path = fsspec.url_to_fs(url, **{**_defaults(scheme, options), **options})
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        how = f"pip install 'batchjobs[{extra}]'" if extra else str(error)
        raise ImportError(f"{scheme}:// needs a package that is not installed: {how}") from error
    return fs, str(path)


def scheme_of(url: str) -> str:
    """What stands before `://`; empty for a local path and for chained URLs, whose options are nested."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator and "::" not in scheme else ""


def _defaults(scheme: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that the user may override."""
    defaults: dict[str, Any] = {}
    if scheme in _OBJECT_STORES:  # another client's writes must be seen, and sizes must be those of now
        defaults["use_listings_cache"] = False
    if scheme in _S3 and not _user_knows_retries():
        config = options.get("config_kwargs") or {}
        defaults["config_kwargs"] = {"retries": _S3_RETRIES, **config}
    return defaults


def _user_knows_retries() -> bool:
    """Whether the environment sets S3's retries; botocore would give way to what we pass."""
    return bool(os.environ.keys() & {"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"})


def s3_code(problem: BaseException) -> str | None:
    """The code with which an S3 refused, as botocore has it; None if it was something else."""
    for error in (problem.__cause__, problem.__context__):
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            code: str | None = response.get("Error", {}).get("Code")
            return code
    return None


def told(problem: BaseException) -> str:
    """What a filesystem raised, in words. Each has its own kinds."""
    words, code = str(getattr(problem, "strerror", None) or ""), s3_code(problem)
    if code is not None and code not in words:
        words = f"{code}: {words or problem}"
    words = words or f"{type(problem).__name__}: {problem}"
    if type(problem).__name__ in _LOGIN_FAILED or (isinstance(problem, PermissionError) and code):
        words += " (no access; credentials come from the environment or from storage_options)"
    return words
