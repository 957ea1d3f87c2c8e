package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe"
)

// verdicts judges what was tried in some places, one map by runtime class for each. A class
// is proven where all that was tried of it is as it should be; started everywhere are those
// whose sandboxes all ran.
func (k *kube) verdicts(places []place, seen []map[string]tried) (found []Finding, started []string) {
	var proven []string
	for _, class := range k.classNames() {
		runs, holds := true, true
		var names []string
		by := map[string][]Finding{} // by name, one for each place
		for i, there := range seen {
			p, findings := places[i], k.judgeTried(class, there)
			runs = runs && there[class].err == nil
			for _, f := range findings {
				holds = holds && f.Grade == Fine
				if len(places) > 1 && f.Grade != Fine {
					f.Detail = p.tenants + ": " + f.Detail
				}
				if by[f.Name] == nil {
					names = append(names, f.Name)
				}
				by[f.Name] = append(by[f.Name], f)
			}
		}
		for _, name := range names {
			found = append(found, together(by[name]))
		}
		if runs {
			started = append(started, class)
		}
		if holds {
			proven = append(proven, shown(class))
		}
	}
	if !k.everywhere() {
		return append(found, k.partly(places, proven)), started
	}
	return append(found, k.proven(proven)), started
}

// judgeTried judges one sandbox of a place; an ordinary one of the same place is what its
// kernel is compared with.
func (k *kube) judgeTried(class string, here map[string]tried) []Finding {
	t := here[class]
	if t.err != nil {
		return []Finding{broken("kube.probe."+shown(class), t.err.Error(), "see the cause; until it starts, no session of it does either")}
	}
	ordinary := ""
	if class != "" {
		ordinary = here[""].report.Kernel
	}
	return judge(class, k.isolationOf(class), ordinary, t.report)
}

// together is what was found in several places under one name: the worst of it, with all
// that isn't fine.
func together(found []Finding) Finding {
	worst := found[0]
	rank := map[Grade]int{Fine: 0, Warning: 1, Broken: 2}
	var details []string
	for _, f := range found {
		if f.Grade != Fine {
			details = append(details, f.Detail)
		}
		if rank[f.Grade] > rank[worst.Grade] {
			worst = f
		}
	}
	if len(details) > 0 {
		worst.Detail = strings.Join(details, "; ")
	} else if len(found) > 1 {
		worst.Detail += fmt.Sprintf("; so in %d namespaces", len(found))
	}
	return worst
}

// partly is proven where not all namespaces were tried: what holds in some needn't in others,
// whose policies and admission are their own.
func (k *kube) partly(places []place, proven []string) Finding {
	tenants := make([]string, len(places))
	for i, p := range places {
		tenants[i] = p.tenants
	}
	return warning("kube.verified", fmt.Sprintf("proven for %s alone: %s", strings.Join(tenants, ", "), listed(proven)),
		"try all tenants before you set sandboxes.verified: run it without --tenant")
}

// judge says what a probe's report proves of a runtime class: that its network is closed,
// and that the process is held. isolation is what the class is said to give beyond an
// ordinary container, or "", and ordinary the kernel that an ordinary one saw.
func judge(class, isolation, ordinary string, r sandboxprobe.Report) []Finding {
	return []Finding{network("kube.network."+shown(class), r), held("kube.isolation."+shown(class), isolation, ordinary, r)}
}

// network judges where one got to. That the one open port was reached shows that the
// others weren't closed by there being no network at all.
func network(name string, r sandboxprobe.Report) Finding {
	var open, closed, untried []string
	for _, a := range r.Attempts {
		switch {
		case a.Open && !a.Reached:
			return broken(name, fmt.Sprintf("%s can't be reached: %s", a.Name, a.Detail), "see that a gateway is ready and that the network policies of both namespaces are as the chart makes them: no sandbox could be bound")
		case a.Open:
		case a.Reached:
			open = append(open, fmt.Sprintf("%s (%s)", a.Name, a.Detail))
		case !a.Tried:
			untried = append(untried, a.Name)
		default:
			closed = append(closed, a.Name)
		}
	}
	switch {
	case len(r.Attempts) == 0:
		return broken(name, "the sandbox tried nothing", "use the image of this version")
	case len(open) > 0:
		return broken(name, "from inside a sandbox one reaches "+strings.Join(open, ", "), "use a network plugin that enforces NetworkPolicy for egress (Calico, Cilium and others do): an agent could call what it likes")
	case len(untried) > 0:
		return warning(name, "not tried: "+strings.Join(untried, ", "), "look why the Pod isn't told of it; what wasn't tried isn't proven")
	}
	return fine(name, "only the gateway's agents port is reached; not %s", strings.Join(closed, ", "))
}

// held judges what holds the process.
func held(name, isolation, ordinary string, r sandboxprobe.Report) Finding {
	const wayOut = "look what changes Pods on their way in (admission webhooks) or on the node: the driver asks for all of this"
	var loose []string
	if r.UID == 0 {
		loose = append(loose, "it runs as root")
	}
	if strings.Trim(r.Capabilities, "0") != "" || r.Capabilities == "" {
		loose = append(loose, "it has capabilities "+r.Capabilities)
	}
	if !r.NoNewPrivileges && isolation == "" {
		loose = append(loose, "it may gain privileges")
	}
	// A kernel of its own answers for itself; its seccomp is its own affair.
	if r.Seccomp != 2 && isolation == "" {
		loose = append(loose, "no seccomp filter")
	}
	if r.KubernetesToken {
		loose = append(loose, "it holds a token for the API server")
	}
	switch {
	case len(loose) > 0:
		return broken(name, strings.Join(loose, ", "), wayOut)
	case isolation != "" && ordinary == "":
		return warning(name, "nothing to compare its kernel with", "mend the probe of the cluster's default first")
	case isolation != "" && r.Kernel == ordinary:
		return broken(name, "it sees the same kernel as an ordinary container: "+r.Kernel, "see the handler of the RuntimeClass: it doesn't give "+isolation)
	}
	return fine(name, "uid %d, no capabilities, no way to gain any; %s", r.UID, r.Kernel)
}

// proven compares what was proven with what the installation shows on its sessions.
func (k *kube) proven(proven []string) Finding {
	const name = "kube.verified"
	said := slices.Sorted(slices.Values(k.file.Verified))
	slices.Sort(proven)
	if slices.Equal(said, proven) {
		if len(proven) == 0 {
			return warning(name, "nothing is proven; sessions are shown as unverified", "mend what is found above")
		}
		return fine(name, "sessions are shown as verified with: %s", strings.Join(proven, ", "))
	}
	return warning(name, fmt.Sprintf("proven: %s; sessions are shown as verified with: %s", listed(proven), listed(said)),
		fmt.Sprintf("tell the installation, in your file of values or by: helm upgrade %s deploy/chart -n %s --reset-then-reuse-values --set 'sandboxes.verified={%s}'",
			k.file.Instance, k.file.Namespace, strings.Join(proven, ",")))
}

// bySandboxes is what is said of runtime classes and controller by sandboxes that were
// tried, where one couldn't look at them: a sandbox that started shows both.
func (k *kube) bySandboxes(started []string, classes, controller Finding) (Finding, Finding) {
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(k.file.RuntimeClasses)), func(class string) bool { return slices.Contains(started, class) })
	if classes.Grade == Warning && len(missing) == 0 {
		classes = fine(classes.Name, "sandboxes start with: %s", listed(slices.Sorted(maps.Keys(k.file.RuntimeClasses))))
	}
	if controller.Grade == Warning && len(started) > 0 {
		controller = fine(controller.Name, "it has made the sandboxes that were tried")
	}
	return classes, controller
}

// unproven names what nothing was tried about.
func (k *kube) unproven() Finding {
	var open []string
	for _, class := range k.classNames() {
		if !slices.Contains(k.file.Verified, shown(class)) {
			open = append(open, shown(class))
		}
	}
	if len(open) > 0 {
		return warning("kube.verified", "isolation and closed network are unverified with: "+strings.Join(open, ", "), "try them with --probe, which starts a sandbox of each")
	}
	return fine("kube.verified", "sessions are shown as verified, as an earlier --probe has proven")
}

func listed(classes []string) string {
	if len(classes) == 0 {
		return "nothing"
	}
	return strings.Join(classes, ", ")
}
