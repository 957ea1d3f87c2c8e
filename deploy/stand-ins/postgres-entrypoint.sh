#!/bin/sh
# The part of the public image's entrypoint that docker-compose.yml and the tests
# use: an empty PGDATA becomes a cluster of POSTGRES_USER with POSTGRES_PASSWORD,
# and a database of the same name, before the server is started.
set -eu

if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	user=${POSTGRES_USER:-postgres}
	printf '%s\n' "${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD}" >/tmp/password
	initdb --username="$user" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
	rm /tmp/password
	printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
	if [ "$user" != postgres ]; then
		echo "CREATE DATABASE \"$user\"" | postgres --single -D "$PGDATA" postgres
	fi
fi
[ "$1" != postgres ] || set -- "$@" -c listen_addresses='*'
exec "$@"
