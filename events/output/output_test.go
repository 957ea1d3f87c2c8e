package output_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events/output"
)

func ks(first, last uint64) output.Batch {
	b := output.Batch{Run: "r-1", FirstK: first, LastK: last, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	for k := first; k <= last; k++ {
		b.Events = append(b.Events, json.RawMessage{'{', '"', byte('a' + k), '"', ':', '1', '}'})
	}
	return b
}

func TestAfterK(t *testing.T) {
	for _, c := range []struct {
		have uint64
		want output.Batch
		ok   bool
	}{
		{0, ks(4, 6), true}, {3, ks(4, 6), true}, {4, ks(5, 6), true}, {5, ks(6, 6), true}, {6, output.Batch{}, false}, {9, output.Batch{}, false},
	} {
		if got, ok := ks(4, 6).AfterK(c.have); ok != c.ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("after k %d: %+v, %t", c.have, got, ok)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good, err := ks(1, 3).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"run":"r","firstK":1,"lastK":18446744073709551615,"time":"2026-01-02T03:04:05Z","events":[{}]}`))
	f.Add([]byte(`{"run":"r","firstK":1,"lastK":1,"time":"2026-01-02T03:04:05Z","events":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := output.Decode(raw)
		if err != nil {
			if !errors.Is(err, output.ErrBatch) && !errors.Is(err, output.ErrTooLarge) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := b.Encode()
		if errors.Is(err, output.ErrTooLarge) {
			return // what was longer than it had to be may have been read
		}
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		twice, err := output.Decode(again)
		if err != nil || !twice.Time.Equal(b.Time) {
			t.Fatalf("what was encoded can't be decoded: %v", err)
		}
		third, err := twice.Encode()
		if err != nil || string(third) != string(again) {
			t.Fatalf("not stable: %s then %s (%v)", again, third, err)
		}
	})
}
