#!/usr/bin/env bash
# What the action of action.yml does: runs a command, packs the recordings that were kept, and writes where each one failed into the job's summary.
# Ends with 0 whatever the command ended with, so that the steps behind it run; its status is an output, as are the number of recordings and where they are.
#
# From the environment: RECORD_* as action.yml sets them; RUNNER_TEMP, GITHUB_OUTPUT and GITHUB_STEP_SUMMARY as GitHub does.
set -u -o pipefail

reprise=$RECORD_REPRISE
# A name is looked for, a path is not.
if ! reprise=$(command -v "$reprise"); then
    echo "::error::there is no program $RECORD_REPRISE: build it before (cargo build --release), and name it by the input reprise"
    exit 125
fi
case $RECORD_MOST in
'' | *[!0-9]*)
    echo "::error::the input most wants a number, not $RECORD_MOST"
    exit 125
    ;;
esac
case $RECORD_WRAP in
true | false) ;;
*)
    echo "::error::the input wrap is true or false, not $RECORD_WRAP"
    exit 125
    ;;
esac
keys=()
for key in $RECORD_ENCRYPT_TO; do
    keys+=(--encrypt "$key")
done

REPRISE_TRACE_DIR=$(mktemp -d "$RUNNER_TEMP/recorded.XXXXXX") || exit 125
packs=$(mktemp -d "$RUNNER_TEMP/recordings.XXXXXX") || exit 125
export REPRISE_TRACE_DIR

# As GitHub runs a step.
script=(bash --noprofile --norc -e -o pipefail -c "$RECORD_RUN")
case $RECORD_WRAP in
true)
    # shellcheck disable=SC2086 # options are words
    "$reprise" record --keep-on=failure $RECORD_OPTIONS -- "${script[@]}"
    status=$?
    ;;
false)
    PATH="$(dirname "$reprise"):$PATH" "${script[@]}"
    status=$?
    ;;
esac

# Text of programs, as text of the summary: it may have anything in it.
as_text() { head -c 30000 | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'; }

kept=0
found=0
while read -r trace; do
    name=$(basename "$trace")
    found=$((found + 1))
    if [ "$kept" -ge "$RECORD_MOST" ]; then
        continue
    fi
    pack=$packs/$name.reprise
    [ ${#keys[@]} -eq 0 ] || pack+=.age
    # Quietly: what it says is for somebody who is at the terminal.
    if ! "$reprise" pack -q -o "$pack" "${keys[@]}" "$trace"; then
        echo "::warning::the recording $name could not be packed"
        continue
    fi
    kept=$((kept + 1))
    {
        echo "### Recorded: $(basename "$pack")"
        echo
        echo "<pre>"
        "$reprise" info "$trace" | grep -E '^(command|end) ' | as_text
        echo
        "$reprise" backtrace --time-limit 120 "$trace" 2>&1 | as_text
        echo "</pre>"
        echo
        echo "\`reprise replay -d $(basename "$pack")\` debugs it, forward and backward."
        echo
    } >>"$GITHUB_STEP_SUMMARY"
# In the order in which they were made; what is hidden, and the link to the latest one, are no recordings.
done < <(find "$REPRISE_TRACE_DIR" -mindepth 2 -maxdepth 2 -name manifest.json -not -path '*/.*' -printf '%T@ %h\n' | sort -n | cut -d' ' -f2-)

if [ "$found" -gt "$kept" ]; then
    echo "$((found - kept)) more recordings were not kept." >>"$GITHUB_STEP_SUMMARY"
fi
rm -rf "$REPRISE_TRACE_DIR"
{
    echo "status=$status"
    echo "kept=$kept"
    echo "directory=$packs"
} >>"$GITHUB_OUTPUT"
exit 0
