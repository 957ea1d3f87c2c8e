#!/usr/bin/env bash
# Runs a command with a Docker daemon: the one that DOCKER_HOST or this machine has,
# or else one of its own, which ends with the command.
#
#   scripts/docker-daemon.sh COMMAND [ARGS...]
#
# Its own daemon keeps images and builds in the user's cache folder, so that the next
# run has them, and sets no rules of the host's firewall: containers reach each other,
# published ports are served by a proxy, and nothing is left behind. Where no daemon
# can be started it says why and exits with 69 (EX_UNAVAILABLE).
set -euo pipefail

if docker version >/dev/null 2>&1; then
	exec "$@"
fi

unavailable() {
	echo "docker-daemon.sh: no Docker daemon: $1" >&2
	exit 69
}

command -v docker >/dev/null || unavailable "there is no docker on PATH (Debian: apt-get install docker.io)"
dockerd=$(PATH=$PATH:/usr/sbin:/sbin command -v dockerd) ||
	unavailable "none answers and there is no dockerd to start (Debian: apt-get install docker.io)"
(($(id -u) == 0)) || unavailable "none answers, and only root can start one"

data=${HOLDFAST_DOCKER_DATA:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/docker}
mkdir -p "$data"
exec 8>"$data.lock"
flock -w 600 8 || unavailable "another run has held $data for ten minutes"
run=$(mktemp -d)
"$dockerd" --data-root "$data" --exec-root "$run/exec" --pidfile "$run/pid" --host "unix://$run/docker.sock" \
	--bridge none --iptables=false --ip6tables=false >"$run/log" 2>&1 8>&- &
daemon=$!

stop() {
	local code=$?
	# Networks are bridges of this machine, which would outlive the daemon.
	{ docker ps -aq | xargs -r timeout 30 docker rm -f && timeout 30 docker network prune -f; } >/dev/null 2>&1 || true
	kill "$daemon" 2>/dev/null || true
	wait "$daemon" 2>/dev/null || true
	umount "$run"/exec/netns/* 2>/dev/null || true # dockerd leaves its own there
	rm -rf "$run"
	exit "$code"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export DOCKER_HOST=unix://$run/docker.sock
for ((i = 0; ; i++)); do
	docker version >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || unavailable "dockerd ended: $(grep -E 'level=(fatal|error)|failed to start' "$run/log" | tail -n 1)"
	((i < 300)) || unavailable "dockerd answers nothing after a minute: $(tail -n 1 "$run/log")"
	sleep 0.2
done

# Nobody else has this daemon: what an earlier run left behind, cut short perhaps, is
# nobody's. What the next build needs stays.
{
	docker container prune -f && docker volume prune -f && docker network prune -f && docker image prune -f
	curl -sf --unix-socket "$run/docker.sock" -X POST 'http://docker/build/prune?keep-storage=8000000000'
} >"$run/pruned" 2>&1 || true
"$@" 8>&-
