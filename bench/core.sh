#!/bin/sh
# Nanoseconds per item of the pure core's loops, then instructions per item as callgrind counts them.
# Usage: bench/core.sh path-of-core
set -eu
core=$1
"$core"
command -v valgrind >/dev/null || { echo "valgrind is not installed: no instruction counts" >&2; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo
echo "instructions per item, in cache, error 0.01 and then 0.0001"
case=1
while valgrind --tool=callgrind --toggle-collect='loop_*' --callgrind-out-file=/dev/null \
        "$core" $case > "$dir/line" 2> "$dir/log"; do
    collected=$(awk '/Collected/ { print $NF }' "$dir/log")
    awk -v collected="$collected" '{
        for (i = 2; i <= NF; i++) if ($i == "items") nitems = $(i - 1)
        printf "%-44s %9.1f\n", substr($0, 1, 44), collected / nitems
    }' "$dir/line"
    case=$((case + 1))
done
