//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"millrace/internal/process/servertest"
)

// load is how much goes on during upgrades: so many connections of each kind.
type load struct {
	http1, http2, http3, posts, downloads, uploads, webSockets, streams, channels, handshakes int

	upgrades, reloads int           // reloads before each upgrade
	think             time.Duration // between two requests of a connection
	patience          string        // limits.upgrade_timeout
}

// loads are what is done every day, and with MILLRACE_UPGRADE_STRESS=1: 1,000
// connections, 10 upgrades, 100 reloads before each. That takes some minutes.
func loads() load {
	if os.Getenv("MILLRACE_UPGRADE_STRESS") == "" {
		return load{http1: 10, http2: 5, http3: 3, posts: 10, downloads: 3, uploads: 3, webSockets: 10, streams: 3, channels: 3, handshakes: 5, upgrades: 3, reloads: 5, think: time.Millisecond, patience: "2s"}
	}
	return load{http1: 300, http2: 150, http3: 50, posts: 100, downloads: 50, uploads: 50, webSockets: 200, streams: 50, channels: 50, handshakes: 50, upgrades: 10, reloads: 100, think: 250 * time.Millisecond, patience: "8s"}
}

// loaded is a server under load.
type loaded struct {
	*upgraded
	load
	secure  string
	tls     *tls.Config
	ctx     context.Context
	clients sync.WaitGroup

	mu       sync.Mutex
	upgrades [][2]time.Time // when each began and ended
	done     map[string]*atomic.Int64
	again    atomic.Int64 // requests over HTTP/3 that were made again
	events   atomic.Int64 // of channels
}

// keep has n clients of a kind do something again and again.
func (l *loaded) keep(kind string, n int, begin func() (once func() error, end func())) {
	count := new(atomic.Int64)
	l.done[kind] = count
	for range n {
		l.clients.Go(func() {
			once, end := begin()
			defer end()
			for l.ctx.Err() == nil {
				if err := once(); err != nil {
					l.t.Errorf("%s: %v", kind, err)
					return
				}
				count.Add(1)
			}
		})
	}
}

// always is begin for clients that keep nothing.
func always(once func() error) func() (func() error, func()) {
	return func() (func() error, func()) { return once, func() {} }
}

// ask gets a small page.
func (l *loaded) ask(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(text) != "home" {
		return fmt.Errorf("%s, %q, %w", resp.Status, text, err)
	}
	time.Sleep(l.think)
	return nil
}

// client keeps one connection.
func (l *loaded) client(url string, h2 bool) func() (func() error, func()) {
	return func() (func() error, func()) {
		tr := &http.Transport{TLSClientConfig: l.tls.Clone(), ForceAttemptHTTP2: h2}
		c := &http.Client{Transport: tr}
		return func() error { return l.ask(c, url) }, tr.CloseIdleConnections
	}
}

// quic keeps one connection over HTTP/3. A request that was rejected, or whose
// connection was closed in good order before its answer began, is made again over
// another one, as clients do (RFC 9114, 4.1.1 and 5.2).
func (l *loaded) quic() (func() error, func()) {
	var tr *http3.Transport
	end := func() {
		if tr != nil {
			_ = tr.Close()
		}
		tr = nil
	}
	return func() error {
		for {
			if tr == nil {
				tr = &http3.Transport{TLSClientConfig: l.tls.Clone()}
			}
			err := l.ask(&http.Client{Transport: tr}, "https://"+l.secure+"/")
			if !leaves(err) {
				return err
			}
			l.again.Add(1)
			end()
		}
	}, end
}

// leaves reports whether a server says by an error that it ends.
func leaves(err error) bool {
	if e, ok := errors.AsType[*http3.Error](err); ok && e.Remote {
		return e.ErrorCode == http3.ErrCodeRequestRejected || e.ErrorCode == http3.ErrCodeNoError
	}
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok && e.Remote {
		return e.ErrorCode == quic.ApplicationErrorCode(http3.ErrCodeNoError)
	}
	return false
}

// download is slow.
func (l *loaded) download() error {
	resp, err := http.Get("http://" + l.addr + "/large")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	total := int64(0)
	for {
		n, err := io.CopyN(io.Discard, resp.Body, 1<<20)
		if total += n; errors.Is(err, io.EOF) && total == 8<<20 {
			return nil
		} else if err != nil {
			return fmt.Errorf("%d bytes: %w", total, err)
		}
		time.Sleep(max(50*time.Millisecond, l.think))
	}
}

// upload is slow, too.
func (l *loaded) upload() error {
	read, write := io.Pipe()
	go func() { // ends with the request
		for range 10 {
			_, _ = write.Write(make([]byte, 10000))
			time.Sleep(max(30*time.Millisecond, l.think))
		}
		_ = write.Close()
	}()
	resp, err := http.Post("http://"+l.addr+"/up/", "text/plain", read)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "100000" {
		return fmt.Errorf("%s %q, %w", resp.Status, text, err)
	}
	return nil
}

// post keeps one connection, over which it asks for what must not happen twice: a
// client repeats no such request that the server may have seen. The pauses are
// about as long as connections stay idle at the end of a process.
func (l *loaded) post() (func() error, func()) {
	tr := &http.Transport{TLSClientConfig: l.tls.Clone()}
	c := &http.Client{Transport: tr}
	return func() error {
		body := struct{ io.Reader }{strings.NewReader("once")} // of which the client cannot make another one
		resp, err := c.Post("http://"+l.addr+"/up/", "text/plain", body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "4" {
			return fmt.Errorf("%s %q, %w", resp.Status, text, err)
		}
		time.Sleep(rand.N(2200 * time.Millisecond))
		return nil
	}, tr.CloseIdleConnections
}

// streamed is how many events a stream of the upstream has.
const streamed = 20

// stream reads a stream of events to its end, which comes by itself.
func (l *loaded) stream() error {
	resp, err := http.Get("http://" + l.addr + "/stream/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if n := strings.Count(string(text), "\n\n"); err != nil || n != streamed {
		return fmt.Errorf("%d events, %w", n, err)
	}
	return nil
}

// subscribe reads a channel until the server ends the stream, which is between two
// events and without an error. The client that comes back over the same connection
// may be sent away once more.
func (l *loaded) subscribe() error {
	r, err := http.NewRequestWithContext(l.ctx, http.MethodGet, "http://"+l.addr+"/live/sse?channel=news", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		if l.ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case l.ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case !bytes.HasSuffix(text, []byte("\n\n")):
		return fmt.Errorf("a stream is %q", text)
	}
	l.events.Add(int64(bytes.Count(text, []byte("tick"))))
	return nil
}

// connect opens a WebSocket of channels, which no upgrade refuses, and asks it
// something: it is answered, or told when to come back.
func (l *loaded) connect() error {
	nc, err := net.Dial("tcp", l.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(nc, "GET /live/ws HTTP/1.1\r\nHost: "+l.addr+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	in := bufio.NewReader(nc)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return errors.New(resp.Status)
	}
	_, _ = io.WriteString(nc, "\x81\x8d\x00\x00\x00\x00{\"ping\":true}")
	text, err := in.ReadString('}')
	if err != nil || !strings.Contains(text, "pong") && !strings.Contains(text, "reconnect") {
		return fmt.Errorf("a WebSocket of channels answers %q, %w", text, err)
	}
	time.Sleep(l.think)
	return nil
}

// publish says something on the channel.
func (l *loaded) publish() error {
	resp, err := http.Post("http://"+l.addr+"/live/publish?channel=news", "text/plain", strings.NewReader("tick"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %q %w", resp.Status, text, err)
	}
	time.Sleep(50 * time.Millisecond)
	return nil
}

// early reports whether a WebSocket was closed before the time that the old process
// has: so much after the upgrade that took its listener away.
func (l *loaded) early(begun, ended time.Time) bool {
	patience, _ := time.ParseDuration(l.patience)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.upgrades {
		if u[1].IsZero() || u[1].After(begun) {
			return ended.Before(u[0].Add(patience))
		}
	}
	return true // nothing was upgraded since
}

// reload has another config read, and says so through the admin listener.
func (l *loaded) reload(routes string) error {
	l.config(routes)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(l.dir, "a.sock"))
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post("http://admin/reload", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := httputil.DumpResponse(resp, true)
		return errors.New(string(text))
	}
	return nil
}

// loadedUpstream counts the bytes of uploads, and has a stream of events.
func loadedUpstream(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("/up/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	mux.HandleFunc("/stream/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range streamed {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(150 * time.Millisecond)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func startLoaded(t *testing.T) (l *loaded, routes string) {
	t.Helper()
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("home"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(files, "large"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	up := loadedUpstream(t)
	l = &loaded{upgraded: newUpgraded(t), load: loads(), secure: freeAddr(t), done: map[string]*atomic.Int64{}}
	c := servertest.Make(t, "localhost", "127.0.0.1")
	cert, key := servertest.Files(t, c, l.dir)
	l.tls = &tls.Config{RootCAs: servertest.Pool(c)}
	l.upgraded.tls = fmt.Sprintf("tls: {listen: %q, cert: %q, key: %q, http3: true}\n", l.secure, cert, key)
	l.upgraded.pause = max(10*time.Millisecond, l.think)
	l.timeout = l.patience
	routes = fmt.Sprintf("/: {static: {root: %q}}, /ws/: {websocket: echo}, /live/: {websocket: {channels: {}, reconnect: 1s}}, /stream/: {proxy: %q}, /up/: {proxy: {to: [%q], stream: true}}, /c/: {cache: {to: [%q], disk: cache}}", files, up, up, up)
	l.start(routes)
	return l, routes
}

// TestUpgradeLosesNothing: what goes on, goes on under reloads and upgrades.
func TestUpgradeLosesNothing(t *testing.T) {
	t.Parallel() // beside the scripts: it mostly waits
	l, routes := startLoaded(t)
	var stop context.CancelFunc
	l.ctx, stop = context.WithCancel(t.Context())
	defer l.clients.Wait() // also where it fails
	defer stop()
	l.keep("HTTP/1.1", l.http1, l.client("http://"+l.addr+"/", false))
	l.keep("HTTP/2", l.http2, l.client("https://"+l.secure+"/", true))
	l.keep("HTTP/3", l.http3, l.quic)
	l.keep("POSTs", l.posts, l.post)
	l.keep("downloads", l.downloads, always(l.download))
	l.keep("uploads", l.uploads, always(l.upload))
	l.keep("event streams", l.streams, always(l.stream))
	l.keep("channels", l.channels, always(l.subscribe))
	l.keep("handshakes of channels", l.handshakes, always(l.connect))
	l.keep("publications", 1, always(l.publish))
	var closes atomic.Int64
	for range l.webSockets {
		l.clients.Go(func() {
			if err := l.echo(l.ctx, func(code int, begun time.Time) {
				if closes.Add(1); code != 1012 || l.early(begun, time.Now()) {
					t.Errorf("a WebSocket was closed with %d after %s", code, time.Since(begun))
				}
			}); err != nil {
				t.Errorf("WebSockets: %v", err)
			}
		})
	}
	reloads := 0
	for i := range l.load.upgrades {
		for range l.reloads {
			reloads++
			if err := l.reload(routes + fmt.Sprintf(", /x/: {respond: '%d'}", reloads)); err != nil {
				t.Errorf("reload %d: %v", reloads, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		l.mu.Lock()
		l.upgrades = append(l.upgrades, [2]time.Time{time.Now()})
		l.mu.Unlock()
		if text, err := l.upgrade(); err != nil {
			t.Errorf("upgrade %d: %s", i, text)
		}
		l.mu.Lock()
		l.upgrades[i][1] = time.Now()
		l.mu.Unlock()
		if text, err := l.upgrade(); err == nil || !strings.Contains(text, "still finishes") {
			t.Errorf("a third generation: %s", text)
		}
		l.waitFor(func() bool { return len(l.processes()) == 1 || t.Failed() })
	}
	stop()
	l.clients.Wait()
	if want := int64(l.load.upgrades * l.webSockets); closes.Load() != want {
		t.Errorf("%d WebSockets were told to come back, not %d", closes.Load(), want)
	}
	for kind, n := range l.done {
		t.Logf("%s: %d", kind, n.Load())
		if n.Load() == 0 {
			t.Errorf("%s: none", kind)
		}
	}
	if l.events.Load() == 0 {
		t.Error("no client has heard of a publication")
	}
	t.Logf("%d upgrades, %d reloads; %d WebSockets sent away after their time; %d events of channels; %d requests over HTTP/3 made again", l.load.upgrades, reloads, closes.Load(), l.events.Load(), l.again.Load())
	if t.Failed() {
		t.Log(l.log)
	}
}
