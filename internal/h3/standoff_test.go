package h3_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"millrace/internal/server"
	"millrace/internal/stall"
)

// Streams that wait for their client are bounded over HTTP/3 as they are over HTTP/2
// (TestStandoff of the server).
func TestStandoff(t *testing.T) {
	const most, conns, streams = 40, 4, 60
	for _, path := range []string{"/large", "/"} {
		r := start(t, server.Options{StalledStreams: most})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for range conns {
			c := r.client(&quic.Config{InitialStreamReceiveWindow: 1, MaxStreamReceiveWindow: 1})
			for range streams {
				str, err := c.h3.OpenRequestStream(ctx)
				if err != nil {
					break // the server has ended it
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost"+path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = str.SendRequestHeader(req), str.Close() // as above
			}
		}
		for {
			r.srv.Measure()
			refused := r.meters.HTTP3Refused.Crowd.Load() + r.meters.Refused.Crowd.Load()
			if (refused > 0 || path == "/") && r.meters.BufferedStreams.Load() <= most/2*stall.Cost && r.meters.Streams.Load() <= most+stall.Few*conns {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %d streams, %d bytes, %d refused", path, r.meters.Streams.Load(), r.meters.BufferedStreams.Load(), refused)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
