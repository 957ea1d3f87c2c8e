package projections

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// Place is where a viewer of a session is: after event N and after the OUTPUT
// sequence Out. A cursor carries it.
type Place struct{ N, Out uint64 }

// TimelineFrame is a frame with the place after it. The gateway makes the cursor.
type TimelineFrame struct {
	view.Frame
	Place Place
}

// TimelinePage is a part of a session's timeline.
type TimelinePage struct {
	Frames []TimelineFrame
	// More says that there is more to read now.
	More bool
	// OutputGone is up to which OUTPUT sequence output that the reader hasn't had has
	// aged out; 0 where it lacks nothing. It comes before the frames.
	OutputGone uint64
}

// Timeline gives up to limit frames after a place, in the order of every replay:
// running maximum of a batch's after, an event before output, sequence. A batch
// whose after isn't projected yet is held back. The events of an agui frame are
// masked.
func (r *Reader) Timeline(ctx context.Context, tenant, session string, after Place, limit int) (TimelinePage, error) {
	limit = Page{Limit: limit}.limit()
	mask, err := r.mask(ctx, tenant, session)
	if err != nil {
		return TimelinePage{}, err
	}
	var page TimelinePage
	var events []dbsqlc.TimelineRow
	var output []dbsqlc.OutputRow
	// One snapshot: a batch that is seen has its events seen.
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, r.cfg.Pool, opts, func(tx pgx.Tx) error {
		q := r.q.WithTx(tx)
		floor, err := q.OutputFloor(ctx, dbsqlc.OutputFloorParams{Tenant: tenant, Session: clean(session)})
		if err != nil {
			return err
		}
		if uint64(floor) > after.Out {
			page.OutputGone = uint64(floor)
		}
		events, err = q.Timeline(ctx, dbsqlc.TimelineParams{
			Tenant: tenant, Session: clean(session), After: int64(min(after.N, last.N)), Most: int32(limit + 1), Bytes: pageBytes,
		})
		if err != nil {
			return err
		}
		output, err = q.Output(ctx, dbsqlc.OutputParams{
			Tenant: tenant, Session: clean(session), Epoch: r.cfg.Epoch, After: int64(min(after.Out, last.N)), Most: int32(limit + 1), Bytes: pageBytes,
		})
		return err
	})
	if err != nil {
		return TimelinePage{}, readError(err)
	}
	page.merge(session, mask, after, events, output, limit)
	return page, nil
}

// merge puts events and output in order. Each list holds at least limit frames, or all
// there are, or the first of them up to a number of bytes: then nothing that may belong
// behind what it lacks is put.
func (p *TimelinePage) merge(
	session string, mask view.Masker, at Place, events []dbsqlc.TimelineRow, output []dbsqlc.OutputRow, limit int,
) {
	moreEvents, moreOutput := false, false
	if n := len(events); n > 0 { // no event beyond these is projected, or some are
		moreEvents = n > limit || int64(n) < events[0].Found
	}
	if n := len(output); n > 0 {
		moreOutput = n > limit || int64(n) < output[0].Found
	}
	// highest is the running maximum of after; what the viewer has is part of it.
	highest := at.N
	for len(events)+len(output) > 0 {
		if len(output) == 0 && moreOutput {
			break
		}
		next := TimelineFrame{Frame: view.Frame{Session: session}}
		switch {
		case len(output) > 0 && max(highest, uint64(output[0].AfterN)) <= at.N:
			o := output[0]
			output, highest = output[1:], max(highest, uint64(o.AfterN))
			at.Out = uint64(o.Seq)
			next.Kind, next.Time, next.Data = view.FrameAgui, o.At, maskBatch(mask, o.Data)
		case len(events) > 0:
			e := events[0]
			events = events[1:]
			at.N = uint64(e.N)
			next.Kind, next.N, next.Time, next.Data = view.FrameKind(e.Kind), at.N, e.At, e.Data
		default:
			p.More = p.More || moreEvents
			return // a batch that waits for an event
		}
		if len(p.Frames) == limit {
			p.More = true
			return
		}
		next.Place = at
		p.Frames = append(p.Frames, next)
	}
	p.More = p.More || moreEvents || moreOutput
}
