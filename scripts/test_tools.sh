#!/bin/sh
# The tools that tests of real faults use beside Python: `scripts/test_tools.sh`. Called by `make test`.
#
# Root on a machine with apt-get gets what is missing. Anyone else is told; tests that need a tool then skip, and say so.
set -eu

missing=""
need() { # need PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need strace strace
need gcc gcc
need mkfs.ext4 e2fsprogs
need chattr e2fsprogs
need losetup mount
need mount mount
need prlimit util-linux
need setpriv util-linux
if command -v gcc >/dev/null 2>&1 && ! echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1; then
    missing="$missing libc6-dev"
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing what tests of real faults need:$missing" >&2
    apt-get update -qq >&2
    # shellcheck disable=SC2086 - the names are words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing libc6-dev >&2
else
    echo "Tests of real faults that need one of these are skipped:$missing" >&2
fi
