#!/bin/sh
# Feeds what a fuzzer (libFuzzer) makes up to the parsers of what comes from strangers: fuzz/fuzz_targets says what each target is and what must hold.
# It begins with a recording that is made here. Needs a C++ compiler, and no other toolchain than the project's.
#
#   scripts/fuzz.sh [TARGET] [SECONDS]      all targets when left out or "all", 60 seconds each
#
# What was found lies in target/fuzz/found, and is tried again by giving it to the program named there. What was learned stays in target/fuzz/corpus.
set -eu
cd "$(dirname "$0")/.."
[ -d "$HOME/.cargo/bin" ] && PATH="$PATH:$HOME/.cargo/bin"
export PATH
targets=${1:-all} seconds=${2:-60}
[ "$targets" = all ] && targets="manifest pack entries requests elf lengths expressions filters names packets python"
host=$(rustc -vV | sed -n 's/^host: //p')
work=target/fuzz
bin=$work/$host/release

[ -x target/release/reprise ] || cargo build --release
# What cargo-fuzz passes, less what only a nightly compiler takes. The dependencies in C are not looked into.
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
for what in inline-8bit-counters pc-table trace-compares; do
    flags="$flags -Cllvm-args=-sanitizer-coverage-$what"
done
RUSTFLAGS="$flags -Ccodegen-units=1" cargo build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$work" --bins

# Seeds: the first byte says what the rest is, see the targets.
seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT
seed() { # TARGET, first byte in octal, file
    mkdir -p "$work/corpus/$1"
    { printf "$2"; cat "$3"; } >"$work/corpus/$1/seed-$(basename "$3")-${4:-0}"
}
for engine in serial order; do
    trace=$seeds/$engine
    target/release/reprise record --engine "$engine" -o "$trace" -- /bin/sh -c 'echo one; /bin/echo two' >/dev/null
    seed manifest '' "$trace/manifest.json" "$engine"
    seed manifest '' "$trace/summary.json" "$engine"
    seed entries '\001' "$trace/events.zst" "$engine"
    if command -v zstd >/dev/null; then
        # Also skips what is no frame of events.
        zstd -dcq "$trace/events.zst" >"$seeds/events"
        seed entries '\000' "$seeds/events" "$engine"
        seed entries '\002' "$seeds/events" "$engine-frame"
    fi
    tar -C "$trace" --format=gnu -cf "$seeds/tar" manifest.json summary.json events.zst
    seed pack '\002' "$seeds/tar" "$engine"
done
cat >"$seeds/index" <<'END'
{"regions":[{"start":4096,"len":8192,"prot":3,"flags":0,"content":{"Bytes":{"runs":[[4096,8192,0]]}},"name":"x"}],"blob_len":8192,
"blocks":[{"at":0,"len":0,"hash":0}],"moment":{"event":0,"at_byte":0,"files":3,"threads":[{"tid":1,
"registers":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"vectors":[],"mask":0,"clears":0,"signal_stack":[0,0,0]}]}}
END
seed entries '\006' "$seeds/index"
printf '%s' '{"seal":0,"checkpoints":[{"event":0,"after":1,"end":0}]}' | cat - "$seeds/index" >"$seeds/checkpoints"
seed entries '\007\070\000' "$seeds/checkpoints"
runtime=$(ls -t target/release/build/reprise-launch-*/out/runtime.elf | head -n 1)
seed elf '\000' "$runtime"
for way in '\001\001\000\020\000\000' '\002' '\003\000\020\000\000'; do
    seed elf "$way" /bin/true "$(printf %.3s "${way#?}")"
done
seed lengths '' /bin/true
# $rdi == 7 && *(short *)$rax < 3
printf '\046\000\005\042\007\023\016\040\000\030\046\000\000\030\026\020\042\003\024\047\042\000\042\000\042\000\047' >"$seeds/condition"
seed expressions '' "$seeds/condition"
printf '%s' '$qSupported:swbreak+#00$Z0,401136,1;X3,220127X3,220027#00$qGetTLSAddr:p1.2,10,7f0000#00$qXfer:siginfo:read::0,100#00$?#3f' >"$seeds/said"
seed packets '' "$seeds/said"
printf 'xdebugpy\000\000\016\003\000\000\000\000\000\000\000\000\000\000\000\000' >"$seeds/table"
seed python '' "$seeds/table"

[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
mkdir -p "$work/found"
failed=
for target in $targets; do
    mkdir -p "$work/corpus/$target"
    echo "----- $target: $seconds seconds -----"
    "$bin/$target" "$work/corpus/$target" -max_total_time="$seconds" -max_len=65536 -len_control=10 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$work/found/$target-" || failed="$failed $target"
done
[ -z "$failed" ] || { echo "found something:$failed; see $work/found" >&2; exit 1; }
