package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The test's binary is also what the benchmarks start.
func TestMain(m *testing.M) {
	if code, mine := child(context.Background(), os.Args[1:]); mine {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// Each benchmark goes on measuring what it says: on real parts, next to nothing.
func TestBenchmarksWork(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the whole program")
	}
	for _, b := range benchmarks {
		t.Run(b.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "hf-bench-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			l := &lab{dir: dir, short: true, logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
			found, err := l.measure(t.Context(), regexp.MustCompile("^"+b.name+"$"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found[0].figures {
				if f.ratio.median <= 0 && !strings.Contains(f.what, "memory") { // of a few viewers it is noise
					t.Errorf("%s: the ratio is %v", f.what, f.ratio)
				}
			}
		})
	}
}

func TestSelectionHasToSelect(t *testing.T) {
	t.Parallel()
	if _, err := (&lab{}).measure(t.Context(), regexp.MustCompile("nothing")); err == nil {
		t.Error("a run of nothing looks like a success")
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make(series, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, test := range []struct {
		s    series
		q    float64
		want time.Duration
	}{
		{nil, 0.5, 0},
		{series{7}, 0.99, 7},
		{series{3, 1, 2}, 0.5, 2},
		{series{4, 1, 3, 2}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred, 0, 1},
	} {
		if got := test.s.quantile(test.q); got != test.want {
			t.Errorf("quantile %v of %d: %d, want %d", test.q, len(test.s), got, test.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("taking a quantile has sorted the series itself")
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rounds []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{2}, spread{2, 2, 2}},
		{[]float64{3, 1, 2}, spread{2, 1, 3}},
		{[]float64{4, 1, 2, 3}, spread{2.5, 1, 4}},
	} {
		if got := spreadOf(test.rounds); got != test.want {
			t.Errorf("spread of %v: %v, want %v", test.rounds, got, test.want)
		}
	}
}

// A ratio is of rounds, so that a round in which the machine was busy with
// something else moves one ratio and not all.
func TestRatioIsTheMedianOfRounds(t *testing.T) {
	t.Parallel()
	r := rounds{ours: []series{{2}, {30}, {2}}, base: []series{{1}, {10}, {1}}}
	if got, want := r.ratio(0.5), (spread{2, 2, 3}); got != want {
		t.Errorf("ratio %v, want %v", got, want)
	}
}

func TestInTurns(t *testing.T) {
	t.Parallel()
	var order strings.Builder
	say := func(what string, took time.Duration) operation {
		return func(context.Context) (time.Duration, error) {
			order.WriteString(what)
			return took, nil
		}
	}
	r, err := inTurns(t.Context(), 1, 2, 2, say("a", 1), say("b", 2))
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "ababababab" {
		t.Errorf("order %s: not in turns, or the warm-up is missing", &order)
	}
	if len(r.ours) != 2 || len(r.ours[1]) != 2 || r.base[0][0] != 2 {
		t.Errorf("rounds %v", r)
	}
	broken := errors.New("broken")
	_, err = inTurns(t.Context(), 0, 1, 1, say("a", 1), func(context.Context) (time.Duration, error) { return 0, broken })
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the baseline's", err)
	}
}

func TestAim(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		aim  aim
		s    spread
		want string
	}{
		{aim{}, spread{median: 9}, ""},
		{aim{atMost: 1.3}, spread{median: 1.3, most: 9}, "met"},
		{aim{atMost: 1.3}, spread{median: 1.31}, "missed"},
		{aim{atLeast: 0.6}, spread{median: 0.6}, "met"},
		{aim{atLeast: 0.6}, spread{median: 0.59, most: 1}, "missed"},
	} {
		if got := test.aim.verdict(test.s); got != test.want {
			t.Errorf("%v of %v: %q, want %q", test.s, test.aim, got, test.want)
		}
	}
}

func TestSentAt(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixNano()
	frame := fmt.Appendf(nil, `{"type":"frame","data":[{"type":"CUSTOM",%s%d},{}]}`, sentMark, now)
	if got, ok := sentAt(frame); !ok || got != now {
		t.Errorf("sent at %d, %v; want %d", got, ok, now)
	}
	for _, other := range []string{"", `{"sent":12}`, `{"type":"heartbeat"}`, sentMark + "abcdefghijklmnopqrs"} {
		if _, ok := sentAt([]byte(other)); ok {
			t.Errorf("%s says when it was sent", other)
		}
	}
}

// binaryCopy is a stream of rows with one field each.
func binaryCopy(fields ...[]byte) []byte {
	b := bytes.Repeat([]byte{'h'}, headerBytes)
	for _, f := range fields {
		b = binary.BigEndian.AppendUint16(b, 1)
		if f == nil {
			b = binary.BigEndian.AppendUint32(b, 0xffffffff)
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
	}
	return append(b, 0xff, 0xff)
}

func TestCutBinary(t *testing.T) {
	t.Parallel()
	one, null, two := []byte("one"), []byte(nil), []byte("twotwo")
	all := binaryCopy(one, null, two)
	cut, err := cutBinary(all, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(cut[0]), string(binaryCopy(one)); got != want {
		t.Errorf("first portion %q, want %q", got, want)
	}
	if got, want := string(cut[1]), string(binaryCopy(null, two)); got != want {
		t.Errorf("second portion %q, want %q", got, want)
	}
	if cut, err = cutBinary(binaryCopy(), 3); err != nil || len(cut) != 3 || cut[0] != nil {
		t.Errorf("nothing is cut into %q, %v", cut, err)
	}
	for end := range len(all) - 1 {
		if _, err := cutBinary(all[:end], 2); !errors.Is(err, errBinary) {
			t.Fatalf("%d of %d bytes: error %v", end, len(all), err)
		}
	}
}
