#!/usr/bin/env bash
# Builds the parts of Kubernetes that tests run against, and says where they are.
#
#   scripts/kube.sh --path            the parts that an API server in a test needs:
#                                     etcd, kube-apiserver, kube-controllers
#   scripts/kube.sh --path NAME...    those named, each a folder of scripts/kube
#
# What it prints is one folder, fit for KUBEBUILDER_ASSETS. They are built from
# Kubernetes' published Go modules (scripts/kube/go.mod pins them), so nothing but
# Go's module proxy is needed. The first build costs minutes of both CPU and
# patience; so it is kept outside the clone, under a key made of the module's pins,
# its sources, the flags and the Go version.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
module=$root/scripts/kube

if [[ ${1-} != --path ]]; then
	echo "usage: scripts/kube.sh --path [NAME...]" >&2
	exit 2
fi
shift
names=("$@")
((${#names[@]})) || names=(etcd kube-apiserver kube-controllers)
for name in "${names[@]}"; do
	if [[ ! -f $module/$name/main.go ]]; then
		echo "kube.sh: there is no scripts/kube/$name" >&2
		exit 2
	fi
done

# Kubernetes' parts look at each other's versions, which a released binary is told
# when it is linked.
version=$(sed -n 's#^\tk8s.io/kubernetes v\([0-9.]*\)$#\1#p' "$module/go.mod")
IFS=. read -r major minor _ <<<"$version"
into=k8s.io/component-base/version
ldflags="-s -w -X $into.gitVersion=v$version -X $into.gitMajor=$major -X $into.gitMinor=$minor"

export GOWORK=off GOFLAGS='' CGO_ENABLED=0
key=$({
	cd "$module" && find . -type f | LC_ALL=C sort | xargs cat
	echo "$ldflags"
	go env GOVERSION GOOS GOARCH
} | sha256sum | cut -c1-16)
cache=${HOLDFAST_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/kube}
folder=$cache/$key

missing() {
	local name
	for name in "${names[@]}"; do
		[[ -x $folder/$name ]] || printf './%s\n' "$name"
	done
}

if [[ -n $(missing) ]]; then
	mkdir -p "$folder"
	# The lock makes a second caller wait for the first one's build instead of
	# paying for its own; the rename makes a build that was cut short invisible.
	exec 9>"$cache/$key.lock"
	flock 9
	mapfile -t packages < <(missing)
	if ((${#packages[@]})); then
		echo "kube.sh: building ${packages[*]#./} $version: once for these versions, and then it takes minutes" >&2
		fresh=$(mktemp -d "$cache/$key.XXXXXX")
		trap 'rm -rf "$fresh"' EXIT
		(cd "$module" && go build -trimpath -ldflags "$ldflags" -o "$fresh/" "${packages[@]}")
		mv "$fresh"/* "$folder/"
		rm -rf "$fresh"
		trap - EXIT
	fi
	exec 9>&-
fi
echo "$folder"
