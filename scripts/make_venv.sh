#!/bin/sh
# Makes the virtual environment of a checkout: `scripts/make_venv.sh .venv`. Called by `make setup`.
#
# Needs Python 3.11 or later with the modules venv and ensurepip. Debian packs those apart (python3-venv): where they are
# missing and this runs as root on a machine with apt-get, the package is installed; else it is named.
set -eu

venv=$1

usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

if ! python=$(find_python); then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "No Python 3.11 or later with venv here; installing Debian's python3-venv." >&2
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >&2
    fi
    python=$(find_python) || {
        echo "relayd needs Python 3.11 or later with the modules venv and ensurepip." >&2
        echo "On Debian and Ubuntu: sudo apt-get install python3 python3-venv" >&2
        echo "Another interpreter is named with PYTHON: make setup PYTHON=/path/to/python3" >&2
        exit 1
    }
fi

echo "Making $venv with $("$python" --version)."
"$python" -m venv --clear "$venv"
# Dependency groups came with pip 25.1; the one that Python brings may be older.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable . --group dev
