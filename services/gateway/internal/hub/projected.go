package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/projections/view"
)

// Reader is what Projected reads; projections.Reader is one.
type Reader interface {
	Timeline(ctx context.Context, tenant, session string, after projections.Place, limit int) (projections.TimelinePage, error)
	OutputExtent(ctx context.Context, tenant, session string) (reached, gone uint64, err error)
	Output(ctx context.Context, tenant, session string, after uint64, limit int) (batches []projections.OutputBatch, more bool, err error)
	OutputBehind(ctx context.Context, tenant, session string, n uint64) (uint64, error)
	Approvals(ctx context.Context, tenant string, f projections.ApprovalFilter, p projections.Page) (projections.List[view.Approval], error)
}

// Projected is the History of the projections.
func Projected(r Reader) History { return projected{r} }

type projected struct{ reader Reader }

// Timeline implements History. Output comes by Output, so none is asked for here.
func (p projected) Timeline(ctx context.Context, tenant, session string, after uint64, limit int) (frames []view.Frame, more bool, err error) {
	page, err := p.reader.Timeline(ctx, tenant, session, projections.Place{N: after, Out: math.MaxInt64}, limit)
	if err != nil {
		return nil, false, err
	}
	frames = make([]view.Frame, len(page.Frames))
	for i, f := range page.Frames {
		frames[i] = f.Frame
	}
	return frames, page.More, nil
}

// Output implements History.
func (p projected) Output(ctx context.Context, tenant, session string, after uint64, limit int) (OutputPage, error) {
	reached, gone, err := p.reader.OutputExtent(ctx, tenant, session)
	if err != nil {
		return OutputPage{}, err
	}
	kept, more, err := p.reader.Output(ctx, tenant, session, after, limit)
	if err != nil {
		return OutputPage{}, err
	}
	page := OutputPage{Reached: reached, Floor: gone, Batches: make([]output.Message, len(kept))}
	if more {
		page.Reached = kept[len(kept)-1].Seq // the rest is the next page's
	}
	for i, b := range kept {
		var events []json.RawMessage
		if err := json.Unmarshal(b.Events, &events); err != nil {
			return OutputPage{}, fmt.Errorf("kept output at %d: %w", b.Seq, err)
		}
		page.Batches[i] = output.Message{Tenant: tenant, Session: session, Seq: b.Seq, Batch: output.Batch{
			Run: b.Run, FirstK: b.FirstK, LastK: b.LastK, After: b.After, Time: b.Time, Events: events,
		}}
	}
	return page, nil
}

// OutputBehind implements History.
func (p projected) OutputBehind(ctx context.Context, tenant, session string, n uint64) (uint64, error) {
	return p.reader.OutputBehind(ctx, tenant, session, n)
}

// Pending implements History.
func (p projected) Pending(ctx context.Context, tenant string, limit int) ([]view.Approval, error) {
	pending := projections.ApprovalFilter{States: []session.CallState{session.CallStatePending}}
	list, err := p.reader.Approvals(ctx, tenant, pending, projections.Page{Limit: limit})
	return list.Items, err
}
