#!/usr/bin/env bash
# Docker Compose on docker-compose.yml, with the secrets of this clone.
#
#   scripts/compose.sh up        start, wait until it is ready, say how to sign in
#   scripts/compose.sh ARGS...   what `docker compose` takes: ps, logs -f gateway, down
#
# The plugin compose of this machine's docker is used, else one built from the Go
# module proxy (scripts/tools/compose).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly folder=${HOLDFAST_COMPOSE_DIR:-.compose}

compose() {
	local -a command
	if docker compose version >/dev/null 2>&1; then
		command=(docker compose)
	else
		command=("$(scripts/tool.sh --path compose)")
	fi
	"${command[@]}" --env-file "$folder/env" "$@"
}

up() {
	# Nothing is built or pulled here: `make images` did.
	compose up --detach --no-build --pull never --wait --wait-timeout 180 --remove-orphans "$@"
	# It would read the terminal, for which whoever runs in the background is stopped.
	compose run --rm -T --no-deps defaults </dev/null
	local url admin
	url=http://$(compose port gateway 7070)
	admin=$(sed -n 's/^HOLDFAST_ADMIN_TOKEN=//p' "$folder/env")
	cat <<-EOF

		Holdfast is ready at $url
		  console    $url, and sign in with a token
		  tokens     $folder/tokens.yaml (admin, alice, bob), admin's is
		             $admin
		  CLI        export HOLDFAST_URL=$url
		             holdfast --data-dir $folder demo        (or go run ./services/holdfast …)
		  look       scripts/compose.sh ps, scripts/compose.sh logs -f
		  stop       make down                               (make down ARGS=-v forgets everything)
	EOF
}

scripts/docker-secrets.sh "$folder"
case ${1-} in
up) up "${@:2}" ;;
*) compose "$@" ;;
esac
