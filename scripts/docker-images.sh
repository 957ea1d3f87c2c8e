#!/usr/bin/env bash
# Builds the image of deploy/Dockerfile.
#
#   scripts/docker-images.sh [TAG [VERSION]]     holdfast:local
#
# BuildKit is needed, for the caches that make the next build short. It comes with
# every current docker as the plugin buildx, and is inside docker 20 to 22.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tag=${1:-holdfast:local}
version=${2:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}

builder() {
	local candidate major
	while read -r candidate; do
		if "$candidate" buildx version >/dev/null 2>&1; then
			echo "$candidate"
			return
		fi
		major=$("$candidate" version --format '{{.Client.Version}}' 2>/dev/null | cut -d. -f1)
		if [[ $major =~ ^(20|21|22)$ ]]; then
			echo "$candidate"
			return
		fi
	done < <(type -ap docker)
	echo "docker-images.sh: no docker here has BuildKit; install its plugin buildx (Debian: apt-get install docker-buildx)" >&2
	return 1
}

docker=$(builder)
scripts/docker-bases.sh
# The host's network: the build reaches the module proxy as this machine does.
DOCKER_BUILDKIT=1 "$docker" build --network=host -f deploy/Dockerfile -t "$tag" \
	--build-arg "GOPROXY=$(go env GOPROXY)" --build-arg "GOSUMDB=$(go env GOSUMDB)" --build-arg "VERSION=$version" --label "io.holdfast.version=$version" .
