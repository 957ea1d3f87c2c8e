#!/usr/bin/env bash
# Runs every fuzz target for a while, one after the other: `go test -fuzz`
# takes a single target of a single package.
#
#   scripts/fuzz.sh [TIME [PATTERN]]
#
# TIME is what -fuzztime takes (10s, 5m, 1000x); PATTERN picks targets by name.
# What a target finds is written to its package's testdata/fuzz and fails the
# ordinary tests from then on: commit it with the fix.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-10s}
pattern=${2:-.}

ran=0
failed=()
while IFS=: read -r file target; do
	[[ $target =~ $pattern ]] || continue
	package=./$(dirname "$file")
	echo "fuzz: $target in $package for $time"
	# -run '^$' leaves the package's tests to make test.
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" || failed+=("$package $target")
	ran=$((ran + 1))
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' |
	xargs -r grep -oHE '^func Fuzz[A-Za-z0-9_]+' | sed 's/func //' | sort)

if ((ran == 0)); then
	echo "fuzz.sh: no fuzz target matches $pattern" >&2
	exit 1
fi
if ((${#failed[@]})); then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "fuzz: $ran targets, none failed"
