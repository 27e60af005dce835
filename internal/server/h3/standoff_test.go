package h3_test

import (
	"context"
	"net/http"
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
				str, err := client.h3.OpenRequestStream(ctx)
				if err != nil {
					break // the server has ended it
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
			r.srv.Measure()
			refused := r.meters.HTTP3Refused.TooMany.Load() + r.meters.Refused.TooMany.Load()
			if (refused > 0 || c.path == "/" && c.ends) && r.meters.BufferedStreams.Load() <= most/2*stall.Cost && r.meters.Streams.Load() <= most+stall.Few*conns {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%+v: %d streams, %d bytes, %d refused", c, r.meters.Streams.Load(), r.meters.BufferedStreams.Load(), refused)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
