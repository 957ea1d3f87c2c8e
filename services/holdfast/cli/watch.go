package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

func sessionWatch(o *Options) *cobra.Command {
	var (
		after string
		plain bool
	)
	cmd := &cobra.Command{
		Use: "watch SESSION", Short: "Follow a session live: its state, its timeline, its questions", Args: cobra.ExactArgs(1),
		Long: "Follows a session. In a terminal it is a live view in which questions are answered and messages sent with a key;\n" +
			"with --plain, -o json, or where the output is no terminal, it prints the timeline line by line until the session ends.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			if !plain && o.Output != "json" && term.IsTerminal(int(os.Stdout.Fd())) && term.IsTerminal(int(os.Stdin.Fd())) {
				return watchLive(cmd.Context(), c, args[0], after)
			}
			_, err = follow(cmd.Context(), c, cmd.OutOrStdout(), o, args[0], from{cursor: after}, untilEnded)
			return err
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "only what comes after this cursor")
	cmd.Flags().BoolVar(&plain, "plain", false, "line by line, in a terminal too")
	return cmd
}

// until says after a frame whether to stop following.
type until func(f api.Frame) bool

func untilEnded(f api.Frame) bool { return typeOf(f) == "session.ended" }

// settled says whether an event ends a run or parks it.
func settled(eventType string) bool {
	return eventType == "run.finished" || eventType == "run.failed" || eventType == "run.interrupted"
}

// untilSettled stops when a run is over or waits for somebody.
func untilSettled(f api.Frame) bool {
	t := typeOf(f)
	return settled(t) || t == "session.ended"
}

// untilRun stops when that run is over or waits for somebody; others, which it may
// be queued behind, are shown on the way.
func untilRun(run string) until {
	return func(f api.Frame) bool {
		e := eventOf(f)
		if e.Type == "session.ended" {
			return true
		}
		var v struct {
			RunID string `json:"runId"`
		}
		return settled(e.Type) && json.Unmarshal(e.Data, &v) == nil && v.RunID == run
	}
}

// eventOf reads an event frame; the type is empty for any other.
func eventOf(f api.Frame) api.Event {
	var e api.Event
	if f.Kind != api.FrameKindEvent || json.Unmarshal(f.Data, &e) != nil {
		return api.Event{}
	}
	return e
}

func typeOf(f api.Frame) string { return eventOf(f).Type }

// from is where following begins: after a cursor, or with the first frame that
// names a run. Its zero value is the beginning.
type from struct{ cursor, run string }

// follow prints a session's frames until done says so, and goes on from the last
// cursor when the stream is cut. It gives the last frame.
func follow(
	ctx context.Context, c *apiclient.ClientWithResponses, w io.Writer, o *Options, id string, begin from, done until,
) (last api.Frame, err error) {
	cursor := begin.cursor
	p := &printer{w: w, json: o.Output == "json", hint: o.hint}
	waiting := begin.run != ""
	err = resume(ctx, &cursor, func(cursor string) (*http.Response, error) {
		params := &api.StreamSessionParams{}
		if cursor != "" {
			params.After = &cursor
		}
		return c.StreamSession(ctx, id, params)
	}, func(f api.Frame) bool {
		if waiting = waiting && !names(f, begin.run); waiting {
			return false
		}
		p.frame(f)
		last = f
		return done(f)
	})
	return last, err
}

func followInbox(ctx context.Context, c *apiclient.ClientWithResponses, w io.Writer, o *Options) error {
	cursor := ""
	p := &printer{w: w, json: o.Output == "json", hint: o.hint, inbox: true}
	return resume(ctx, &cursor, func(cursor string) (*http.Response, error) {
		params := &api.StreamInboxParams{}
		if cursor != "" {
			params.After = &cursor
		}
		return c.StreamInbox(ctx, params)
	}, func(f api.Frame) bool {
		p.frame(f)
		return false
	})
}

// resume reads a stream until take says that it is enough, and connects again,
// after the last cursor and with a growing pause, when it is cut.
func resume(ctx context.Context, cursor *string, open func(cursor string) (*http.Response, error), take func(api.Frame) bool) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		resp, err := open(*cursor)
		var refused *api.Error
		if errors.As(err, &refused) && refused.Problem.Status < 500 {
			return err
		}
		if err == nil {
			for f, err := range apiclient.Frames(resp.Body) {
				if err != nil {
					break
				}
				wait = 100 * time.Millisecond
				if f.Cursor != "" {
					*cursor = f.Cursor
				}
				if take(f) {
					return resp.Body.Close()
				}
			}
		}
		pause := time.NewTimer(wait/2 + rand.N(wait)) //nolint:gosec // jitter
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil // the person stopped it
		}
	}
}

// printer words frames for a terminal.
type printer struct {
	w     io.Writer
	json  bool
	inbox bool
	// hint words a command of ours that can be typed here; nil gives none, as in a
	// replay, where nothing is to be answered.
	hint func(args string) string
	open bool // in the middle of an agent's line
}

func (p *printer) frame(f api.Frame) {
	if p.json {
		_ = json.NewEncoder(p.w).Encode(f) //nolint:errchkjson // it came as JSON; whoever closes the pipe wants no more
		return
	}
	switch f.Kind {
	case api.FrameKindAgui:
		p.agui(f)
	case api.FrameKindPrompt:
		p.prompt(f)
	case api.FrameKindEvent:
		p.event(f)
	case api.FrameKindControl:
		p.control(f)
	}
}

func (p *printer) linef(format string, args ...any) {
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// agui prints what the agent writes, as it comes.
func (p *printer) agui(f api.Frame) {
	var batch []struct {
		Type    string          `json:"type"`
		Delta   string          `json:"delta"`
		Message string          `json:"message"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(f.Data, &batch) != nil {
		return
	}
	for _, e := range batch {
		switch e.Type {
		case "TEXT_MESSAGE_CONTENT":
			text := safe(e.Delta)
			fmt.Fprint(p.w, text)
			p.open = !strings.HasSuffix(text, "\n")
		case "RUN_ERROR":
			p.linef("  agent error: %s", safe(e.Message))
		}
	}
}

func (p *printer) prompt(f api.Frame) {
	a, ok := approvalOf(f)
	if !ok {
		return
	}
	if a.State != api.CallStatePending {
		by := ""
		if a.Decision.By != "" {
			by = " by " + a.Decision.By
		}
		if a.Decision.Reason != "" {
			by += fmt.Sprintf(" (%q)", safe(a.Decision.Reason))
		}
		p.linef("%s ● %s%s: %s %s", clock(f.Time), a.State, by, safe(a.Tool), shortened(compact(a.Args), 100))
		return
	}
	p.linef("%s ? a person is asked:", clock(f.Time))
	question(p.w, a)
	if p.hint != nil {
		fmt.Fprintf(p.w, "  answer     %s   (or deny, -c 'why')\n", p.hint("approvals approve "+a.ID))
	}
}

// quiet are the events that a person following along does not miss.
var quiet = map[string]bool{
	"session.activity-noted": true, "run.message-recorded": true, "call.proposed": true, "call.vote-cast": true,
	"workload.claim-requested": true, "call.started": true,
}

func (p *printer) event(f api.Frame) {
	var e api.Event
	if json.Unmarshal(f.Data, &e) != nil || quiet[e.Type] {
		return
	}
	session := ""
	if p.inbox {
		session = f.Session + " "
	}
	p.linef("%s · %s%s%s", clock(f.Time), session, e.Type, detail(e))
}

// detail is what of an event's payload fits behind its name.
func detail(e api.Event) string {
	var v struct {
		Cause     string          `json:"cause"`
		Outcome   string          `json:"outcome"`
		Path      string          `json:"path"`
		Isolation string          `json:"isolation"`
		Decision  string          `json:"decision"`
		Rule      string          `json:"rule"`
		Reason    string          `json:"reason"`
		Code      string          `json:"code"`
		Detail    string          `json:"detail"`
		ExitCode  *int            `json:"exitCode"`
		Content   json.RawMessage `json:"content"`
		Deadline  time.Time       `json:"deadline"`
	}
	if json.Unmarshal(e.Data, &v) != nil {
		return ""
	}
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, safe(s))
		}
	}
	if e.Type == "session.message-received" {
		add(shortened(said(v.Content), 100))
	}
	if e.Type == "call.delegated" {
		add("to the client, until " + clock(v.Deadline))
	}
	add(v.Outcome)
	add(v.Decision)
	if v.Rule != "" {
		add(fmt.Sprintf("by rule %q", v.Rule))
	}
	add(v.Path)
	add(v.Isolation)
	add(v.Code)
	add(v.Cause)
	add(v.Detail)
	add(v.Reason)
	if v.ExitCode != nil {
		add(fmt.Sprintf("exit %d", *v.ExitCode))
	}
	if len(parts) == 0 {
		return ""
	}
	return "  " + strings.Join(parts, ", ")
}

func (p *printer) control(f api.Frame) {
	var c struct {
		Type   string `json:"type"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(f.Data, &c) != nil {
		return
	}
	switch c.Type {
	case "gap":
		p.linef("%s … a part is missing here: %s", clock(f.Time), safe(c.Reason))
	case "replay":
		p.linef("── replay of session %s: history, nothing is decided ──", f.Session)
	case "end":
		p.linef("── end ──")
	}
}

// said is a message's content on one line.
func said(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) != nil {
		return compact(content)
	}
	return strings.ReplaceAll(text, "\n", " ⏎ ")
}

// names says whether a frame is about a run.
func names(f api.Frame, run string) bool { return strings.Contains(string(f.Data), run) }

// indent sets the following lines of a text under its first.
func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n    ") }
