package supervise

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle := newThrottle(relayRate, relayBurst, relayOpen)
		try := func() (leave func(), status int) {
			w := httptest.NewRecorder()
			leave, ok := throttle.enter(w)
			if !ok && w.Header().Get("Retry-After") == "" {
				t.Error("refused without Retry-After")
			}
			return leave, w.Code
		}
		passed := 0
		for range 10 * relayBurst {
			if leave, status := try(); status == http.StatusOK {
				passed++
				leave()
			} else if status != http.StatusTooManyRequests {
				t.Fatalf("status %d", status)
			}
		}
		if passed != relayBurst {
			t.Errorf("%d of a flood passed, want %d", passed, relayBurst)
		}
		time.Sleep(time.Second) //nolint:forbidigo // of synctest's clock
		var leaves []func()
		for range relayOpen {
			leave, status := try()
			if status != http.StatusOK {
				t.Fatalf("after a second, with %d open: %d", len(leaves), status)
			}
			leaves = append(leaves, leave)
		}
		if _, status := try(); status != http.StatusTooManyRequests {
			t.Errorf("one more than %d at once: %d", relayOpen, status)
		}
		leaves[0]()
		if _, status := try(); status != http.StatusOK {
			t.Errorf("after one has left: %d", status)
		}
	})
}
