//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/process/servertest"
)

// A standoff is a crowd of streams whose client takes nothing.
type standoff struct {
	addr, path  string
	connections int
	streams     int // on each

	opened, ended atomic.Int64
	ramp          sync.WaitGroup // until each connection has opened what it may
}

var standoffTLS = &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}

// http2 opens the streams over HTTP/2, without a window for any of them, calls ready,
// and holds them until ctx ends.
func (s *standoff) http2(ctx context.Context, from string, ready func()) error {
	conf := standoffTLS.Clone()
	conf.NextProtos = []string{"h2"}
	nc, err := (&tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: conf}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	fr := http2.NewFramer(nc, nc)
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", s.path}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // to memory
	}
	_, err = io.WriteString(nc, http2.ClientPreface)
	err = errors.Join(err, fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for id := uint32(1); err == nil && id < uint32(2*s.streams); id += 2 {
		s.opened.Add(1)
		err = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	}
	ready()
	for err == nil {
		var f http2.Frame
		if f, err = fr.ReadFrame(); err == nil && f.Header().Type == http2.FrameRSTStream {
			s.ended.Add(1)
		}
	}
	return err
}

// http3 does the same over HTTP/3.
func (s *standoff) http3(ctx context.Context, from string, ready func()) error {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)})
	if err != nil {
		return err
	}
	defer socket.Close()
	conf := standoffTLS.Clone()
	conf.NextProtos = []string{"h3"}
	to, err := net.ResolveUDPAddr("udp", s.addr)
	if err != nil {
		return err
	}
	qc, err := quic.Dial(ctx, socket, to, conf, &quic.Config{InitialStreamReceiveWindow: 1, MaxStreamReceiveWindow: 1})
	if err != nil {
		return err
	}
	defer qc.CloseWithError(0, "")
	defer time.AfterFunc(time.Second, ready).Stop() // it may be allowed fewer streams
	cc := (&http3.Transport{}).NewClientConn(qc)
	for range s.streams {
		str, err := cc.OpenRequestStream(ctx)
		if err != nil {
			return err
		}
		s.opened.Add(1)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost"+s.path, http.NoBody)
		if err != nil {
			return err
		}
		if err = errors.Join(str.SendRequestHeader(req), str.Close()); err != nil {
			return err
		}
	}
	ready()
	select {
	case <-qc.Context().Done():
	case <-ctx.Done():
	}
	return nil
}

// memory is what a process has of memory in KiB: now, and at most so far.
func memory(t *testing.T, pid int) (now, most int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmRSS:":
			now, _ = strconv.Atoi(f[1])
		case "VmHWM:":
			most, _ = strconv.Atoi(f[1])
		}
	}
	return now, most
}

// visits asks for pages over HTTP/2 from an address, every few milliseconds, and
// returns how long each answer took.
func visits(t *testing.T, addr, from string, lasts time.Duration) (all []time.Duration) {
	t.Helper()
	tr := &http.Transport{
		TLSClientConfig: standoffTLS.Clone(), ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
	}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	tick := time.NewTicker(4 * time.Millisecond)
	defer tick.Stop()
	paths := []string{"/hot.html", "/file?x=1", "/p/"}
	for n, begun := 0, time.Now(); time.Since(begun) < lasts; n++ {
		at := time.Now()
		res, err := client.Get("https://" + addr + paths[n%len(paths)])
		if err != nil {
			t.Error(err)
			return all
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			t.Error(res.Status, err)
			return all
		}
		all = append(all, time.Since(at))
		<-tick.C
	}
	slices.Sort(all)
	return all
}

// TestStandoff: 50,000 streams whose client takes nothing cost the server at most
// 128 MiB, and leave another client's answers within twice the time that they take
// otherwise, and 20 ms. Like TestFlood a measurement.
func TestStandoff(t *testing.T) {
	if os.Getenv("MILLRACE_FLOOD") == "" {
		t.Skip("MILLRACE_FLOOD=1 measures it, in a minute")
	}
	const most, lasts = 128 << 10, 4 * time.Second
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100<<10)) }))
	defer up.Close()
	for _, path := range []string{"/file", "/p/", "/hot.html"} {
		for _, protocol := range []string{"h2", "h3"} {
			for _, attackers := range [][]string{{"127.0.0.1"}, {"127.0.0.2"}, {"127.0.0.2", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7"}} {
				t.Run(fmt.Sprint(protocol, path, len(attackers), attackers[0]), func(t *testing.T) {
					files := t.TempDir()
					for name, size := range map[string]int{"file": 1 << 20, "hot.html": 3000, "index.html": 100} {
						if err := os.WriteFile(filepath.Join(files, name), make([]byte, size), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					u := newUpgraded(t)
					secure := freeAddr(t)
					cert, key := servertest.Files(t, servertest.Make(t, "localhost", "localhost"), t.TempDir())
					u.tls = fmt.Sprintf("tls: {listen: %q, cert: %q, key: %q, redirect: false, http3: true}\n", secure, cert, key)
					u.start(fmt.Sprintf("/: {static: {root: %q}}, /p/: {proxy: %q}", files, up.URL))
					pid := u.processes()[0]
					p := func(all []time.Duration) time.Duration { return all[max(0, len(all)*99/100-1)] }
					idle := visits(t, secure, "127.0.0.1", lasts)
					before, _ := memory(t, pid)
					s := &standoff{addr: secure, path: path, connections: 500, streams: 100}
					ctx, cancel := context.WithCancel(t.Context())
					var all sync.WaitGroup
					gate := make(chan struct{}, 16)
					s.ramp.Add(s.connections)
					all.Go(func() {
						for i := range s.connections {
							gate <- struct{}{}
							all.Go(func() {
								time.AfterFunc(100*time.Millisecond, func() { <-gate })
								attack := s.http2
								if protocol == "h3" {
									attack = s.http3
								}
								ready := sync.OnceFunc(s.ramp.Done)
								_ = attack(ctx, attackers[i%len(attackers)], ready) // the server may end it
								ready()
							})
						}
					})
					began := time.Now()
					s.ramp.Wait()               // handshakes of the attack, with which its own process is busy
					time.Sleep(2 * time.Second) // and what the server makes of it
					took := time.Since(began).Round(time.Second / 10)
					busy := visits(t, secure, "127.0.0.1", lasts)
					now, highest := memory(t, pid)
					t.Logf("opened %d in %s, reset %d; idle p99 %s, busy p99 %s; memory %d KiB, then %d, at most %d: %d MiB more", s.opened.Load(), took, s.ended.Load(), p(idle), p(busy), before, now, highest, (highest-before)>>10)
					if highest-before > most {
						t.Errorf("%d KiB", highest-before)
					}
					if p(busy) > 2*p(idle)+20*time.Millisecond {
						t.Errorf("p99 is %s", p(busy))
					}
					cancel()
					all.Wait()
					t.Logf("log: %s", u.log.String())
				})
			}
		}
	}
}
