#!/bin/sh
# Traces travel to another kernel: programs are recorded here, packed, and replayed under other kernels of the distribution, in an emulated
# machine (QEMU without KVM) that holds nothing but reprise, the libraries it needs, a shell and the packed traces. What the replays write,
# and how they end, has to be what the recordings did; a trace that shows the program more than that machine's processor has must be refused,
# with the feature's name.
#
#   scripts/other-kernel.sh [KERNEL PACKAGE...]     the newest of each other series that apt knows when left out
#
# Nothing is installed but QEMU, busybox and cpio: kernels are unpacked into a temporary directory. For Debian and its kin; as root, or with sudo.
set -eu
cd "$(dirname "$0")/.."
[ -d "$HOME/.cargo/bin" ] && PATH="$PATH:$HOME/.cargo/bin"
export PATH

# Seconds for one recording, for one download, for one boot with all its replays.
RECORDING=120
DOWNLOAD=600
BOOT=900

# The processors that the traces are replayed on, as QEMU names them: one with little beyond x86-64-v2, and all that QEMU can emulate; and
# one that is too old for Reprise, which must say so.
# (Its x87 never says that it rounded up, bit C1 of the status word: no program here computes with that.)
PROCESSORS="SandyBridge max Nehalem"

fail() {
    echo "other-kernel: $*" >&2
    exit 1
}

as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
missing=
command -v qemu-system-x86_64 >/dev/null 2>&1 || missing="$missing qemu-system-x86"
[ -x /usr/bin/busybox ] || [ -x /bin/busybox ] || missing="$missing busybox-static"
command -v cpio >/dev/null 2>&1 || missing="$missing cpio"
if [ -n "$missing" ]; then
    echo "other-kernel: installing$missing"
    $as_root apt-get update -q >/dev/null
    # shellcheck disable=SC2086 # one word for each package
    $as_root env DEBIAN_FRONTEND=noninteractive timeout "$DOWNLOAD" apt-get install -q -y --no-install-recommends $missing >/dev/null
fi
busybox=$(command -v busybox)
! ldd "$busybox" >/dev/null 2>&1 || fail "$busybox is not static (package busybox-static)"

place=$(mktemp -d "${TMPDIR:-/tmp}/other-kernel.XXXXXX")
machine=
trap '[ -z "$machine" ] || kill "$machine"; rm -rf "$place"' EXIT
trap 'exit 130' INT TERM
mkdir "$place/traces" "$place/recorded" "$place/work"

# --- Record -------------------------------------------------------------------------------------------------------------------------------

cargo build --release -q
reprise=$PWD/target/release/reprise
guests="mutex_contention cut_string_functions signal_registers fork_tree robust_whole_process"
# shellcheck disable=SC2086 # one word for each guest
scripts/build-guests.sh $guests >/dev/null

record() { # record NAME OPTIONS... -- PROGRAM...
    name=$1
    shift
    status=0
    (cd "$place/work" && exec timeout "$RECORDING" "$reprise" record -q -o "$place/$name" "$@" </dev/null \
        >"$place/recorded/$name.out" 2>"$place/recorded/$name.err") || status=$?
    case $status in
    12[4-7]) fail "recording $name ended with status $status: $(cat "$place/recorded/$name.err")" ;;
    esac
    echo "$status" >"$place/recorded/$name.status"
    "$reprise" pack -q -o "$place/traces/$name.reprise" "$place/$name"
    names="$names $name"
}

threads_of_python='
import hashlib, queue, threading, time
todo, done = queue.Queue(), []
def work():
    while (n := todo.get()) is not None:
        done.append((n, hashlib.sha256(str(n).encode() * 1000).hexdigest()[:16]))
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for n in range(200): todo.put(n)
for _ in threads: todo.put(None)
for t in threads: t.join()
print(done[:5], sorted(done) == done, time.time())
raise SystemExit(3)'
pipeline='
seq 1 20000 | sort -r | head -n 3 | tee first | sed "s/^/line /"
(sleep 0.1; echo "late, in the background") &
wait
date +%s.%N >&2
ls -l first; kill -TERM $$'

names=
bin=$PWD/tests/guests/bin
for guest in mutex_contention cut_string_functions signal_registers fork_tree; do
    record "$guest" --cpu baseline -- "$bin/$guest"
done
record robust_whole_process --cpu baseline -- "$bin/robust_whole_process" kill
record chaos --cpu baseline --chaos=7 -- "$bin/mutex_contention"
record python --cpu baseline -- python3 -c "$threads_of_python"
record pipeline --cpu baseline -- sh -c "$pipeline"
travellers=$names
# This one may use whatever this machine has.
record everything -- "$bin/mutex_contention"
level=$("$reprise" info --json "$place/everything" | sed -n 's/.*"cpu_level": *\([0-9]*\).*/\1/p')
of_v2="refused: lacks *"
[ "$level" -gt 2 ] || of_v2=same

# --- The machine --------------------------------------------------------------------------------------------------------------------------

root=$place/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/root" "$root/traces"
cp "$busybox" "$root/bin/busybox"
cp "$reprise" "$root/bin/reprise"
ldd "$reprise" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) .*/\1/p' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
cp "$place"/traces/*.reprise "$root/traces"
cat >"$root/init" <<'END'
#!/bin/busybox sh
# Replays every trace and sends what came of it through the second serial line.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /tmp
mkdir -p /dev/shm /dev/pts /tmp/result
mount -t tmpfs none /dev/shm
mount -t devpts none /dev/pts
cd /tmp
uname -r >result/kernel
for trace in /traces/*.reprise; do
    name=$(basename "$trace" .reprise)
    echo "replaying $name"
    timeout 200 reprise replay -q "$trace" </dev/null >"result/$name.out" 2>"result/$name.err"
    echo $? >"result/$name.status"
done
stty -F /dev/ttyS1 raw -echo
(tar c result | base64; echo END) >/dev/ttyS1
# What the line still holds is sent before it is closed; then the machine is left.
reboot -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$place/initramfs"

# --- Kernels ------------------------------------------------------------------------------------------------------------------------------

series() { # 6.1.0-50 and 6.1.192: 6.1
    echo "$1" | sed 's/^\([0-9]*\.[0-9]*\).*/\1/'
}
if [ $# -eq 0 ]; then
    $as_root apt-get update -q >/dev/null
    here=$(series "$(uname -r)")
    of_apt=$(apt-cache search --names-only '^linux-image-[0-9.]+(-[0-9]+|\+deb[0-9]+)-amd64$' | cut -d' ' -f1 | sort -V)
    for package in $of_apt; do
        [ "$(series "${package#linux-image-}")" = "$here" ] || echo "$(series "${package#linux-image-}") $package"
    done >"$place/kernels"
    # The last of each series is the newest.
    # shellcheck disable=SC2046 # one word for each package
    set -- $(awk '{ newest[$1] = $2 } END { for (s in newest) print newest[s] }' "$place/kernels" | sort -V)
fi
[ $# -gt 0 ] || fail "apt knows no kernel of another series than $(uname -r)"

bad=0
row() {
    printf '%-28s %-10s %-22s %s\n' "$@"
}

# boot KERNEL IMAGE, PROCESSOR: what came of the replays is in $place/result then.
boot() {
    rm -rf "$place/result" "$place/line"
    timeout -k 5 "$BOOT" qemu-system-x86_64 -accel tcg -cpu "$2" -m 2G -smp 2 -kernel "$1" -initrd "$place/initramfs" \
        -append "console=ttyS0 quiet panic=-1" -display none -monitor none -no-reboot -nic none \
        -serial "file:$place/console" -serial "file:$place/line" </dev/null >"$place/qemu" 2>&1 &
    machine=$!
    wait "$machine" || return 1
    machine=
    grep -q '^END' "$place/line" && sed '/^END/,$d' "$place/line" | tr -d '\r' | base64 -d | tar x -C "$place"
}

# compare NAME: a word on how the replay of a trace went.
compare() {
    for part in status out err; do
        cmp -s "$place/recorded/$1.$part" "$place/result/$1.$part" || {
            echo "DIFFERS ($part)"
            return
        }
    done
    echo same
}

# refused NAME: what was the trace refused for?
refused() {
    [ "$(cat "$place/result/$1.status")" = 125 ] || return 1
    sed -n 's/.*processor lacks what the recorded program was shown ([^)]*): \([^;]*\);.*/\1/p; s/.*has no \(XSAVE\), which.*/\1/p' \
        "$place/result/$1.err" | grep .
}

# judge NAME, WHAT IS EXPECTED: prints a row, and counts what is not as it should be. Where nothing is lacking a trace is replayed the same.
judge() {
    how=$(compare "$1")
    if why=$(refused "$1"); then
        how="refused: lacks $why"
    fi
    row "$(cat "$place/result/kernel")" "$processor" "$1" "$how"
    case $how in
    $2) ;;
    *)
        bad=$((bad + 1))
        sed 's/^/    /' "$place/result/$1.err" | head -n 20
        ;;
    esac
}

row KERNEL PROCESSOR TRACE REPLAY
for package; do
    mkdir "$place/$package"
    (
        cd "$place/$package"
        timeout "$DOWNLOAD" apt-get download -q -o APT::Sandbox::User=root "$package" >/dev/null
        dpkg-deb -x ./*.deb .
        rm -f ./*.deb
    ) || fail "$package can't be had"
    kernel=$(find "$place/$package/boot" -name 'vmlinuz*' | head -n 1)
    [ -n "$kernel" ] || fail "$package holds no kernel"
    for processor in $PROCESSORS; do
        if ! boot "$kernel" "$processor"; then
            tail -n 30 "$place/qemu" "$place/console" >&2
            fail "$package on $processor didn't come to its end"
        fi
        expected=same
        [ "$processor" != Nehalem ] || expected="refused: lacks XSAVE"
        for name in $travellers; do
            judge "$name" "$expected"
        done
        # What the recording could use and this machine lacks has to be named. What QEMU can emulate may be enough.
        everything=$of_v2
        [ "$processor" != max ] || everything="[!D]*"
        judge everything "$everything"
    done
    rm -rf "${place:?}/$package"
done
row "$(uname -r)" - "(recorded here)" "$(echo "$travellers" | wc -w) traces"
[ "$bad" -eq 0 ] || fail "$bad replays are not as they should be"
