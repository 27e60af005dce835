package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
	"millrace/internal/wire/stall"
)

// standoffs are the ways in which a client of HTTP/2 has a stream wait for it.
var standoffs = map[string]struct {
	window uint32 // of a stream
	conn   uint32 // what is added to the connection's
	path   string
	fields []string
	upload bool
}{
	"no window":                   {0, 0, "/big", nil, false},
	"a narrow window":             {100, 0, "/big", nil, false},
	"a small answer":              {0, 0, "/small", nil, false},
	"no window of the connection": {1 << 20, 0, "/big", nil, false},
	"not reading":                 {1 << 30, 1 << 30, "/big", nil, false},
	"no body":                     {1 << 20, 1 << 20, "/upload", []string{"content-length", "10"}, true},
}

// Streams that wait for their client are bounded, for each address and for all: the
// connections with most of them are ended, and a slow reader of the same address goes
// on.
func TestStandoff(t *testing.T) {
	const most, conns, streams = 40, 6, 30
	for name, c := range standoffs {
		for _, off := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lane off %v", name, off), func(t *testing.T) {
				t.Parallel()
				mux := http.NewServeMux()
				mux.Handle("/", newPages())
				mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4<<20)) })
				mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", "5")
					_, _ = io.WriteString(w, "small")
				})
				mux.HandleFunc("/upload", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				r := start(t, plan{handler: mux, lane: lane.Options{Off: off}, limits: Options{StalledStreams: most}})
				slow := r.http2(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
				_ = slow.open(1, asking("/big"))
				_ = slow.WriteWindowUpdate(0, 16<<20)
				_ = slow.out.Flush()
				for range conns {
					h := r.http2(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.window})
					if c.conn > 0 {
						_ = h.WriteWindowUpdate(0, c.conn)
					}
					for i := range uint32(streams) {
						_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: asking(c.path, c.fields...), EndStream: !c.upload, EndHeaders: true})
					}
					_ = h.out.Flush() // the server may have ended it
					if name != "not reading" {
						go h.end() // ends with the connection
					}
				}
				refused := func() uint64 { return r.meters.HTTP2Refused.TooMany.Load() + r.meters.Refused.TooMany.Load() }
				servertest.Eventually(t, "some are refused", func() bool { return refused() > 0 })
				servertest.Eventually(t, "no more wait than may", func() bool {
					r.srv.Measure()
					return r.meters.BufferedStreams.Load() <= most/2*stall.Cost && r.srv.budget.Open() <= most+stall.Few*conns
				})
				if r.meters.HTTP2Refused.TooMany.Load() > 0 && !strings.Contains(r.log.String(), "limits.stalled_streams") {
					t.Errorf("the log does not name the setting: %s", r.log)
				}
				_ = slow.WriteWindowUpdate(1, 16<<20)
				_ = slow.out.Flush()
				if status, body := slow.answer(t, 1); status != "200" || len(body) != 4<<20 {
					t.Errorf("the slow reader got %s, %d bytes", status, len(body))
				}
			})
		}
	}
}

// Streams that have ended are not counted any more, however they have.
func TestStreamsAreCounted(t *testing.T) {
	for _, off := range []bool{false, true} {
		running, release := make(chan struct{}, 9), make(chan struct{})
		mux := http.NewServeMux()
		mux.Handle("/", newPages())
		mux.HandleFunc("/wait", func(http.ResponseWriter, *http.Request) {
			running <- struct{}{}
			<-release
		})
		r := start(t, plan{handler: mux, lane: lane.Options{Off: off}})
		h, gone := r.http2(t), r.http2(t)
		h.get(t, 1, "/slow")
		for id := uint32(3); id <= 7; id += 2 {
			_ = h.open(id, asking("/wait"))
		}
		_ = gone.open(1, asking("/wait"))
		_, _ = h.out.Flush(), gone.out.Flush()
		for range 4 {
			<-running
		}
		servertest.Eventually(t, "four are open", func() bool { return r.srv.budget.Open() == 4 })
		_ = h.WriteRSTStream(3, http2.ErrCodeCancel)
		_ = h.out.Flush()
		_ = gone.nc.Close()
		servertest.Eventually(t, "two are open", func() bool { return r.srv.budget.Open() == 2 })
		close(release)
		go h.end() // ends with the connection
		servertest.Eventually(t, "none is open", func() bool { return r.srv.budget.Open() == 0 })
		r.srv.Measure()
		if n := r.meters.Streams.Load(); n != 0 {
			t.Error(n)
		}
	}
}
