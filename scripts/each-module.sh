#!/usr/bin/env bash
# Runs a command in each module of go.work with the workspace switched off, as
# whoever requires one of them from elsewhere gets it: inside the workspace a
# missing require or replace goes unnoticed.
#
#   scripts/each-module.sh COMMAND [ARGS...]
#
# Goes through all of them, then fails if any did.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${1:?usage: scripts/each-module.sh COMMAND [ARGS...]}"

failed=()
while read -r module; do
	(cd "$module" && GOWORK=off "$@") || failed+=("$module")
done < <(go work edit -json | sed -n 's/.*"DiskPath": "\(.*\)".*/\1/p')

if ((${#failed[@]})); then
	echo "failed in ${failed[*]}: GOWORK=off $*" >&2
	exit 1
fi
