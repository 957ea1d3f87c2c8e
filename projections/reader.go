package projections

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// ReaderConfig of a Reader.
type ReaderConfig struct {
	// Pool reads the live read models (search_path as migrations.SearchPath says).
	Pool *pgxpool.Pool
	// Epoch is the log's: what sweeps read must be of it.
	Epoch string
	// Log, where it is given, is asked whether it fits the read models before
	// anything is swept by them, and for the data that lies beside it.
	Log eventlog.Log
	// Logger gets what goes wrong with waiting; nil discards.
	Logger *slog.Logger
}

// Reader reads the read models. Every query of a tenant's things is by tenant.
// Errors: ErrUnavailable while Postgres can't be asked, ErrNotFound, ErrCursor,
// those of ctx.
type Reader struct {
	cfg    ReaderConfig
	q      *dbsqlc.Queries
	waiter *waiter

	fitMu sync.Mutex
	fitAt time.Time // when fits last said yes
}

// NewReader makes a Reader. Close it.
func NewReader(cfg ReaderConfig) (*Reader, error) {
	if cfg.Pool == nil || cfg.Epoch == "" {
		return nil, errors.New("reader: needs a pool and the log's epoch")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reader{cfg: cfg, q: dbsqlc.New(cfg.Pool), waiter: newWaiter(cfg.Pool, cfg.Logger)}, nil
}

// Close stops what WaitFor started. It blocks until that has ended; calling it
// again does nothing.
func (r *Reader) Close() { r.waiter.close() }

// Page asks for a part of a list: at most Limit items (0 means 50, at most 500)
// after Cursor, which is a former answer's Next.
type Page struct {
	Cursor string
	Limit  int
}

func (p Page) limit() int {
	switch {
	case p.Limit <= 0:
		return 50
	case p.Limit > 500:
		return 500
	}
	return p.Limit
}

// pageBytes bounds the contents of a page: an item that begins below it is in it, and
// whole, whatever its size. The next page has the rest.
const pageBytes = 8 << 20

// List is a part of a list. Next is empty at the end.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// ErrCursor says that a cursor isn't one that the list gave (invalid-cursor).
var ErrCursor = errors.New("not a cursor of this list")

// place is where a list goes on: the order's values of the last item.
type place struct {
	List string    `json:"l"`
	At   time.Time `json:"t,omitzero"`
	ID   string    `json:"i,omitempty"`
	N    uint64    `json:"n,omitempty"`
	Idx  int       `json:"x,omitempty"`
}

// last is after everything, for lists that run down.
var last = place{At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), ID: "\uffff", N: 1<<63 - 1}

// from reads the page's cursor; start is where a list without one begins.
func (p Page) from(list string, start place) (place, error) {
	if p.Cursor == "" {
		return start, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil {
		return place{}, fmt.Errorf("%w: %w", ErrCursor, err)
	}
	var at place
	if err := json.Unmarshal(raw, &at); err != nil {
		return place{}, fmt.Errorf("%w: %w", ErrCursor, err)
	}
	if at.List != list || at.N > last.N || at.Idx < 0 || at.Idx > 1<<15-1 || clean(at.ID) != at.ID {
		return place{}, ErrCursor
	}
	return at, nil
}

func (at place) cursor(list string) string {
	at.List = list
	raw, err := json.Marshal(at)
	if err != nil {
		return "" // a year beyond 9999: no list has one
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// list makes a List from up to limit+1 rows: the one too many says that there is more.
func list[R, T any](name string, rows []R, limit int, item func(R) (T, error), at func(R) place) (List[T], error) {
	l := List[T]{Items: make([]T, 0, min(limit, len(rows)))}
	for i, r := range rows {
		if i == limit {
			l.Next = at(rows[i-1]).cursor(name)
			break
		}
		v, err := item(r)
		if err != nil {
			return List[T]{}, err
		}
		l.Items = append(l.Items, v)
	}
	return l, nil
}

// listBytes is list for rows that may be large: they are all that were found, or the
// first of them up to a number of bytes.
func listBytes[R, T any](name string, rows []R, limit int, found func(R) int64, item func(R) (T, error), at func(R) place) (List[T], error) {
	l, err := list(name, rows, limit, item, at)
	if n := len(rows); err == nil && n > 0 && int64(n) < found(rows[0]) && l.Next == "" {
		l.Next = at(rows[n-1]).cursor(name)
	}
	return l, err
}

// decode reads a stored view.
func decode[T any](raw []byte) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("stored view: %w", err)
	}
	return v, nil
}

// Checkpoint tells the epoch and the sequence of the last message that is in the
// read models; zero before there is any.
func (r *Reader) Checkpoint(ctx context.Context) (epoch string, seq uint64, err error) {
	cp, _, err := readCheckpoint(ctx, r.cfg.Pool)
	return cp.epoch, cp.seq, readError(err)
}
