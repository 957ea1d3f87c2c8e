package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
	"github.com/holdfast-io/holdfast/services/workload"
)

// patience is how long a server may take to answer.
const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// want finds a finding by its name and looks at its grade and words.
func want(t *testing.T, found []Finding, name string, grade Grade, words ...string) {
	t.Helper()
	for _, f := range found {
		if f.Name != name {
			continue
		}
		if f.Grade != grade {
			t.Errorf("%s is %s, not %s: %s", name, f.Grade, grade, f.Detail)
		}
		if (f.WayOut == "") != (grade == Fine) {
			t.Errorf("%s is %s, and the way out is %q", name, f.Grade, f.WayOut)
		}
		for _, w := range words {
			if !strings.Contains(f.Detail+" "+f.WayOut, w) {
				t.Errorf("%s doesn't say %q: %s → %s", name, w, f.Detail, f.WayOut)
			}
		}
		return
	}
	t.Errorf("%s wasn't looked at: %+v", name, found)
}

func TestAnInstallation(t *testing.T) {
	passwords := map[broker.User]string{}
	for _, u := range broker.Users() {
		passwords[u] = "secret-of-" + string(u)
		t.Setenv(broker.PasswordVariable(u), passwords[u])
	}
	nats := brokertest.StartWith(t, broker.Config{Port: -1, Passwords: passwords}, install.Options{})
	t.Setenv(broker.EnvURL, nats.URL())
	t.Setenv(postgres.EnvURL, pgtest.New(t))

	found := examineInstallation(t.Context())
	want(t, found, "nats.users", Fine, "all may connect")
	want(t, found, "nats.streams", Fine, "EVENTS holds 1 messages")
	want(t, found, "nats.replicas", Warning, "a lost disk is a lost log", "--replicas 3")
	want(t, found, "postgres.schema", Fine, "PostgreSQL")

	t.Setenv(broker.PasswordVariable(broker.UserPolicy), "another")
	t.Setenv(postgres.EnvURL, pgtest.Empty(t))
	found = examineInstallation(t.Context())
	want(t, found, "nats.users", Broken, "policy", "nats-conf")
	want(t, found, "postgres.schema", Broken, "the schema is at 0 of", "holdfast install")

	t.Setenv(broker.EnvURL, "nats://127.0.0.1:1")
	t.Setenv(postgres.EnvURL, "postgres://127.0.0.1:1/none")
	found = examineInstallation(t.Context())
	want(t, found, "nats.users", Broken)
	want(t, found, "nats.streams", Broken)
	want(t, found, "postgres.schema", Broken, postgres.EnvURL)

	t.Setenv(broker.EnvURL, "")
	t.Setenv(postgres.EnvURL, "")
	if found := examineInstallation(t.Context()); len(found) != 0 {
		t.Errorf("nothing is named, and looked at was %+v", found)
	}
}

func TestStreamsThatAreMissing(t *testing.T) {
	nats := brokertest.StartWith(t, broker.Config{Port: -1, Passwords: map[broker.User]string{broker.UserInstaller: "secret"}}, install.Options{})
	t.Setenv(broker.EnvURL, nats.URL())
	t.Setenv(broker.PasswordVariable(broker.UserInstaller), "secret")
	nc, err := nats.Broker.Connect(t.Context(), broker.UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request("$JS.API.STREAM.DELETE.OUTPUT", nil, patience); err != nil {
		t.Fatal(err)
	}
	want(t, streams(t.Context(), os.Getenv(broker.EnvURL)), "nats.streams", Broken, "OUTPUT", "holdfast install")
}

// A service is given no other password than its own, and nobody is to mend that.
func TestStreamsAreTheInstallers(t *testing.T) {
	for _, u := range broker.Users() {
		t.Setenv(broker.PasswordVariable(u), "")
	}
	want(t, streams(t.Context(), "nats://127.0.0.1:1"), "nats.streams", Warning, "INSTALLER")
	t.Setenv(broker.PasswordVariable(broker.UserWorkload), "its own")
	want(t, streams(t.Context(), "nats://127.0.0.1:1"), "nats.streams", Fine, "the installer", "workload")
	t.Setenv(broker.PasswordVariable(broker.UserRunner), "another's")
	want(t, streams(t.Context(), "nats://127.0.0.1:1"), "nats.streams", Warning, "INSTALLER")
}

func TestADataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want(t, dataDir(t.Context(), filepath.Join(dir, "not", "yet")), "machine.tokens", Fine, "none yet")
	if err := os.WriteFile(filepath.Join(dir, "tokens.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	found := dataDir(t.Context(), dir)
	want(t, found, "machine.tokens", Broken, "can be read by others", "chmod 600")
	for _, f := range found {
		if f.Name == "machine.sync" && !strings.Contains(f.Detail, "on the disk after") {
			t.Errorf("%+v", f)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".doctor-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPrescribe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	prescribe(&out, []Finding{fine("a", "well"), warning("longer", "so so", "look"), broken("b", "bad", "mend it")})
	const text = "✓ a       well\n! longer  so so\n          → look\n✗ b       bad\n          → mend it\n"
	if out.String() != text {
		t.Errorf("got\n%s", out.String())
	}
}

// Nobody has to have gVisor; what is there and doesn't run needs a hand.
func TestGVisor(t *testing.T) {
	t.Parallel()
	want(t, []Finding{gvisor(workload.Report{})}, "machine.gvisor", Fine, "runsc in the PATH")
	want(t, []Finding{gvisor(workload.Report{GVisor: "/opt/runsc"})}, "machine.gvisor", Fine, "works", "/opt/runsc")
	broken := workload.Report{GVisor: "/opt/runsc", GVisorMissing: "exec format error", GVisorWayOut: "see whether it runs"}
	want(t, []Finding{gvisor(broken)}, "machine.gvisor", Warning, "exec format error", "see whether it runs")
}
