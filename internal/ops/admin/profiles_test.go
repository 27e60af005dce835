package admin

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	standard "net/http/pprof" // what the paths and parameters are of
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"
)

// profilesMux has our profiles, and standardMux those of net/http/pprof.
func profilesMux(taken func([]byte)) *http.ServeMux {
	mux := http.NewServeMux()
	profiles(mux, taken)
	return mux
}

func standardMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", standard.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", standard.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", standard.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", standard.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", standard.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", standard.Trace)
	return mux
}

func answer(mux *http.ServeMux, method, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w
}

// Tools that were made for net/http/pprof get the same answers here.
func TestProfilesAnswerAsNetHTTPPprof(t *testing.T) {
	here, _, _, _ := runtime.Caller(0)
	pc := "0x" + strconv.FormatUint(uint64(here), 16)
	for _, c := range []struct{ method, target, body string }{
		{"GET", "/debug/pprof/", ""},
		{"GET", "/debug/pprof/heap", ""},
		{"GET", "/debug/pprof/heap?gc=1", ""},
		{"GET", "/debug/pprof/heap?debug=1", ""},
		{"GET", "/debug/pprof/goroutine?debug=2", ""},
		{"GET", "/debug/pprof/heap?seconds=x", ""},
		{"GET", "/debug/pprof/heap?seconds=0", ""},
		{"GET", "/debug/pprof/heap?seconds=1&debug=1", ""},
		{"GET", "/debug/pprof/profile?seconds=1", ""},
		{"GET", "/debug/pprof/trace?seconds=0.05", ""},
		{"GET", "/debug/pprof/nothing", ""},
		{"GET", "/debug/pprof/nothing/below", ""},
		{"GET", "/debug/pprof/cmdline", ""},
		{"POST", "/debug/pprof/heap", ""},
		{"GET", "/debug/pprof/symbol", ""},
		{"GET", "/debug/pprof/symbol?" + pc + "+x+" + pc, ""},
		{"POST", "/debug/pprof/symbol", pc + "+0x1"},
	} {
		got, want := answer(profilesMux(nil), c.method, c.target, c.body), answer(standardMux(), c.method, c.target, c.body)
		if got.Code != want.Code {
			t.Errorf("%s %s: status %d, want %d", c.method, c.target, got.Code, want.Code)
		}
		for _, name := range []string{"Content-Type", "Content-Disposition", "X-Content-Type-Options", "X-Go-Pprof", "Allow"} {
			if c.target == "/debug/pprof/nothing/below" && name == "X-Go-Pprof" {
				continue // the mux answers
			}
			if got, want := got.Header().Get(name), want.Header().Get(name); got != want {
				t.Errorf("%s %s: %s %q, want %q", c.method, c.target, name, got, want)
			}
		}
		if strings.Contains(c.target, "cmdline") || strings.Contains(c.target, "symbol") {
			if got.Body.String() != want.Body.String() {
				t.Errorf("%s %s: %q, want %q", c.method, c.target, got.Body, want.Body)
			}
		}
	}
}

// What is sent can be read, and the page leads to all of it.
func TestProfilesCanBeRead(t *testing.T) {
	mux := profilesMux(nil)
	page := answer(mux, "GET", "/debug/pprof/", "").Body.String()
	for _, p := range pprof.Profiles() {
		if !strings.Contains(page, `<a href="`+p.Name()+`?debug=1">`) {
			t.Errorf("no link to %s", p.Name())
		}
		if _, err := profile.Parse(answer(mux, "GET", "/debug/pprof/"+p.Name(), "").Body); err != nil {
			t.Errorf("%s: %v", p.Name(), err)
		}
	}
	if trace := answer(mux, "GET", "/debug/pprof/trace?seconds=0.01", "").Body.Bytes(); !bytes.HasPrefix(trace, []byte("go 1.")) {
		t.Errorf("a trace begins with %.20q", trace)
	}
}

// A profile with seconds says what came in that time, not what was there before.
func TestProfilesOfGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old, born = 3, 5
		leave := make(chan bool)
		wait := func() { <-leave }
		for range old {
			go wait()
		}
		go func() {
			time.Sleep(time.Second)
			for range born {
				go wait()
			}
		}()
		w := answer(profilesMux(nil), "GET", "/debug/pprof/goroutine?seconds=2", "")
		close(leave)
		p, err := profile.Parse(w.Body)
		if err != nil || p.DurationNanos < int64(2*time.Second) {
			t.Fatalf("%d ns, %v", p.DurationNanos, err)
		}
		var grown int64
		for _, s := range p.Sample {
			for _, l := range s.Location {
				if strings.Contains(l.Line[0].Function.Name, "TestProfilesOfGrowth.func1.1") {
					grown += s.Value[0]
				}
			}
		}
		if grown != born {
			t.Errorf("%d goroutines more, want %d:\n%v", grown, born, p)
		}
	})
}

// A client that leaves ends its profile.
func TestProfileOfAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, target := range []string{"/debug/pprof/goroutine?seconds=200", "/debug/pprof/heap?seconds=200"} {
			const leave = time.Second
			r := httptest.NewRequest("GET", target, nil)
			ctx, cancel := context.WithTimeout(t.Context(), leave)
			began := time.Now()
			profilesMux(nil).ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
			cancel()
			if took := time.Since(began); took != leave {
				t.Errorf("%s took %v, the client left after %v", target, took, leave)
			}
		}
	})
}
