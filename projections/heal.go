package projections

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// heal takes up again what was given up, as far as this build can follow it: an older
// one that ran beside a newer met types of event that it didn't know, and kept their
// bytes. It runs when a projector takes the lead, so after every upgrade.
func (w *writer) heal(ctx context.Context, copied Envelopes) error {
	given, err := dbsqlc.New(w.db).GivenUp(ctx)
	if err != nil {
		return fmt.Errorf("read faults: %w", err)
	}
	for _, g := range given {
		healed, err := w.healSubject(ctx, copied, g.Subject, uint64(g.Seq))
		switch {
		case err != nil:
			return err
		case healed:
			w.log.Info("a subject that was given up is followed again", "subject", g.Subject, "seq", g.Seq)
		}
	}
	return nil
}

// healSubject makes the rows of a subject's messages from the one that could not be
// followed to the checkpoint. It gives false where that still can't be followed.
func (w *writer) healSubject(ctx context.Context, copied Envelopes, subject string, from uint64) (bool, error) {
	a, ok := events.ParseSubject(subject)
	if !ok {
		return false, nil
	}
	ms, err := copied.Envelopes(ctx, w.at.epoch, subject)
	if err != nil {
		return false, err
	}
	b := newBatch()
	b.last, b.healed = w.at, []string{subject}
	for _, m := range ms {
		if m.Seq < from || m.Seq > w.at.seq {
			continue
		}
		err := b.follow(ctx, w.folds, a, m)
		if faulty(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("follow %s at %d: %w", subject, m.Seq, err)
		}
	}
	err = w.write(ctx, b.render())
	if dataError(err) {
		return false, nil // Postgres still refuses what a row holds
	}
	return err == nil, err
}
