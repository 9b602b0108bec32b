#!/bin/sh
# All tests, from a fresh clone: installs what is missing, builds the guests and Reprise, checks format, lints and the documentation of the code,
# runs every test.
#
#   scripts/test.sh [ARGUMENTS OF cargo test...]      for example: scripts/test.sh --test calls signals::
#
# The long tests are scripts/stress.sh.
set -eu
cd "$(dirname "$0")/.."
scripts/setup-tests.sh
[ -d "$HOME/.cargo/bin" ] && PATH="$PATH:$HOME/.cargo/bin"
[ -d /usr/local/go/bin ] && PATH="$PATH:/usr/local/go/bin"
export PATH

scripts/build-guests.sh
cargo fmt --all --check
cargo clippy --workspace --all-targets --release -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --release
cargo build --workspace --release

# One test more at a time than there are processors: most wait for something now and then.
: "${RUST_TEST_THREADS:=$(($(nproc) + 1))}"
export RUST_TEST_THREADS

# What each test did, for the report below.
REPRISE_TEST_JOURNAL=$(mktemp)
export REPRISE_TEST_JOURNAL
trap 'rm -f "$REPRISE_TEST_JOURNAL"' EXIT
status=0
cargo test --workspace --release --no-fail-fast "$@" || status=$?
scripts/test-report.sh "$REPRISE_TEST_JOURNAL"
exit $status
