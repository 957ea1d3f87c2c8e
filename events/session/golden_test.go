package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// What was written once is read for ever: a fixture is added for each version and
// never changed, so update writes only those that aren't there.
var update = flag.Bool("update", false, "write the fixtures of types and versions that have none")

func owned(t testing.TB, p session.Payload) events.Record {
	t.Helper()
	owner, ok := session.Owner(session.TypeOf(p))
	if !ok {
		t.Fatalf("%T has no owner", p)
	}
	rs, err := session.Records(owner, p)
	if err != nil {
		t.Fatal(err)
	}
	return rs[0]
}

func fixturePath(r events.Record) string {
	return filepath.Join("testdata", fmt.Sprintf("%s.v%d.json", r.Type, r.V))
}

// Every type has a sample with every field set, and every version up to today's
// has a fixture.
func TestEveryVersionHasAFixture(t *testing.T) {
	sampled := make([]string, 0, len(session.Types()))
	for _, p := range samples() {
		r := owned(t, p)
		sampled = append(sampled, r.Type)
		v := reflect.ValueOf(p)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the sample of %s leaves %s unset", r.Type, v.Type().Field(i).Name)
			}
		}
		if _, err := os.Stat(fixturePath(r)); errors.Is(err, os.ErrNotExist) && *update {
			line, err := events.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(fixturePath(r), append(line, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for version := 1; version <= r.V; version++ {
			if _, err := os.Stat(fixturePath(events.Record{Type: r.Type, V: version})); err != nil {
				t.Errorf("%s version %d has no fixture: %v", r.Type, version, err)
			}
		}
	}
	slices.Sort(sampled)
	if !slices.Equal(sampled, session.Types()) {
		t.Errorf("samples are of\n%v\nbut the registry has\n%v", sampled, session.Types())
	}
}

// Every fixture decodes; today's versions encode to the very bytes again and mean
// what the sample says.
func TestFixtures(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) < len(session.Types()) {
		t.Fatalf("%d fixtures, %v", len(paths), err)
	}
	byType := map[string]session.Payload{}
	for _, p := range samples() {
		byType[session.TypeOf(p)] = p
	}
	for _, path := range paths {
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var r events.Record
		if err := json.Unmarshal(stored, &r); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if filepath.Base(path) != filepath.Base(fixturePath(r)) {
			t.Errorf("%s holds %s version %d", path, r.Type, r.V)
		}
		owner, _ := session.Owner(r.Type)
		p, err := session.Decode(r, owner)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		now := owned(t, p)
		if now.V != r.V {
			continue // an older version; it is enough that it is read
		}
		if line, err := events.Marshal(now); err != nil || !bytes.Equal(append(line, '\n'), stored) {
			t.Errorf("%s encodes as\n%s (%v): a change of a stored shape is a new version", path, line, err)
		}
		if !reflect.DeepEqual(p, byType[r.Type]) {
			t.Errorf("%s decodes to\n%+v, want\n%+v", path, p, byType[r.Type])
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	var unknown *events.UnknownTypeError
	var foreign *events.ForeignTypeError
	for _, p := range samples() {
		r := owned(t, p)
		owner, _ := session.Owner(r.Type)
		for _, other := range []events.Service{events.ServiceSession, events.ServiceWorkload, events.ServicePolicy, events.ServiceRunner, events.ServiceInstaller, "", "gateway"} {
			if other == owner {
				continue
			}
			if _, err := session.Decode(r, other); !errors.As(err, &foreign) || foreign.Owner != owner || foreign.Service != other {
				t.Errorf("%s written by %q: %v", r.Type, other, err)
			}
			if _, err := session.Records(other, p); !errors.As(err, &foreign) {
				t.Errorf("%s could be written by %q: %v", r.Type, other, err)
			}
		}
		later := r
		later.V++
		if _, err := session.Decode(later, owner); !errors.As(err, &unknown) || unknown.V != later.V {
			t.Errorf("%s of a later version: %v", r.Type, err)
		}
		for _, data := range []string{``, `{`, `[]`, `"x"`, `null`, strings.Repeat("[", 100)} {
			bad := r
			bad.Data = raw(data)
			if p, err := session.Decode(bad, owner); err == nil {
				t.Errorf("%s of %q is %+v", r.Type, data, p)
			}
		}
	}
	if _, err := session.Decode(events.Record{Type: "session.melted", V: 1, Data: raw(`{}`)}, events.ServiceSession); !errors.As(err, &unknown) {
		t.Errorf("an unknown type: %v", err)
	}
}

// FuzzDecode: no bytes make Decode panic, and what it takes is stable.
func FuzzDecode(f *testing.F) {
	for _, p := range samples() {
		r := owned(f, p)
		f.Add(r.Type, r.V, []byte(r.Data))
	}
	f.Add("session.created", 1, []byte(`{"terms":{"idle":"1h"}}`))
	f.Add("session.extended", 1, []byte(`{"idle":5}`))
	f.Fuzz(func(t *testing.T, eventType string, v int, data []byte) {
		owner, _ := session.Owner(eventType)
		p, err := session.Decode(events.Record{Type: eventType, V: v, Data: data}, owner)
		if err != nil {
			return
		}
		rs, err := session.Records(owner, p)
		if err != nil {
			t.Fatalf("what was decoded can't be written: %v", err)
		}
		again, err := session.Decode(rs[0], owner)
		if err != nil {
			t.Fatalf("what was written can't be decoded: %v", err)
		}
		twice, err := session.Records(owner, again)
		if err != nil || !bytes.Equal(twice[0].Data, rs[0].Data) {
			t.Fatalf("not stable: %s then %s (%v)", rs[0].Data, twice[0].Data, err)
		}
	})
}
