package main

import (
	"math"
	"testing"
	"time"
)

// It goes on loading what it says: on real parts, next to nothing.
func TestLoadWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the whole program")
	}
	if err := run(t.Context(), []string{"-short", "-rate", "2", "-isolation", "none"}); err != nil {
		t.Fatal(err)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][]string{{"-rate", "0"}, {"-growth", "1"}, {"-each", "-1s"}, {"-no-such"}} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	s := series{4, 1, 3, 2}
	if s.quantile(0.5) != 2 || s.quantile(0.99) != 4 || (series{}).quantile(0.5) != 0 {
		t.Errorf("%v, %v", s.quantile(0.5), s.quantile(0.99))
	}
}

// Memory that grows by two MiB a minute after its beginning, which doesn't count.
func TestSlope(t *testing.T) {
	t.Parallel()
	m := &memory{begin: time.Time{}}
	for i := range 40 {
		m.at = append(m.at, float64(i))
		m.mib = append(m.mib, 100+2*float64(i))
	}
	m.mib[0] = 500
	if slope, mean := m.slope(); math.Abs(slope-2) > 1e-9 || mean < 100 {
		t.Errorf("slope %v, mean %v", slope, mean)
	}
}
