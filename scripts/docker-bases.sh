#!/usr/bin/env bash
# Brings the public images that deploy/Dockerfile builds on and docker-compose.yml
# runs: what the Docker daemon has stays, the rest is pulled. Where a registry can't
# be reached, a stand-in is made under the public image's name, from Debian's
# packages, this machine's Go and the Go module proxy; it carries the label
# io.holdfast.stand-in, and `docker rmi` lets a later run pull the real one.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

bases() {
	sed -n 's/^FROM \([^ ]*:[^ ]*\).*/\1/p' deploy/Dockerfile
	sed -n 's/^ *image: \([a-z]*:[0-9][^ ]*\)$/\1/p' docker-compose.yml
}

build() { # IMAGE DOCKERFILE, the context on standard input as tar
	docker build -q --network=host --label "$label" -t "$1" -f "$2" - >/dev/null 2>"$work/log" ||
		give_up "$(tail -n 3 "$work/log")"
}

stand_in_debian() {
	command -v debootstrap >/dev/null || give_up "apt-get install debootstrap"
	(($(id -u) == 0)) || give_up "run this once as root: debootstrap needs it"
	local suite=${1#debian:}
	debootstrap --variant=minbase "${suite%-slim}" "$work/debian" >"$work/log" 2>&1 ||
		give_up "$(tail -n 3 "$work/log")"
	rm -rf "$work/debian"/var/cache/apt/archives/*.deb "$work/debian"/var/lib/apt/lists/* "$work/debian"/usr/share/{doc,locale,man}/*
	tar -C "$work/debian" -c . | docker import -c "LABEL $label" -c 'CMD ["bash"]' - "$1" >/dev/null
}

stand_in_golang() {
	local goroot
	goroot=$(go env GOROOT)
	tar -ch --transform "s,^$(basename "$goroot")\(/\|$\),go\1," \
		-C "$PWD/deploy/stand-ins" golang.Dockerfile -C /etc/ssl/certs ca-certificates.crt \
		-C "$(dirname "$goroot")" "$(basename "$goroot")" | build "$1" golang.Dockerfile
}

stand_in_nats() {
	# The version that the product embeds, which is of the image's minor version.
	local version minor=${1#nats:}
	version=$(cd services && go list -m -f '{{.Version}}' github.com/nats-io/nats-server/v2)
	[[ $version == "v${minor%%-*}".* ]] || give_up "services/go.mod has nats-server $version"
	GOBIN=$work CGO_ENABLED=0 GOFLAGS='' GOWORK=off go install "github.com/nats-io/nats-server/v2@$version"
	tar -c -C "$PWD/deploy/stand-ins" nats.Dockerfile -C "$work" nats-server | build "$1" nats.Dockerfile
}

stand_in_postgres() {
	tar -c -C "$PWD/deploy/stand-ins" postgres.Dockerfile postgres-entrypoint.sh | build "$1" postgres.Dockerfile
}

give_up() {
	echo "docker-bases.sh: $image can be neither pulled nor made here: $1" >&2
	exit 1
}

readonly label=io.holdfast.stand-in=true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Debian first: the other stand-ins are built on it.
while read -r image; do
	docker image inspect "$image" >/dev/null 2>&1 && continue
	echo "docker-bases.sh: pulling $image" >&2
	timeout 300 docker pull -q "$image" >/dev/null 2>"$work/pull" && continue
	echo "docker-bases.sh: making a stand-in: $(tail -n 1 "$work/pull")" >&2
	"stand_in_${image%%:*}" "$image" </dev/null
done < <(bases | sort -u | awk '/^debian:/ { print; next } { later = later $0 "\n" } END { printf "%s", later }')
