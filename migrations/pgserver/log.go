package pgserver

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// keptLines is how much of the server's log an error can quote.
const keptLines = 10

// maxLine bounds what a line without an end may hold.
const maxLine = 64 << 10

// tail receives what the server prints: it passes lines on to a logger and
// remembers the last ones.
type tail struct {
	logger *slog.Logger

	mu    sync.Mutex
	part  []byte
	lines []string
}

// Write takes any cut of the output and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		line, rest, whole := bytes.Cut(t.part, []byte("\n"))
		if !whole && len(t.part) < maxLine {
			return len(p), nil
		}
		t.line(string(line))
		t.part = rest
	}
}

func (t *tail) line(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	t.lines = append(t.lines, line)
	t.lines = t.lines[max(0, len(t.lines)-keptLines):]
	level := slog.LevelDebug
	switch {
	case strings.Contains(line, "is starting up"), strings.Contains(line, "does not exist"),
		strings.Contains(line, "not yet accepting connections"), strings.Contains(line, "due to administrator command"):
		// What the one who waits for the start hears; it says so itself if it lasts.
	case strings.HasPrefix(line, "FATAL:") || strings.HasPrefix(line, "PANIC:"):
		level = slog.LevelWarn
	}
	t.logger.Log(context.Background(), level, "postgres", "line", line)
}

// last returns the remembered lines.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
