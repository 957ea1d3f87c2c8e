package hub

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
)

// The load of BenchmarkViewers.
const (
	benchSessions = 100
	benchRate     = 500 // frames a second over all sessions
)

// BenchmarkViewers measures how long frames take from the stream to WebSocket
// viewers, and what a viewer costs in memory, beside the plainest broadcaster on
// the same sockets: a map from session to connections and a goroutine that writes
// for each. The viewers share the process, so that both figures include their side.
//
//	go test ./services/gateway/internal/hub -run '^$' -bench Viewers -benchtime 5000x
//
// HOLDFAST_BENCH_VIEWERS sets how many viewers there are (2000).
func BenchmarkViewers(b *testing.B) {
	viewers := 2000
	if v, err := strconv.Atoi(os.Getenv("HOLDFAST_BENCH_VIEWERS")); err == nil {
		viewers = v
	}
	b.Run("hub", func(b *testing.B) { benchHub(b, viewers) })
	b.Run("broadcaster", func(b *testing.B) { benchBroadcaster(b, viewers) })
}

func benchHub(b *testing.B, viewers int) {
	w := newWorld(b, func(c *Config) { c.ViewersPerPrincipal = viewers })
	ids := make([]string, benchSessions)
	for i := range ids {
		ids[i] = sid(strconv.Itoa(i))
		w.create(b, testTenant, ids[i])
	}
	load := &benchLoad{b: b, url: w.server.URL + "/v1/ws", viewers: viewers}
	load.connect(func(ctx context.Context, ws *websocket.Conn, i int) error {
		raw, err := api.EncodeWS(&api.WSSubscribe{Ref: "1", Session: ids[i%benchSessions]})
		if err != nil {
			return err
		}
		return ws.Write(ctx, websocket.MessageText, raw)
	}, 2) // subscribed, and the session's first event
	ks := make([]uint64, benchSessions)
	load.run(func(i int, mark string) {
		ks[i]++
		batch := w.batch("r-1", ks[i], ks[i], 1)
		batch.Events[0] = []byte(`{"type":"TEXT_MESSAGE_CONTENT","delta":"` + mark + `"}`)
		if _, err := w.out.Publish(context.Background(), testTenant, ids[i], batch); err != nil {
			b.Error(err)
		}
	})
}

// broadcaster is the baseline.
type broadcaster struct {
	mu    sync.Mutex
	conns [benchSessions][]chan []byte
}

func (bc *broadcaster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	session, _ := strconv.Atoi(r.URL.Query().Get("session"))
	frames := make(chan []byte, 64)
	bc.mu.Lock()
	bc.conns[session] = append(bc.conns[session], frames)
	bc.mu.Unlock()
	ctx := ws.CloseRead(context.Background())
	for {
		select {
		case f := <-frames:
			if ws.Write(ctx, websocket.MessageText, f) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func benchBroadcaster(b *testing.B, viewers int) {
	bc := &broadcaster{}
	server := httptest.NewServer(bc)
	defer server.Close()
	load := &benchLoad{b: b, url: server.URL + "/", viewers: viewers, perSession: true}
	load.connect(func(context.Context, *websocket.Conn, int) error { return nil }, 0)
	eventually(b, "all viewers", func() bool {
		bc.mu.Lock()
		defer bc.mu.Unlock()
		n := 0
		for _, c := range bc.conns {
			n += len(c)
		}
		return n == viewers
	})
	load.run(func(i int, mark string) {
		f := fmt.Appendf(nil, `{"type":"frame","subscription":"1","frame":{"cursor":"%0120d","session":"%s","n":1,"kind":"agui","data":[{"type":"TEXT_MESSAGE_CONTENT","delta":"%s"}]}}`, 0, sid("x"), mark)
		bc.mu.Lock()
		defer bc.mu.Unlock()
		for _, c := range bc.conns[i] {
			c <- f
		}
	})
}

// benchLoad is the viewers' side: connections, and the times that frames took.
type benchLoad struct {
	b          *testing.B
	url        string
	viewers    int
	perSession bool

	before  uint64
	each    float64 // KiB a viewer
	readers sync.WaitGroup
	conns   []*websocket.Conn
	got     atomic.Int64
	mu      sync.Mutex
	took    []time.Duration
}

// memory is what the process holds now, heap and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// mark stands before the time at which a frame was made.
const mark = "made at "

func (l *benchLoad) connect(greet func(context.Context, *websocket.Conn, int) error, expect int64) {
	l.b.Helper()
	l.before = memory()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range l.viewers {
		url := l.url
		if l.perSession {
			url += "?session=" + strconv.Itoa(i%benchSessions)
		}
		ws, _, err := websocket.Dial(ctx, url, nil)
		if err != nil {
			l.b.Fatal(err)
		}
		l.conns = append(l.conns, ws)
		if err := greet(ctx, ws, i); err != nil {
			l.b.Fatal(err)
		}
		l.readers.Go(func() { l.read(ws) })
	}
	want := int64(l.viewers) * expect
	eventually(l.b, "all viewers", func() bool { return l.got.Load() == want })
	l.got.Store(0)
	l.each = float64(memory()-l.before) / float64(l.viewers) / 1024
}

func (l *benchLoad) read(ws *websocket.Conn) {
	for {
		_, raw, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		if _, rest, ok := bytes.Cut(raw, []byte(mark)); ok {
			end := bytes.IndexByte(rest, '"')
			made, _ := strconv.ParseInt(string(rest[:end]), 10, 64)
			took := time.Duration(time.Now().UnixNano() - made)
			l.mu.Lock()
			l.took = append(l.took, took)
			l.mu.Unlock()
		}
		l.got.Add(1)
	}
}

// run publishes b.N frames at the rate and reports how long they took.
func (l *benchLoad) run(publish func(session int, mark string)) {
	b := l.b
	tick := time.NewTicker(time.Second / benchRate)
	defer tick.Stop()
	b.ResetTimer()
	want := int64(0)
	for i := range b.N {
		<-tick.C
		session := i % benchSessions
		publish(session, mark+strconv.FormatInt(time.Now().UnixNano(), 10))
		want += int64((l.viewers + benchSessions - 1 - session) / benchSessions)
	}
	eventually(b, "all frames", func() bool { return l.got.Load() == want })
	b.StopTimer()
	for _, ws := range l.conns {
		_ = ws.CloseNow()
	}
	l.readers.Wait()
	slices.Sort(l.took)
	at := func(q float64) float64 { return float64(l.took[int(q*float64(len(l.took)-1))].Microseconds()) / 1000 }
	b.ReportMetric(l.each, "KiB/viewer")
	b.ReportMetric(at(.5), "p50-ms")
	b.ReportMetric(at(.99), "p99-ms")
}
