#!/usr/bin/env bash
# Everything that CI checks besides the tests: each check goes to its end, so
# that one run tells all that is wrong.
#
#   scripts/verify.sh [CHECK...]      all of them, or those named
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly checks=(scripts generate format tidy vet standalone exhaustive tree chart lint)

# The build tags that hide code from an ordinary build. It is vetted too.
readonly tags=failpoint,cluster,containers,node

# fingerprint prints a hash of each file that git knows or would add, so that a
# check that writes into the tree can be judged in a tree with uncommitted work.
fingerprint() {
	git ls-files -z --cached --others --exclude-standard | sort -z |
		while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done |
		xargs -0 sha256sum
}

check_scripts() { # Every script parses; shellcheck looks closer where there is one.
	local script status=0
	local -a scripts
	mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- 'scripts/*.sh' .ci/run)
	for script in "${scripts[@]}"; do
		bash -n "$script" || status=1
		[[ -x $script ]] || { echo "$script: not executable: chmod +x it" && status=1; }
	done
	if command -v shellcheck >/dev/null; then
		shellcheck "${scripts[@]}" || status=1
	fi
	return $status
}

# unchanged compares the tree with an earlier fingerprint and names what differs.
unchanged() {
	local differ
	differ=$(fingerprint | diff "$1" - | sed -n 's/^[<>] [0-9a-f]*  /  /p' | sort -u)
	[[ -z $differ ]] || {
		echo "$differ"
		return 1
	}
}

check_generate() { # What is generated is what the sources generate.
	fingerprint >"$scratch/before-generate"
	scripts/generate.sh || return 1
	unchanged "$scratch/before-generate" || {
		echo "these were not what make generate writes: commit what it wrote"
		return 1
	}
}

check_format() { # gofumpt has nothing to change.
	local bad
	bad=$(scripts/gofiles.sh | xargs -0 scripts/tool.sh gofumpt -l)
	[[ -z $bad ]] || {
		echo "$bad"
		echo "not formatted: make fmt"
		return 1
	}
}

check_tidy() { # go.mod and go.sum of each module say what it needs, no more.
	scripts/each-module.sh go mod tidy -diff || {
		echo "not tidy: make tidy"
		return 1
	}
}

check_vet() { # The workspace compiles and vets, with what build tags hide, too.
	go vet work && go vet -tags "$tags" work
}

check_standalone() { # So does each module as others get it, without the workspace.
	scripts/each-module.sh go vet ./...
}

check_exhaustive() { # A switch over sealed events or commands names every case, or says that the rest is the same to it.
	scripts/tool.sh go-check-sumtype -default-signifies-exhaustive=true work
}

check_tree() { # Imports, names, documentation, sizes: the house rules as tests.
	go test ./services/internal/archtest/...
}

check_chart() { # The chart renders with what it is given by itself, and with each file of values in its ci.
	local values
	scripts/tool.sh helm lint --quiet --strict deploy/chart
	for values in deploy/chart/ci/*.yaml; do
		scripts/tool.sh helm lint --quiet --strict deploy/chart --values "$values" || {
			echo "with $values"
			return 1
		}
	done
}

check_lint() { # golangci-lint, as .golangci.yaml sets it up.
	local -a dirs
	mapfile -t dirs < <(go work edit -json | sed -n 's/.*"DiskPath": "\(.*\)".*/\1\/.../p')
	scripts/tool.sh golangci-lint run "${dirs[@]}" &&
		scripts/tool.sh golangci-lint run --build-tags "$tags" ./services/e2e/...
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fingerprint >"$scratch/before"

wanted=("$@")
((${#wanted[@]})) || wanted=("${checks[@]}")

failed=()
for check in "${wanted[@]}"; do
	if ! declare -F "check_$check" >/dev/null; then
		echo "verify.sh: no check $check; there are: ${checks[*]}" >&2
		exit 2
	fi
	echo "== $check"
	SECONDS=0
	# In a shell of its own with -e, which a function called from `if` loses.
	set +e
	(
		set -e
		"check_$check"
	)
	status=$?
	set -e
	if ((status == 0)); then
		echo "ok   $check (${SECONDS}s)"
	else
		echo "FAIL $check (${SECONDS}s)"
		failed+=("$check")
	fi
done

# The go command completes go.work.sum where it finds it wanting, in silence.
unchanged "$scratch/before" || {
	echo "FAIL clean: these changed while the checks ran: commit them as they are now"
	failed+=(clean)
}

if ((${#failed[@]})); then
	echo "verify: failed: ${failed[*]}; one alone: scripts/verify.sh NAME" >&2
	exit 1
fi
echo "verify: all of it is fine: ${wanted[*]}"
