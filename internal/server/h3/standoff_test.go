package h3_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"millrace/internal/server"
	"millrace/internal/wire/stall"
)

// Streams that wait for their client are bounded over HTTP/3 as they are over HTTP/2
// (TestStandoff of the server).
func TestStandoff(t *testing.T) {
	const most, conns, streams = 40, 4, 60
	for _, c := range []struct {
		method, path string
		ends         bool // the request
	}{{http.MethodGet, "/large", true}, {http.MethodGet, "/", true}, {http.MethodGet, "/", false}, {"REPORT", "/upload", false}} {
		r := start(t, server.Options{StalledStreams: most})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for range conns {
			client := r.client(&quic.Config{InitialStreamReceiveWindow: 1, MaxStreamReceiveWindow: 1})
			for range streams {
				soon, cancel := context.WithTimeout(ctx, time.Second)
				str, err := client.h3.OpenRequestStream(soon)
				cancel()
				if err != nil {
					break // the server has ended it, or allows it no more
				}
				req, err := http.NewRequestWithContext(ctx, c.method, "https://localhost"+c.path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				_ = str.SendRequestHeader(req) // as above
				if c.ends {
					_ = str.Close()
				} else {
					time.Sleep(time.Millisecond) // the server has the header before the next comes
				}
			}
		}
		for {
			if c.path == "/" && c.ends {
				runtime.GC() // has the streams counted that quic-go keeps
			}
			r.srv.Measure()
			refused := r.meters.HTTP3Refused.TooMany.Load() + r.meters.Refused.TooMany.Load()
			if refused > 0 && r.meters.BufferedStreams.Load() <= most/2*stall.Cost && r.meters.Streams.Load() <= most+stall.Few*conns {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%+v: %d streams, %d bytes, %d refused", c, r.meters.Streams.Load(), r.meters.BufferedStreams.Load(), refused)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// While many streams are kept for clients that do not take their answers, a new client
// gets fewer at a time, and its answers.
func TestFewStreams(t *testing.T) {
	r := start(t, server.Options{StalledStreams: 40}) // 160 kept, 80 of one client
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	may := func() (n int) { // how many streams a new client may open
		client := r.client(nil)
		defer client.CloseWithError(0, "")
		for {
			if _, err := client.OpenStream(); err != nil {
				return n
			}
			n++
		}
	}
	if n := may(); n != 100 {
		t.Errorf("%d streams", n)
	}
	kept := r.client(&quic.Config{InitialStreamReceiveWindow: 1, MaxStreamReceiveWindow: 1})
	for range 70 {
		str, err := kept.h3.OpenRequestStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_ = str.SendRequestHeader(req) // the answer says whether it came
		_ = str.Close()
	}
	for {
		runtime.GC()
		if n := may(); n == 10 {
			break
		} else if n != 100 || ctx.Err() != nil {
			t.Fatalf("%d streams", n)
		}
	}
	r.client(nil).page(t)
}
