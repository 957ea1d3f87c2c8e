package kubelet

import (
	"sort"
	"strings"
)

// rewriter replaces what a container would find in its own file system and network
// namespace by what there is instead (see the package comment).
type rewriter []replacement

type replacement struct {
	from, to      string
	before, after string // what may stand next to it, besides nothing
}

// around are the characters that end a path in a list, an assignment or a sentence.
const around = "=:,;| \t\n\"'"

// newRewriter replaces mountPaths by folders, and addresses.
func newRewriter(mounts map[string]string, podIP, loopback string) rewriter {
	var r rewriter
	for path, dir := range mounts {
		r = append(r, replacement{from: strings.TrimRight(path, "/"), to: dir, before: around, after: around + "/"})
	}
	// The longest first, so that a volume inside of another one is found.
	sort.Slice(r, func(i, j int) bool { return len(r[i].from) > len(r[j].from) })
	const besides = around + "/@[]"
	return append(r,
		replacement{from: "0.0.0.0", to: podIP, before: besides, after: besides},
		replacement{from: "127.0.0.1", to: loopback, before: besides, after: besides},
		replacement{from: "localhost", to: loopback, before: besides, after: besides},
	)
}

// text replaces all that stands by itself in s, each once.
func (r rewriter) text(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		n := r.at(s, i, &out)
		if n == 0 {
			out.WriteByte(s[i])
			n = 1
		}
		i += n
	}
	return out.String()
}

// at writes the replacement for what stands at s[i:] and returns how long that was.
func (r rewriter) at(s string, i int, out *strings.Builder) int {
	for _, c := range r {
		if c.from == "" || !strings.HasPrefix(s[i:], c.from) {
			continue
		}
		end := i + len(c.from)
		if i > 0 && !strings.ContainsRune(c.before, rune(s[i-1])) || end < len(s) && !strings.ContainsRune(c.after, rune(s[end])) {
			continue
		}
		out.WriteString(c.to)
		return len(c.from)
	}
	return 0
}

func (r rewriter) texts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = r.text(s)
	}
	return out
}
