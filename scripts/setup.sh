#!/bin/sh
# Create .venv and install loger into it: scripts/setup.sh [extra]
# Without an extra it installs what running and serving need; `dev` adds tests, lint and benchmarks.
# LOCKED=1 installs the versions of requirements-dev.lock; otherwise the newest that pyproject.toml allows.
# It uses uv if that is installed, and pip otherwise. Their output is shown only if they fail.
set -eu
cd "$(dirname "$0")/.."

extra=${1:-serve}
torch='torch>=2.5,<2.14' # as in pyproject.toml
cpu_index=https://download.pytorch.org/whl/cpu

say() { printf '%s\n' "setup: $*"; }

# quietly NAME COMMAND…: the output of the command goes to .venv/NAME.out.
quietly() {
    out=.venv/$1.out
    shift
    if ! "$@" >"$out" 2>&1; then
        cat "$out" >&2
        say "failed: $*" >&2
        exit 1
    fi
    rm -f "$out"
}

# Neither compiles all Python files of PyTorch, which takes half a minute: Python compiles those it imports.
pip() { quietly install .venv/bin/python -m pip --disable-pip-version-check install --no-compile "$@"; }

install() {
    if command -v uv >/dev/null 2>&1; then
        quietly install uv pip install --python .venv/bin/python "$@"
    else
        pip "$@"
    fi
}

# The user's own python3 comes first; others are tried only if it is too old.
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
    if .venv/bin/python -c 'from importlib.metadata import version; version("torch")' 2>/dev/null; then
        return
    fi
    say "installing PyTorch for the CPU (no NVIDIA GPU here), about a minute"
    if .venv/bin/python -c "import urllib.request as u; u.urlopen('$cpu_index/torch/', timeout=5)" 2>/dev/null; then
        install --index-url "$cpu_index" "$torch"
    else
        say "the index of the CPU build doesn't answer; installing PyTorch from pip's own index, maybe several GB"
        pip "$torch" # not uv, which ignores the indexes that pip is configured with
    fi
}

if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    say "creating .venv with $("$python" --version), a few seconds"
    "$python" -m venv .venv
fi
install_torch
if [ "$extra" = dev ] && [ -n "${LOCKED:-}" ]; then
    say "installing the versions in requirements-dev.lock, with hashes checked"
    install --no-deps --require-hashes -r requirements-dev.lock
fi
say "installing loger and the server"
install --editable '.[serve]'
say "compiling kernels, so that no command has to wait for it (one to four minutes)"
quietly compile .venv/bin/loger compile &
if [ "$extra" != serve ]; then
    say "installing the rest of '$extra' meanwhile"
    install "loger-rec[$extra]" # loger itself is there already
fi
wait $!
say "done: .venv is ready"
say "to use the loger command in this shell: . .venv/bin/activate"
