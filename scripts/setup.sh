#!/bin/sh
# Create .venv and install loger into it: scripts/setup.sh [extra]
# Without an extra, what running and serving need; with `dev` also what tests, lint and benchmarks need.
# LOCKED=1 takes the versions of requirements-dev.lock; without it, the newest that pyproject.toml allows.
# uv installs where it is found, pip elsewhere. What they say is shown only if they fail.
set -eu
cd "$(dirname "$0")/.."

extra=${1:-serve}
torch='torch>=2.5,<2.14' # as in pyproject.toml
cpu_index=https://download.pytorch.org/whl/cpu

say() { printf '%s\n' "setup: $*"; }

# quietly NAME COMMAND…: what the command says goes to .venv/NAME.out.
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

# Neither compiles all Python files of PyTorch, half a minute of work: Python does it for those it imports.
pip() { quietly install .venv/bin/python -m pip --disable-pip-version-check install --no-compile "$@"; }

install() {
    if command -v uv >/dev/null 2>&1; then
        quietly install uv pip install --python .venv/bin/python "$@"
    else
        pip "$@"
    fi
}

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
    if .venv/bin/python -c 'from importlib.metadata import version; version("torch")' 2>/dev/null; then
        return
    fi
    say "installing PyTorch for the CPU (no NVIDIA GPU here), about a minute"
    if .venv/bin/python -c "import urllib.request as u; u.urlopen('$cpu_index/torch/', timeout=5)" 2>/dev/null; then
        install --index-url "$cpu_index" "$torch"
    else
        say "the CPU build's index does not answer: taking PyTorch from pip's own, which may be several GB"
        pip "$torch" # not uv, which does not know the places that pip is told to look in
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
    install --no-deps --require-hashes -r requirements-dev.lock
fi
say "installing loger with what serving needs"
install --editable '.[serve]'
say "compiling kernels, so that no command has to wait for it: one to four minutes"
quietly compile .venv/bin/loger compile &
if [ "$extra" != serve ]; then
    say "meanwhile installing what $extra needs beyond that"
    install "loger-rec[$extra]" # loger itself is there already
fi
wait $!
say "done: .venv is ready"
say "for the command loger in this shell: . .venv/bin/activate"
