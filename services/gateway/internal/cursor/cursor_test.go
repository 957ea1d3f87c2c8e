package cursor

import (
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// pattern is that of the API's Cursor.
var pattern = regexp.MustCompile(`^[A-Za-z0-9_=-]{1,512}$`)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.StringMatching(`[a-z0-9]{1,26}`).Draw(t, "epoch")
		s := Session{Epoch: epoch, N: rapid.Uint64().Draw(t, "n"), Out: rapid.Uint64().Draw(t, "out")}
		if got, err := ParseSession(s.String()); err != nil || got != s || !pattern.MatchString(s.String()) {
			t.Fatalf("%+v became %+v, %v", s, got, err)
		}
		i := Inbox{Epoch: epoch, Seq: rapid.Uint64().Draw(t, "seq"), Index: rapid.IntRange(0, 1000).Draw(t, "i")}
		if got, err := ParseInbox(i.String()); err != nil || got != i || !pattern.MatchString(i.String()) {
			t.Fatalf("%+v became %+v, %v", i, got, err)
		}
		if _, err := ParseInbox(s.String()); !errors.Is(err, ErrInvalid) {
			t.Fatalf("a session's cursor is taken for an inbox's: %v", err)
		}
	})
}

func TestBeginnings(t *testing.T) {
	t.Parallel()
	if got, err := ParseSession(""); err != nil || got != (Session{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseInbox(""); err != nil || got != (Inbox{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParsePage([]string{"a"}, ""); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	if got := Page([]string{"a"}, ""); got != "" {
		t.Errorf("a list that ends has the next page %q", got)
	}
}

func TestAPageIsOfItsListAlone(t *testing.T) {
	t.Parallel()
	list := []string{"default", "sessions", "ab", "c"}
	c := Page(list, "place")
	if got, err := ParsePage(list, c); err != nil || got != "place" {
		t.Errorf("%q, %v", got, err)
	}
	for _, other := range [][]string{nil, {"default", "sessions", "a", "bc"}, {"other", "sessions", "ab", "c"}, {"default", "sessions", "ab"}} {
		if _, err := ParsePage(other, c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", other, err)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	of := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	for _, bad := range []string{
		"x", "!!", of(`{}`), of(`{"epoch":""}`), of(`{"epoch":"e","n":-1}`), of(`{"epoch":"e","more":1}`), of(`{"epoch":"e"}{}`),
		of(`[]`), of(`"e"`), of(`null`), strings.Repeat("A", maxBytes+1), of(`{"epoch":"e"}`) + "=",
	} {
		if got, err := ParseSession(bad); !errors.Is(err, ErrInvalid) || got != (Session{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
		if _, err := ParsePage(nil, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("page %q: %v", bad, err)
		}
	}
	if _, err := ParseInbox(of(`{"epoch":"e","i":-1}`)); !errors.Is(err, ErrInvalid) {
		t.Errorf("negative index: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Session{Epoch: "e", N: 1, Out: 2}.String())
	f.Add(Inbox{Epoch: "e", Seq: 1}.String())
	f.Add(Page([]string{"list"}, "at"))
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSession(text); err == nil && text != "" {
			if again, err := ParseSession(s.String()); err != nil || again != s {
				t.Errorf("%+v became %+v, %v", s, again, err)
			}
		}
		_, _ = ParseInbox(text)
		_, _ = ParsePage([]string{"list"}, text)
	})
}
