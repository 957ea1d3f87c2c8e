package agui

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// streamed is what a client gets of what tell writes.
func streamed(t *testing.T, tell func(*stream) error) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := tell(newStream(w, "t-1", "run-1")); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// A stream has exactly one end, whatever goes wrong behind it.
func TestOneEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first func(*stream) error
		want  string
	}{
		"finished": {func(s *stream) error { return s.finished(cancelled()) }, `{"type":"RUN_FINISHED","threadId":"t-1","runId":"run-1","outcome":{"type":"cancelled"}}`},
		"failed":   {func(s *stream) error { return s.failed("internal", "no") }, `{"code":"internal","message":"no","type":"RUN_ERROR"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := streamed(t, func(s *stream) error {
				if err := s.begin(nil, nil); err != nil {
					return err
				}
				if err := tc.first(s); err != nil {
					return err
				}
				if err := s.finished(success(nil)); err != nil {
					return err
				}
				return s.failed("not-ready", "the stream can't go on")
			})
			events := strings.Split(strings.TrimSuffix(got, "\n\n"), "\n\n")
			if last := events[len(events)-1]; len(events) != 4 || last != "data: "+tc.want {
				t.Errorf("%d events, the last %s", len(events), last)
			}
		})
	}
}
