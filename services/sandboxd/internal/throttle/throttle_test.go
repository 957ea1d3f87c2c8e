package throttle

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

const perSecond, burst, open = 100, 200, 64

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle := New(perSecond, burst, open)
		try := func() (leave func(), status int) {
			w := httptest.NewRecorder()
			leave, ok := throttle.Enter(w)
			if !ok && w.Header().Get("Retry-After") == "" {
				t.Error("refused without Retry-After")
			}
			return leave, w.Code
		}
		passed := 0
		for range 10 * burst {
			if leave, status := try(); status == http.StatusOK {
				passed++
				leave()
			} else if status != http.StatusTooManyRequests {
				t.Fatalf("status %d", status)
			}
		}
		if passed != burst {
			t.Errorf("%d of a flood passed, want %d", passed, burst)
		}
		time.Sleep(time.Second) //nolint:forbidigo // of synctest's clock
		var leaves []func()
		for range open {
			leave, status := try()
			if status != http.StatusOK {
				t.Fatalf("after a second, with %d open: %d", len(leaves), status)
			}
			leaves = append(leaves, leave)
		}
		if _, status := try(); status != http.StatusTooManyRequests {
			t.Errorf("one more than %d at once: %d", open, status)
		}
		leaves[0]()
		if _, status := try(); status != http.StatusOK {
			t.Errorf("after one has left: %d", status)
		}
	})
}
