package main

import (
	"io"
	"iter"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// looking reads a viewer's frames one after the other.
type looking struct {
	next func() (api.Frame, error, bool)
	stop func()
}

func newLooking(body io.ReadCloser) *looking {
	next, stop := iter.Pull2(apiclient.Frames(body))
	return &looking{next: next, stop: stop}
}

// until reads on to the first frame that is wanted.
func (l *looking) until(wanted func(api.Frame) bool) (api.Frame, error) {
	for {
		f, err, ok := l.next()
		switch {
		case err != nil:
			return f, err
		case !ok:
			return f, errCut
		case wanted(f):
			return f, nil
		}
	}
}
