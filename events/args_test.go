package events_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
)

func TestCanonicalArgs(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{``, `{}`},
		{` { "b" : 1 , "a" : [ true , null ] } `, `{"a":[true,null],"b":1}`},
		{`{"command":"a > b && c"}`, `{"command":"a > b && c"}`},
		{`{"a":"\u00e9\u2028\u003c"}`, "{\"a\":\"é\u2028<\"}"},
		{`{"n":[1.0,1e2,0.1,-0,1.50,100,9007199254740991,1e21,0.30000000000000004,5e-324]}`, `{"n":[1,100,0.1,0,1.5,100,9007199254740991,1e+21,0.30000000000000004,5e-324]}`},
		{`{"é":1,"z":2,"aa":3,"a":4}`, `{"a":4,"aa":3,"z":2,"é":1}`},
	} {
		got, hash, err := events.CanonicalArgs(json.RawMessage(c.args))
		sum := sha256.Sum256([]byte(c.want))
		if err != nil || string(got) != c.want || hash != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %s under %s, %v; want %s", c.args, got, hash, err, c.want)
		}
	}
	for _, bad := range []string{
		`{`, `{} {}`, `{"a":1,"a":2}`, `{"a":01}`, `{"a":NaN}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, "nul",
		// As a double each of these is another number.
		`{"id":9007199254740993}`, `{"a":1e999}`, `{"a":-1e999}`, `{"a":0.12345678901234567890}`, `{"a":1e-999999999999}`, `{"a":1e-400}`,
		strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
	} {
		if got, _, err := events.CanonicalArgs(json.RawMessage(bad)); !errors.Is(err, events.ErrArgs) {
			t.Errorf("%.60s is %.60s, %v", bad, got, err)
		}
	}
}

func FuzzCanonicalArgs(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[1.5e3,"x\u0041"]}`, `{"command":"ls > x"}`, `[]`, `1e21`, `"\ud83d\ude00"`, `{"a":9007199254740993}`, `{"":-0.0}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		canonical, hash, err := events.CanonicalArgs(args)
		if err != nil {
			if !errors.Is(err, events.ErrArgs) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		sum := sha256.Sum256(canonical)
		if hash != hex.EncodeToString(sum[:]) {
			t.Fatalf("hash %s is not that of %s", hash, canonical)
		}
		again, hash2, err := events.CanonicalArgs(canonical)
		if err != nil || !bytes.Equal(again, canonical) || hash2 != hash {
			t.Fatalf("not stable: %s then %s (%v)", canonical, again, err)
		}
		if len(args) == 0 {
			return
		}
		var before, after any
		if err := errors.Join(json.Unmarshal(args, &before), json.Unmarshal(canonical, &after)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s, which means something else", args, canonical)
		}
	})
}
