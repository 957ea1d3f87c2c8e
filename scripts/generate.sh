#!/usr/bin/env bash
# Writes again what is generated and committed: `generate.sh [api|sql]`, both without an argument.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# One file for each use of the document, because a program that only speaks the types should not carry a server.
api() {
	cd "$root/api"
	for use in types server agent client; do
		"$root/scripts/tool.sh" oapi -config "oapi-$use.yaml" openapi.yaml
	done
}

sql() {
	cd "$root/projections"
	"$root/scripts/tool.sh" sqlc generate
}

case "${1:-all}" in
api) api ;;
sql) sql ;;
all)
	(api)
	(sql)
	;;
*)
	echo "usage: $0 [api|sql]" >&2
	exit 2
	;;
esac
