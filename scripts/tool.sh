#!/usr/bin/env bash
# Runs a development tool at the version that the repository pins.
#
#   scripts/tool.sh NAME [ARGS...]    build the tool if need be, then run it here
#   scripts/tool.sh --path NAME       build it if need be, print where it is
#
# Each tool is a module of its own, scripts/tools/NAME, with one `tool` line in
# its go.mod: outside go.work, so that what a linter depends on never chooses
# the versions that the product is built with. A build is kept outside the
# clone, under a key made of the module's pins and the Go version, because
# golangci-lint costs minutes and a fresh clone should not pay them again.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

path_only=
if [[ ${1-} == --path ]]; then
	path_only=yes
	shift
fi
name=${1:?usage: scripts/tool.sh [--path] NAME [ARGS...]}
shift

module=$root/scripts/tools/$name
if [[ ! -f $module/go.mod ]]; then
	echo "tool.sh: there is no tool module scripts/tools/$name; there are: $(cd "$root/scripts/tools" && echo *)" >&2
	exit 2
fi

key=$({ cat "$module/go.mod" "$module/go.sum" && cd "$module" && GOWORK=off go env GOVERSION GOOS GOARCH; } | sha256sum | cut -c1-16)
cache=${HOLDFAST_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/tools}
binary=$cache/$key/$name

if [[ ! -x $binary ]]; then
	mkdir -p "$cache"
	# The lock makes a second caller wait for the first one's build instead of
	# paying for its own; the rename makes a build that was cut short invisible.
	exec 9>"$cache/$key.lock"
	flock 9
	if [[ ! -x $binary ]]; then
		echo "tool.sh: building $name (once for these versions)" >&2
		fresh=$(mktemp -d "$cache/$key.XXXXXX")
		trap 'rm -rf "$fresh"' EXIT
		(cd "$module" && GOWORK=off GOFLAGS='' CGO_ENABLED=0 go build -trimpath -o "$fresh/" tool)
		mkdir -p "$cache/$key"
		mv "$fresh"/* "$binary" # one tool line, one binary, whatever its name
		rm -rf "$fresh"
		trap - EXIT
	fi
	exec 9>&-
fi

if [[ -n $path_only ]]; then
	echo "$binary"
	exit
fi
exec "$binary" "$@"
