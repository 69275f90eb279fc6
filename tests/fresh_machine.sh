#!/usr/bin/env bash
# The README's two commands on a bare Debian 12: python3, pip and git; no venv module, no compiler, no make, no Java,
# an ordinary user, an empty home. Not part of the suite: it needs root (to chroot), debootstrap and package mirrors.
#
#   tests/fresh_machine.sh [COMMAND ...]        each a line for the shell; default: './everlog demo' './everlog test'
#
# EVERLOG_DEBIAN_MIRROR names the mirror (default: this machine's own). What is committed (HEAD) is what is tried.
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
suite=bookworm

skip() {
    echo "SKIPPED: fresh machine: $1"
    exit 0
}
((EUID == 0)) || skip "not root, and chroot needs it"
command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"

mirror="${EVERLOG_DEBIAN_MIRROR:-}"
if [[ -z "$mirror" ]] && command -v apt-get >/dev/null; then
    targets="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite")"
    mirror="${targets%%$'\n'*}"
fi
[[ -n "$mirror" ]] || skip "no mirror for $suite: set EVERLOG_DEBIAN_MIRROR"

work="$(mktemp -d /tmp/everlog-fresh.XXXXXX)"
machine="$work/machine"
mounted=()
clean_up() {
    local code=$? left=0 index
    for ((index = ${#mounted[@]} - 1; index >= 0; index--)); do
        umount "${mounted[index]}" || left=1
    done
    # Never delete through a mount that is still there.
    if ((left)) || grep -qF " $machine/" /proc/mounts; then
        echo "fresh machine: something is still mounted below $machine; left as it is" >&2
    else
        rm -rf --one-file-system "$work"
    fi
    exit "$code"
}
trap clean_up EXIT
bind() { # DIRECTORY [OPTION]: the same place inside
    mkdir -p "$machine$1"
    mount --bind "$1" "$machine$1"
    mounted+=("$machine$1")
    [[ -z "${2:-}" ]] || mount -o "remount,bind,$2" "$machine$1"
}

echo "fresh machine: debootstrap"
debootstrap --variant=minbase --include=python3,python3-pip,git,ca-certificates "$suite" "$machine" "$mirror" \
    >"$work/debootstrap.log" 2>&1 || {
    tail -20 "$work/debootstrap.log" >&2
    exit 1
}
bind /dev
mount -t tmpfs -o mode=1777 tmpfs "$machine/dev/shm" && mounted+=("$machine/dev/shm")
bind /dev/pts # terminals, as any booted machine has them
mount -t proc proc "$machine/proc" && mounted+=("$machine/proc")

# The network and pip's settings are this machine's: name servers, certificates, indexes, directories of wheels.
cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
    cp -L /etc/ssl/certs/ca-certificates.crt "$machine/etc/ssl/certs/"
fi
settings=()
for name in $(compgen -e); do
    case "$name" in
    PIP_* | SSL_CERT_* | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY) settings+=("$name=${!name}") ;;
    esac
done
while IFS='=' read -r name value; do
    value="${value#\'}"
    value="${value%\'}"
    if [[ "$name" != :env:* ]]; then
        name="${name#*.}"
        name="PIP_${name//-/_}"
        name="${name^^}"
        [[ -n "${!name:-}" ]] || settings+=("$name=$value") # as pip has it: the environment wins
    fi
    for word in $value; do
        # An index links to files beside it, hence the directory above.
        [[ "$word" == file://* ]] && word="$(dirname "${word#file://}")"
        if [[ "$word" == /* && -d "$word" ]] && ! mountpoint -q "$machine$word"; then bind "$word" ro; fi
    done
done < <(python3 -m pip config list 2>/dev/null || true)

chroot "$machine" useradd --create-home --skel /nonexistent fresh
git clone -q --no-hardlinks "file://$repository" "$machine/home/fresh/everlog"
chroot "$machine" chown -R fresh: /home/fresh/everlog

inside() { # [unshare -n] COMMAND
    local before=()
    while [[ $# -gt 1 ]]; do
        before+=("$1")
        shift
    done
    "${before[@]}" chroot --userspec=fresh "$machine" /usr/bin/env -i HOME=/home/fresh PATH=/usr/bin:/bin LANG=C.UTF-8 \
        "${settings[@]}" /bin/sh -c "cd /home/fresh/everlog && $1" </dev/null
}

inside 'echo "fresh machine: $(python3 --version), $(python3 -m pip --version | cut -d" " -f1-2), home: $(ls -A ~ | wc -l) entry (the clone)"
for absent in java make gcc uv; do if command -v $absent; then echo "$absent should not be here"; exit 1; fi; done
if python3 -c "import ensurepip" 2>/dev/null; then echo "ensurepip should not be here"; exit 1; fi'

(($#)) || set -- './everlog demo' './everlog test'
for command in "$@"; do
    for round in first again; do
        # The second time nothing is left to fetch, so it must do without a network.
        offline=()
        [[ "$round" == first ]] || offline=(unshare --net)
        echo "fresh machine: \$ $command   ($round${offline:+, no network})"
        SECONDS=0
        inside "${offline[@]}" "$command"
        echo "fresh machine: ok, $SECONDS s"
        [[ "$command" == *test* ]] && break
    done
done
