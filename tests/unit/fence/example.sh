#!/bin/sh
# docs/examples/fence_backend.c, run as the story of the paused client.
# $1: the program
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
expect() { # code, then arguments
    want=$1
    shift
    got=0
    "$program" "$dir" "$@" >"$dir/.out" 2>&1 || got=$?
    if [ "$got" -ne "$want" ]; then
        echo "fence_backend $*: exit code $got instead of $want: $(cat "$dir/.out")"
        exit 1
    fi
}
program=$1
expect 0 claim report 33
expect 0 put report 33 file first
expect 0 claim report 34
expect 1 put report 33 file late
grep -q 'token 33 is below the mark 34' "$dir/.out"
[ "$(cat "$dir/file")" = first ]
expect 0 put report 34 file second
expect 0 put report 34 file third
[ "$(cat "$dir/file")" = third ]
expect 1 claim report 33
expect 0 put other 1 another value
expect 2 put report 0 file nothing
expect 2 put report 35 ../file nothing
expect 2 put report
[ "$(cat "$dir/file")" = third ]
