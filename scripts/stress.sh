#!/bin/sh
# The long tests (hours): every guest recorded 50 times, every real program in its full size 5 times with 5 replays each, racey recorded
# 1,000 times, run 2,000 times by `reprise run`, something killed in the middle of 100 recordings, 20,000 traces and 1,333 checkpoints changed at random, 10,000 programs by each engine that write at random into the session's memory, and a browser in its sandbox recorded 20 times; and, when no
# arguments are given, 10 minutes of scripts/fuzz.sh for each target, before all that. Each knob can be set from outside; see crates/reprise/tests/common.
#
#   scripts/stress.sh [ARGUMENTS OF cargo test...]    for example: scripts/stress.sh --test det
set -eu
cd "$(dirname "$0")/.."
scripts/setup-tests.sh
[ -d "$HOME/.cargo/bin" ] && PATH="$PATH:$HOME/.cargo/bin"
[ -d /usr/local/go/bin ] && PATH="$PATH:/usr/local/go/bin"
export PATH
scripts/build-guests.sh

: "${REPRISE_TEST_FULL:=1}" "${REPRISE_TEST_RACEY:=1000}" "${REPRISE_TEST_KILLS:=100}" "${REPRISE_TEST_SCALE:=10}" "${REPRISE_TEST_DET_RACEY:=2000}"
: "${REPRISE_TEST_BROWSERS:=20}" "${REPRISE_TEST_MUTATIONS:=20000}" "${REPRISE_TEST_SCRIBBLES:=10000}"
: "${REPRISE_TEST_RECORDINGS:=50}" "${REPRISE_TEST_REPLAYS:=1}" "${REPRISE_TEST_HANG_SECONDS:=900}" "${REPRISE_TEST_KEEP:=1}"
export REPRISE_TEST_BROWSERS REPRISE_TEST_MUTATIONS REPRISE_TEST_SCRIBBLES REPRISE_TEST_FULL REPRISE_TEST_RACEY REPRISE_TEST_KILLS REPRISE_TEST_SCALE REPRISE_TEST_DET_RACEY
export REPRISE_TEST_RECORDINGS REPRISE_TEST_REPLAYS REPRISE_TEST_HANG_SECONDS REPRISE_TEST_KEEP
status=0
[ $# -gt 0 ] || scripts/fuzz.sh all "${REPRISE_TEST_FUZZ_SECONDS:-600}" || status=1
cargo test --release -p reprise --no-fail-fast "$@" || status=1
exit $status
