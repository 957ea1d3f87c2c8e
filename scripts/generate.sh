#!/bin/sh
# Regenerates what is generated and committed: `generate.sh [api|sql]`, both without an argument.
# The generators live in modules of their own (scripts/tools), so that what they pin never reaches a binary of ours.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

# tool MODULE PACKAGE builds a generator with its own module's versions, whatever workspace we stand in.
tool() {
	(cd "$root/scripts/tools/$1" && GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -o "$bin/" "$2")
}

api() {
	tool oapi github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
	cd "$root/api"
	for config in oapi-types.yaml oapi-server.yaml oapi-agent.yaml oapi-client.yaml; do
		"$bin/oapi-codegen" -config "$config" openapi.yaml
	done
}

sql() {
	[ -f "$root/projections/sqlc.yaml" ] || return 0
	tool sqlc github.com/sqlc-dev/sqlc/cmd/sqlc
	cd "$root/projections"
	"$bin/sqlc" generate
}

case "${1:-all}" in
api) api ;;
sql) sql ;;
all) (api); (sql) ;;
*)
	echo "usage: $0 [api|sql]" >&2
	exit 2
	;;
esac
