package agentsandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// FieldManager is who writes on the cluster.
const FieldManager = "holdfast"

// Labels and annotations of everything that is ours. Labels select; annotations say it
// in full, where a label may have to be a hash.
const (
	// LabelManaged is on all that is Holdfast's, Pods and volumes too.
	LabelManaged = "holdfast.dev/managed"
	// LabelSession and LabelTenant are on claims and on what belongs to one session.
	LabelSession = "holdfast.dev/session"
	LabelTenant  = "holdfast.dev/tenant"
	// LabelRuntime is on templates and pools of a runtime; Revision is an annotation.
	LabelRuntime = "holdfast.dev/runtime"

	annTenant      = "holdfast.dev/tenant"
	annSession     = "holdfast.dev/session"
	annGeneration  = "holdfast.dev/generation"
	annIntent      = "holdfast.dev/intent"
	annEpoch       = "holdfast.dev/epoch"
	annRuntime     = "holdfast.dev/runtime"
	annRevision    = "holdfast.dev/revision"
	annBlueprint   = "holdfast.dev/blueprint" // hash of what a template was applied as
	annVolume      = "holdfast.dev/volume"    // "true": the session has one
	annClaim       = "holdfast.dev/claim"     // UID of the claim that was recorded
	annSandbox     = "holdfast.dev/sandbox"
	annIncarnation = "holdfast.dev/incarnation"
	annVolumeUID   = "holdfast.dev/volume-uid"
	annVoid        = "holdfast.dev/void"   // on a Sandbox: the incarnation that its resume replaces
	annMended      = "holdfast.dev/mended" // on a claim: touched, to be looked at again
	annKept        = "holdfast.dev/kept"   // on a volume: the generation that left it
)

// maxName leaves room for what agent-sandbox appends: a Pod's name is a host name too.
const maxName = 52

// short gives a name that is short enough, by a hash of what is too long.
func short(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName-9] + "-" + hash(name)
}

// hash is 8 hex digits of a name.
func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:4])
}

// labelled is what may stand in a label: a token may begin or end with a dash, there
// it is a hash.
func labelled(value string) string {
	if validLabel.MatchString(value) {
		return value
	}
	return "x" + hash(value)
}

var validLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// claimName is the same for every attempt at a generation.
func claimName(ref driver.Ref) string {
	return short(fmt.Sprintf("hf-%s-g%d", strings.Trim(ref.Session, "-"), ref.Generation))
}

// templateName is a runtime revision's, for template and pool. A driver's names of
// runtimes are "<tenant>.<runtime>"; tenants may share a namespace, so a hash tells
// theirs apart.
func templateName(runtime string, revision uint64) string {
	_, name, ok := strings.Cut(runtime, ".")
	if !ok {
		name = runtime
	}
	return short(fmt.Sprintf("hf-%s-r%d-%s", strings.Trim(name, "-"), revision, hash(runtime)))
}

// tenantOf is the tenant in a driver's name of a runtime.
func tenantOf(runtime string) string {
	tenant, _, _ := strings.Cut(runtime, ".")
	return tenant
}

func sessionLabels(key driver.SessionKey) map[string]string {
	return map[string]string{LabelManaged: "true", LabelTenant: labelled(key.Tenant), LabelSession: labelled(key.Session)}
}

// selector finds what belongs to a session.
func selector(key driver.SessionKey) string {
	return fmt.Sprintf("%s=%s,%s=%s", LabelTenant, labelled(key.Tenant), LabelSession, labelled(key.Session))
}

// refOf reads whose a claim is; false where it is none of ours.
func refOf(o metav1.Object) (driver.Ref, bool) {
	a := o.GetAnnotations()
	generation, err := strconv.ParseUint(a[annGeneration], 10, 64)
	ref := driver.Ref{Tenant: a[annTenant], Session: a[annSession], Generation: generation}
	return ref, err == nil && o.GetLabels()[LabelManaged] == "true" && ref.Validate() == nil && o.GetName() == claimName(ref)
}

func intentOf(o metav1.Object) uint64 {
	intent, err := strconv.ParseUint(o.GetAnnotations()[annIntent], 10, 64)
	if err != nil {
		return 0 // nobody wanted anything of it yet
	}
	return intent
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// record is what was handed out of a claim; the zero one is nothing.
type record struct {
	sandbox     types.UID
	incarnation string
	volume      types.UID // "" for none
}

// recordOf reads what was handed out: nothing where what stands there is of another
// claim that had the name.
func recordOf(o metav1.Object) record {
	a := o.GetAnnotations()
	if a[annClaim] != string(o.GetUID()) {
		return record{}
	}
	return record{types.UID(a[annSandbox]), a[annIncarnation], types.UID(a[annVolumeUID])}
}

func (r record) annotations(claim types.UID) map[string]string {
	return map[string]string{
		annClaim: string(claim), annSandbox: string(r.sandbox), annIncarnation: r.incarnation, annVolumeUID: string(r.volume),
	}
}
