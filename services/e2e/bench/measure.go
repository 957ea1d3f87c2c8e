package main

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// series holds how long each operation of one side took.
type series []time.Duration

// quantile is the smallest time that at least the share q (0 to 1) of the
// operations kept to; 0 of an empty series.
func (s series) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(q*float64(len(sorted))+0.999999) - 1 // nearest rank, rounded up
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// spread is a quantity that each round measured once: its median, least and most.
type spread struct{ median, least, most float64 }

func spreadOf(rounds []float64) spread {
	if len(rounds) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(rounds))
	mid := len(sorted) / 2
	median := sorted[mid]
	if len(sorted)%2 == 0 {
		median = (sorted[mid-1] + sorted[mid]) / 2
	}
	return spread{median: median, least: sorted[0], most: sorted[len(sorted)-1]}
}

// rounds are the series of both sides, one of each a round.
type rounds struct{ ours, base []series }

// ratio compares a quantile of ours with the same one of the baseline, round by
// round.
func (r rounds) ratio(q float64) spread {
	ratios := make([]float64, len(r.ours))
	for i := range r.ours {
		ratios[i] = float64(r.ours[i].quantile(q)) / float64(r.base[i].quantile(q))
	}
	return spreadOf(ratios)
}

// pooled gives a quantile of both sides over all rounds.
func (r rounds) pooled(q float64) (ours, base time.Duration) {
	return slices.Concat(r.ours...).quantile(q), slices.Concat(r.base...).quantile(q)
}

// operation does one thing and says how long the part that counts took.
type operation func(ctx context.Context) (time.Duration, error)

// inTurns runs ours and base one after the other, pairs times a round, after
// warm pairs that don't count.
func inTurns(ctx context.Context, warm, count, pairs int, ours, base operation) (rounds, error) {
	var r rounds
	if _, _, err := alternate(ctx, warm, ours, base); err != nil {
		return r, err
	}
	for range count {
		a, b, err := alternate(ctx, pairs, ours, base)
		if err != nil {
			return r, err
		}
		r.ours, r.base = append(r.ours, a), append(r.base, b)
	}
	return r, nil
}

func alternate(ctx context.Context, pairs int, ours, base operation) (a, b series, err error) {
	for range pairs {
		took, err := ours(ctx)
		if err != nil {
			return a, b, err
		}
		a = append(a, took)
		if took, err = base(ctx); err != nil {
			return a, b, err
		}
		b = append(b, took)
	}
	return a, b, nil
}

// timed makes an operation of a function all of which counts.
func timed(do func(ctx context.Context) error) operation {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := do(ctx)
		return time.Since(begin), err
	}
}

// together has each of n workers do its share at the same time and gives how long
// the slowest took.
func together(ctx context.Context, n int, share func(ctx context.Context, worker int) error) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for w := range n {
		g.Go(func() error { return share(ctx, w) })
	}
	err := g.Wait()
	return time.Since(begin), err
}
