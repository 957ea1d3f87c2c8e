package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// A request, the lines of the services that carried it out, and its event lead to
// each other; metrics keep to Prometheus' conventions; profiles have a listener of
// their own.
func TestObserved(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.begin("-v", "--log-format", "json", "--profile-addr", "127.0.0.1:0")

	const traceID = "0af7651916cd43dd8448eb211c80319c"
	token := strings.TrimSpace(p.run(0, "token", "alice"))
	answered, _ := p.ask(http.MethodPost, "/v1/sessions", `{"runtime":"shell"}`, http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Traceparent": {"00-" + traceID + "-b7ad6b7169203331-01"},
	})
	if answered.StatusCode != http.StatusCreated {
		t.Fatalf("create: %s", answered.Status)
	}
	request := answered.Header.Get("X-Request-ID")
	harness.Eventually(t, "gateway and session service log the request", func() bool {
		lines := p.logged()
		return some(lines, "request", request, traceID, "gateway") && some(lines, "command done", request, traceID, "session")
	})

	scraper := http.Header{"Authorization": {"Bearer " + strings.TrimSpace(p.run(0, "token", "admin"))}}
	_, metrics := p.ask(http.MethodGet, "/metrics", "", scraper)
	says(t, metrics, `holdfast_command_seconds_count{outcome="ok",service="session",verb="create"} 1`, `holdfast_log_append_seconds_bucket{`,
		"holdfast_build_info{", "holdfast_gateway_request_seconds_count{", "holdfast_reactor_settled_total{", "holdfast_storage_used_ratio{")
	problems, err := promlint.New(strings.NewReader(metrics)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "holdfast_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}

	if away, _ := p.ask(http.MethodGet, "/debug/pprof/", "", nil); away.StatusCode == http.StatusOK {
		t.Error("profiles are served beside the API")
	}
	profiles := ""
	for _, line := range p.logged() {
		if line.Message == "profiles are served" {
			profiles = line.Address
		}
	}
	own := *p
	own.addr = profiles
	if got, page := own.ask(http.MethodGet, "/debug/pprof/goroutine?debug=1", "", nil); got.StatusCode != http.StatusOK {
		t.Errorf("profiles at %q: %s %.100s", profiles, got.Status, page)
	}
	says(t, p.run(2, "dev", "--log-format", "xml"), "use text or json")
}

// line is one of a log's, in JSON.
type line struct {
	Message string `json:"msg"`
	Request string `json:"request"`
	Trace   string `json:"trace_id"`
	Service string `json:"service"`
	Address string `json:"address"`
}

// logged are the lines that dev has logged so far.
func (p *place) logged() []line {
	var lines []line
	for text := range strings.Lines(p.dev.Said()) {
		var l line
		if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// some says whether there is a line of a request, of a service.
func some(lines []line, message, request, trace, service string) bool {
	return slices.Contains(lines, line{Message: message, Request: request, Trace: trace, Service: service})
}

// ask sends a request to where dev serves.
func (p *place) ask(method, path, body string, header http.Header) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header, req.Close = header.Clone(), true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(said)
}
