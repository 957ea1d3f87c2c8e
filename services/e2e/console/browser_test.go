package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

const defaultChromium = "/usr/bin/chromium"

// chromium gives the browser's path, or skips.
func chromium(t *testing.T) string {
	t.Helper()
	path := os.Getenv("HOLDFAST_CHROMIUM")
	if path == "" {
		path = defaultChromium
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("HOLDFAST_REQUIRE_CHROMIUM") == "1" {
		t.Fatalf("there is no Chromium at %s, and HOLDFAST_REQUIRE_CHROMIUM asks for one", path)
	}
	t.Skipf("SKIPPED: THE CONSOLE IS NOT TESTED: there is no Chromium at %s; HOLDFAST_CHROMIUM names another", path)
	return ""
}

// cuttable lets a test cut the page's connections at the browser's edge while the
// program behind goes on: what is open is closed, and whatever is tried until the
// cut is undone fails as it does without a network.
const cuttable = `(() => {
  const Socket = WebSocket, call = fetch, open = new Set();
  window.testCut = { sockets: false, calls: false };
  window.WebSocket = class extends Socket {
    constructor(url) {
      super(window.testCut.sockets ? url.replace('/v1/ws', '/v1/nothing') : url);
      open.add(this);
    }
  };
  window.fetch = (...args) => window.testCut.calls ? Promise.reject(new TypeError('cut by the test')) : call(...args);
  window.testCutSockets = () => { window.testCut.sockets = true; for (const s of open) s.close(); };
})()`

// tab is one page in a browser of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
	// faults are the page's uncaught exceptions and what it breaks of its policy.
	mu     sync.Mutex
	faults []string
	// foreign says that another site's page is shown: what the browser refuses it is no
	// fault, and is kept in refused.
	foreign bool
	refused []string
}

// open starts a browser on a page. What the page does wrong meanwhile fails the test
// at its end.
func open(t *testing.T, url string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	b.do("prepare", func(ctx context.Context, s *chromedp.Target) (chromedp.Void, error) {
		if _, err := cdp.Call(ctx, s, log.Enable, cdp.Empty{}); err != nil {
			return chromedp.Void{}, err
		}
		_, err := cdp.Call(ctx, s, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: cuttable})
		return chromedp.Void{}, err
	})
	t.Cleanup(b.checkFaults)
	b.size(1280, 800)
	b.do("open "+url, chromedp.Navigate(url))
	b.load()
	return b
}

// load waits until the console has started. A browser gives up what it loads when the
// machine's network changes, as it does while containers start; then it is loaded anew.
func (b *tab) load() {
	b.t.Helper()
	const tries, each = 4, harness.Patience / 4
	for range tries {
		ctx, cancel := context.WithTimeout(b.ctx, each)
		_, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean(document.querySelector('#app > *'))", chromedp.WithPollingTimeout(each)))
		cancel()
		if err == nil {
			return
		}
		b.do("load again", chromedp.Reload())
	}
	b.t.Fatal("the console doesn't start")
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.faults = append(b.faults, "exception: "+text)
	case *log.EventEntryAdded:
		if !strings.Contains(e.Entry.Text, "Content Security Policy") {
			return
		}
		if b.foreign {
			b.refused = append(b.refused, e.Entry.Text)
		} else {
			b.faults = append(b.faults, e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		b.faults = append(b.faults, "dialog: "+e.Message)
	}
}

// elsewhereIs says whether another site's page is shown.
func (b *tab) elsewhereIs(foreign bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.foreign = foreign
}

// refusedFrames is what the browser said when it refused another site's page
// something in the console's name.
func (b *tab) refusedFrames() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.refused, "\n")
}

func (b *tab) checkFaults() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.t.Errorf("the page: %s", f)
	}
	if b.t.Failed() {
		b.saveScreenshot("failed")
	}
}

// do does one thing in the page, in time.
func (b *tab) do(what string, action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// eval gives the value of an expression in the page, once it has one.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return v
}

// run evaluates for the effect.
func (b *tab) run(statements string) {
	b.t.Helper()
	eval[bool](b, "(() => {"+statements+"; return true})()")
}

// until waits for a condition in the page.
func (b *tab) until(what, condition string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+condition+")", chromedp.WithPollingTimeout(harness.Patience)))
	if err != nil {
		b.saveScreenshot("waiting")
		b.t.Fatalf("waited in vain until %s: %v\nthe page says:\n%s", what, err, eval[string](b, "document.body.innerText"))
	}
}

// sees waits until an element of the selector has the text.
func (b *tab) sees(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s shows %q", selector, text), having(selector, text)+".length > 0")
}

// having is the elements of the selector that have the text, as an expression.
func having(selector, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%s)].filter((e) => e.textContent.includes(%s))", quote(selector), quote(text))
}

// click clicks a thing once it is there and can be clicked. The text may be "".
func (b *tab) click(selector, text string) {
	b.t.Helper()
	found := having(selector, text)
	b.until(fmt.Sprintf("%s %q can be clicked", selector, text), found+".some((e) => !e.disabled)")
	b.run(found + ".find((e) => !e.disabled).click()")
}

// fill types into a field, as people do: the keys go to whatever has the focus.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	field := "document.querySelector(" + quote(selector) + ")"
	b.until(selector+" has the focus", field+" && ("+field+".focus(), document.activeElement === "+field+")")
	b.keys(text)
}

// enter presses Enter as one event that carries its character: one that comes apart
// from its key is typed even where the page has handled the key.
func (b *tab) enter() {
	b.t.Helper()
	b.do("press Enter", func(ctx context.Context, s *chromedp.Target) (chromedp.Void, error) {
		press := input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: '\r', Text: "\r",
		}
		if _, err := cdp.Call(ctx, s, input.DispatchKeyEvent, press); err != nil {
			return chromedp.Void{}, err
		}
		press.Type, press.Text = input.DispatchKeyEventTypeKeyUp, ""
		_, err := cdp.Call(ctx, s, input.DispatchKeyEvent, press)
		return chromedp.Void{}, err
	})
}

// keys presses keys.
func (b *tab) keys(keys string) {
	b.t.Helper()
	b.do("type", chromedp.KeyEvent(keys))
}

// toBeginning scrolls the timeline, which has the focus, to its beginning. What still
// arrives at the end may take the view along once more.
func (b *tab) toBeginning() {
	b.t.Helper()
	const there = "document.querySelector('.timeline').scrollTop === 0"
	for range 20 {
		if b.keys(kb.Home); eval[bool](b, there) {
			break
		}
	}
	b.until("the beginning is in view", there)
}

// visit goes to a page of the console.
func (b *tab) visit(fragment string) {
	b.t.Helper()
	b.run("location.hash = " + quote(fragment))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do("resize", chromedp.EmulateViewport(width, height))
}

// scheme says what the system prefers: "light" or "dark".
func (b *tab) scheme(name string) {
	b.t.Helper()
	b.do("prefer "+name, func(ctx context.Context, s *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, s, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return chromedp.Void{}, err
	})
}

// saveScreenshot keeps a picture where HOLDFAST_SCREENSHOTS says; for people, no
// test depends on it.
func (b *tab) saveScreenshot(name string) {
	dir := os.Getenv("HOLDFAST_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Logf("screenshot: %v", err)
		return
	}
	path := filepath.Join(dir, strings.ReplaceAll(b.t.Name(), "/", "-")+"-"+name+".png")
	if err := os.WriteFile(path, picture, 0o600); err != nil {
		b.t.Logf("screenshot: %v", err)
	}
}

// quote writes a Go string as one of JavaScript.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always can
	}
	return string(b)
}
