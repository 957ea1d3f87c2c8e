package eventlogtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// order is one command of a random history, which several goroutines of both
// stores may send.
type order struct {
	id     string
	store  int
	amount int // negative takes
}

// answer is what came back of it.
type answer struct {
	order
	res eventlog.Result
	err error
}

// testConcurrent holds the log to the design's first two invariants under random
// concurrent commands: one chain, each command at most once, and an answer of
// success names the stored envelope while a refused command is not stored.
func testConcurrent(t *testing.T, h Harness) {
	a, b := h.Open(t)
	logs := []eventlog.Log{a, b}
	for i := range h.Checks {
		subject := freshSubject()
		orders := orderGen.Example(i)
		var answers []answer
		results := make(chan answer, len(orders))
		stores := []*eventlog.Store[*ledger]{newStore(a), newStore(b)}
		var g errgroup.Group
		ctx := bounded(t)
		for _, o := range orders {
			g.Go(func() error {
				decide := put(o.amount)
				if o.amount < 0 {
					decide = take(-o.amount)
				}
				res, err := stores[o.store].Execute(ctx, subject, command(o.id), decide)
				if err != nil && !errors.Is(err, errTooLittle) {
					return fmt.Errorf("%+v: %w", o, err)
				}
				results <- answer{o, res, err}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("history %d: %v", i, err)
		}
		close(results)
		for r := range results {
			answers = append(answers, r)
		}
		if err := judge(ctx, logs[i%2], subject, answers); err != nil {
			t.Fatalf("history %d: %v\norders: %+v", i, err, orders)
		}
	}
}

// orderGen draws up to 24 commands over 8 ids, so that ids repeat, also between
// the stores.
var orderGen = rapid.Custom(func(rt *rapid.T) []order {
	amounts := map[string]int{}
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) order {
		o := order{
			id:     fmt.Sprintf("c%d", rapid.IntRange(1, 8).Draw(rt, "id")),
			store:  rapid.IntRange(0, 1).Draw(rt, "store"),
			amount: rapid.IntRange(1, 9).Draw(rt, "amount"),
		}
		if rapid.Bool().Draw(rt, "takes") {
			o.amount = -o.amount
		}
		if first, ok := amounts[o.id]; ok {
			o.amount = first // the same id is the same command
		}
		amounts[o.id] = o.amount
		return o
	}), 2, 24).Draw(rt, "orders")
})

// judge reads the subject back along prev and compares it with the answers.
func judge(ctx context.Context, log eventlog.Log, subject string, answers []answer) error {
	stored, err := chain(ctx, log, subject)
	if err != nil {
		return err
	}
	byID := map[string]events.Message{}
	sum := 0
	for _, m := range stored {
		if _, twice := byID[m.Envelope.Command]; twice {
			return fmt.Errorf("command %s is stored twice", m.Envelope.Command)
		}
		byID[m.Envelope.Command] = m
		l := newLedger()
		if err := l.Apply(m); err != nil {
			return err
		}
		if sum += l.Balance; sum < 0 {
			return fmt.Errorf("below zero at n %d: decided on an outdated state", m.Envelope.N)
		}
	}
	succeeded := map[string]bool{}
	for _, a := range answers {
		m, ok := byID[a.id]
		switch {
		case a.err != nil:
		case !ok:
			return fmt.Errorf("command %s was answered with success but isn't stored", a.id)
		case m.Seq != a.res.Seq || m.Envelope.LastN() != a.res.N:
			return fmt.Errorf("command %s was answered with %+v but stands at %d", a.id, a.res, m.Seq)
		default:
			succeeded[a.id] = true
		}
	}
	for id := range byID {
		if !succeeded[id] {
			return fmt.Errorf("command %s was only ever refused, but is stored", id)
		}
	}
	return nil
}

// chain reads a subject's messages along prev, first to last.
func chain(ctx context.Context, log eventlog.Log, subject string) ([]events.Message, error) {
	last, ok, err := log.Last(ctx, subject)
	if err != nil || !ok {
		return nil, err
	}
	ms := []events.Message{last}
	for ms[0].Envelope.Prev != 0 {
		m, err := log.Get(ctx, ms[0].Envelope.Prev)
		if err != nil {
			return nil, err
		}
		if m.Envelope.LastN()+1 != ms[0].Envelope.N || m.Seq >= ms[0].Seq || m.Subject != subject {
			return nil, fmt.Errorf("n %d at %d does not follow n %d at %d", ms[0].Envelope.N, ms[0].Seq, m.Envelope.LastN(), m.Seq)
		}
		ms = append([]events.Message{m}, ms...)
	}
	if ms[0].Envelope.N != 1 {
		return nil, fmt.Errorf("the chain begins with n %d", ms[0].Envelope.N)
	}
	return ms, nil
}

// CheckChain reads a subject back along prev and says whether it is one chain of
// so many messages, each command once.
func CheckChain(ctx context.Context, log eventlog.Log, subject string, want int) error {
	ms, err := chain(ctx, log, subject)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	seen := map[string]bool{}
	for _, m := range ms {
		if seen[m.Envelope.Command] {
			return fmt.Errorf("%s: command %s is stored twice", subject, m.Envelope.Command)
		}
		seen[m.Envelope.Command] = true
	}
	if len(ms) != want {
		return fmt.Errorf("%s: %d messages, want %d", subject, len(ms), want)
	}
	return nil
}
