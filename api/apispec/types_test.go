package apispec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/holdfast-io/holdfast/api"
)

// TestTypesHoldTheExamples decodes each schema's example into its Go type,
// strictly, and encodes it again: what the type loses or adds shows.
func TestTypesHoldTheExamples(t *testing.T) {
	for name, value := range map[string]any{
		"AgentSession": &api.AgentSession{}, "Approval": &api.Approval{}, "AuditEntry": &api.AuditEntry{},
		"Call": &api.Call{}, "CallDecided": &api.CallDecided{}, "CallWaiting": &api.CallWaiting{},
		"CompleteCall": &api.CompleteCall{}, "Control": &api.Control{}, "CreateSession": &api.CreateSession{},
		"DecideApproval": &api.DecideApproval{}, "Event": &api.Event{}, "ExtendSession": &api.ExtendSession{},
		"Frame": &api.Frame{}, "Login": &api.Login{}, "Me": &api.Me{}, "Message": &api.Message{},
		"MessageAccepted": &api.MessageAccepted{}, "Policy": &api.Policy{}, "PolicySpec": &api.PolicySpec{},
		"Problem": &api.Problem{}, "ProposeCall": &api.ProposeCall{}, "PushEvents": &api.PushEvents{},
		"Readiness": &api.Readiness{}, "Run": &api.Run{}, "Runtime": &api.Runtime{}, "RuntimeSpec": &api.RuntimeSpec{},
		"SendMessage": &api.SendMessage{}, "Session": &api.Session{}, "StartCall": &api.StartCall{},
	} {
		t.Run(name, func(t *testing.T) {
			example, err := json.Marshal(Spec().Components.Schemas[name].Value.Example)
			if err != nil {
				t.Fatal(err)
			}
			strict := json.NewDecoder(bytes.NewReader(example))
			strict.DisallowUnknownFields()
			if err := strict.Decode(value); err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			if !sameJSON(t, example, encoded) {
				t.Errorf("example %s\nbecame  %s", example, encoded)
			}
			if err := ValidateSchema(name, encoded); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRawJSONIsKept: exact arguments are what people approve; not a digit of
// them may change on the way.
func TestRawJSONIsKept(t *testing.T) {
	const args = `{"b":1.50,"a":12345678901234567890,"c":"\u00e9"}`
	var propose api.ProposeCall
	if err := json.Unmarshal([]byte(`{"agentCallId":"x","runId":"r-1","tool":"t","args":`+args+`}`), &propose); err != nil {
		t.Fatal(err)
	}
	if string(propose.Args) != args {
		t.Errorf("got %s", propose.Args)
	}
}

func TestValidateFrameLooksIntoData(t *testing.T) {
	approval, err := json.Marshal(Spec().Components.Schemas["Approval"].Value.Example)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(kind api.FrameKind, data string) []byte {
		return []byte(`{"cursor":"abc","time":"2026-01-02T15:04:05Z","kind":"` + string(kind) + `","data":` + data + `}`)
	}
	for _, test := range []struct {
		kind api.FrameKind
		data string
		ok   bool
	}{
		{api.FrameKindPrompt, string(approval), true},
		{api.FrameKindPrompt, `{"id":"x"}`, false},
		{api.FrameKindAgui, `[{"type":"RUN_STARTED"}]`, true},
		{api.FrameKindAgui, `{"type":"RUN_STARTED"}`, false},
		{api.FrameKindControl, `{"type":"heartbeat"}`, true},
		{api.FrameKindControl, `{"type":"silence"}`, false},
		{api.FrameKindEvent, `{"type":"created"}`, false},
		{"other", `{}`, false},
	} {
		if err := ValidateFrame(frame(test.kind, test.data)); (err == nil) != test.ok {
			t.Errorf("%s %s: %v", test.kind, test.data, err)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
