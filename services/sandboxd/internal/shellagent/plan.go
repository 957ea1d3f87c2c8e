package shellagent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// maxMessageBytes bounds a message: what remains of it must fit into one event.
const maxMessageBytes = 64 << 10

var (
	// errStale marks a resume that answers no question of this state.
	errStale = errors.New("the answer fits no open question")
	// errInput marks an input that can't be worked on.
	errInput = errors.New("invalid input")
)

// state is what the agent keeps between runs, as AG-UI's shared state.
type state struct {
	Shell plan `json:"shell"`
}

// plan is what is left to do of one message, and where.
type plan struct {
	// Run is the run that the message started; the ids of its calls come from it.
	Run string `json:"run,omitempty"`
	// Lines are the commands that are left, Position the index of the first of them.
	Lines    []string `json:"lines,omitempty"`
	Position int      `json:"position,omitempty"`
	// Waiting is the question that the first line waits for.
	Waiting *question `json:"waiting,omitempty"`
	// Dir is the working directory, Env what commands exported; both outlive messages.
	Dir string            `json:"dir,omitempty"`
	Env map[string]string `json:"env,omitempty"`
}

// question is a call that people are asked about.
type question struct {
	Call     string `json:"call"`
	ArgsHash string `json:"argsHash"`
}

// What is said of a line that was left out.
const (
	saidDenied = "denied"
	saidNotRun = "not run"
)

// answer is what a resume says to a question.
type answer struct {
	question
	approved bool
	// how says what became of it otherwise, and reason why, in the words of
	// whoever answered.
	how, reason string
}

// newPlan reads what a run has to do: to go on where a question stopped it
// (then with the answer), or to begin with the last message.
func newPlan(in agui.RunInput) (plan, *answer, error) {
	var st state
	if len(in.State) > 0 {
		// Foreign state is no fault of the message: begin with none.
		if err := json.Unmarshal(in.State, &st); err != nil {
			st = state{}
		}
	}
	p := st.Shell
	if len(in.Resume) == 0 {
		fresh, err := freshPlan(in)
		fresh.Dir, fresh.Env = p.Dir, p.Env
		return fresh, nil, err
	}
	if p.Waiting == nil || len(p.Lines) == 0 || p.Run == "" {
		return plan{}, nil, errStale
	}
	for _, r := range in.Resume {
		if r.InterruptID == p.Waiting.Call {
			a, err := readAnswer(r)
			a.question = *p.Waiting
			p.Waiting = nil
			return p, &a, err
		}
	}
	return plan{}, nil, errStale
}

// freshPlan makes each line of the last user message a command.
func freshPlan(in agui.RunInput) (plan, error) {
	p := plan{Run: in.RunID}
	for _, m := range slices.Backward(in.Messages) {
		if m.Role != "user" {
			continue
		}
		text, err := m.Text()
		if err != nil {
			return p, fmt.Errorf("%w: %w", errInput, err)
		}
		if len(text) > maxMessageBytes {
			return p, fmt.Errorf("%w: a message of more than %d bytes", errInput, maxMessageBytes)
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				p.Lines = append(p.Lines, line)
			}
		}
		return p, nil
	}
	return p, nil
}

// readAnswer reads one resume. Edited arguments would be another call with
// another hash, which nobody has decided on: they are not run.
func readAnswer(r agui.Resume) (answer, error) {
	var payload struct {
		Approved   bool            `json:"approved"`
		Reason     string          `json:"reason"`
		Comment    string          `json:"comment"`
		EditedArgs json.RawMessage `json:"editedArgs"`
	}
	if len(r.Payload) > 0 {
		if err := json.Unmarshal(r.Payload, &payload); err != nil {
			return answer{}, fmt.Errorf("%w: the payload of the answer: %w", errInput, err)
		}
	}
	reason := payload.Reason
	if reason == "" {
		reason = payload.Comment
	}
	switch {
	case r.Status == agui.ResumeCancelled && reason == "":
		return answer{how: saidNotRun, reason: "the question ended without an answer"}, nil
	case r.Status == agui.ResumeCancelled:
		return answer{how: saidNotRun, reason: reason}, nil
	case r.Status != agui.ResumeResolved:
		return answer{}, fmt.Errorf("%w: an answer that is %.64q", errInput, r.Status)
	case payload.Approved && len(payload.EditedArgs) > 0:
		return answer{how: saidNotRun, reason: "edited arguments need a decision of their own"}, nil
	}
	return answer{approved: payload.Approved, how: saidDenied, reason: reason}, nil
}

// callID names the first line's call, the same in every run that continues it.
func (p plan) callID() string {
	sum := sha256.Sum256([]byte(p.Run + "/" + strconv.Itoa(p.Position)))
	return "sh-" + hex.EncodeToString(sum[:10])
}

// next leaves the first line behind.
func (p plan) next() plan {
	p.Lines = p.Lines[1:]
	p.Position++
	return p
}

// snapshot is the state to keep. Without lines only the surroundings are left.
func (p plan) snapshot() state {
	if len(p.Lines) == 0 {
		p = plan{Dir: p.Dir, Env: p.Env}
	}
	return state{Shell: p}
}
