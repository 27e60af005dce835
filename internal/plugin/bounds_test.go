//go:build !small

package plugin

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/observe/meter"
)

// Instructions for tables.
const (
	funcref   = 0x70
	nullRef   = 0xd0
	prefixed  = 0xfc
	growTable = 0x0f
)

// TestTablesAreBounded: tables take memory besides the guest's own, so one that may grow
// has to say how far, and none may be larger than memory allows.
func TestTablesAreBounded(t *testing.T) {
	t.Parallel()
	grows := seq([]byte{nullRef, funcref, 0x41, 1, prefixed, growTable, 0, drop}, next())
	for name, c := range map[string]struct {
		tables  []byte // their number, and of each type, flags, least and most
		request []byte
		says    string // "": it suits
	}{
		"does not grow":           {seq([]byte{1, funcref, 0, 10}), next(), ""},
		"grows to a maximum":      {seq([]byte{1, funcref, 1, 10, 20}), grows, ""},
		"grows without one":       {seq([]byte{1, funcref, 0, 10}), grows, "may grow without bound"},
		"grows to a large one":    {seq([]byte{1, funcref, 1, 10}, leb(1<<20)), grows, "may take 8388608 bytes: memory allows 1048576"},
		"large from the start":    {seq([]byte{1, funcref, 0}, leb(1<<20)), next(), "may take 8388608 bytes"},
		"a large maximum, unused": {seq([]byte{1, funcref, 1, 10}, leb(1<<20)), next(), ""},
		"many of them":            {seq([]byte{3}, bytes.Repeat(seq([]byte{funcref, 1, 10}, leb(1<<16)), 3)), grows, "may take 1572864 bytes"},
		"the second one":          {seq([]byte{2, funcref, 1, 10, 20, funcref, 0, 10}), grows, "may grow without bound"},
	} {
		module := guest{request: c.request, tables: c.tables}.module()
		p, err := New(Options{Module: "t.wasm", Memory: 1 << 20}, module, Deps{Log: slog.New(slog.DiscardHandler)})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if p != nil {
			_ = p.Close()
		}
	}
	for _, module := range []string{"", "\x00asm\x01\x00\x00\x00\x04", "\x00asm\x01\x00\x00\x00\x04\x7f", "\x00asm\x01\x00\x00\x00\x04\x02\x05\x70"} {
		if list, err := tablesOf([]byte(module)); len(list) > 0 || err == nil && module != "" {
			t.Errorf("%q has the tables %v, %v", module, list, err)
		}
	}
}

// TestStackIsBounded: calls without end are a failure of one request.
func TestStackIsBounded(t *testing.T) {
	t.Parallel()
	// handle_request calls itself.
	p, logged := open(t, Options{Timeout: time.Minute}, guest{request: []byte{0x10, imports}}.module())
	for range 2 {
		if res := serve(Handler([]*Plugin{p}, http.HandlerFunc(hello)), "GET", "/", ""); res.StatusCode != 500 {
			t.Errorf("%d", res.StatusCode)
		}
	}
	if said := logged.String(); strings.Count(said, "stack overflow") != 2 {
		t.Errorf("the log says:\n%s", said)
	}
}

// drip is a body of which a byte comes each second.
type drip struct{ left int }

// Read implements [io.Reader].
func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	d.left--
	time.Sleep(time.Second)
	p[0] = 'x'
	return 1, nil
}

// TestSlowUploads: a client that sends its body byte by byte keeps no instance for longer
// than upload_timeout.
func TestSlowUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(meter.Plugin)
		p, err := New(Options{Module: "t.wasm", Instances: 1}, guest{request: seq(call(fnReadBody, 0, 32, 60), []byte{drop}, next())}.module(), Deps{Meters: m, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		h := Handler([]*Plugin{p}, http.HandlerFunc(hello))
		for _, c := range []struct {
			length, status int
			proto          string
		}{{9, 200, "HTTP/1.1"}, {40, 408, "HTTP/1.1"}, {40, 408, "HTTP/2.0"}} {
			r := httptest.NewRequest("POST", "/", &drip{c.length})
			r.Proto = c.proto
			r.ProtoMajor = int(c.proto[5] - '0')
			w := httptest.NewRecorder()
			began := time.Now()
			h.ServeHTTP(w, r)
			if took := time.Since(began); w.Code != c.status || took > 11*time.Second {
				t.Errorf("%+v: %d after %s: %s", c, w.Code, took, w.Body)
			}
			if (w.Header().Get("Connection") == "close") != (c.status == 408 && r.ProtoMajor == 1) {
				t.Errorf("%+v: the header is %v", c, w.Header())
			}
		}
		if m.Uploads.Load() != 2 || m.Traps.Load() != 0 || m.Busy.Load() != 0 || m.Requests.Load() != 3 {
			t.Errorf("counted are %d slow uploads, %d traps, %d requests, %d still busy", m.Uploads.Load(), m.Traps.Load(), m.Requests.Load(), m.Busy.Load())
		}
	})
}

// TestCounted: each failure is counted by its reason.
func TestCounted(t *testing.T) {
	t.Parallel()
	m := new(meter.Plugin)
	run := func(g guest, o Options, job http.Handler) {
		o.Module, o.Timeout = "t.wasm", 50*time.Millisecond
		p, err := New(o, g.module(), Deps{Meters: m, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		serve(Handler([]*Plugin{p}, job), "GET", "/", "")
	}
	job := http.HandlerFunc(hello)
	run(guest{request: []byte{unreachable}}, Options{}, job)
	run(guest{request: seq(call(fnSetStatus, 42), next())}, Options{}, job)
	run(guest{request: seq([]byte{loop, noResult, branch, 0, end}, next())}, Options{}, job)
	p, err := New(Options{Module: "t.wasm", Timeout: 50 * time.Millisecond, Instances: 1}, guest{request: next()}.module(), Deps{Meters: m, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	serve(Handler([]*Plugin{p}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.Busy.Load() != 1 || m.Instances.Load() != 1 {
			t.Errorf("%d of %d instances are busy", m.Busy.Load(), m.Instances.Load())
		}
		serve(Handler([]*Plugin{p}, job), "GET", "/", "") // another client's
	})), "GET", "/", "")
	if m.Traps.Load() != 2 || m.Timeouts.Load() != 1 || m.Refused.Load() != 1 || m.Requests.Load() != 4 || m.Busy.Load() != 0 {
		t.Errorf("%d traps, %d timeouts, %d refused, %d requests, %d busy", m.Traps.Load(), m.Timeouts.Load(), m.Refused.Load(), m.Requests.Load(), m.Busy.Load())
	}
}

// TestAnswersWithoutBodies: what has no body says so, whoever chose the method and the
// status.
func TestAnswersWithoutBodies(t *testing.T) {
	t.Parallel()
	hold := seq(call(fnEnableFeatures, 2), []byte{drop})
	status := func(n int) []byte { // set_status_code(n), which takes two bytes
		return []byte{0x41, byte(n&0x7f | 0x80), byte(n >> 7), 0x10, fnSetStatus}
	}
	job := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		if w.WriteHeader(http.StatusOK); r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "body")
		}
	})
	for name, c := range map[string]struct {
		guest        guest
		status       int
		length, body string
	}{
		"GET made HEAD":         {guest{request: seq(call(fnSetMethod, 0, 4), next()), data: "HEAD"}, 200, "", ""},
		"205 of its own":        {guest{request: seq(status(205), call(fnWriteBody, 1, 0, 3), done()), data: "new"}, 205, "0", ""},
		"205 of the job's":      {guest{request: seq(hold, next()), response: status(205)}, 205, "0", ""},
		"205 before the job's":  {guest{request: seq(status(205), call(fnWriteBody, 1, 0, 3), next()), data: "new"}, 205, "0", ""},
		"204 of its own":        {guest{request: seq(status(204), call(fnWriteBody, 1, 0, 3), done()), data: "new"}, 204, "", ""},
		"GET made HEAD, held":   {guest{request: seq(hold, call(fnSetMethod, 0, 4), next()), data: "HEAD"}, 200, "0", ""},
		"200 is as it was":      {guest{request: next()}, 200, "4", "body"},
		"200 of its own, empty": {guest{request: done()}, 200, "0", ""},
	} {
		p, logged := open(t, Options{BodyBytes: bytesize.Size(1024)}, c.guest.module())
		s := httptest.NewServer(Handler([]*Plugin{p}, job))
		res, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(res.Body)
		if name == "GET made HEAD" { // by chunks, or with a length of nothing
			res.Header.Del("Content-Length")
		}
		if err != nil || res.StatusCode != c.status || string(body) != c.body || res.Header.Get("Content-Length") != c.length {
			t.Errorf("%s: %d, Content-Length %q, %q, %v\n%s", name, res.StatusCode, res.Header.Get("Content-Length"), body, err, logged)
		}
		_ = res.Body.Close()
		s.Close()
	}
}
