package view

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
)

func TestMaskSecretsInText(t *testing.T) {
	t.Parallel()
	key := "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"
	for in, want := range map[string]string{
		"ls -l /tmp":                                    "ls -l /tmp",
		"mysql --password=hunter2 db":                   "mysql --password=‹masked, 7 bytes› db",
		"mysql --password hunter2 db":                   "mysql --password ‹masked, 7 bytes› db",
		`export DB_PASSWORD="two words" && run`:         `export DB_PASSWORD="‹masked, 9 bytes›" && run`,
		"export DB_PASSWORD=$OTHER":                     "export DB_PASSWORD=$OTHER",
		"export DB_PASSWORD='$literal'":                 "export DB_PASSWORD='‹masked, 8 bytes›'",
		"curl -H 'Authorization: Bearer abcdef' u":      "curl -H 'Authorization: Bearer ‹masked, 6 bytes›' u",
		"curl -u bob:s3cr3t https://x":                  "curl -u bob:‹masked, 6 bytes› https://x",
		"docker run -u 1000:1000 x":                     "docker run -u 1000:1000 x",
		"git clone https://bob:hunter2@host/r":          "git clone https://bob:‹masked, 7 bytes›@host/r",
		"a basic understanding":                         "a basic understanding",
		"AKIAABCDEFGHIJKLMNOP":                          "‹masked, 20 bytes›",
		"x ghp_0123456789abcdefghij0123456789abcdef y":  "x ‹masked, 40 bytes› y",
		"echo '" + key + "' > k":                        "echo '‹masked, " + itoa(len(key)) + " bytes›' > k",
		"AWS_SECRET_ACCESS_KEY=abc/def+ghi aws s3 ls":   "AWS_SECRET_ACCESS_KEY=‹masked, 11 bytes› aws s3 ls",
		"PWD=/home/x":                                   "PWD=/home/x",
		"secretName: web-tls":                           "secretName: web-tls",
		"run --token-file /etc/t":                       "run --token-file /etc/t",
		"sshpass -p 'x y' ssh h":                        "sshpass -p '‹masked, 3 bytes›' ssh h",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0": "‹masked, 45 bytes›",
	} {
		if got := (Masker{}).Text(in); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestMaskJSON(t *testing.T) {
	t.Parallel()
	redact := NewMasker([]string{"/password", "/deep/0/x~1y", "/obj", "", "nope"})
	for _, tt := range []struct{ name, in, want string }{
		{"untouched bytes", `{ "a" : [1, 2.50, "\u00e9<>"], "b":null }`, `{ "a" : [1, 2.50, "\u00e9<>"], "b":null }`},
		{"pointer", `{"password":"abc","x":"abc"}`, `{"password":"‹masked, 3 bytes›","x":"abc"}`},
		{"escaped pointer", `{"deep":[{"x/y":12345}]}`, `{"deep":[{"x/y":"‹masked, 5 bytes›"}]}`},
		{"whole object", `{"obj":{"a":"}"},"z":1}`, `{"obj":"‹masked, 9 bytes›","z":1}`},
		{"name of a secret", `{"api-key":"k","maxTokens":"9"}`, `{"api-key":"‹masked, 1 bytes›","maxTokens":"9"}`},
		{"secret behind an escape", `{"c":"\u0070assword=abc"}`, `{"c":"password=‹masked, 3 bytes›"}`},
		{"key", `{"ghp_0123456789abcdefghij0123456789abcdef":1}`, `{"‹masked, 40 bytes›":1}`},
		{"scalar", `"password=abc"`, `"password=‹masked, 3 bytes›"`},
		{"not JSON", `password=abc`, `"password=‹masked, 3 bytes›"`},
	} {
		if got := string(redact.Args(json.RawMessage(tt.in))); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestRedactReachesWhatCarriesArguments(t *testing.T) {
	t.Parallel()
	mask := NewMasker([]string{"/pin"})
	payload := `{"callId":"c","args":{"pin":"1234"},"pin":"not args"}`
	if got, want := string(mask.Payload(json.RawMessage(payload))), `{"callId":"c","args":{"pin":"‹masked, 4 bytes›"},"pin":"not args"}`; got != want {
		t.Errorf("payload: got %s", got)
	}
	said := `{"message":{"toolCalls":[{"function":{"name":"f","arguments":"{\"pin\":\"1234\"}"}}]}}`
	if got := string(mask.Payload(json.RawMessage(said))); strings.Contains(got, "1234") {
		t.Errorf("a recorded tool call shows what redact names: %s", got)
	}
	delta := `{"type":"TOOL_CALL_ARGS","toolCallId":"t","delta":"{\"pin\":\"12"}`
	if got, want := string(mask.Agui(json.RawMessage(delta))), `{"type":"TOOL_CALL_ARGS","toolCallId":"t","delta":"‹masked, 10 bytes›"}`; got != want {
		t.Errorf("delta: got %s", got)
	}
}

// pieces is what texts of properties are made of: halves of secrets and of
// placeholders, so that they combine into both.
var pieces = rapid.SampledFrom([]string{
	"password=", "token: ", "Bearer ", "authorization:", "ghp_", "0123456789abcdefghij", "AKIA", "ABCDEFGHIJKLMNOP", " ", "\"", "'", "\\",
	"‹masked, 7 bytes›", "‹masked, ", "›", "://u:", "@", "$X", "\n", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "x", "é", "\u202e", "--secret ", "curl -u a:", "eyJhbGciOiJI.", "eyJzdWIiOiIx.",
})

func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "pieces"), "")
	})
}

func TestPropertyMaskingIsIdempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mask := NewMasker(rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/b/0", "/password"}), 0, 2).Draw(t, "redact"))
		args, err := json.Marshal(map[string]any{
			"a": texts().Draw(t, "a"), "b": []any{texts().Draw(t, "b0"), 7}, "password": texts().Draw(t, "p"), texts().Draw(t, "key"): true,
		})
		if err != nil {
			t.Fatal(err)
		}
		once := mask.Args(args)
		if !json.Valid(once) {
			t.Fatalf("%s became %s", args, once)
		}
		if twice := mask.Args(once); string(twice) != string(once) {
			t.Fatalf("%s\nonce  %s\ntwice %s", args, once, twice)
		}
		s := texts().Draw(t, "text")
		if twice := mask.Text(mask.Text(s)); twice != mask.Text(s) {
			t.Fatalf("text %q: once %q, twice %q", s, mask.Text(s), twice)
		}
		if v := Visible(s); Visible(v) != v {
			t.Fatalf("visible twice: %q", v)
		}
	})
}

func TestPropertyMaskingKeepsHashesAndIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		args, err := json.Marshal(map[string]any{"command": texts().Draw(t, "command"), "password": texts().Draw(t, "password")})
		if err != nil {
			t.Fatal(err)
		}
		_, hash, err := events.CanonicalArgs(args)
		if err != nil {
			t.Fatal(err)
		}
		s := events.HashID(events.PrefixSession, rapid.String().Draw(t, "key"))
		in := map[string]any{
			"callId": events.CallID(s, "a", "shell", hash), "runId": events.HashID(events.PrefixRun, hash),
			"args": json.RawMessage(args), "argsHash": hash, "bodyHash": hash,
		}
		payload, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(NewMasker([]string{"/command"}).Payload(payload), &out); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"callId", "runId", "argsHash", "bodyHash"} {
			if out[field] != in[field] {
				t.Fatalf("%s became %v", field, out[field])
			}
		}
	})
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\n\ttext é 漢":  "plain\n\ttext é 漢",
		"rm \u202etxt.exe":   "rm ‹U+202E›txt.exe",
		"a\r\nb\rc":          "a\r\nb‹U+000D›c",
		"\x1b[31mred\x00":    "‹U+001B›[31mred‹U+0000›",
		"z\u200bw":           "z‹U+200B›w",
		"bad\xffbyte \ufffd": "bad‹0xFF›byte \ufffd",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add([]byte(`{"args":{"password":"x","list":[1,{"a":"b"}]},"command":"token=abc"}`))
	f.Add([]byte("[[[{\"\\u0000\":\"\\ud800\"}]]]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		mask := NewMasker([]string{"/password", "/0", "/a/b"})
		for _, out := range []json.RawMessage{mask.Args(raw), mask.Payload(raw), mask.Agui(raw)} {
			if !json.Valid(out) {
				t.Errorf("%q became %q", raw, out)
			}
		}
	})
}
