#!/usr/bin/env bash
# Makes .venv with this project and what an extra needs:  .ci/venv.sh demo | dev
# dev installs the versions of .ci/requirements.txt; nothing is done when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
extra=$1

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "eve needs Python 3.11 or newer as python3, or set PYTHON" >&2
    exit 1
fi

want=$(cat pyproject.toml .ci/requirements.txt | sha256sum | cut -d' ' -f1)
for stamp in ".venv/eve-$extra" .venv/eve-dev; do # dev holds all that demo needs
    if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && .venv/bin/python -c '' 2>/dev/null; then
        exit 0
    fi
done

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    if ! "$python" -m venv .venv >/dev/null 2>&1; then
        rm -rf .venv
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
                python3-venv >/dev/null
            "$python" -m venv .venv
        else
            echo "python3 cannot make a virtual environment: install python3-venv" >&2
            exit 1
        fi
    fi
fi

pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }
if [ "$extra" = dev ]; then
    pip install -r .ci/requirements.txt
    pip install --no-deps --no-build-isolation -e .
else
    pip install -c .ci/requirements.txt -e ".[$extra]"
fi
echo "$want" >".venv/eve-$extra"
