// Command agent is an agent for Holdfast that calls it (adapter push): it fetches the
// input of a run, and sends its events in numbered batches. A static binary with
// nothing but Go's standard library.
//
// It keeps notes. Say to it
//
//	note buy milk          it asks Holdfast whether it may, parks while a person thinks,
//	                       and goes on in a new run once there is an answer
//	hold note buy milk     the same, but it waits in the middle of its run
//	show                   the notes so far
//	count 50               counts, so that there is something to cancel
//	config                 the session's own config
//	anything else          it says it back
//
// Try it against `holdfast dev`:
//
//	(cd examples/go && CGO_ENABLED=0 GOWORK=off go build -o agent .)
//	holdfast policy apply -f examples/policy.yaml
//	holdfast runtime apply -f examples/go/runtime.yaml
//	holdfast session create notes-go -m 'note call the plumber on Monday' -w
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := holdfast{base: os.Getenv("HOLDFAST_URL") + "/v1/agent"}
	for ctx.Err() == nil {
		in, err := h.input(ctx)
		if err != nil {
			log.Printf("no input, asking again: %v", err)
			continue
		}
		if in == nil {
			continue // nobody said anything for a while
		}
		serve(ctx, h, *in)
	}
}

// serve does one run. Its context ends when the run isn't wanted any more.
func serve(ctx context.Context, h holdfast, in input) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		h.awaitEnd(ctx, in.RunID)
	}()
	r := &run{h: h, in: in}
	err := r.work(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	log.Printf("run %s: %v", in.RunID, err)
	var refused *problem
	code := "failed"
	if errors.As(err, &refused) {
		code = "refused"
	}
	if err := r.say(ctx, event{"type": "RUN_ERROR", "code": code, "message": err.Error()}); err != nil {
		log.Printf("run %s: its end wasn't taken: %v", in.RunID, err)
	}
}
