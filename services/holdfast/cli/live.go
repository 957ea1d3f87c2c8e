package cli

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

const (
	// keptLines bound what the live view holds of a timeline: the whole is in
	// `holdfast replay`.
	keptLines = 5000
	// takenAtOnce bounds how many frames are drawn together, so that a long history
	// is drawn in a few steps and keys still answer meanwhile.
	takenAtOnce = 500
	// behind is how long to wait before the session is read again while its view
	// hasn't reached the timeline.
	behind = 100 * time.Millisecond
)

// live is a session in a terminal: its state above, its timeline that follows,
// and below what waits for a person, to be answered with a key.
//
// It only reads frames and calls the API, as a person would: what it shows as
// state is what GET /v1/sessions/{id} says, asked again whenever an event came.
type live struct {
	act    actions
	frames <-chan api.Frame

	session *api.Session
	// n is the newest event that was shown; reading says that the session is being
	// read, again that it has to be once more.
	n              api.N
	reading, again bool

	said     *transcript
	open     []api.Approval // pending, oldest first
	chosen   int
	mode     mode
	note     string // the last action's outcome
	timeline viewport.Model
	question viewport.Model
	input    textinput.Model
	width    int
	height   int
}

// mode is what keys mean now.
type mode int

const (
	following mode = iota
	approving
	denying
	writing
)

// actions are what the live view may do: calls of the API, each to its end.
type actions struct {
	ctx     context.Context //nolint:containedctx // the program's own: a key starts a call outside any request
	client  *apiclient.ClientWithResponses
	session string
}

type (
	framesMsg  []api.Frame
	sessionMsg struct {
		session *api.Session
		err     error
	}
	doneMsg struct {
		what string
		err  error
	}
	rereadMsg struct{}
	tickMsg   struct{}
)

// watchLive runs the live view on a terminal until the person leaves it.
func watchLive(ctx context.Context, c *apiclient.ClientWithResponses, id, after string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	frames := make(chan api.Frame, takenAtOnce)
	failed := make(chan error, 1)
	m := newLive(actions{ctx: ctx, client: c, session: id}, frames)
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler()) // main's own handler ends ctx
	go func() {
		cursor := after
		err := resume(ctx, &cursor, func(cursor string) (*http.Response, error) {
			params := &api.StreamSessionParams{}
			set(&params.After, cursor)
			return c.StreamSession(ctx, id, params)
		}, func(f api.Frame) bool {
			select {
			case frames <- f:
			case <-ctx.Done():
				return true
			}
			return false
		})
		failed <- err
		if err != nil {
			p.Quit()
		}
	}()
	_, err := p.Run()
	stop()
	if refused := <-failed; refused != nil {
		return refused
	}
	return err
}

func newLive(act actions, frames <-chan api.Frame) *live {
	m := &live{act: act, frames: frames, said: &transcript{}}
	m.timeline, m.question = viewport.New(), viewport.New()
	m.timeline.SoftWrap, m.question.SoftWrap = true, true
	m.input = textinput.New()
	m.input.Prompt = "› "
	return m
}

// Init implements tea.Model.
func (m *live) Init() tea.Cmd {
	m.reading = true
	return tea.Batch(m.next, m.act.read, tick())
}

// tick redraws what counts down.
func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// next waits for a frame and takes those that are there already along.
func (m *live) next() tea.Msg {
	var taken framesMsg
	select {
	case f := <-m.frames:
		taken = append(taken, f)
	case <-m.act.ctx.Done():
		return nil
	}
	for len(taken) < takenAtOnce {
		select {
		case f := <-m.frames:
			taken = append(taken, f)
		default:
			return taken
		}
	}
	return taken
}

// Update implements tea.Model.
func (m *live) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		return m, tick()
	case framesMsg:
		return m, m.take(msg)
	case sessionMsg:
		return m, m.refresh(msg)
	case rereadMsg:
		return m, m.reread()
	case doneMsg:
		m.note = msg.what
		if msg.err != nil {
			m.note = "✗ " + strings.ReplaceAll(Explain(msg.err), "\n", " ")
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	default:
		return m, m.edit(msg)
	}
	return m, nil
}

// take words frames and keeps what waits for a person.
func (m *live) take(frames framesMsg) tea.Cmd {
	p := &printer{w: m.said, open: m.said.open()}
	stale := false
	for _, f := range frames {
		if f.Kind == api.FrameKindPrompt {
			m.prompt(f)
		}
		if f.N > m.n {
			m.n, stale = f.N, true
		}
		p.frame(f)
	}
	m.said.cut(keptLines)
	follow := m.timeline.AtBottom()
	m.timeline.SetContentLines(m.said.lines)
	if follow {
		m.timeline.GotoBottom()
	}
	if !stale {
		return m.next
	}
	return tea.Batch(m.next, m.reread())
}

// prompt keeps the questions that are open, each as it is now.
func (m *live) prompt(f api.Frame) {
	a, ok := approvalOf(f)
	if !ok {
		return
	}
	i := slices.IndexFunc(m.open, func(o api.Approval) bool { return o.ID == a.ID })
	switch {
	case a.State != api.CallStatePending && i >= 0:
		m.open = slices.Delete(m.open, i, i+1)
		if (m.mode == approving || m.mode == denying) && m.chosen == i {
			m.note = "it is " + string(a.State) + " already"
			m.leave()
		}
		if m.chosen > i || m.chosen >= len(m.open) {
			m.chosen = max(0, m.chosen-1)
		}
	case a.State == api.CallStatePending && i >= 0:
		m.open[i] = a
	case a.State == api.CallStatePending:
		m.open = append(m.open, a)
	}
}

// reread asks for the session, unless it is being asked for.
func (m *live) reread() tea.Cmd {
	if m.reading {
		m.again = true
		return nil
	}
	m.reading = true
	return m.act.read
}

func (m *live) refresh(msg sessionMsg) tea.Cmd {
	m.reading = false
	again := m.again
	m.again = false
	if msg.err != nil {
		m.note = "✗ " + Explain(msg.err)
	} else if m.session == nil || msg.session.N >= m.session.N {
		m.session = msg.session
	}
	if again || m.session != nil && m.session.N < m.n {
		return tea.Tick(behind, func(time.Time) tea.Msg { return rereadMsg{} })
	}
	return nil
}

// leave goes back to following.
func (m *live) leave() {
	m.mode = following
	m.input.Reset()
	m.input.Blur()
}

// key does what a key says.
func (m *live) key(k tea.KeyPressMsg) tea.Cmd {
	if k.String() == "ctrl+c" {
		return tea.Quit
	}
	if m.mode != following {
		return m.compose(k)
	}
	m.note = ""
	switch k.String() {
	case "q":
		return tea.Quit
	case "a":
		return m.enter(approving)
	case "d":
		return m.enter(denying)
	case "m":
		return m.enter(writing)
	case "tab":
		if len(m.open) > 0 {
			m.chosen = (m.chosen + 1) % len(m.open)
		}
	case "s":
		return m.act.move("suspending", m.act.suspend)
	case "r":
		return m.act.move("resuming", m.act.resume)
	case "x":
		if m.session == nil || m.session.Run == "" {
			m.note = "there is no open run to cancel"
			return nil
		}
		return m.act.move("cancelling", m.act.cancel(m.session.Run))
	case "end", "G":
		m.timeline.GotoBottom()
	case "home", "g":
		m.timeline.GotoTop()
	default:
		var cmd tea.Cmd
		m.timeline, cmd = m.timeline.Update(k)
		return cmd
	}
	return nil
}

// enter begins an answer or a message.
func (m *live) enter(to mode) tea.Cmd {
	if to != writing && len(m.open) == 0 {
		m.note = "nothing waits for an answer"
		return nil
	}
	m.mode = to
	m.input.Placeholder = map[mode]string{
		approving: "comment, if you like", denying: "why, if you like", writing: "message to the agent",
	}[to]
	if to != writing {
		var whole strings.Builder
		question(&whole, m.open[m.chosen])
		m.question.SetContent(whole.String())
		m.question.GotoTop()
	}
	return m.input.Focus()
}

// compose is a key while something is being written.
func (m *live) compose(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "esc":
		m.leave()
		return nil
	case "pgup", "pgdown", "up", "down":
		if m.mode == writing {
			return nil
		}
		var cmd tea.Cmd
		m.question, cmd = m.question.Update(k)
		return cmd
	case "enter":
		return m.commit()
	}
	return m.edit(k)
}

// commit carries out what was written.
func (m *live) commit() tea.Cmd {
	text, mode := m.input.Value(), m.mode
	switch mode {
	case writing:
		if text == "" {
			return nil
		}
		m.leave()
		return m.act.send(text)
	case approving, denying:
		a := m.open[m.chosen]
		m.leave()
		decision := api.AnswerApprove
		if mode == denying {
			decision = api.AnswerDeny
		}
		return m.act.decide(a, decision, text)
	case following:
	}
	return nil
}

// edit hands a message to what is being written.
func (m *live) edit(msg tea.Msg) tea.Cmd {
	if m.mode == following {
		return nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	return cmd
}
