#!/bin/sh
# Says what the tests did, from their journal (crates/reprise/tests/common/journal.rs): what was skipped, how much was tried, what took longest.
#
#   scripts/test-report.sh JOURNAL
set -eu
awk -F '\t' '
    $1 == "skipped" { skipped[++skips] = $2 ": " $3 }
    $1 == "tried" {
        # A test may have several workplaces, one after the other.
        if (!($2 in seconds)) count++
        seconds[$2] += $3; recordings[$2] += $4; replays[$2] += $5
        made += $4; played += $5
    }
    END {
        print ""
        printf "tests: %d with programs of their own, %d recordings and runs, %d replays and sessions\n", count, made, played
        printf "tests: %d skipped\n", skips
        for (i = 1; i <= skips; i++) print "    " skipped[i]
        print "tests: the longest, with seconds, recordings, replays"
        for (t in seconds) printf "    %8.1f %6d %6d  %s\n", seconds[t], recordings[t], replays[t], t | "sort -rn | head -n 20"
    }
' "$1"
