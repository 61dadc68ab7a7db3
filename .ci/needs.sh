#!/usr/bin/env bash
# What the tests need from the system. As root on Debian it is installed where missing; elsewhere
# this says what is missing and fails.
set -euo pipefail

declare -A package=(
    [/usr/lib/postgresql/15/bin/postgres]=postgresql-15
    [/usr/share/postgresql/15/extension/plpgsql_check.control]=postgresql-15-plpgsql-check
    [/usr/share/postgresql/15/extension/plpython3u.control]=postgresql-plpython3-15
    [/usr/lib/python3/dist-packages/jsonschema/__init__.py]=python3-jsonschema
    [sqitch]=sqitch
    [psql]=postgresql-client-15
    [runuser]=util-linux
    [git]=git
)
case ",${EVE_SERVERS:-15,16,17,18}" in *,16* | *,17* | *,18*) package[npm]=npm ;; esac

missing=()
for program in "${!package[@]}"; do
    command -v "$program" >/dev/null || [ -e "$program" ] || missing+=("${package[$program]}")
done
perl -MDBD::Pg -e 1 2>/dev/null || missing+=(libdbd-pg-perl)
[ ${#missing[@]} = 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "the tests need: ${missing[*]}" >&2
    echo "(as root on Debian 12 \`make test\` installs them; EVE_SERVERS=15 does without npm)" >&2
    exit 1
fi
echo "installing: ${missing[*]}"
apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
