#!/bin/sh
# The soak: redis recorded under load for minutes with flat memory and a verified trace; 200 recordings one after another, 8 at a time,
# and 100 trees of processes of which one is killed, with nothing left behind. Then 10,000 schedules of others who change files while they are read (half an hour),
# and the agent killed in 100 recordings by each engine that read files.
#
#   scripts/soak.sh [SECONDS OF REDIS]      600 when left out
set -eu
cd "$(dirname "$0")/.."
scripts/setup-tests.sh
[ -d "$HOME/.cargo/bin" ] && PATH="$PATH:$HOME/.cargo/bin"
export PATH
scripts/build-guests.sh

: "${REPRISE_TEST_FULL:=1}" "${REPRISE_TEST_SOAK_SECONDS:=${1:-600}}" "${REPRISE_TEST_HANG_SECONDS:=3600}" "${REPRISE_TEST_KEEP:=1}"
: "${REPRISE_TEST_SCHEDULES:=10000}"
export REPRISE_TEST_FULL REPRISE_TEST_SOAK_SECONDS REPRISE_TEST_HANG_SECONDS REPRISE_TEST_KEEP REPRISE_TEST_SCHEDULES
cargo test --release -p reprise --test programs -- soak:: --include-ignored --nocapture --test-threads 1
cargo test --release -p reprise --test inputs -- others_change killed --nocapture --test-threads 1
