#!/bin/sh
# Installs the Debian packages that the build needs; without root it prints the one line that does. Extra lists may be named.
set -eu
here=$(dirname "$0")
missing=""
for package in $(cat "$here/debian-packages.txt" "$@"); do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "These packages are missing. Install them with:" >&2
  echo "  sudo apt-get install --no-install-recommends$missing" >&2
  exit 2
fi
echo "installing:$missing"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
