#!/usr/bin/env bash
# Installs the official AG-UI client as services/e2e/aguinorth/client pins it, and
# prints the folder that it is in.
#
# The folder is outside the clone, under a key made of what is pinned, so that npm is
# asked once. Nothing of a package is run to install it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source=$root/services/e2e/aguinorth/client

key=$({ cat "$source/package.json" "$source/package-lock.json" && node --version; } | sha256sum | cut -c1-16)
cache=${HOLDFAST_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/tools}
folder=$cache/agui-client-$key

if [[ ! -d $folder ]]; then
	mkdir -p "$cache"
	# As in tool.sh: a second caller waits for the first one, and an install that was
	# cut short is invisible.
	exec 9>"$folder.lock"
	flock 9
	if [[ ! -d $folder ]]; then
		echo "agui-client.sh: installing the AG-UI client (once for these versions)" >&2
		fresh=$(mktemp -d "$folder.XXXXXX")
		trap 'rm -rf "$fresh"' EXIT
		cp "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$fresh/"
		(cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund >&2)
		mv "$fresh" "$folder"
		trap - EXIT
	fi
	exec 9>&-
fi
echo "$folder"
