#!/bin/sh
# Create .venv and install loger into it: scripts/setup.sh [extra]
# Without an extra, what running and serving need; with `dev` also what tests, lint and benchmarks need.
# LOCKED=1 takes the versions of requirements-dev.lock; without it, the newest that pyproject.toml allows.
# Everything pip says is kept quiet unless it fails. A full account is in .venv/pip.log.
set -eu
cd "$(dirname "$0")/.."

extra=${1:-serve}
torch='torch>=2.5,<2.14' # as in pyproject.toml
cpu_index=https://download.pytorch.org/whl/cpu

say() { printf '%s\n' "setup: $*"; }

quietly() {
    if ! "$@" >.venv/pip.out 2>&1; then
        cat .venv/pip.out >&2
        say "failed: $*" >&2
        exit 1
    fi
}

# pip would compile every file of PyTorch to bytecode, half a minute of work; Python does it for those it imports.
pip() { quietly .venv/bin/python -m pip --disable-pip-version-check --log .venv/pip.log "$@"; }

# The person's own python3 comes first; a newer one by name only where that is too old.
find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    say "needs Python 3.11 or newer with venv; found $(python3 --version 2>&1 || true)." >&2
    say "Install one (on Debian: python3 and python3-venv) or name it: make setup PYTHON=/path/to/python3" >&2
    exit 1
}

# PyTorch's default build for Linux carries several GB of CUDA, which only an NVIDIA GPU can use.
install_torch() {
    if [ "$(uname -s)" != Linux ] || command -v nvidia-smi >/dev/null 2>&1; then
        return # the default build is the right one and comes with the rest
    fi
    if .venv/bin/python -c 'import torch' 2>/dev/null; then
        return
    fi
    say "installing PyTorch for the CPU (no NVIDIA GPU here), about a minute"
    if .venv/bin/python -c "import urllib.request as u; u.urlopen('$cpu_index/torch/', timeout=5)" 2>/dev/null; then
        pip install --no-compile --index-url "$cpu_index" "$torch"
    else
        say "the CPU build's index does not answer: taking PyTorch from pip's own, which may be several GB"
        pip install --no-compile "$torch"
    fi
}

if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    say "creating .venv with $("$python" --version), a few seconds"
    "$python" -m venv .venv
fi
install_torch
if [ "$extra" = dev ] && [ -n "${LOCKED:-}" ]; then
    say "installing what requirements-dev.lock names, each file checked by its hash"
    pip install --no-compile --no-deps --require-hashes -r requirements-dev.lock
fi
say "installing loger with what $extra needs, a minute or two"
pip install --no-compile --editable ".[$extra]"
say "compiling kernels, about a minute, so that no command has to wait for it"
quietly .venv/bin/loger compile
rm -f .venv/pip.out
say "done: .venv is ready"
say "for the command loger in this shell: . .venv/bin/activate"
