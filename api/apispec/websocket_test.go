package apispec

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-io/holdfast/api"
)

// TestMessagesAreThoseOfTheDocument holds ws.go to asyncapi.yaml: each message
// has a Go type, and its example goes through it unchanged.
func TestMessagesAreThoseOfTheDocument(t *testing.T) {
	for name, schema := range wsSchemas() {
		example, err := json.Marshal(schema.Example)
		if err != nil {
			t.Fatal(err)
		}
		if schema.Example == nil {
			t.Errorf("%s has no example", name)
			continue
		}
		message, err := api.DecodeWS(example)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if message.WSType() != name {
			t.Errorf("%s decodes as %s", name, message.WSType())
		}
		encoded, err := api.EncodeWS(message)
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, example, encoded) {
			t.Errorf("example %s\nbecame  %s", example, encoded)
		}
		if err := validateWS(name, encoded); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAsyncAPIHangsTogether(t *testing.T) {
	var doc struct {
		Asyncapi string
		Channels map[string]struct {
			Messages map[string]map[string]string
		}
		Operations map[string]struct{ Messages []map[string]string }
		Components struct {
			Messages map[string]struct{ Payload map[string]string }
		}
	}
	if err := yaml.Unmarshal(api.AsyncAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.Asyncapi, "3.") {
		t.Errorf("asyncapi %s", doc.Asyncapi)
	}
	types := slices.Sorted(maps.Keys(wsSchemas()))
	messages := make([]api.WSType, 0, len(types))
	for name, message := range doc.Components.Messages {
		messages = append(messages, api.WSType(name))
		if message.Payload["$ref"] != "#/components/schemas/"+name {
			t.Errorf("%s has payload %s", name, message.Payload["$ref"])
		}
		if doc.Channels["ws"].Messages[name]["$ref"] != "#/components/messages/"+name {
			t.Errorf("the channel lacks %s", name)
		}
	}
	slices.Sort(messages)
	if !slices.Equal(messages, types) {
		t.Errorf("messages %v, schemas %v", messages, types)
	}
	for name, side := range map[string]bool{"request": true, "reply": false} {
		var got, want []string
		for _, ref := range doc.Operations[name].Messages {
			got = append(got, strings.TrimPrefix(ref["$ref"], "#/channels/ws/messages/"))
		}
		for _, messageType := range types {
			if wsRequests[messageType] == side {
				want = append(want, string(messageType))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the document has %v, Go %v", name, got, want)
		}
	}
}

func TestCloseCodesAreThoseOfTheDocument(t *testing.T) {
	var doc asyncDocument
	if err := yaml.Unmarshal(api.AsyncAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.CloseCodes) != len(api.CloseCodes) {
		t.Errorf("the document has %d, Go %d", len(doc.CloseCodes), len(api.CloseCodes))
	}
	for code, entry := range doc.CloseCodes {
		if code.String() != entry.Name || code.Reconnect() != entry.Reconnect {
			t.Errorf("%d: the document says %s %v, Go %s %v", code, entry.Name, entry.Reconnect, code, code.Reconnect())
		}
	}
}

func TestDecodeWSRequest(t *testing.T) {
	for _, test := range []struct {
		name, data string
		ref        string
		code       api.Code // "" passes
		broken     bool     // so broken that the connection is closed
	}{
		{"subscribe", `{"type":"subscribe","ref":"1","session":"` + session + `"}`, "1", "", false},
		{"inbox", `{"type":"subscribe","ref":"1","inbox":true,"after":"abc"}`, "1", "", false},
		{"both", `{"type":"subscribe","ref":"1","inbox":true,"session":"` + session + `"}`, "1", api.CodeInvalidRequest, false},
		{"neither", `{"type":"subscribe","ref":"1"}`, "1", api.CodeInvalidRequest, false},
		{"no ref", `{"type":"subscribe","inbox":true}`, "", api.CodeInvalidRequest, false},
		{"ref no string", `{"type":"subscribe","ref":1,"inbox":true}`, "", api.CodeInvalidRequest, false},
		{"unknown field", `{"type":"ping","x":1}`, "", api.CodeInvalidRequest, false},
		{"bad hash", `{"type":"decide","ref":"3","id":"` + session + `.c-q7n2","decision":"approve","argsHash":"x"}`, "3", api.CodeInvalidRequest, false},
		{"abstain", `{"type":"decide","ref":"3","id":"` + session + `.c-q7n2","decision":"abstain","argsHash":"` + strings.Repeat("0", 64) + `"}`, "3", api.CodeInvalidRequest, false},
		{"empty message", `{"type":"message","ref":"4","session":"` + session + `","content":""}`, "4", api.CodeInvalidRequest, false},
		{"not a request", `{"type":"pong"}`, "", "", true},
		{"unknown", `{"type":"shout"}`, "", "", true},
		{"an array", `[]`, "", "", true},
		{"nothing", ``, "", "", true},
		{"two", `{"type":"ping"}{"type":"ping"}`, "", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			message, ref, err := DecodeWSRequest([]byte(test.data))
			if ref != test.ref || api.CodeOf(err) != test.code || (err != nil) != (test.broken || test.code != "") {
				t.Fatalf("got %v, ref %q, %v", message, ref, err)
			}
			if (message != nil) != (err == nil) {
				t.Errorf("message %v with error %v", message, err)
			}
		})
	}
}

func TestValidateWSLooksIntoFrames(t *testing.T) {
	bad := `{"type":"frame","subscription":"a","frame":{"cursor":"abc","time":"2026-01-02T15:04:05Z","kind":"prompt","data":{}}}`
	if err := ValidateWS([]byte(bad)); err == nil {
		t.Error("a prompt without an approval passed")
	}
}

// FuzzDecodeWSRequest: nothing that comes makes it panic, and what passes can
// be said again and passes again.
func FuzzDecodeWSRequest(f *testing.F) {
	for _, schema := range wsSchemas() {
		example, err := json.Marshal(schema.Example)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(example)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message, _, err := DecodeWSRequest(data)
		if err != nil {
			return
		}
		again, err := api.EncodeWS(message)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := DecodeWSRequest(again); err != nil {
			t.Fatalf("%s\npassed, but not as %s: %v", data, again, err)
		}
	})
}
