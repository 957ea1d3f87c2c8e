package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// series holds how long something took each time.
type series []time.Duration

// quantile is the smallest time that at least the share q of all kept to.
func (s series) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(q*float64(len(sorted))+0.999999) - 1 // nearest rank, rounded up
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// seen is what the visits of a step saw.
type seen struct {
	rate   float64
	length time.Duration

	mu     sync.Mutex
	times  map[string]series
	visits int
	failed int
	why    map[string]int
}

func (s *seen) took(what string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times[what] = append(s.times[what], d)
}

// command times a command and gives when it was sent.
func (s *seen) command(do func() error) (begin time.Time, err error) {
	begin = time.Now()
	err = do()
	s.took(commands, time.Since(begin))
	return begin, err
}

// count notes how a visit ended.
func (s *seen) count(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits++
	if err == nil {
		return
	}
	s.failed++
	if s.why == nil {
		s.why = map[string]int{}
	}
	s.why[err.Error()]++
}

// print words a step for a terminal.
func (s *seen) print(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(w, "\n%.2f visits/s for %s: %d visits, %d failed\n", s.rate, s.length, s.visits, s.failed)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcount\tp50\tp90\tp99\tmost\t")
	for _, what := range timed {
		all := s.times[what]
		fmt.Fprintf(t, "%s\t%d\t", what, len(all))
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			fmt.Fprintf(t, "%s\t", all.quantile(q).Round(100*time.Microsecond))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // to a terminal
	for why, times := range s.why {
		fmt.Fprintf(w, "  %d× %s\n", times, why)
	}
}

// sampleEvery is how often memory is read during a soak.
const sampleEvery = 5 * time.Second

// memory is this process's over time: all services, NATS, and the visitors.
type memory struct {
	begin time.Time
	at    []float64 // minutes since the begin
	mib   []float64 // resident
}

func newMemory() *memory { return &memory{begin: time.Now()} }

func (m *memory) sample() {
	var pages, resident float64
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return // without a reading there is no point of the line
	}
	if _, err := fmt.Sscan(string(raw), &pages, &resident); err != nil {
		return
	}
	m.at = append(m.at, time.Since(m.begin).Minutes())
	m.mib = append(m.mib, resident*float64(os.Getpagesize())/(1<<20))
}

// settled is the share of a soak, at its begin, in which caches fill.
const settled = 0.25

// slope is the least-squares line through the samples after the beginning, in MiB a
// minute, and the mean.
func (m *memory) slope() (slope, mean float64) {
	from := int(settled * float64(len(m.at)))
	x, y := m.at[from:], m.mib[from:]
	n := float64(len(x))
	if n < 2 {
		return 0, 0
	}
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx), sy / n
}

func (m *memory) print(w io.Writer) error {
	if len(m.mib) < 8 {
		_, err := fmt.Fprintln(w, "\ntoo short to say how memory moves")
		return err
	}
	slope, mean := m.slope()
	_, err := fmt.Fprintf(w, "\nresident memory: %.0f MiB at first, %.0f at the end, %.0f at most; after the first quarter %.0f in the mean, %+.2f MiB/min\n",
		m.mib[0], m.mib[len(m.mib)-1], slices.Max(m.mib), mean, slope)
	return err
}
