#!/usr/bin/env bash
# Checks that this machine has what a make target needs, and says what is
# missing and how to get it, all of it at once.
#
#   scripts/prereq.sh NEED...
#
# NEED is any of: linux go cc postgres git docker node. The places looked at for
# PostgreSQL are the ones that the product looks at itself.
set -euo pipefail

readonly go_minor=26      # Go 1.26: the version in every go.mod
readonly node_major=20    # what the AG-UI client asks for
readonly postgres_major=15 # what the migrations are written for

missing=()

need_linux() {
	[[ $(uname -s) == Linux ]] ||
		missing+=("Linux: the local driver's sandboxes are made of Linux namespaces, Landlock and seccomp.
    Use a Linux machine or virtual machine; this is $(uname -s).")
}

need_go() {
	local hint="Install it from https://go.dev/dl/ and put its bin folder on PATH."
	if ! command -v go >/dev/null; then
		missing+=("Go 1.$go_minor: there is no go on PATH.
    $hint")
		return
	fi
	local version minor
	version=$(GOTOOLCHAIN=local GOWORK=off go env GOVERSION)
	minor=${version#go1.}
	minor=${minor%%[!0-9]*}
	# A development build ("devel go1.27-…") is its owner's business.
	[[ $version != go1.* || ${minor:-0} -ge $go_minor ]] ||
		missing+=("Go 1.$go_minor: $(command -v go) is $version.
    $hint")
}

need_cc() {
	local cc
	cc=$(GOWORK=off go env CC 2>/dev/null || true)
	command -v "${cc:-gcc}" >/dev/null ||
		missing+=("a C compiler (${cc:-gcc}): the race detector, which every test runs under, is linked with cgo.
    Debian, Ubuntu: apt-get install gcc libc6-dev · Fedora: dnf install gcc · Alpine: apk add gcc musl-dev")
}

# postgres_bins lists the folders that may hold initdb and postgres: the one
# that HOLDFAST_POSTGRES_BIN names and no other, or else what PATH leads to and
# the usual places. Keep it in step with migrations/pgserver, which decides.
postgres_bins() {
	if [[ -n ${HOLDFAST_POSTGRES_BIN-} ]]; then
		echo "$HOLDFAST_POSTGRES_BIN"
		return
	fi
	local found
	found=$(command -v postgres || true)
	[[ -z $found ]] || dirname "$(readlink -f "$found")"
	# Debian keeps them off PATH, in one folder for each major version.
	printf '%s\n' /usr/lib/postgresql/*/bin /usr/libexec/postgresql* /usr/pgsql-*/bin \
		/usr/local/pgsql/bin /opt/homebrew/opt/postgresql*/bin
}

need_postgres() {
	# One that runs elsewhere was named: the binaries are not needed.
	[[ -z ${HOLDFAST_POSTGRES_URL-} ]] || return 0
	local dir version major best=
	while read -r dir; do
		[[ -x $dir/postgres && -x $dir/initdb ]] || continue
		version=$("$dir/postgres" --version)
		major=${version##*) }
		major=${major%%[!0-9]*}
		[[ ${major:-0} -lt $postgres_major ]] || return 0
		best="$dir has $version"
	done < <(postgres_bins)
	missing+=("PostgreSQL $postgres_major or newer: no folder with initdb and postgres was found${best:+ ($best)}.
    Debian, Ubuntu: apt-get install postgresql · Fedora: dnf install postgresql-server · Alpine: apk add postgresql
    or name the folder in HOLDFAST_POSTGRES_BIN, or a running server in HOLDFAST_POSTGRES_URL.")
}

need_git() {
	command -v git >/dev/null ||
		missing+=("git: make verify compares what is generated with what is committed.
    Debian, Ubuntu: apt-get install git · Fedora: dnf install git · Alpine: apk add git")
}

need_docker() {
	local hint="Debian, Ubuntu: apt-get install docker.io, and start it; or run the target without one started:
    scripts/docker-daemon.sh make …, as root, starts a daemon for just as long."
	if ! command -v docker >/dev/null; then
		missing+=("Docker: there is no docker on PATH.
    $hint")
	elif ! docker version >/dev/null 2>&1; then
		missing+=("Docker: no daemon answers docker version.
    $hint")
	fi
}

need_node() {
	local hint="Debian, Ubuntu: apt-get install nodejs npm, or install it from https://nodejs.org/"
	local version
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
		missing+=("Node.js $node_major and npm: there is no node, or no npm, on PATH.
    $hint")
		return
	fi
	version=$(node --version) # v20.1.0
	version=${version#v}
	((${version%%.*} >= node_major)) ||
		missing+=("Node.js $node_major: $(command -v node) is $version.
    $hint")
}

for need in "$@"; do
	case $need in
	linux | go | cc | postgres | git | docker | node) "need_$need" ;;
	*)
		echo "prereq.sh: unknown prerequisite $need" >&2
		exit 2
		;;
	esac
done

if ((${#missing[@]})); then
	echo "Holdfast needs something that this machine lacks:" >&2
	for what in "${missing[@]}"; do
		echo "  - $what" >&2
	done
	exit 1
fi
