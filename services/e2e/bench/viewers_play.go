package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// played is what rounds of a show came to.
type played struct {
	hub, bare []act
}

// act is one round on one side.
type act struct {
	reception

	// serving and watching are the processors that this process and the viewers' kept
	// busy.
	serving, watching float64
}

// play gives frames away by the gateway and by the broadcaster in turns.
func (s *show) play(ctx context.Context, a audience, count int) (p played, err error) {
	viewers, err := s.invite(ctx, a)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, viewers.stop()) }()
	for round := range count + 1 {
		hub, err := s.round(ctx, viewers, s.publish, func(r receptions) reception { return r.Hub })
		if err != nil {
			return p, fmt.Errorf("by the hub: %w", err)
		}
		bare, err := s.round(ctx, viewers, s.broadcast, func(r receptions) reception { return r.Bare })
		if err != nil {
			return p, fmt.Errorf("by the broadcaster: %w", err)
		}
		if round > 0 || count == 1 { // the first warms up
			p.hub, p.bare = append(p.hub, hub), append(p.bare, bare)
		}
	}
	return p, nil
}

// late is how long after the last frame was given away the viewers may take.
const late = 10 * time.Second

// round is one round on one side.
func (s *show) round(
	ctx context.Context, viewers *process, give func(context.Context, int) error, side func(receptions) reception,
) (a act, err error) {
	before, err := s.ask(viewers, side)
	if err != nil {
		return a, err
	}
	begin, used := time.Now(), processorTime()
	if err := s.emit(ctx, give); err != nil {
		return a, err
	}
	took := time.Since(begin)
	a.serving = (processorTime() - used).Seconds() / took.Seconds()
	want := s.given() * s.perSession
	var got []reception
	for deadline := time.Now().Add(late); ; {
		r, err := s.ask(viewers, side)
		if err != nil {
			return a, err
		}
		if r.Frames > 0 || len(got) == 0 {
			got = append(got, r)
		}
		if want -= r.Frames; want <= 0 {
			break
		}
		if time.Now().After(deadline) {
			return a, fmt.Errorf("%d frames did not arrive in %s", want, late)
		}
	}
	a.reception = got[0] // nearly all of it; what came later is in the worst
	for _, r := range got[1:] {
		a.Max = max(a.Max, r.Max)
	}
	a.watching = (got[0].CPU - before.CPU).Seconds() / took.Seconds()
	return a, nil
}

// ask has the viewers report.
func (s *show) ask(viewers *process, side func(receptions) reception) (reception, error) {
	if err := viewers.say(nil); err != nil {
		return reception{}, err
	}
	line, err := viewers.hear()
	if err != nil {
		return reception{}, err
	}
	var r receptions
	err = json.Unmarshal(line, &r)
	return side(r), err
}

// finding words it.
func (s *show) finding(p played, hub, bare cost) finding {
	viewers := s.perSession * len(s.sessions)
	line := func(what string, of func(reception) time.Duration) figure {
		ours, base, ratios := make([]float64, len(p.hub)), make([]float64, len(p.hub)), make([]float64, len(p.hub))
		for i := range p.hub {
			ours[i], base[i] = float64(of(p.hub[i].reception)), float64(of(p.bare[i].reception))
			ratios[i] = ours[i] / base[i]
		}
		median := func(v []float64) string { return milliseconds(time.Duration(spreadOf(v).median)) }
		return figure{what: what, ours: median(ours), base: median(base), ratio: spreadOf(ratios)}
	}
	memory := func(what string, ours, base float64) figure {
		kib := func(v float64) string { return fmt.Sprintf("%.1f KiB", v) }
		return figure{what: what, ours: kib(ours), base: kib(base), ratio: spreadOf([]float64{ours / base})}
	}
	busy := func(acts []act, of func(act) float64) float64 {
		all := make([]float64, len(acts))
		for i, a := range acts {
			all[i] = of(a)
		}
		return spreadOf(all).median
	}
	serving, watching := func(a act) float64 { return a.serving }, func(a act) float64 { return a.watching }
	return finding{
		title: fmt.Sprintf("%d WebSocket viewers over %d sessions at %d frames/s", viewers, len(s.sessions), s.perSecond),
		baseline: "a loop over the same number of sockets with the same settings, fed the same frame's bytes in memory: " +
			"a queue and a goroutine a socket, no history, order, cursors, permissions or storage",
		samples: fmt.Sprintf("%d rounds of %d s on each side, %d deliveries each, frames of %d bytes; viewers in a process of their own",
			len(p.hub), s.seconds, s.given()*s.perSession, len(s.sample)),
		figures: []figure{
			line("frame → viewer, p50", func(r reception) time.Duration { return r.P50 }),
			line("frame → viewer, p99", func(r reception) time.Duration { return r.P99 }),
			memory("live heap and stacks a viewer", hub.heap, bare.heap),
			memory("resident memory a viewer", hub.resident, bare.resident),
		},
		notes: []string{
			"Ours is from before the runner's publish: it includes that OUTPUT has synced the batch to the disk, and the way through JetStream to the gateway.",
			fmt.Sprintf("Processors busy, of those of the machine: by the hub %.2f in the serving process (NATS, session service, gateway, projector) and %.2f in the viewers'; by the broadcaster %.2f and %.2f.",
				busy(p.hub, serving), busy(p.hub, watching), busy(p.bare, serving), busy(p.bare, watching)),
		},
	}
}
