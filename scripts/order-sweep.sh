#!/bin/sh
# Records the guests of the order engine again and again, each primitive with 2, 8 and 64 threads, and replays every recording twice in
# partial and twice in total order: what it says, how it ends and its state hashes must be the recording's. It runs for hours. What failed
# is told as it comes, and its trace is kept.
#
#   scripts/order-sweep.sh [RECORDINGS [WORD]]    so many of each, 50 unless told; only guests whose line has this word
#   JOBS=4 scripts/order-sweep.sh                 so many at a time, 2 unless told
set -eu

GUESTS='
sync_faults
sync_signals
sync_once
thread_create
mutex_contention
condition_variables
rwlock_barrier_semaphore
timed_waits
thread_cancel
robust_mutex
main_ends_first
pi_mutex 500
c11_threads
cancel_points
exit_while_others
locked_faults
loaded_libraries
thread_variables_of_libraries
cpp_exceptions
threads_many 200
threads_many 1000
threads_short_lived 1000
signal_after_atomic
signal_context
signal_in_loop 5
signal_registers 5
signal_longjmp 20
signal_fp_environment
signal_interrupted_sleep
signal_mask
signal_restart
signal_stacks
signal_timers
signal_waiting
signalfds
signals_to_threads
signal_between_threads 12
signal_alarm_in_calls 1000
fork_wait
fork_tree
fork_chain
fork_deaths
crash_of_one
orphans
clone_by_syscall
clone_pidfd
signals_across_fork
wait_forms
child_signals
subreaper
parent_death_signal
exit_ways
pidfds
fork_from_threads
fork_with_threads
fork_killed_at_once
atfork_handlers
vfork_spawn
vfork_failures
join_beside_vfork
spawn_attributes
exec_again
exec_errors
exec_kept_and_lost
exec_races
process_pipes
append_races
others_change_blocking
job_control
signal_groups
stopped_anywhere
robust_between_processes
locks_between_processes
atomics_between_processes
semaphore_undo
ipc_tables
killed_among_atomics
fork_outlives
abort_handled'
# Their threads wait for each other by looking at memory again and again, which in total order none could stop to do.
PARTIAL='
sections_at_once'
# Their processes or threads race by plain loads and stores (Rust's channels by plain atomic loads, which no code shows), which no engine of this
# kind can order: what they do is counted, not judged.
RACY='
rust_scoped
already_running
shares_with_its_child
records_itself
rust_threads
fork_shared_memory
processes_at_work 2 100000
killed_while_sharing
worker_tree
sysv_shm_threads
buffers_seen_by_others
shared_files
futex_between_processes'

# Each primitive in each of its states.
primitives() {
    for threads in 2 8 64; do
        rounds=$((960 / threads / threads + 4))
        for guest in sync_mutex sync_cond sync_sem sync_barrier sync_rwlock; do
            echo "$guest $threads $rounds"
        done
        echo "sync_static $threads"
    done
    echo "locked_forms 2000"
}

# One recording and its replays: NUMBER GUEST [ARGUMENT...].
one() {
    guest=$2
    trace=$PLACE/$(echo "$*" | tr ' ' '-')
    label=$*
    shift 2
    status=0
    guests=$PWD/tests/guests/bin
    mkdir "$trace.cwd"
    (cd "$trace.cwd" && exec timeout 300 "$REPRISE" record --engine order --checksum=50 -o "$trace" -- "$guests/$guest" "$@") \
        >"$trace.out" 2>"$trace.err" </dev/null || status=$?
    case $status in
    99 | 124 | 125)
        echo "recording ended with $status: $label ($trace)"
        return
        ;;
    esac
    orders='partial partial total total'
    case $PARTIAL in *"$guest"*) orders='partial partial' ;; esac
    for order in $orders; do
        again=0
        timeout 300 "$REPRISE" replay --time-limit 200 --order $order "$trace" >"$trace.again" 2>"$trace.why" </dev/null || again=$?
        if [ $again != $status ] || ! cmp -s "$trace.out" "$trace.again"; then
            why=$(grep -m 1 -A 3 -e divergence -e 'was ended' "$trace.why" | tr -s '\n ' ' ' || :)
            echo "$order replay ended with $again, not $status: $label ($trace) $why"
            return
        fi
    done
    echo "good: $label"
    rm -rf "$trace" "$trace".*
}

if [ "${1:-}" = --one ]; then
    shift
    one "$@"
    exit
fi
cd "$(dirname "$0")/.."
RECORDINGS=${1:-50}
WORD=${2:-}
export REPRISE="$PWD/target/release/reprise"
PLACE=$(mktemp -d)
export PLACE
sweep() {
    grep -e "$WORD" | while read -r line; do
        for i in $(seq "$RECORDINGS"); do echo "$i $line"; done
    done | shuf | xargs -r -d '\n' -P "${JOBS:-2}" -I '{}' sh -c 'scripts/order-sweep.sh --one $0' '{}' | tee "$PLACE/said" |
        grep -v '^good' || :
    echo "$1: $(grep -c '^good' "$PLACE/said" || :) of $(grep -c . "$PLACE/said" || :) recordings were replayed exactly"
}
{ primitives && echo "$GUESTS$PARTIAL" | grep .; } | sweep "ordered"
bad=$(grep -vc '^good' "$PLACE/said" || :)
echo "$RACY" | grep . | sweep "racing by plain loads and stores"
[ "$bad" = 0 ]
