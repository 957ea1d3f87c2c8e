package hub

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections/view"
)

// frame is a frame as it goes out, encoded once for all its viewers. It never
// changes once it is made.
type frame struct {
	// cursor stands in the frame too; SSE repeats it as the id.
	cursor string
	kind   view.FrameKind
	at     time.Time
	// json is the whole frame in one line, data the part of it that is the data.
	json, data []byte
	n          uint64
	run        string
	lastK      uint64

	once sync.Once
	sse  []byte
	// last says that nothing of its session follows.
	last bool
}

// newFrame encodes a frame. Its parts were encoded before, so nothing is parsed
// again and data keeps its bytes.
func newFrame(f view.Frame) *frame {
	b := make([]byte, 0, len(f.Data)+len(f.Cursor)+160)
	b = append(append(append(b, `{"cursor":"`...), f.Cursor...), '"')
	if f.Session != "" {
		b = append(append(append(b, `,"session":"`...), f.Session...), '"')
	}
	if f.N > 0 {
		b = strconv.AppendUint(append(b, `,"n":`...), f.N, 10)
	}
	b = f.Time.AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano)
	b = append(append(append(b, `","kind":"`...), f.Kind...), `","data":`...)
	data := len(b)
	b = append(append(b, f.Data...), '}')
	return &frame{cursor: f.Cursor, kind: f.Kind, at: f.Time, json: b, data: b[data : len(b)-1], n: f.N, run: f.Run, lastK: f.LastK}
}

// event is the frame as a server-sent event.
func (f *frame) event() []byte {
	f.once.Do(func() {
		f.sse = api.AppendSSE(make([]byte, 0, len(f.json)+len(f.cursor)+40), f.cursor, string(f.kind), f.json)
	})
	return f.sse
}

// controlType is what a control frame says.
type controlType string

const (
	controlHeartbeat controlType = "heartbeat"
	controlGap       controlType = "gap"
	controlReplay    controlType = "replay"
	controlEnd       controlType = "end"
)

// gapReason is why a range isn't delivered.
type gapReason string

const (
	gapExpired     gapReason = "expired"
	gapEpoch       gapReason = "epoch"
	gapOverflow    gapReason = "overflow"
	gapUnavailable gapReason = "unavailable"
)

// control is the data of a control frame.
type control struct {
	Type controlType `json:"type"`
	// From is nil where there is none: a gap's may be "", the beginning.
	From     *string   `json:"from,omitempty"`
	To       string    `json:"to,omitempty"`
	Reason   gapReason `json:"reason,omitempty"`
	Snapshot *snapshot `json:"snapshot,omitempty"`
	Speed    *float64  `json:"speed,omitempty"`
}

// snapshot is how things stand behind a gap.
type snapshot struct {
	Session   *view.Session   `json:"session,omitempty"`
	Approvals []view.Approval `json:"approvals"`
}

// controlFrame makes a control frame. cursor is where the viewer is behind it.
func controlFrame(cursor, session string, at time.Time, c control) view.Frame {
	data, err := events.Marshal(c)
	if err != nil {
		panic(err) // strings, numbers, and JSON that was decoded before
	}
	return view.Frame{Cursor: cursor, Session: session, Time: at.UTC(), Kind: view.FrameControl, Data: json.RawMessage(data)}
}

// gapFrame is the control frame of a gap, and counts it.
func (h *Hub) gapFrame(session string, at time.Time, from, to string, reason gapReason, s *snapshot) view.Frame {
	h.metrics.gap(reason)
	return controlFrame(to, session, at, control{Type: controlGap, From: &from, To: to, Reason: reason, Snapshot: s})
}
