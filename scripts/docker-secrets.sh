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
umask 077
mkdir -p "$folder"
touch "$folder/env"

# The p keeps NATS from reading a password as a number.
secret() { echo "p$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')"; }

# ensure adds what an older file lacks.
ensure() { # NAME VALUE
	grep -q "^$1=" "$folder/env" || echo "$1=$2" >>"$folder/env"
}

person() { # NAME ROLES
	printf '{"name": "%s", "token": "hf_%s", "roles": [%s], "tenants": ["default"]}' "$1" "$(secret)" "$2"
}

if [[ ! -e $folder/tokens.yaml ]]; then
	# JSON is YAML, and one line, as Compose hands it to the gateway.
	printf '{"tokens": [%s,\n%s,\n%s]}\n' \
		"$(person admin '"admin", "operator", "developer", "approver", "auditor"')" \
		"$(person alice '"developer"')" "$(person bob '"approver"')" >"$folder/tokens.yaml"
fi
token_of() { sed -n "s/.*\"name\": \"$1\", \"token\": \"\([^\"]*\)\".*/\1/p" "$folder/tokens.yaml"; }

for user in SESSION WORKLOAD POLICY RUNNER GATEWAY PROJECTOR HOST INSTALLER ROUTE; do
	ensure "HOLDFAST_NATS_PASSWORD_$user" "$(secret)"
done
ensure HOLDFAST_POSTGRES_PASSWORD "$(secret)"
ensure HOLDFAST_ADMIN_TOKEN "$(token_of admin)"
ensure HOLDFAST_TOKENS "'$(tr -d '\n' <"$folder/tokens.yaml")'"
