package experiment

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"millrace/lab/record"
	"millrace/lab/site"
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
	if p := got[1]; p.Body != 5000 || p.Head <= 0 || p.Header.Get("Content-Length") != "" {
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

// TestConfigs: every server that has a config gets all of its fields, and nginx and
// HAProxy take theirs.
func TestConfigs(t *testing.T) {
	pages, err := specs.ReadDir("specs")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		s, err := Read(strings.TrimSuffix(page.Name(), ".yaml"), record.Full)
		if err != nil {
			t.Fatal(err)
		}
		r := NewRun(Env{Mode: record.Full, Work: t.TempDir(), Bench: &subject.Bench{Dir: "../bench"}, Millrace: "/bin/true"}, s, &record.Result{})
		if r.Fields["Cert"], r.Fields["Key"], err = site.Certificate(r.Env.Work); err != nil {
			t.Fatal(err)
		}
		r.Fields["Both"], r.Fields["FPM"], r.Fields["PHPRoot"] = filepath.Join(r.Env.Work, "both.pem"), "/x/fpm", "/x"
		r.Fields["UpstreamHost"], r.Fields["UpstreamPort"], r.Fields["Seconds"], r.Fields["Answers"] = "127.0.0.1", "8083", "2", "/x"
		r.Fields["Upstream"], r.Fields["Echo"] = "127.0.0.1:8083", "127.0.0.1:8084"
		for _, a := range s.Arms {
			program, _, _ := strings.Cut(a.Run, " ")
			flag := map[string]string{"nginx": "-t", "haproxy": "-c"}[program]
			l, err := r.launch(t.Context(), a)
			if a.Config == "" || err != nil && flag != "" {
				continue
			}
			l.Arm = a
			_, args, leave, err := r.ready(l)
			if err != nil {
				t.Errorf("%s, %s: %v", s.Name, a.Name, err)
				continue
			}
			if flag != "" {
				if out, err := exec.CommandContext(t.Context(), l.exe, append(args, flag)...).CombinedOutput(); err != nil {
					t.Errorf("%s, %s: %v\n%s", s.Name, a.Name, err, out)
				}
			}
			if err := leave(); err != nil {
				t.Error(err)
			}
		}
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
