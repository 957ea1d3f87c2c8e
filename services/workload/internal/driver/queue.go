package driver

import "sync"

// Queue hands events to a channel without ever making their source wait. It is
// bounded by the number of sandboxes: each incarnation is lost once. Drivers build
// their Events on it.
type Queue struct {
	out  chan Event
	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu      sync.Mutex
	pending []Event
}

// NewQueue makes an empty one. Close it.
func NewQueue() *Queue {
	q := &Queue{out: make(chan Event), wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go q.run()
	return q
}

// Out is where the events come out. Close closes it.
func (q *Queue) Out() <-chan Event { return q.out }

// Put adds an event.
func (q *Queue) Put(e Event) {
	q.mu.Lock()
	q.pending = append(q.pending, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) take() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.pending
	q.pending = nil
	return events
}

func (q *Queue) run() {
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

// Close closes the channel, and may be repeated. What is pending is found by the
// next List.
func (q *Queue) Close() {
	q.once.Do(func() { close(q.stop) })
	<-q.done
}
