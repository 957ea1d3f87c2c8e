#!/usr/bin/env bash
# Runs a program where a whole Kubernetes node can be: as root, in namespaces of its
# own, with every program that such a node is made of.
#
#   scripts/node.sh PACKAGE [ARGS...]    the tests of a package, built with the tag node
#
# The node's network, mounts and processes are those of its namespaces, which the
# kernel takes back however the run ends. What no namespace holds is undone here, after
# the run and, where that was cut short, before the next one: control groups, four
# settings of the kernel, and the node's files. Only one run is at a time.
#
# The programs are built from Go modules or are Debian's, and kept in the user's cache
# folder: nothing is installed, and no image is pulled. Where a node can't run the
# script says why and exits with 69 (EX_UNAVAILABLE).
set -euo pipefail
shopt -s inherit_errexit # a build that failed ends the script, too

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${HOLDFAST_NODE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/node}
run=$cache/run
cgroup=holdfast-node # onenode.CgroupRoot
settings=(vm.overcommit_memory kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

unavailable() {
	echo "node.sh: no node can run here: $1" >&2
	exit 69
}

# hierarchies are where control groups are: one folder, or one for each controller.
hierarchies() {
	local each
	if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
		echo /sys/fs/cgroup
		return
	fi
	for each in /sys/fs/cgroup/*/; do
		if [[ -f $each/cgroup.procs ]]; then echo "${each%/}"; fi
	done
}

check() {
	local free tool
	[[ $(uname -s) == Linux ]] || unavailable "it takes Linux"
	(($(id -u) == 0)) || unavailable "only root can start one"
	for tool in unshare ip iptables apt-get dpkg-deb flock setpriv; do
		PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || unavailable "there is no $tool on PATH (Debian: apt-get install util-linux iproute2 iptables apt)"
	done
	unshare --mount --net --pid --fork true 2>/dev/null || unavailable "no namespaces can be made: the container that this is has too few capabilities"
	[[ -n $(hierarchies) ]] || unavailable "there are no control groups below /sys/fs/cgroup"
	while read -r tool; do
		[[ -w $tool ]] || unavailable "control groups can't be made below $tool"
	done < <(hierarchies)
	mkdir -p "$cache"
	free=$(df --output=avail -k "$cache" | tail -n 1)
	((free > 2 * 1024 * 1024)) || unavailable "$cache has less than 2 GiB free"
}

# build makes the tools of a module below scripts/node once for its versions, and says
# where they are. A third argument names a function that makes another go.mod of it first,
# in a folder that it is given.
build() {
	local module=$root/scripts/node/$1 tags=$2 change=${3-} key folder fresh
	export GOWORK=off GOFLAGS='' CGO_ENABLED=0
	key=$({ cat "$module/go.mod" "$module/go.sum" && cd "$module" && echo "$tags" && go env GOVERSION GOOS GOARCH && ${change:+declare -f "$change"}; } | sha256sum | cut -c1-16)
	folder=$cache/$1-$key
	if [[ ! -d $folder ]]; then
		echo "node.sh: building $1: once for these versions, and then it takes minutes" >&2
		fresh=$(mktemp -d "$cache/build.XXXXXX")
		${change:+"$change" "$module" "$fresh"}
		(cd "$module" && go build ${change:+-modfile "$fresh/go.mod"} -trimpath -ldflags '-s -w' -tags "$tags" -o "$fresh/bin/" tool)
		mv "$fresh/bin" "$folder"
		rm -rf "$fresh"
	fi
	echo "$folder"
}

# scoreless has gVisor's shim built from a copy of its module. It asks the kernel for a
# score that a root without CAP_SYS_RESOURCE isn't given, and has no setting for it: one
# constant is another there.
scoreless() {
	local module=$1 fresh=$2 line='oomScoreMax = -999' other='oomScoreMax = 0' source
	source=$(cd "$module" && go mod download gvisor.dev/gvisor && go list -m -f '{{.Dir}}' gvisor.dev/gvisor)
	cp -r --no-preserve=mode "$source" "$fresh/gvisor"
	source=$fresh/gvisor/pkg/shim/v1/manager.go
	if [[ $(grep -cF "$line" "$source") != 1 ]]; then
		echo "node.sh: gVisor's shim has changed: pkg/shim/v1/manager.go has no single line with \"$line\"" >&2
		exit 1
	fi
	sed -i "s/$line/$other/" "$source"
	cp "$module/go.mod" "$module/go.sum" "$fresh"
	go mod edit -replace "gvisor.dev/gvisor=$fresh/gvisor" "$fresh/go.mod"
}

# debian unpacks a package of Debian's, which need not be installed, and says where.
debian() {
	local folder=$cache/debian-$1 fresh
	if [[ ! -d $folder ]]; then
		fresh=$(mktemp -d "$cache/build.XXXXXX")
		(cd "$fresh" && apt-get download "$1" >&2) || unavailable "Debian's package $1 can't be downloaded"
		dpkg-deb -x "$fresh"/*.deb "$fresh/root"
		mv "$fresh/root" "$folder"
		rm -rf "$fresh"
	fi
	echo "$folder"
}

# collect puts every program that a node takes into one folder.
collect() {
	local parts=$run/parts from
	mkdir -p "$parts/cni"
	from=$("$root/scripts/kube.sh" --path etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy)
	ln -s "$from"/{etcd,kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy} "$parts"
	from=$(build containerd 'no_btrfs no_devmapper no_zfs no_aufs')
	ln -s "$from"/* "$parts"
	from=$(build cluster '')
	ln -s "$from"/* "$parts"
	from=$(cd "$root/scripts/node/cluster" && GOWORK=off go list -m -f '{{.Dir}}' sigs.k8s.io/agent-sandbox)
	ln -s "$from/k8s" "$parts/agent-sandbox"
	if [[ -n ${HOLDFAST_NODE_GVISOR-} ]]; then
		from=$(build gvisor '' scoreless)
		ln -s "$from/shim" "$parts/containerd-shim-runsc-v1"
		ln -s "$("$root/scripts/tool.sh" --path runsc)" "$parts/runsc"
	fi
	from=$(build policy '')
	ln -s "$from/cmd" "$parts/kube-network-policies"
	from=$(cd "$root/scripts/node/policy" && GOWORK=off go list -m -f '{{.Dir}}' sigs.k8s.io/kube-network-policies)
	ln -s "$from/install.yaml" "$parts/kube-network-policies.yaml"
	from=$(debian runc)
	ln -s "$from/usr/sbin/runc" "$parts"
	from=$(debian containernetworking-plugins)
	ln -s "$from"/usr/lib/cni/{bridge,host-local,loopback} "$parts/cni"
	from=$(debian busybox-static)
	ln -s "$from/bin/busybox" "$parts"
	ln -s "$("$root/scripts/tool.sh" --path helm)" "$parts/helm"
	(cd "$root" && CGO_ENABLED=0 go build -trimpath -o "$parts/" ./services/holdfast ./services/sandboxd ./services/e2e/node/agent)
}

# enter makes what is no namespace's.
enter() {
	local each file
	sysctl "${settings[@]}" >"$cache/settings"
	while read -r each; do
		mkdir -p "$each/$cgroup"
		for file in cpuset.cpus cpuset.mems; do # without which a group takes no process
			if [[ $each == */cpuset ]]; then cat "$each/$file" >"$each/$cgroup/$file"; fi
		done
	done < <(hierarchies)
}

# emptied removes the control groups, or says that something is in them.
emptied() {
	local each
	while read -r each; do
		[[ ! -d $each/$cgroup ]] || find "$each/$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || return
	done < <(hierarchies)
}

# leave undoes it, and what a node left there; again and again without harm.
leave() {
	local i
	if [[ -n ${first-} ]]; then
		kill -KILL "$first" 2>/dev/null || true # where the run was cut short
		wait "$first" 2>/dev/null || true
	fi
	if [[ -f $cache/settings ]]; then
		sysctl -q -p "$cache/settings" && rm -f "$cache/settings"
	fi
	# Killed processes are gone a moment later.
	for ((i = 0; i < 100; i++)); do
		emptied && break
		sleep 0.2
	done
	((i < 100)) || echo "node.sh: the control groups $cgroup aren't empty after 20 s, and stay" >&2
	rm -rf --one-file-system "$run"
	rm -rf "$cache"/build.* # of a build that was cut short
}

# inside is the first process of the namespaces: it takes in what others leave behind,
# and what it mounts hides the machine's own from the node.
inside() {
	mount --make-rshared /
	mount -t tmpfs run /run
	mkdir -p "$run/var" "$run/work"
	mount -t overlay -o "lowerdir=/var,upperdir=$run/var,workdir=$run/work" var /var
	cd "$1"
	shift
	HOLDFAST_NODE_PARTS=$run/parts HOLDFAST_NODE_ROOT=$run/node "$run/node.test" "$@" &
	wait $!
}

if [[ ${1-} == --inside ]]; then
	shift
	inside "$@"
	exit
fi
package=${1:?usage: scripts/node.sh PACKAGE [ARGS...]}
shift

check
exec 9>"$cache/lock"
flock -w 600 9 || unavailable "another run has held $cache/lock for ten minutes"
leave
mkdir -p "$run/node"
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
collect
(cd "$root" && go test -c -tags node -o "$run/node.test" "$package")
enter
# The first process, and with it all others, ends with this script.
setpriv --pdeathsig KILL unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc \
	"${BASH_SOURCE[0]}" --inside "$root/$package" "$@" &
first=$!
wait "$first"
