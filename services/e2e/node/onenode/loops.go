package onenode

import (
	"context"
	"sync"
)

// loops are what runs in the test's own process, until the node stops.
type loops struct {
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

func newLoops() *loops {
	l := &loops{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *loops) run(loop func(context.Context)) { l.tasks.Go(func() { loop(l.ctx) }) }

func (l *loops) stop() {
	l.cancel()
	l.tasks.Wait()
}
