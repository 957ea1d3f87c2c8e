package view

// Most texts hold no secret, and the rules' patterns are slow: trying all of them on
// everything took a third of the projector's time. So one pass over a text finds
// which rules have a hint in it, and only those are tried.

// ruleSet is a set of rules, by their places in rules.
type ruleSet uint32

const (
	// escaped stands for an escape in JSON that may hide any hint.
	escaped ruleSet = 1 << 31
	// anyRule is every rule.
	anyRule ruleSet = escaped - 1
)

// hint is a text in lower case and the rules that it belongs to.
type hint struct {
	text  string
	rules ruleSet
}

// hintIndex finds hints by their first two bytes, of which most occur in none.
type hintIndex struct {
	// at is the place in lists of those that begin so; 0 for none.
	at    [128][128]uint8
	lists [][]hint
}

var hints = newHintIndex()

func newHintIndex() *hintIndex {
	x := &hintIndex{lists: make([][]hint, 1)}
	for i, r := range rules {
		for _, text := range r.hints {
			x.add(hint{text, 1 << i})
		}
	}
	x.add(hint{`\u`, escaped})
	x.add(hint{`\/`, escaped})
	return x
}

func (x *hintIndex) add(h hint) {
	at := &x.at[h.text[0]][h.text[1]]
	if *at == 0 {
		*at = uint8(len(x.lists))
		x.lists = append(x.lists, nil)
	}
	x.lists[*at] = append(x.lists[*at], h)
}

// mayHoldSecret says whether JSON that isn't decoded is worth looking into.
func mayHoldSecret(json string) bool { return hinted(json) != 0 }

// hinted gives the rules of which s holds a hint, in any case.
func hinted(s string) ruleSet {
	var found ruleSet
	for i := 0; i+1 < len(s); i++ {
		a, b := lower(s[i]), lower(s[i+1])
		if a >= 128 || b >= 128 {
			if folds(s[i:]) {
				return anyRule
			}
			continue
		}
		at := hints.at[a][b]
		if at == 0 {
			continue
		}
		for _, h := range hints.lists[at] {
			if found&h.rules == 0 && hasFolded(s[i:], h.text) {
				found |= h.rules
			}
		}
	}
	return found
}

// folds says whether s begins with a letter beyond ASCII that patterns without case
// take for one of ASCII: the Kelvin sign for k, the long s for s.
func folds(s string) bool {
	const kelvin, longS = "\u212a", "\u017f"
	return len(s) >= len(kelvin) && s[:len(kelvin)] == kelvin || len(s) >= len(longS) && s[:len(longS)] == longS
}

// hasFolded says whether s begins with a text in lower case.
func hasFolded(s, text string) bool {
	if len(s) < len(text) {
		return false
	}
	for i := range len(text) {
		if lower(s[i]) != text[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
