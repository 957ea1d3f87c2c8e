package shellagent

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runLine(t *testing.T, shell, line string, env ...string) (finished, []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var chunks []string
	c := command{shell: shell, line: line, dir: t.TempDir(), env: append([]string{"PATH=" + os.Getenv("PATH")}, env...)}
	done, err := c.run(ctx, func(s string) { chunks = append(chunks, s) })
	if err != nil {
		t.Fatal(err)
	}
	return done, chunks
}

func TestCommand(t *testing.T) {
	bash, err := findShell()
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{bash, "/bin/sh"} {
		for _, tc := range []struct {
			name, line, said string
			exit             int
		}{
			{"both outputs", "echo out; echo err >&2", "out\nerr\n", 0},
			{"exit", "exit 3", "", 3},
			{"last status", "true; false", "", 1},
			{"killed", "kill -9 $$", "", 137},
			{"not UTF-8", `printf 'a\377b'`, "a\uFFFDb", 0},
			{"a rune in two writes", `printf '\303'; sleep 0.05; printf '\244'`, "ä", 0},
			{"half a rune at the end", `printf 'x\303'`, "x\uFFFD", 0},
			{"no input", "cat", "", 0},
			{"quotes", `printf '%s' "it's \"so\""`, `it's "so"`, 0},
			{"what stays behind is killed", "sleep 1000 & echo x", "x\n", 0},
			{"what hides is left", "setsid sleep 3 & echo x", "x\n", 0},
		} {
			t.Run(shell+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				done, chunks := runLine(t, shell, tc.line)
				if said := strings.Join(chunks, ""); said != tc.said || done.tail != tc.said || done.exit != tc.exit || done.truncated {
					t.Errorf("said %q, %+v", said, done)
				}
			})
		}
		t.Run(shell+" surroundings", func(t *testing.T) {
			done, _ := runLine(t, shell, "mkdir d; cd d; export A='x y' B=2; C=3; exit 4", "B=2", "D=1")
			if !strings.HasSuffix(done.dir, "/d") || len(done.env) != 1 || done.env["A"] != "x y" || done.exit != 4 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// What decides which program a name means is the agent's, whatever a command says.
func TestMeaningIsNotCarried(t *testing.T) {
	bash, err := findShell()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`export PATH=/workspace/bin:$PATH`, `export HOME=/workspace CDPATH=/workspace ENV=/workspace/rc BASH_ENV=/workspace/rc`,
		`export LD_LIBRARY_PATH=/workspace LD_PRELOAD=`, `export PS4='$(id)' GLOBIGNORE='*' PROMPT_COMMAND=id IFS=x POSIXLY_CORRECT=1`,
		`ls() { echo forged; }; export -f ls`, `set -x; export SHELLOPTS`, `shopt -s extglob; export BASHOPTS`,
		`printf '%s\n' "$PWD" >&3; printf 'PATH=/workspace\0LD_AUDIT=x\0BASH_FUNC_ls%%%%=() { :; }\0=x\0' >&3; trap - EXIT`,
	} {
		done, _ := runLine(t, bash, line)
		if done.env == nil || len(done.env) > 0 || done.dir == "" {
			t.Errorf("%s left %q in %q", line, done.env, done.dir)
		}
	}
}

func TestLongOutputIsBounded(t *testing.T) {
	done, chunks := runLine(t, "/bin/sh", "yes äöü | head -c 6000000")
	total := 0
	for _, c := range chunks {
		if total += len(c); len(c) > chunkBytes || !utf8.ValidString(c) {
			t.Fatalf("a chunk of %d bytes", len(c))
		}
	}
	if total > shownBytes+100 || !strings.Contains(chunks[len(chunks)-1], "isn't shown") {
		t.Errorf("showed %d bytes, last %.40q", total, chunks[len(chunks)-1])
	}
	if len(done.tail) > tailBytes || len(done.tail) < tailBytes-4 || !done.truncated || !utf8.ValidString(done.tail) {
		t.Errorf("tail of %d bytes, truncated %v", len(done.tail), done.truncated)
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	c := command{shell: "/nowhere/sh", line: "true", dir: t.TempDir()}
	if _, err := c.run(t.Context(), func(string) {}); err == nil {
		t.Error("a shell that doesn't exist ran")
	}
}
