package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// host answers paths that begin with /hot with a body of that length.
type host struct {
	net.Conn
	h      http.Handler
	inner  sync.WaitGroup
	hot    map[string]string
	nobody net.Listener // closed

	mu     sync.Mutex
	turn   Wait
	turns  int
	starts int
	still  bool // net/http does not start: the test is net/http

	taken []uint32 // by Forward: paths that begin with /carry
	held  int64

	conn   *Conn
	beside chan *Stream  // of paths that begin with /beside
	fast   chan struct{} // not nil: Forward of these waits until it is closed
}

func (h *host) Forward(id uint32, fields []hpack.HeaderField) (taken bool) {
	for _, f := range fields {
		if f.Name == ":path" && strings.HasPrefix(f.Value, "/beside") {
			h.beside <- h.conn.Beside(id)
			h.mu.Lock()
			fast := h.fast
			h.mu.Unlock()
			if fast != nil {
				<-fast
			}
			return true
		}
		if f.Name == ":path" && strings.HasPrefix(f.Value, "/carry") {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.taken = append(h.taken, id)
			return true
		}
	}
	return false
}

func (h *host) Cancel(id uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = slices.DeleteFunc(h.taken, func(other uint32) bool { return other == id })
}

func (h *host) OnLoop() bool { return false }

func (h *host) Full() <-chan struct{} { return nil }

func (h *host) Wake() {}

func (h *host) Buffered(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held += n
}

// has is how many requests are taken, and how many bytes are held.
func (h *host) has() (taken int, held int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.taken), h.held
}

func (h *host) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, CipherSuite: tls.TLS_AES_128_GCM_SHA256}
}

func (h *host) Answer(dst []byte, id uint32, fields []hpack.HeaderField, room Room) ([]byte, int, bool) {
	for _, f := range fields {
		body, hot := h.hot[f.Value]
		if f.Name != ":path" || !hot {
			continue
		}
		if len(body) > room.Window {
			return dst, 0, false
		}
		block := AppendField([]byte{0x88}, 0, "x-lane", "hot")
		dst = AppendHeaders(dst, id, block, body == "")
		if body != "" {
			dst = AppendData(dst, id, []byte(body), room.Frame)
		}
		return dst, len(body), true
	}
	return dst, 0, false
}

func (h *host) Inner(nc net.Conn) {
	h.mu.Lock()
	h.starts++
	still := h.still
	h.mu.Unlock()
	if still {
		return
	}
	srv := &http.Server{Handler: refusing(h.h), ReadHeaderTimeout: patience, MaxHeaderBytes: 64<<10 - 320, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP2(true)
	_ = srv.Serve(h.nobody) // which sets HTTP/2 up
	h.inner.Go(func() {
		srv.TLSNextProto["unencrypted_http2"](srv, tls.Client(unwrapped{Conn: nc}, nil), srv.Handler)
	})
}

// unwrapped is a connection in the form in which net/http takes it.
type unwrapped struct{ net.Conn }

func (u unwrapped) UnencryptedNetConn() net.Conn { return u.Conn }

func (h *host) Awaits(w Wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn = w
	h.turns++
}

func (h *host) waits() Wait {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.turn
}

// rig is a Conn and its client.
type rig struct {
	*testing.T
	host *host
	conn *Conn
	nc   net.Conn
	fr   *http2.Framer
	enc  *hpack.Encoder
	b    bytes.Buffer
	dec  *hpack.Decoder
	got  map[string]string
	done chan error
	acts chan func() // done between two calls of Run
}

// run calls Run until the connection ends.
func (r *rig) run() error {
	for {
		err := r.conn.Run()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		_ = r.host.SetReadDeadline(time.Time{})
		(<-r.acts)()
	}
}

// act does something between two calls of Run.
func (r *rig) act(f func()) {
	r.Helper()
	did := make(chan struct{})
	_ = r.host.SetReadDeadline(time.Unix(1, 0))
	select {
	case r.acts <- func() { f(); close(did) }:
		<-did
	case <-time.After(patience):
		r.Fatal("Run does not return")
	}
}

// start connects a client that has said what it wants.
func start(t *testing.T, h http.Handler, said ...http2.Setting) *rig {
	t.Helper()
	r := connect(t, h)
	r.raw([]byte(http2.ClientPreface))
	r.must(r.fr.WriteSettings(said...))
	return r
}

// connect connects a client.
func connect(t *testing.T, h http.Handler) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	r := &rig{T: t, nc: nc, fr: http2.NewFramer(nc, nc), done: make(chan error, 1), acts: make(chan func()), got: map[string]string{}}
	r.fr.AllowIllegalWrites = true
	r.fr.SetMaxReadFrameSize(1 << 20)
	_ = nc.SetDeadline(time.Now().Add(patience))
	r.enc = hpack.NewEncoder(&r.b)
	r.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) { r.got[f.Name] = f.Value })
	r.host = &host{Conn: other, h: h, nobody: l, beside: make(chan *Stream, 100), hot: map[string]string{
		"/hot": "hot", "/hot/none": "", "/hot/1000": strings.Repeat("h", 1000), "/hot/60000": strings.Repeat("h", 60000),
	}}
	settings := appendSetting(nil, settingMaxFrameSize, 16<<10)
	r.conn = New(r.host, Options{Settings: settings, HeaderList: 64 << 10, Stall: time.Minute})
	r.host.conn = r.conn
	go func() {
		err := r.run()
		_ = other.Close()
		r.conn.Release()
		r.host.inner.Wait()
		r.done <- err
	}()
	t.Cleanup(func() {
		_ = nc.Close()
		r.ended()
	})
	return r
}

// ended waits until the connection has ended.
func (r *rig) ended() error {
	r.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(patience):
		r.Fatal("the connection does not end")
		return nil
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) raw(b []byte) {
	r.Helper()
	_, err := r.nc.Write(b)
	r.must(err)
}

// fields encodes a request.
func (r *rig) fields(path string, more ...string) []byte {
	r.b.Reset()
	list := append([]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", path}, more...)
	for i := 0; i < len(list); i += 2 {
		r.must(r.enc.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]}))
	}
	return r.b.Bytes()
}

// ask asks for a path. Without more it is a request without a body.
func (r *rig) ask(id uint32, path string, more ...string) {
	r.Helper()
	p := http2.HeadersFrameParam{StreamID: id, BlockFragment: r.fields(path, more...), EndStream: true, EndHeaders: true}
	r.must(r.fr.WriteHeaders(p))
}

// next is the next frame but for SETTINGS and WINDOW_UPDATE.
func (r *rig) next() http2.Frame {
	r.Helper()
	for {
		f, err := r.fr.ReadFrame()
		r.must(err)
		switch f := f.(type) {
		case *http2.SettingsFrame, *http2.WindowUpdateFrame:
			continue
		case *http2.HeadersFrame:
			clear(r.got)
			b := f.HeaderBlockFragment()
			for len(b) > 1 && b[0]&0xe0 == 0x20 { // the decoder takes one size at a time
				n := 1
				for more := b[0]&0x1f == 0x1f; more; n++ {
					more = b[n]&0x80 != 0
				}
				_, err := r.dec.Write(b[:n])
				r.must(errors.Join(err, r.dec.Close()))
				b = b[n:]
			}
			_, err := r.dec.Write(b)
			r.must(err)
			if f.HeadersEnded() {
				r.must(r.dec.Close())
			}
		}
		return f
	}
}

// answer reads the answer to the only stream that is open.
func (r *rig) answer(id uint32) string {
	r.Helper()
	var body strings.Builder
	for {
		f := r.next()
		if f.Header().StreamID != id {
			r.Fatalf("stream %d: got %v", id, f)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			body.Write(f.Data())
		case *http2.RSTStreamFrame:
			r.Fatalf("stream %d: %v", id, f.ErrCode)
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) {
			return body.String()
		}
	}
}

// gone reads up to GOAWAY.
func (r *rig) gone() *http2.GoAwayFrame {
	r.Helper()
	for {
		if f, ok := r.next().(*http2.GoAwayFrame); ok {
			return &http2.GoAwayFrame{LastStreamID: f.LastStreamID, ErrCode: f.ErrCode}
		}
	}
}

// pages answers everything that is not hot.
func pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/cold", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Table", "kept in a table") // which the encoder indexes
		_, _ = io.WriteString(w, "cold")
	})
	mux.HandleFunc("/table/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Table", "kept in a table "+path.Base(r.URL.Path))
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("b"), 200000))
	})
	mux.HandleFunc("/wide", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Wide", strings.Repeat("w", 40000))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Trailer", r.Trailer.Get("X-End"))
		_, _ = w.Write(b)
	})
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return mux
}

// refusing is a handler behind what a Conn has refused.
func refusing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if no := RefusalOf(r); no.Status != 0 {
			http.Error(w, no.Text, no.Status)
			return
		}
		h.ServeHTTP(w, r)
	})
}
