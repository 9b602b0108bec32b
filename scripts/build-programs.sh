#!/bin/sh
# Servers from Debian's sources, built with `reprise cc`, so that their atomic operations and volatiles are seen by `--engine order`.
#
#   scripts/build-programs.sh --fetch       gets the sources (apt; needs no root) into target/programs/sources
#   scripts/build-programs.sh REPRISE       builds them with that `reprise`: target/programs/bin/redis-server and memcached
#
# What is there and up to date is left alone. The tests and the benchmarks call it.
set -eu
cd "$(dirname "$0")/.."
top=$PWD/target/programs
mkdir -p "$top/sources" "$top/bin"

# The directory of a source package, unpacked.
unpacked() {
    for dir in "$top/sources/$1"-*/; do
        [ -f "$dir/debian/changelog" ] && printf '%s\n' "${dir%/}" && return
    done
    return 1
}

# apt with lists of its own: those of the system without its binary packages, with sources instead. Nothing of the system changes.
apt() {
    apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$top/apt/sources" \
        -o "Dir::State::lists=$top/apt/lists" -o "Dir::Cache=$top/apt/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}

fetch() {
    unpacked redis >/dev/null && unpacked memcached >/dev/null && return
    mkdir -p "$top/apt/sources" "$top/apt/lists/partial" "$top/apt/cache/archives/partial"
    for list in /etc/apt/sources.list.d/debian.sources; do
        [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$top/apt/sources/debian.sources"
    done
    [ -e /etc/apt/sources.list ] && sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$top/apt/sources/system.list"
    apt update
    (cd "$top/sources" && apt source redis memcached)
}

# Does what is built from PACKAGE come from these sources, by this script and this compiler?
state() {
    cat scripts/build-programs.sh crates/reprise/cc/atomics.c crates/reprise/src/compile.rs "$(unpacked "$1")/debian/changelog" | cksum
}

build() { # build PACKAGE PROGRAM COMMAND...: in a copy of the sources
    package=$1 program=$2
    shift 2
    state=$(state "$package")
    [ -x "$top/bin/$program" ] && [ "$(cat "$top/bin/$program.state" 2>/dev/null)" = "$state" ] && return
    work=$top/build-$package
    rm -rf "$work"
    cp -a "$(unpacked "$package")" "$work"
    (cd "$work" && "$@") >"$top/$package.log" 2>&1 || {
        tail -n 30 "$top/$package.log" >&2
        echo "build-programs: $package was not built; all of it is in $top/$package.log" >&2
        exit 1
    }
    find "$work" -name "$program" -type f -perm -u+x -exec cp {} "$top/bin/$program" \;
    printf '%s\n' "$state" >"$top/bin/$program.state"
    rm -rf "$work"
}

build_redis() {
    # Without the allocator and the libraries that Debian brings in; with the server alone.
    make -j2 -C src redis-server CC="$reprise cc" CXX="$reprise c++" MALLOC=libc OPTIMIZATION=-O2 BUILD_TLS=no USE_SYSTEMD=no
}

build_memcached() {
    ./configure CC="$reprise cc" --disable-docs --disable-dependency-tracking
    make -j2 memcached
}

case ${1:-} in
--fetch)
    fetch
    ;;
'')
    echo "build-programs: --fetch, or the path of reprise" >&2
    exit 2
    ;;
*)
    reprise=$1
    unpacked redis >/dev/null && unpacked memcached >/dev/null || {
        echo "build-programs: no sources: scripts/setup-tests.sh gets them" >&2
        exit 1
    }
    build redis redis-server build_redis
    build memcached memcached build_memcached
    ;;
esac
