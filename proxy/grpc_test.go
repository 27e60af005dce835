package proxy

import (
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
)

// grpcMessage is one message of gRPC: a byte for compression, its length, its text.
func grpcMessage(text string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	return append(b, text...)
}

func readMessage(t *testing.T, r io.Reader) string {
	t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatalf("reading a message: %v", err)
	}
	text := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(r, text); err != nil {
		t.Fatalf("reading a message: %v", err)
	}
	return string(text)
}

// grpcServer speaks as a server of gRPC does, over HTTP/2 and nothing else.
func grpcServer(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" {
		http.Error(w, "not gRPC", http.StatusHTTPVersionNotSupported)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	if r.URL.Path == "/echo.Echo/Refused" { // trailers only
		w.Header().Set("Grpc-Status", "12")
		return
	}
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	_ = http.NewResponseController(w).Flush()
	buf := make([]byte, 1<<10)
	for n := 0; ; { // a message for each that comes
		k, err := r.Body.Read(buf)
		if k > 0 {
			n++
			_, _ = w.Write(grpcMessage(fmt.Sprintf("%d %s", n, buf[5:k])))
			_ = http.NewResponseController(w).Flush()
		}
		if err != nil {
			break
		}
	}
	w.Header().Set("Grpc-Status", "0")
	w.Header().Set("Grpc-Message", "done")
}

// gRPC passes in both directions at once, with its trailers, to servers over
// h2c and TLS.
func TestGRPC(t *testing.T) {
	for _, protocol := range []string{"h2c", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			up := servertest.Serve(t, protocol, http.HandlerFunc(grpcServer))
			var o Options
			if protocol == "h2c" {
				o.To = []string{"h2c://" + up.Listener.Addr().String()}
			} else {
				o.To = []string{"https://" + up.Listener.Addr().String()}
				o.TLS.CA = filepath.Join(t.TempDir(), "ca.pem")
				ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})
				if err := os.WriteFile(o.TLS.CA, ca, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			pool, err := upstream.New(o.Options, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			g := rigTo(t, "h2", o)
			g.pool = pool
			for range 3 {
				talkGRPC(t, g)
			}
			resp, err := g.client.Do(grpcRequest(t, g.front.URL+"/echo.Echo/Refused", http.NoBody))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.Header.Get("Grpc-Status") != "12" {
				t.Errorf("an answer of trailers alone: %v", resp.Header)
			}
		})
	}
}

func grpcRequest(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	return r
}

// talkGRPC has a conversation: each message is answered before the next is sent.
func talkGRPC(t *testing.T, g *rig) {
	t.Helper()
	from, to := io.Pipe()
	resp, err := g.client.Do(grpcRequest(t, g.front.URL+"/echo.Echo/Talk", from))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for i := 1; i <= 5; i++ {
		if _, err := to.Write(grpcMessage(fmt.Sprint("say ", i))); err != nil {
			t.Fatal(err)
		}
		if got, want := readMessage(t, resp.Body), fmt.Sprintf("%d say %d", i, i); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	_ = to.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "done" {
		t.Errorf("the trailers are %v", resp.Trailer)
	}
}
