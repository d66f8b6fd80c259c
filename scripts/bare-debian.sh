#!/usr/bin/env bash
# Does a bare Debian 12 take this project? Needs root on a Debian-like machine.
#
#   bash scripts/bare-debian.sh [--worktree] [--once]
#
# Makes a root file system with nothing but python3, python3-venv, make and git, and in it, entered by chroot:
#   1. as root, from a clean clone: `make demo` and `make test`, then both again;
#   2. as a user without root, on the machine that root prepared: `make test`;
#   3. as a user without root, on a machine without Node.js and Redis: `make test` has to say what is missing and
#      fail.
#
# --worktree takes the files of the working tree instead of a clone of HEAD. --once leaves out what takes longest and
# shows least: root's second round, and 2.
# Mirror, proxies, registries and certificates are those of this machine. The pristine root file system is kept
# as a tar file in AFPOOL_BARE_DIR (default /var/tmp/afpool-bare), so that the next run takes seconds to start.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
base=${AFPOOL_BARE_DIR:-/var/tmp/afpool-bare}
suite=bookworm
pristine=$base/$suite.tar
worktree=no once=no
for option in "$@"; do
    case $option in
    --worktree) worktree=yes ;;
    --once) once=yes ;;
    *) echo "bare-debian: unknown option $option" >&2 && exit 2 ;;
    esac
done

[ "$(id -u)" = 0 ] || { echo "bare-debian: needs root, for debootstrap and chroot" >&2; exit 3; }

note() { printf '\n== %s\n' "$*"; }

mirror_of() { # the mirror that apt uses here for a release, or nothing
    apt-get indextargets --format '$(CREATED_BY) $(CODENAME) $(REPO_URI)' | awk -v want="$1" '$1 == "Packages" && $2 == want {print $3; exit}'
}

make_pristine() {
    command -v debootstrap >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends debootstrap; }
    local root=$base/pristine mirror
    mirror=$(mirror_of $suite)
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,make,git $suite "$root" ${mirror:+"$mirror"} >"$base/debootstrap.log" 2>&1 ||
        { tail -20 "$base/debootstrap.log" >&2; exit 2; }
    tar -C "$root" -cf "$pristine.part" .
    mv "$pristine.part" "$pristine"
    rm -rf "$root"
}

unpack() { # a fresh root file system in $1, with this machine's way to the registries
    rm -rf "$1"
    mkdir -p "$1"
    tar -C "$1" -xf "$pristine"
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
    apt-config dump | grep -E '^Acquire::(http|https)(::| )' >"$1/etc/apt/apt.conf.d/90host" || true
    local index
    index=$(python3 -m pip config get global.index-url 2>/dev/null) && printf '[global]\nindex-url = %s\n' "$index" >"$1/etc/pip.conf"
    if command -v npm >/dev/null; then
        mkdir -p "$1/etc/skel"
        printf 'registry=%s\n' "$(npm config get registry)" | tee "$1/root/.npmrc" >"$1/etc/skel/.npmrc"
    fi
    chroot "$1" useradd --create-home --shell /bin/sh visitor
}

bring_project() { # the project into $1/$2, owned by user $3 of that root
    mkdir -p "$1$2"
    if [ $worktree = yes ]; then
        (cd "$here" && git ls-files -co --exclude-standard -z | tar --null --ignore-failed-read -cf - -T -) | tar -C "$1$2" -xf -
    else
        rmdir "$1$2"
        git clone -q "file://$here" "$1$2"
    fi
    chroot "$1" chown -R "$3:" "$2"
}

inside() { # run a command in root $1, as user $2, in directory $3, with only the variables that lead to the registries
    local root=$1 user=$2 place=$3 home
    shift 3
    home=$(chroot "$root" getent passwd "$user" | cut -d: -f6)
    local keep=()
    local name
    while IFS= read -r name; do
        keep+=("$name=${!name}")
    done < <(compgen -e | grep -iE '^(https?_proxy|no_proxy|all_proxy|pip_(index_url|cert|default_timeout)|ssl_cert_file|node_extra_ca_certs|requests_ca_bundle|npm_config_registry)$')
    unshare --mount --pid --fork --kill-child sh -c '
        root=$1 user=$2 place=$3; shift 3
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/tmp" && chmod 1777 "$root/tmp" || exit 1
        exec chroot --userspec="$user:$user" "$root" /usr/bin/env -C "$place" -i "$@"
    ' sh "$root" "$user" "$place" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" LANG=C.UTF-8 "${keep[@]}" "$@"
}

failures=0
expect() { # expect yes|no, a title, a command: run it, time it, compare success
    local want=$1 title=$2 got=no start=$SECONDS
    shift 2
    note "$title"
    if "$@" </dev/null 2>&1 | tee "$base/last.log"; then got=yes; fi
    echo "-- $title: success=$got (wanted $want), $((SECONDS - start)) s"
    [ $got = "$want" ] || failures=$((failures + 1))
}

mkdir -p "$base"
[ -f "$pristine" ] || { note "debootstrap $suite"; make_pristine; }

full=$base/full
unpack "$full"
bring_project "$full" /root/afpool root
expect yes "root, bare: make demo" inside "$full" root /root/afpool make demo
expect yes "root, bare: make test" inside "$full" root /root/afpool make test
if [ $once = no ]; then
    expect yes "root, again: make demo" inside "$full" root /root/afpool make demo
    expect yes "root, again: make test" inside "$full" root /root/afpool make test

    bring_project "$full" /home/visitor/afpool visitor
    expect yes "no root, Node.js and Redis are there: make test" inside "$full" visitor /home/visitor/afpool make test
fi

plain=$base/plain
unpack "$plain"
bring_project "$plain" /home/visitor/afpool visitor
expect no "no root, no Node.js, no Redis: make test" inside "$plain" visitor /home/visitor/afpool make test
for what in 'node and npm' redis-server nginx; do
    grep -q "missing: $what not found" "$base/last.log" || { echo "-- the message does not name $what"; failures=$((failures + 1)); }
done
expect yes "no root, no Node.js, no Redis: make demo" inside "$plain" visitor /home/visitor/afpool make demo

rm -rf "$full" "$plain"
note "$failures failed"
[ $failures = 0 ]
