#!/usr/bin/env bash
# Make the virtual environment in .venv/ with CPU vLLM and everything that demo, tests and checks need.
# `make setup` calls this; one line per step, details in .venv/setup.log.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
log=$venv/setup.log
pytorch_cpu=https://download.pytorch.org/whl/cpu

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Prints the first of the usual names that really is Python 3.11; a name may exist without a working interpreter behind it.
find_python() {
    local name
    for name in ${PYTHON:-python3.11 python3 python}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    fail "Python 3.11 not found (tried: ${PYTHON:-python3.11 python3 python}); install it or say PYTHON=/path/to/python3.11"
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
        -c constraints.txt "$@" -e '.[cpu,demo,dev]' >>"$log" 2>&1
}

torch_not_found() {
    grep -qE 'No matching distribution found for torch|ResolutionImpossible' "$log"
}

install_failed() {
    tail -n 15 "$log" >&2
    fail "installing failed; the whole log is in $log. Run the same command again to go on"
}

python=$(find_python)
if ! "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" ||
        fail "$python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3.11-venv"
fi
: >"$log"

say "installing CPU vLLM, Prefect and the rest (3.5 GB; a few minutes; log: $log)"
if ! pip_install; then
    torch_not_found || install_failed
    say "the CPU build of torch is not in the configured index: trying again with PyTorch's own"
    pip_install --extra-index-url "$pytorch_cpu" || install_failed
fi

# vLLM for CPU brings these along, but the builds that pip finds do not fit the CPU build of torch and then break
# `import transformers` (operator torchvision::nms does not exist). Text needs none of them.
say "removing torchvision, torchaudio and torchcodec, which text does not need"
"$venv/bin/python" -m pip uninstall --yes --quiet torchvision torchaudio torchcodec >>"$log" 2>&1

say "ready: $venv/bin/batchjobs --help"
