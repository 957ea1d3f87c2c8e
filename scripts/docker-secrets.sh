#!/usr/bin/env bash
# Makes the secrets of docker-compose.yml where there are none yet, and changes none
# that are there: the volumes know them.
#
#   scripts/docker-secrets.sh FOLDER
#
# FOLDER/env has the passwords, for Compose; FOLDER/tokens.yaml the people's tokens,
# for the gateway and for the CLI. Only this user may read them, and git ignores the
# folder.
set -euo pipefail

folder=${1:?usage: scripts/docker-secrets.sh FOLDER}
[[ ! -e $folder/env ]] || exit 0

umask 077
mkdir -p "$folder"

# The p keeps NATS from reading a password as a number.
secret() { echo "p$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')"; }

person() { # NAME ROLES
	printf '  - {"name": "%s", "token": "hf_%s", "roles": [%s], "tenants": ["default"]}\n' "$1" "$(secret)" "$2"
}

{
	echo 'tokens:'
	person admin '"admin", "operator", "developer", "approver", "auditor"'
	person alice '"developer"'
	person bob '"approver"'
} >"$folder/tokens.yaml"

{
	for user in SESSION WORKLOAD POLICY RUNNER GATEWAY PROJECTOR INSTALLER ROUTE; do
		echo "HOLDFAST_NATS_PASSWORD_$user=$(secret)"
	done
	echo "HOLDFAST_POSTGRES_PASSWORD=$(secret)"
	# One line, as Compose hands it to the gateway as a file.
	echo "HOLDFAST_TOKENS='{\"tokens\": [$(sed -n 's/^  - //p' "$folder/tokens.yaml" | paste -sd,)]}'"
} >"$folder/env.new"
mv "$folder/env.new" "$folder/env"
