package eventlogtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

func testCacheAhead(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	subject := freshSubject()
	log := &restored{Log: a, last: 1 << 62}
	s := newStore(log)
	first := execute(t, s, subject, "c1", put(1))
	execute(t, s, subject, "c2", put(10))
	log.last = first.Seq // as of now, it was restored to before c2

	// c2 isn't done in this log, whatever the cache says.
	if res, err := s.Execute(bounded(t), subject, command("c2"), take(5)); !errors.Is(err, errTooLittle) {
		t.Errorf("a command that the log has lost: %+v, %v; want it decided on what is left", res, err)
	}
	if amount, n := balance(t, s, subject); amount != 1 || n != 1 {
		t.Errorf("balance %d at n %d; want 1 at 1, as the log has it", amount, n)
	}
	log.last = first.Seq - 1
	if amount, n := balance(t, s, subject); amount != 0 || n != 0 {
		t.Errorf("balance %d at n %d; want none", amount, n)
	}
}

func testCopy(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	subject, other := freshSubject(), freshSubject()
	writer := newStore(a)
	ms := fill(t, a, writer, subject, 1, 2, 3, 4)
	foreign := fill(t, a, writer, other, 100, 200, 300, 400)
	altered := slices.Clone(ms)
	altered[3].Envelope.Command, altered[3].Envelope.Events = "c9", []events.Record{record(typePut, 1000)}

	for _, c := range []struct {
		name   string
		copied []events.Message
		err    error
		log    eventlog.Log
		// gets is how many messages are read beside the last one, of four.
		gets          int64
		wantN, amount int
	}{
		{name: "complete", copied: ms, gets: 0, wantN: 4, amount: 10},
		{name: "lags by one", copied: ms[:3], gets: 0, wantN: 4, amount: 10},
		{name: "lags by two", copied: ms[:2], gets: 1, wantN: 4, amount: 10},
		{name: "empty", gets: 3, wantN: 4, amount: 10},
		{name: "can't be read", copied: ms, err: errors.New("down"), gets: 3, wantN: 4, amount: 10},
		{name: "is ahead of the log", copied: ms, log: restored{a, ms[2].Seq}, gets: 0, wantN: 3, amount: 6},
		{name: "is of another subject", copied: foreign, gets: 3, wantN: 4, amount: 10},
		{name: "is of another log, with the same sequences", copied: altered, gets: 3, wantN: 4, amount: 10},
		{name: "is of another log, with sequences of its own", copied: shifted(ms[:2]), gets: 3 + 2, wantN: 4, amount: 10},
		{name: "has a hole", copied: []events.Message{ms[0], ms[2], ms[3]}, gets: 3, wantN: 4, amount: 10},
		{name: "can't be folded", copied: []events.Message{{Subject: subject, Seq: ms[0].Seq, Envelope: envelope("c1", 1, 0, record("melted", 1))}}, gets: 3, wantN: 4, amount: 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.log == nil {
				c.log = a
			}
			counted, copied := &faulty{Log: c.log}, &copyOf{messages: c.copied, err: c.err}
			s := newStore(counted, func(cfg *eventlog.Config[*ledger]) { cfg.Copy = copied })
			amount, n := balance(t, s, subject)
			if amount != c.amount || n != uint64(c.wantN) {
				t.Errorf("balance %d at n %d, want %d at %d", amount, n, c.amount, c.wantN)
			}
			if got := counted.gets.Load(); got != c.gets || counted.lasts.Load() != 1 || copied.asked != 1 {
				t.Errorf("%d messages walked, %d leader reads, copy asked %d times; want %d, 1, 1", got, counted.lasts.Load(), copied.asked, c.gets)
			}
			// From the cache from now on.
			balance(t, s, subject)
			if copied.asked != 1 || counted.gets.Load() != c.gets {
				t.Errorf("the second read did not come from the cache")
			}
		})
	}
}

// fill puts amounts by one command each and gives the messages.
func fill(t *testing.T, log eventlog.Log, s *eventlog.Store[*ledger], subject string, amounts ...int) []events.Message {
	t.Helper()
	ms := make([]events.Message, 0, len(amounts))
	for i, amount := range amounts {
		res := execute(t, s, subject, "c"+string(rune('1'+i)), put(amount))
		m, err := log.Get(bounded(t), res.Seq)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	return ms
}

// shifted is the messages under sequences that this subject doesn't have.
func shifted(ms []events.Message) []events.Message {
	out := slices.Clone(ms)
	for i := range out {
		out[i].Seq--
		if out[i].Envelope.Prev != 0 {
			out[i].Envelope.Prev--
		}
	}
	return out
}

func testFollower(t *testing.T, h Harness) {
	a, b := h.Open(t)
	s, subject, other := newStore(a), freshSubject(), freshSubject()
	ms := fill(t, a, s, subject, 1, 2, 3, 4)
	theirs := fill(t, a, s, other, 10)
	counted := &faulty{Log: b}
	follow := eventlog.NewFollower(eventlog.Config[*ledger]{Log: counted, New: newLedger})
	for _, step := range []struct {
		what    string
		m       events.Message
		balance int
		cached  bool
		gets    int64
	}{
		{"a subject met in its middle is loaded", ms[1], 3, false, 1},
		{"the next costs no read", ms[2], 6, true, 0},
		{"another subject's first costs none", theirs[0], 10, true, 0},
		{"a repeated message has the state as of then", ms[1], 3, false, 1},
		{"one that was passed over is loaded", ms[3], 10, false, 3},
	} {
		before := counted.gets.Load()
		if cached := follow.Cached(step.m); cached != step.cached {
			t.Errorf("%s: cached %t", step.what, cached)
		}
		l, err := follow.Follow(bounded(t), step.m)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := counted.gets.Load() - before; l.Balance != step.balance || got != step.gets {
			t.Errorf("%s: balance %d by %d reads, want %d by %d", step.what, l.Balance, got, step.balance, step.gets)
		}
	}
	broken := ms[3]
	broken.Envelope.N++
	var chain *eventlog.ChainError
	if _, err := follow.Follow(bounded(t), broken); !errors.As(err, &chain) {
		t.Errorf("a message out of its chain: %v, want *ChainError", err)
	}
	if l, err := follow.Follow(bounded(t), ms[3]); err != nil || l.Balance != 10 {
		t.Errorf("after a broken message: %v, want the state again", err)
	}
	testFollowerCopy(t, b, subject, ms)
}

// testFollowerCopy follows with a copy that reaches beyond the message.
func testFollowerCopy(t *testing.T, log eventlog.Log, subject string, ms []events.Message) {
	t.Helper()
	counted := &faulty{Log: log}
	follow := eventlog.NewFollower(eventlog.Config[*ledger]{Log: counted, New: newLedger, Copy: &copyOf{messages: ms}, Now: time.Now})
	l, err := follow.Follow(bounded(t), ms[2])
	if err != nil || l.Balance != 6 || counted.gets.Load() != 1 {
		t.Errorf("%s by the copy: %v, balance %d by %d reads; want 6 by 1", subject, err, l.Balance, counted.gets.Load())
	}
}
