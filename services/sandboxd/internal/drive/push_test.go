package drive

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pushing is a driver of an agent that pushes, which a test plays.
type pushing struct {
	*fixture
	push *Push
}

func newPushing(t *testing.T) pushing {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), died: make(chan struct{})}
	push := NewPush(PushConfig{
		WaitReady: func(context.Context) (Target, error) {
			return Target{Done: f.died, Exit: func() string { return "was killed by a test" }}, nil
		},
		ReadyWait: 10 * time.Second, CancelGrace: time.Millisecond,
	})
	f.driver = f.open(push)
	return pushing{f, push}
}

// start starts a run and fetches its input, as the agent does.
func (p pushing) start(run string) {
	p.t.Helper()
	_, err := p.driver.Start(request(run))
	must(p.t, err)
	if got := p.push.Input(p.t.Context()); string(got) != string(request(run).Input) {
		p.t.Fatalf("the input is %s", got)
	}
}

func events(list ...string) []json.RawMessage {
	raw := make([]json.RawMessage, len(list))
	for i, e := range list {
		raw[i] = json.RawMessage(e)
	}
	return raw
}

// Whatever batches an agent sends again, and however they overlap, each event is
// spooled once and in order.
func TestPushedOnce(t *testing.T) {
	said := []string{runStarted, textStart}
	for range 10 {
		said = append(said, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`)
	}
	said = append(said, textEnd, runEnded)
	all := events(said...)
	rapid.Check(t, func(r *rapid.T) {
		p := newPushing(t)
		p.start("r-1")
		for taken := uint64(0); taken < uint64(len(all)); {
			from := rapid.Uint64Range(1, taken+1).Draw(r, "from")
			to := rapid.Uint64Range(from, uint64(len(all))).Draw(r, "to")
			last, err := p.push.Events("r-1", from, all[from-1:to])
			if err != nil || last != max(taken, to) {
				r.Fatalf("events %d to %d after %d: %d, %v", from, to, taken, last, err)
			}
			taken = last
		}
		got, end := whole(t, p.driver, "r-1")
		if !slices.Equal(got, said) || end.Outcome != "success" {
			r.Fatalf("%d events, %+v", len(got), end)
		}
		p.driver.Stop()
	})
}

func TestPushRefuses(t *testing.T) {
	p := newPushing(t)
	if _, err := p.push.Events("r-1", 1, events(runStarted)); !errors.Is(err, ErrRunOver) {
		t.Errorf("a run that never was: %v", err)
	}
	p.start("r-1")
	if last, err := p.push.Events("r-1", 2, events(textStart)); !errors.Is(err, ErrGap) || last != 0 {
		t.Errorf("a gap: %d, %v", last, err)
	}
	if _, err := p.push.Events("r-2", 1, events(runStarted)); !errors.Is(err, ErrRunOver) {
		t.Errorf("another run: %v", err)
	}
	ended := events(runStarted, runEnded)
	for range 2 { // the second time as after an answer that was lost
		if last, err := p.push.Events("r-1", 1, ended); err != nil || last != 2 {
			t.Errorf("the whole run: %d, %v", last, err)
		}
	}
	whole(t, p.driver, "r-1")
	if last, err := p.push.Events("r-1", 2, ended[1:]); err != nil || last != 2 {
		t.Errorf("its end again: %d, %v", last, err)
	}
	if _, err := p.push.Events("r-1", 3, events(textStart)); !errors.Is(err, ErrRunOver) {
		t.Errorf("more after the end: %v", err)
	}
}

// TestPushBreaksTheProtocol: what came before the fault is kept, and the agent hears why.
func TestPushBreaksTheProtocol(t *testing.T) {
	p := newPushing(t)
	p.start("r-1")
	last, err := p.push.Events("r-1", 1, events(runStarted, textEnd, textStart))
	if last != 1 || !errors.Is(err, ErrBroke) || !strings.Contains(err.Error(), "event 2, TEXT_MESSAGE_END") {
		t.Errorf("taken %d, %v", last, err)
	}
	got, end := whole(t, p.driver, "r-1")
	if len(got) != 2 || end.Outcome != "error" || !strings.Contains(end.Reason, "(not-open)") {
		t.Errorf("%q, %+v", got, end)
	}
	p.start("r-2") // and the next run works
	if _, err := p.push.Events("r-2", 1, events(strings.ReplaceAll(runStarted, "r-1", "r-2"), strings.ReplaceAll(runEnded, "r-1", "r-2"))); err != nil {
		t.Error(err)
	}
	whole(t, p.driver, "r-2")
}

// TestPushCancelled: who waits for the run's end hears of a cancel, and nothing more is
// taken.
func TestPushCancelled(t *testing.T) {
	p := newPushing(t)
	p.start("r-1")
	_, err := p.push.Events("r-1", 1, events(runStarted, textStart))
	must(t, err)
	open := make(chan bool)
	go func() { open <- p.push.Await(t.Context(), "r-1") }()
	must(t, p.driver.Cancel("r-1"))
	if <-open {
		t.Error("the run is said to be open")
	}
	if _, err := p.push.Events("r-1", 3, events(textEnd)); !errors.Is(err, ErrRunOver) {
		t.Errorf("after the cancel: %v", err)
	}
	if got, end := whole(t, p.driver, "r-1"); end.Outcome != "cancelled" || len(got) != 4 {
		t.Errorf("%q, %+v", got, end)
	}
}

// TestPushWaits: an agent that asks waits for a run, and tells by it that it is there.
func TestPushWaits(t *testing.T) {
	p := newPushing(t)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if p.push.AwaitAgent(short) {
		t.Error("an agent is said to be there")
	}
	if in := p.push.Input(short); in != nil {
		t.Errorf("an input from nowhere: %s", in)
	}
	input := make(chan json.RawMessage)
	go func() { input <- p.push.Input(t.Context()) }()
	if !p.push.AwaitAgent(t.Context()) {
		t.Error("nobody is there")
	}
	_, err := p.driver.Start(request("r-1"))
	must(t, err)
	if got := <-input; string(got) != string(request("r-1").Input) {
		t.Errorf("the input is %s", got)
	}
	if !p.push.Await(short, "r-1") {
		t.Error("the run isn't said to be open")
	}
	close(p.died)
	if _, end := whole(t, p.driver, "r-1"); !strings.Contains(end.Reason, "was killed by a test") {
		t.Errorf("%+v", end)
	}
}

func TestPushNeverFetched(t *testing.T) {
	p := newPushing(t)
	p.push.cfg.ReadyWait = time.Millisecond
	_, err := p.driver.Start(request("r-1"))
	must(t, err)
	if _, end := whole(t, p.driver, "r-1"); !strings.Contains(end.Reason, "didn't fetch the input") {
		t.Errorf("%+v", end)
	}
}
