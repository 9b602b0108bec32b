# bash: job control of its own, coprocesses, process substitution, traps, subshells, wait in all forms, limits by signals.
# run: 5
set -u
count=${1:-5}

# Job control in a script: each job is a group of its own.
set -m
sleep 1000000 | sleep 1000000 &
kill -STOP -- "-$(jobs -p)"
kill -KILL -- "-$(jobs -p)"
wait $! 2>/dev/null
echo "job $?"
set +m

coproc CALC { while read -r a b; do echo $((a * b)); done; }
calculator=$CALC_PID
for i in $(seq "$count"); do
    echo "$i $((i + 1))" >&"${CALC[1]}"
    read -r answer <&"${CALC[0]}"
    [ "$answer" = $((i * (i + 1))) ] || exit 99
done
eval "exec ${CALC[1]}>&-"
wait "$calculator"
echo "coprocess $?"

# Files that are processes.
paste <(seq 3) <(seq 4 6) | tr '\t' ' '

# Traps, inherited and not; in subshells; at the end; for an error.
trap 'echo caught usr1' USR1
trap '' USR2
kill -USR1 $$
kill -USR2 $$
(trap - USR1; kill -USR1 "$BASHPID"; echo never)
echo "subshell $?"
trap 'echo "error $?"' ERR
false
trap - ERR
for i in $(seq "$count"); do (exit "$i") & pids[i]=$!; done
for i in $(seq "$count"); do wait "${pids[i]}"; [ $? = "$i" ] || exit 99; done
(exit 7) &
wait -n
echo "any $?"
wait 1 2>/dev/null
echo "nobody's child $?"

# A pipe whose reader ends first.
yes | head -n 2
echo "${PIPESTATUS[@]}"
trap 'echo "the end, status $?"; exit 0' EXIT
exit 3
