#!/bin/sh
# Debian packages that tests need beside Python: a C compiler (the library that plays NVML), ip and tc (ranks with a
# network of their own), fio, stress-ng and git (work on a mount), fusermount3 (mounts of other users). Installs what is missing where that is possible; else says so, and those tests are skipped.
missing=""
command -v gcc > /dev/null && echo '#include <stdio.h>' | gcc -E - > /dev/null 2>&1 || missing="gcc libc6-dev"
command -v ip > /dev/null && command -v tc > /dev/null || missing="$missing iproute2"
command -v unshare > /dev/null || missing="$missing util-linux"
for each in fio stress-ng git; do
  command -v "$each" > /dev/null || missing="$missing $each"
done
command -v fusermount3 > /dev/null || missing="$missing fuse3"
[ -z "$missing" ] && exit 0
if ! command -v apt-get > /dev/null; then
  echo "missing for some tests: $missing; there is no apt-get here" >&2
  exit 0
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo -n"
echo "installing for tests: $missing" >&2
# shellcheck disable=SC2086  (a list of words)
$as_root apt-get update -q > /dev/null && $as_root apt-get install -y -q --no-install-recommends $missing > /dev/null ||
  echo "could not install $missing; the tests that need it are skipped" >&2
exit 0
