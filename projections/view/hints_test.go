package view

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The one pass finds what looking for each hint by itself finds.
func TestHintedFindsEachHint(t *testing.T) {
	t.Parallel()
	var all []string
	for _, r := range rules {
		all = append(all, r.hints...)
	}
	piece := rapid.OneOf(rapid.SampledFrom(all), rapid.StringMatching(`[a-zA-Z:/_ -]{0,6}`), rapid.SampledFrom([]string{"é", "‹", `\n`}))
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "upper") {
			s = strings.ToUpper(s)
		}
		var want ruleSet
		for i, r := range rules {
			for _, h := range r.hints {
				if strings.Contains(strings.ToLower(s), h) {
					want |= 1 << i
				}
			}
		}
		if got := hinted(s); got&^escaped != want {
			t.Fatalf("rules %b of %q, want %b", got, s, want)
		}
	})
}

func TestHintedKnowsWhatHidesAHint(t *testing.T) {
	t.Parallel()
	for _, s := range []string{`to\u006ben`, `https:\/\/a:b@c`} {
		if !mayHoldSecret(s) {
			t.Errorf("%s is not looked into", s)
		}
	}
	for _, s := range []string{"pa\u017f\u017fword=hunter22", "api_\u212aey=abcdefgh"} {
		if got := maskSecrets(s); got == s {
			t.Errorf("%q is not masked, though its letters fold to a name's", s)
		}
	}
	for _, s := range []string{"", "a", "make the tests pa", "née tests"} {
		if hinted(s) != 0 {
			t.Errorf("%q is looked into", s)
		}
	}
}
