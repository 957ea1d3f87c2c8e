package projections

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// A list that was cut by its bytes, of events or of output, ends the page where what it
// lacks may come next; page after page gives everything once and in order.
func TestTimelineCutByBytes(t *testing.T) {
	t.Parallel()
	// Events 1 to 6, and output after 2, after 2, and after 5.
	all := "e1 e2 o1 o2 e3 e4 e5 o3 e6"
	after := map[uint64]uint64{1: 2, 2: 2, 3: 5}
	for events := 1; events <= 6; events++ {
		for outputs := 1; outputs <= 3; outputs++ {
			var got []string
			at := Place{}
			for page := (TimelinePage{More: true}); page.More; {
				page = TimelinePage{}
				var es []dbsqlc.TimelineRow
				for n := at.N + 1; n <= 6; n++ {
					es = append(es, dbsqlc.TimelineRow{N: int64(n), Kind: "event", Data: []byte(`{}`), At: time.Unix(int64(n), 0), Found: int64(6 - at.N)})
				}
				var os []dbsqlc.OutputRow
				for seq := at.Out + 1; seq <= 3; seq++ {
					os = append(os, dbsqlc.OutputRow{Seq: int64(seq), AfterN: int64(after[seq]), Data: []byte(`[]`), Found: int64(3 - at.Out)})
				}
				page.merge("s", view.Masker{}, at, es[:min(events, len(es))], os[:min(outputs, len(os))], 100)
				if page.More && len(page.Frames) == 0 {
					t.Fatalf("cut at %d and %d: an empty page after %v", events, outputs, got)
				}
				for _, f := range page.Frames {
					name := fmt.Sprintf("e%d", f.N)
					if f.Kind == view.FrameAgui {
						name = fmt.Sprintf("o%d", f.Place.Out)
					}
					got, at = append(got, name), f.Place
				}
			}
			if s := strings.Join(got, " "); s != all {
				t.Errorf("cut at %d events and %d of output: %s, want %s", events, outputs, s, all)
			}
		}
	}
}
