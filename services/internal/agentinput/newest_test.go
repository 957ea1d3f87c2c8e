package agentinput

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// said makes a message as a word says: u is a user's, a the assistant's, c(x) calls
// the tool x and r(x) is its result. All take as many bytes.
func said(i int, word string) json.RawMessage {
	id := fmt.Sprintf("%04d", i)
	var m string
	switch kind, call, _ := strings.Cut(strings.TrimSuffix(word, ")"), "("); kind {
	case "u":
		m = fmt.Sprintf(`{"id":%q,"role":"user"`, id)
	case "c":
		m = fmt.Sprintf(`{"id":%q,"role":"assistant","toolCalls":[{"id":%q}]`, id, call)
	case "r":
		m = fmt.Sprintf(`{"id":%q,"role":"tool","toolCallId":%q`, id, call)
	default:
		m = fmt.Sprintf(`{"id":%q,"role":"assistant"`, id)
	}
	const each = 100
	return json.RawMessage(m + `,"p":"` + strings.Repeat("x", each-len(m)-len(`,"p":""},`)) + `"}`)
}

func conversation(words ...string) []json.RawMessage {
	history := make([]json.RawMessage, len(words))
	for i, w := range words {
		history[i] = said(i, w)
	}
	return history
}

// What is left out is the oldest, to a user's message, and it is said.
func TestNewest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		history string
		fits    int   // messages
		kept    []int // nil for all, without a marker
	}{
		"nothing":                              {"", 0, nil},
		"all fits":                             {"u a u a", 4, nil},
		"to a user's message":                  {"u a u a u a", 5, []int{2, 3, 4, 5}},
		"exactly":                              {"u a u a u a", 4, []int{2, 3, 4, 5}},
		"the question alone":                   {"u a u a u", 1, []int{4}},
		"a call with its result":               {"u c(x) r(x) u c(y) r(y)", 4, []int{3, 4, 5}},
		"a result that came a turn later":      {"u a u c(x) u r(x) u a", 5, []int{6, 7}},
		"a last turn that is too long":         {"u u c(x) r(x) c(y) r(y) a", 4, []int{1, 4, 5, 6}},
		"not half of a call":                   {"u u c(x) r(x) c(y) r(y)", 2, []int{1}},
		"calls beside each other stay so":      {"u c(x) c(y) r(x) r(y) a", 4, []int{0, 5}},
		"a result of a call that nobody knows": {"u a u r(z)", 2, []int{2, 3}},
		"no user at all":                       {"a c(x) r(x) a", 3, []int{1, 2, 3}},
	} {
		history := conversation(strings.Fields(tc.history)...)
		got, err := newest(history, tc.fits*100)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := slices.Clone(history)
		if tc.kept != nil {
			want = []json.RawMessage{omitted(len(history) - len(tc.kept))}
			for _, i := range tc.kept {
				want = append(want, history[i])
			}
		}
		if got == nil || !slices.EqualFunc(got, want, same) {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

func omitted(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(
		`{"content":"%d earlier messages are left out of this input; the session's log has them.","id":"holdfast-omitted","role":"developer"}`, n))
}

func same(a, b json.RawMessage) bool { return string(a) == string(b) }

func TestMessageThatIsNone(t *testing.T) {
	t.Parallel()
	if got, err := newest([]json.RawMessage{json.RawMessage(`"no object"`)}, 1); err == nil {
		t.Errorf("%s", got)
	}
}

// However a conversation went: what is given fits, ends as the conversation does, has
// what the run answers, begins with a user's message, parts no result from its call,
// and could not be longer.
func TestNewestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var words []string
		calls := 0
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			word := rapid.SampledFrom([]string{"u", "a", "c", "r"}).Draw(t, "kind")
			switch word {
			case "c":
				calls++
				word = fmt.Sprintf("c(%d)", calls)
			case "r":
				word = fmt.Sprintf("r(%d)", rapid.IntRange(0, calls).Draw(t, "call")) // 0 was never made
			}
			words = append(words, word)
		}
		history := conversation(words...)
		limit := rapid.IntRange(100, 100*len(words)+50).Draw(t, "limit")
		got, err := newest(history, limit)
		if err != nil {
			t.Fatal(err)
		}
		if size(history...) <= limit {
			if !slices.EqualFunc(got, history, same) {
				t.Fatalf("%v fits, and is %s", words, got)
			}
			return
		}
		kept := got[1:]
		if !same(got[0], omitted(len(history)-len(kept))) {
			t.Fatalf("marker %s for %d of %d", got[0], len(kept), len(history))
		}
		if size(kept...) > limit {
			t.Fatalf("%d bytes, limit %d", size(kept...), limit)
		}
		asked := lastIndex(words, "u")
		if asked >= 0 && (!strings.Contains(string(kept[0]), `"role":"user"`) || !slices.ContainsFunc(kept, func(m json.RawMessage) bool { return same(m, history[asked]) })) {
			t.Fatalf("%v: %s", words, kept)
		}
		from := len(history) - len(kept)
		if len(kept) > 0 && !same(kept[0], history[from]) { // the question, and what is newest
			from++
			kept = kept[1:]
		} else if longer := lastIndex(words[:from], "u"); longer >= 0 && whole(words[longer:], words[:longer]) && size(history[longer:]...) <= limit {
			t.Fatalf("%v: from %d on fits too", words, longer)
		}
		if !slices.EqualFunc(kept, history[from:], same) {
			t.Fatalf("%v: %s is no end of it", words, kept)
		}
		if !whole(words[from:], words[:from]) {
			t.Fatalf("%v from %d on parts a result from its call", words, from)
		}
	})
}

func lastIndex(words []string, word string) int {
	for i, w := range slices.Backward(words) {
		if w == word {
			return i
		}
	}
	return -1
}

// whole says that no result in kept is of a call in dropped.
func whole(kept, dropped []string) bool {
	return !slices.ContainsFunc(kept, func(w string) bool {
		return w[0] == 'r' && slices.Contains(dropped, "c"+w[1:])
	})
}
