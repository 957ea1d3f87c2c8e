package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// options are what the flags say.
type options struct {
	rate, growth   float64
	each, soak     time.Duration
	limit          time.Duration
	isolation      string
	heap           string
	short, verbose bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters at the end
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.Float64Var(&o.rate, "rate", 1, "visits a second to begin with")
	flags.Float64Var(&o.growth, "growth", 1.5, "how many times as many the next step has")
	flags.DurationVar(&o.each, "each", 20*time.Second, "how long a step lasts")
	flags.DurationVar(&o.limit, "limit", 100*time.Millisecond, "what p99 of the commands may reach")
	flags.DurationVar(&o.soak, "soak", 0, "stay at the rate for so long, and say how memory moves")
	flags.StringVar(&o.isolation, "isolation", "namespaces", "of the sandboxes")
	flags.StringVar(&o.heap, "heapprofile", "", "write a profile of what is in memory at the end to this `file`")
	flags.BoolVar(&o.short, "short", false, "load next to nothing: shows only that it works")
	flags.BoolVar(&o.verbose, "v", false, "show the logs of what is loaded")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.rate <= 0 || o.growth <= 1 || o.each <= 0 || o.limit <= 0 {
		return o, errors.New("rate, each and limit are positive, growth is over 1")
	}
	if o.short {
		o.each = time.Second
	}
	return o, nil
}

// run is the program.
func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hf-load-") // short: sockets are in it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	logger := slog.New(slog.DiscardHandler)
	if o.verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	p, err := dev.Start(context.WithoutCancel(ctx), dev.Config{
		Addr: "127.0.0.1:0", DataDir: dir, Isolation: o.isolation, SyncAlways: true, Logger: logger, Version: "load",
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	v, err := newVisitors(p.URL, dir)
	if err != nil {
		return err
	}
	if _, err := v.step(ctx, 1, min(o.each, 5*time.Second), nil); err != nil { // warms up
		return err
	}
	switch {
	case o.soak > 0:
		return v.soak(ctx, o)
	case o.short:
		s, err := v.step(ctx, o.rate, o.each, nil)
		s.print(os.Stdout)
		return err
	}
	return v.rise(ctx, o)
}

// rise raises the rate until a step is over the limit.
func (v *visitors) rise(ctx context.Context, o options) error {
	best := 0.0
	for rate := o.rate; ctx.Err() == nil; rate *= o.growth {
		s, err := v.step(ctx, rate, o.each, nil)
		if err != nil {
			return err
		}
		s.print(os.Stdout)
		if s.failed > 0 || s.times[commands].quantile(0.99) > o.limit {
			break
		}
		best = rate
	}
	_, err := fmt.Fprintf(os.Stdout, "\nhighest rate with p99 of the commands within %s and no failure: %.1f visits/s, %.0f commands/s\n",
		o.limit, best, best*commandsEach)
	return errors.Join(err, ctx.Err())
}

// soak stays at one rate and watches memory.
func (v *visitors) soak(ctx context.Context, o options) error {
	m := newMemory()
	s, err := v.step(ctx, o.rate, o.soak, m.sample)
	if err != nil {
		return err
	}
	s.print(os.Stdout)
	return errors.Join(m.print(os.Stdout), profile(o.heap))
}

// profile writes what is in memory; nothing without a file.
func profile(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
