package install

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// planned is a stream as it has to be, and the limit of bytes that it is made with; one
// that is there may have another. No limit is 0.
type planned struct {
	want  jetstream.StreamConfig
	limit int64
}

// made is what the stream is made with.
func (p planned) made() jetstream.StreamConfig {
	if p.limit > 0 {
		p.want.MaxBytes = p.limit
	}
	return p.want
}

// Reserved is how many bytes of each server's storage an installation that is made with
// these options keeps for its streams: a server that has less (max_file_store) refuses
// it. What has no limit reserves nothing. Every server has every stream, as it is with
// as many replicas as servers.
func (o Options) Reserved() (int64, error) {
	o, err := o.validate()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, p := range (installation{opts: o}).streams() {
		sum += max(0, p.made().MaxBytes)
	}
	return sum, nil
}

// raise gives streams that are there the limit that they would be made with, where
// theirs is lower. One that is higher, or none, is kept: less room could refuse what is
// accepted today, and somebody wanted it so.
func (in installation) raise(ctx context.Context) error {
	for _, p := range in.streams() {
		if p.limit == 0 {
			continue
		}
		s, err := in.js.Stream(ctx, p.want.Name)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", p.want.Name, err)
		}
		cfg := s.CachedInfo().Config // all of it: what an operator chose stays
		had := cfg.MaxBytes
		switch {
		case had == p.limit:
			continue
		case had <= 0 || had > p.limit:
			in.opts.Logger.Info("limit kept: a stream is never given less", "stream", cfg.Name, "max_bytes", had, "asked", p.limit)
			continue
		}
		cfg.MaxBytes = p.limit
		if _, err := in.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("raise max_bytes of stream %s from %d to %d: %w", cfg.Name, had, p.limit, err)
		}
		in.opts.Logger.Info("limit raised", "stream", cfg.Name, "max_bytes", p.limit, "had", had)
	}
	return nil
}
