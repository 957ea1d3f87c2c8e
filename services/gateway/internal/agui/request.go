package agui

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// What a request may have. Clients post their history with each, so the whole may have
// more than what a stream tells them of it, and what counts of it as much as one content.
const (
	maxBody     = 32 << 20
	bodyTimeout = 30 * time.Second
	maxID       = 256
	maxTools    = 128
	maxToolsAll = 128 << 10
	maxNew      = verbs.MaxContentBytes
	maxNewCount = 64
	maxResume   = 100
	maxMessages = 100_000
)

// toolName is what models take as one.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// input is AG-UI's RunAgentInput, as far as it is looked at.
type input struct {
	ThreadID        string          `json:"threadId"`
	RunID           string          `json:"runId"`
	ProtocolVersion string          `json:"protocolVersion"`
	Messages        []message       `json:"messages"`
	Tools           []session.Tool  `json:"tools"`
	Resume          []answer        `json:"resume"`
	ForwardedProps  json.RawMessage `json:"forwardedProps"`

	// cancel is forwardedProps.holdfast.cancel.
	cancel bool
}

// message is one of a client's messages.
type message struct {
	ID         string          `json:"id"`
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"toolCallId"`
	Error      string          `json:"error"`
}

// answer is an entry of resume[].
type answer struct {
	InterruptID string `json:"interruptId"`
	Status      string `json:"status"`
	Payload     *struct {
		Approved   *bool           `json:"approved"`
		ArgsHash   string          `json:"argsHash"`
		EditedArgs json.RawMessage `json:"editedArgs"`
		Comment    string          `json:"comment"`
		Reason     string          `json:"reason"`
	} `json:"payload"`
}

// The statuses of an answer, and the roles of the messages that count.
const (
	statusResolved  = "resolved"
	statusCancelled = "cancelled"
	roleUser        = "user"
	roleTool        = "tool"
)

// read reads and checks a request's body. Errors are problems that say where it is
// wrong.
func read(w http.ResponseWriter, r *http.Request) (input, error) {
	var in input
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return in, problem.New(api.CodeUnsupportedMediaType, "The body has to be application/json.")
	}
	if accept := r.Header.Get("Accept"); accept != "" && !strings.Contains(accept, "text/event-stream") && !strings.Contains(accept, "*/*") {
		return in, problem.New(api.CodeInvalidRequest, "The answer is a stream: accept text/event-stream.").At("header/Accept", "doesn't accept text/event-stream")
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return in, problem.Wrap(api.CodeInvalidRequest, "The body could not be read.", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge, ok := asTooLarge(err); ok {
		return in, problem.Newf(api.CodePayloadTooLarge, "The body is larger than %d bytes.", tooLarge.Limit)
	}
	if err == nil {
		err = control.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return in, problem.Wrap(api.CodeInvalidRequest, "The body could not be read.", err)
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return in, problem.Wrap(api.CodeInvalidRequest, "The body is not AG-UI's RunAgentInput.", err).At("", "can't be read: "+err.Error())
	}
	return in, in.check()
}

// check holds the request to what the document says of it.
func (in *input) check() error {
	p := problem.New(api.CodeInvalidRequest, "The request is not a RunAgentInput that can be served; see docs/ag-ui.md.")
	identify := func(pointer, id string) {
		if id == "" || len(id) > maxID {
			p = p.At(pointer, fmt.Sprintf("has to have 1 to %d bytes", maxID))
		}
	}
	identify("/threadId", in.ThreadID)
	identify("/runId", in.RunID)
	if major, _, _ := strings.Cut(in.ProtocolVersion, "."); in.ProtocolVersion != "" && major != "1" {
		p = p.At("/protocolVersion", "this server speaks 1.0")
	}
	if len(in.Messages) > maxMessages {
		p = p.At("/messages", fmt.Sprintf("at most %d", maxMessages))
	}
	for i, m := range in.Messages {
		identify(fmt.Sprintf("/messages/%d/id", i), m.ID)
		if m.Role == "" {
			p = p.At(fmt.Sprintf("/messages/%d/role", i), "is missing")
		}
	}
	p = in.checkTools(in.checkResume(p))
	var props struct {
		Holdfast struct {
			Cancel bool `json:"cancel"`
		} `json:"holdfast"`
	}
	// Properties of others may have any shape, which is no error of the request.
	if err := json.Unmarshal(in.ForwardedProps, &props); err == nil {
		in.cancel = props.Holdfast.Cancel
	}
	if len(p.Errors) > 0 {
		return p
	}
	return nil
}

func (in *input) checkTools(p *problem.Error) *problem.Error {
	seen, size := map[string]bool{}, 0
	for i, t := range in.Tools {
		if !toolName.MatchString(t.Name) || seen[t.Name] {
			p = p.At(fmt.Sprintf("/tools/%d/name", i), "has to match "+toolName.String()+" and be unique")
		}
		seen[t.Name] = true
		size += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	if len(in.Tools) > maxTools || size > maxToolsAll {
		p = p.At("/tools", fmt.Sprintf("at most %d tools of %d bytes together", maxTools, maxToolsAll))
	}
	return p
}

func (in *input) checkResume(p *problem.Error) *problem.Error {
	if len(in.Resume) > maxResume {
		p = p.At("/resume", fmt.Sprintf("at most %d answers", maxResume))
	}
	for i, a := range in.Resume {
		at := fmt.Sprintf("/resume/%d", i)
		switch {
		case a.InterruptID == "":
			p = p.At(at+"/interruptId", "is missing")
		case a.Status != statusResolved && a.Status != statusCancelled:
			p = p.At(at+"/status", "has to be resolved or cancelled")
		case a.Status == statusResolved && (a.Payload == nil || a.Payload.Approved == nil):
			p = p.At(at+"/payload", "has to say approved: true or false")
		}
	}
	return p
}
