#!/usr/bin/env bash
# The two commands of the README in a bare Debian 12: a root made by debootstrap, what the README
# asks for (make, git, python3-venv), then `make demo` as an ordinary user, `make test` as root.
#   .ci/fresh.sh [demo] [test]     default: both. Needs root and debootstrap; runs what HEAD holds.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "fresh: a chroot needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "fresh: install debootstrap" >&2; exit 1; }

root=$(mktemp -d /var/tmp/eve-fresh.XXXXXX)
chmod 755 "$root"
clean() {
    for place in dev/shm dev/pts dev sys proc; do
        ! mountpoint -q "$root/$place" || umount -R "$root/$place"
    done
    rm -rf --one-file-system "$root"
}
trap clean EXIT

echo "fresh: a bare Debian"
debootstrap --variant=minbase --include=ca-certificates,git,make,python3-venv bookworm "$root" \
    >"$root.log" 2>&1 || { tail -20 "$root.log" >&2; exit 1; }
rm -f "$root.log"

# The way out of this machine, where it has one of its own: names, certificates, proxies.
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp -rL /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
way_out=()
for name in PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS PIP_INDEX_URL \
    http_proxy https_proxy no_proxy; do
    value=${!name:-}
    [ -f "$value" ] && value=/etc/ssl/certs/ca-certificates.crt
    [ -n "$value" ] && way_out+=("$name=$value")
done

mount -t proc proc "$root/proc"
mount --rbind --make-rslave /sys "$root/sys"
mount --bind /dev "$root/dev"
mount -t devpts devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"

inside() { # user, command, home
    chroot "$root" /usr/bin/env -i HOME="$3" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${way_out[@]}" setpriv --reuid="$1" --regid="$1" --init-groups bash -c "$2"
}

chroot "$root" useradd --create-home --home-dir /srv/somebody somebody
git clone --quiet . "$root/srv/somebody/eve"
git clone --quiet . "$root/srv/eve"
chroot "$root" chown -R somebody: /srv/somebody

for command in "${@:-demo test}"; do
    for target in $command; do
        began=$SECONDS
        case $target in
            demo) inside somebody 'cd ~/eve && make demo' /srv/somebody ;;
            test) inside root 'cd /srv/eve && make test' /root ;;
        esac
        echo "fresh: make $target in $((SECONDS - began)) s"
    done
done
echo "fresh: ${*:-demo test}"
