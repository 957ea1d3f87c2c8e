package local

import (
	"sync"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// eventQueue hands events to a channel without ever making their source wait.
// It is bounded by the number of sandboxes: each incarnation is lost once.
type eventQueue struct {
	out  chan driver.Event
	wake chan struct{}
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	pending []driver.Event
}

func newEventQueue() *eventQueue {
	q := &eventQueue{out: make(chan driver.Event), wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go q.run()
	return q
}

// put adds an event.
func (q *eventQueue) put(e driver.Event) {
	q.mu.Lock()
	q.pending = append(q.pending, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *eventQueue) take() []driver.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.pending
	q.pending = nil
	return events
}

func (q *eventQueue) run() {
	defer close(q.done)
	defer close(q.out)
	for {
		for _, e := range q.take() {
			select {
			case q.out <- e:
			case <-q.stop:
				return
			}
		}
		select {
		case <-q.wake:
		case <-q.stop:
			return
		}
	}
}

// close closes the channel; what is pending is found by the next List.
func (q *eventQueue) close() {
	close(q.stop)
	<-q.done
}
