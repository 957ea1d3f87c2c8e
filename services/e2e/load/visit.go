package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
)

// What is timed.
const (
	commands = "commands (POST until answered)"
	ready    = "create until ready"
	turn     = "message until its run has finished"
	prompt   = "message until its prompt is seen"
	answer   = "approval until its run has finished"
	ending   = "terminate until ended"
)

// timed lists them in the order of a report.
var timed = []string{commands, ready, turn, prompt, answer, ending}

// commandsEach is how many commands a visit sends.
const commandsEach = 5

// patience is how long a visit may take.
const patience = time.Minute

// visitors are those who use the server.
type visitors struct {
	alice, bob *apiclient.ClientWithResponses
}

func newVisitors(url, dataDir string) (*visitors, error) {
	var v visitors
	for name, client := range map[string]**apiclient.ClientWithResponses{"alice": &v.alice, "bob": &v.bob} {
		token, err := cli.TokenOf(dataDir, name)
		if err != nil {
			return nil, err
		}
		if *client, err = apiclient.New(apiclient.Config{URL: url, Token: token}); err != nil {
			return nil, err
		}
	}
	return &v, nil
}

// step begins visits at a rate for so long, waits for all of them, and gives what they
// saw. watch, if set, is called every few seconds meanwhile.
func (v *visitors) step(ctx context.Context, rate float64, length time.Duration, watch func()) (*seen, error) {
	s := &seen{rate: rate, length: length, times: map[string]series{}}
	every := time.Duration(float64(time.Second) / rate)
	var visits sync.WaitGroup
	begin := time.Now()
	next, watched := begin, begin
	for ctx.Err() == nil && next.Sub(begin) < length {
		pause := time.NewTimer(time.Until(next))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
		at := next
		visits.Go(func() {
			one, cancel := context.WithDeadline(ctx, at.Add(patience))
			defer cancel()
			s.count(v.visit(one, at, s))
		})
		next = next.Add(every)
		if watch != nil && time.Since(watched) > sampleEvery {
			watched = time.Now()
			watch()
		}
	}
	visits.Wait()
	return s, ctx.Err()
}

// visit is one session's life, which was to begin at a time.
func (v *visitors) visit(ctx context.Context, at time.Time, s *seen) (err error) {
	made, err := v.alice.CreateSessionWithResponse(ctx, nil, api.CreateSession{Runtime: "shell", Labels: api.Labels{"load": "yes"}})
	s.took(commands, time.Since(at))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	id := made.JSON201.ID
	stream, err := v.alice.StreamSession(ctx, id, nil)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	l := newLooking(stream.Body)
	defer l.stop()
	if _, err := l.until(event("workload.ready")); err != nil {
		return err
	}
	s.took(ready, time.Since(at))

	begin, err := s.command(func() error { return v.say(ctx, id, "echo hello") })
	if err != nil {
		return err
	}
	if _, err := l.until(event("run.finished")); err != nil {
		return err
	}
	s.took(turn, time.Since(begin))

	if begin, err = s.command(func() error { return v.say(ctx, id, "touch made-by-the-load") }); err != nil {
		return err
	}
	asked, err := l.until(func(f api.Frame) bool { return f.Kind == api.FrameKindPrompt })
	if err != nil {
		return err
	}
	s.took(prompt, time.Since(begin))
	var question api.Approval
	if err := json.Unmarshal(asked.Data, &question); err != nil {
		return err
	}
	begin, err = s.command(func() error {
		_, err := v.bob.DecideApprovalWithResponse(ctx, question.ID, nil, api.DecideApproval{Decision: api.AnswerApprove, ArgsHash: question.ArgsHash})
		return err
	})
	if err != nil {
		return err
	}
	if _, err := l.until(event("run.finished")); err != nil {
		return err
	}
	s.took(answer, time.Since(begin))

	begin, err = s.command(func() error {
		_, err := v.alice.TerminateSessionWithResponse(ctx, id, nil, api.TerminateSession{})
		return err
	})
	if err != nil {
		return err
	}
	if _, err := l.until(event("session.ended")); err != nil {
		return err
	}
	s.took(ending, time.Since(begin))
	return nil
}

func (v *visitors) say(ctx context.Context, id, text string) error {
	_, err := v.alice.SendMessageWithResponse(ctx, id, nil, api.SendMessage{Content: text})
	return err
}

// event is a frame of that type of event.
func event(kind string) func(api.Frame) bool {
	return func(f api.Frame) bool {
		var e struct {
			Type string `json:"type"`
		}
		return f.Kind == api.FrameKindEvent && json.Unmarshal(f.Data, &e) == nil && e.Type == kind
	}
}

var errCut = errors.New("the stream ended before it came")
