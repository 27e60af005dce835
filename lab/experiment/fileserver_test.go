package experiment

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"millrace/lab/subject"
)

func TestProbe(t *testing.T) {
	long := strings.Repeat("x", 5000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/short":
			w.Header().Set("Last-Modified", "yesterday")
			w.Write([]byte("short"))
		case "/long":
			w.Write([]byte(long[:2500])) // sent in chunks: its end is not known yet
			http.NewResponseController(w).Flush()
			w.Write([]byte(long[2500:]))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	got, err := probeAll(t.Context(), server.Listener.Addr().String(), []string{"/short", "/long", "/none", "/short"})
	if err != nil {
		t.Fatal(err)
	}
	head := len("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nLast-Modified: yesterday\r\nContent-Length: 5\r\n\r\n")
	if p := got[0]; p.Status != 200 || p.Body != 5 || p.Head != head || p.Header.Get("Last-Modified") == "" || p.Header.Get("Content-Length") != "5" {
		t.Errorf("short: %+v, not a head of %d bytes", p, head)
	}
	if p := got[1]; p.Body != 5000 || p.Header.Get("Transfer-Encoding") != "chunked" {
		t.Errorf("long: %+v", p)
	}
	if got[2].Status != http.StatusNotFound || got[3].Head != head {
		t.Errorf("none: %+v, short again: %+v", got[2], got[3])
	}
}

func TestProbeOfNobody(t *testing.T) {
	port, err := subject.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := probeAll(t.Context(), "127.0.0.1:"+strconv.Itoa(port), []string{"/"}); err == nil {
		t.Error("an answer from where nobody is")
	}
}

func TestNginxAcceptsItsConfig(t *testing.T) {
	dir := t.TempDir()
	s := &Servers{Env: Env{Work: dir, Bench: &subject.Bench{Dir: "../bench"}}}
	l := s.Nginx(t.Context(), "")
	if missing := (subject.Missing{}); errors.As(l.Missing, &missing) {
		t.Skip(l.Missing)
	}
	if l.Missing != nil {
		t.Fatal(l.Missing)
	}
	p := Place{Site: dir, Dir: dir, Address: "127.0.0.1:8081", Socket: filepath.Join(dir, "s")}
	if err := l.Prepare(p); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), l.Exe, append(l.Args(p), "-t")...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if l.Version == "" {
		t.Error("its version is unknown")
	}
}

func TestCertificate(t *testing.T) {
	if _, _, err := Certificate(t.TempDir()); err != nil {
		t.Error(err)
	}
	if _, _, err := Certificate("/none"); err == nil {
		t.Error("no folder, no error")
	}
}

// TestLarge: the file has its size, no holes, and the same bytes each time.
func TestLarge(t *testing.T) {
	const size = 3 << 20
	var all [][]byte
	for range 2 {
		dir := t.TempDir()
		if err := WriteLarge(dir, size); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, LargePath))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if len(all[0]) != size || !bytes.Equal(all[0], all[1]) || bytes.Contains(all[0], make([]byte, 16)) {
		t.Error("the large file is another one, or has holes")
	}
}

// TestInMemory: each folder is a new one, and it is removed with all in it.
func TestInMemory(t *testing.T) {
	dir, err := inMemory()
	if err != nil {
		t.Fatal(err)
	}
	other, err := inMemory()
	if err != nil || other == dir {
		t.Errorf("%s and %s, %v", dir, other, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Error(err)
	}
	for _, d := range []string{dir, other, ""} {
		if err := removeAll(d); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
