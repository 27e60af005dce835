//go:build unix

package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// browserTime is for a slow machine; the page itself takes a second or two.
const browserTime = 60 * time.Second

// TestChromium has a browser visit a page that uses the module, and says what
// it has seen.
func TestChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser is not short")
	}
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("chromium is not installed")
	}
	page, err := os.ReadFile("testdata/page.html")
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan []byte, 1)
	mux := http.NewServeMux()
	mux.Handle("/", newFakeServer())
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	mux.HandleFunc("/live/client.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		w.Write(Module)
	})
	mux.HandleFunc("/result", func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading the result: %v", err)
		}
		select {
		case result <- text:
		default:
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)

	gone, output := visit(t, browser, s.URL+"/page")
	select {
	case text := <-result:
		compare(t, text)
	case <-gone:
		t.Skipf("the browser does not run here:\n%s", output())
	case <-time.After(browserTime):
		t.Fatalf("the page has not come to its end:\n%s", output())
	}
}

// visit starts a browser, which ends with the test.
func visit(t *testing.T, browser, url string) (gone <-chan struct{}, output func() string) {
	t.Helper()
	out := &lockedBuffer{}
	home := t.TempDir()
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--enable-logging=stderr", "--user-data-dir="+home, url)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its processes end with it
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Skipf("the browser does not run here: %v", err)
	}
	done := make(chan struct{})
	go func() { // the cleanup waits for it
		defer close(done)
		_ = cmd.Wait() // that it was killed is not news
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may be gone already
		<-done
		// A process of it may write into its folder to the last.
		for range 50 {
			if os.RemoveAll(home) == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return done, out.String
}

// compare looks at what the page has seen.
func compare(t *testing.T, text []byte) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	err := json.Unmarshal([]byte(`{
		"publish": [1, [{"text": "grüße\n"}]],
		"questions": ["grüße\n", "u", 0, 4000000000],
		"broken off": [[1, 2, 3], []],
		"restarted": [[4], []],
		"published while away": [6, [5]],
		"forgotten": [[7], ["news"]],
		"expired": [8],
		"refused": ["forbidden", "secret"],
		"events": [[9, 10], ["news"], "unavailable"],
		"a second channel in events": [11],
		"states": ["open", "open", "open", "open", "open", "open", "events", "closed 1000"],
		"not wanted": "closed",
		"addresses": ["ws://a.test/ws", "wss://a.test/ws", "ws://a.test/ws", "wss://a.test/ws", "ws://HERE/live/ws", "ws://a.test/ws"]
	}`), &want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the page has seen (-want +got):\n%s", diff)
	}
}

// lockedBuffer may be read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements [io.Writer]. More than anybody reads is left out.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	const most = 64 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < most {
		l.b.Write(p)
	}
	return len(p), nil
}

// String is what the page has said, or else the browser.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var console []string
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, line)
		}
	}
	if len(console) > 0 {
		return strings.Join(console, "")
	}
	return l.b.String()
}
