package correlate_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/correlate"
)

func TestLinesNameTheirRequest(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var out bytes.Buffer
	log := slog.New(correlate.Handler(slog.NewJSONHandler(&out, nil))).With("service", "session")
	line := func() map[string]any {
		t.Helper()
		defer out.Reset()
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		return got
	}
	log.InfoContext(correlate.With(t.Context(), correlate.IDs{Request: "req-1", Trace: trace}), "done")
	if got := line(); got["request"] != "req-1" || got["trace_id"] != "0af7651916cd43dd8448eb211c80319c" || got["service"] != "session" {
		t.Errorf("got %v", got)
	}
	log.InfoContext(t.Context(), "done")
	if got := line(); got["request"] != nil || got["trace_id"] != nil {
		t.Errorf("outside a request: %v", got)
	}
	log.InfoContext(correlate.With(t.Context(), correlate.IDs{Trace: "forged\nline"}), "done")
	if got := line(); got["trace_id"] != nil {
		t.Errorf("a trace that is none: %v", got)
	}
}

func TestANewTraceIsOne(t *testing.T) {
	t.Parallel()
	one, other := correlate.NewTrace(), correlate.NewTrace()
	if !correlate.ValidTrace(one) || one == other || (correlate.IDs{Trace: one}).TraceID() == "" {
		t.Errorf("%s, %s", one, other)
	}
	if correlate.ValidTrace("00-xyz") {
		t.Error("00-xyz is no traceparent")
	}
}
