#!/usr/bin/env bash
# Lists the Go files that people wrote, NUL between them: those that git knows
# or would add, without the generated ones.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files -z --cached --others --exclude-standard -- '*.go' |
	while IFS= read -r -d '' file; do
		[[ -f $file ]] || continue # deleted, and not committed yet
		grep -qE '^// Code generated .* DO NOT EDIT\.$' "$file" || printf '%s\0' "$file"
	done
