package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/upstream/faulty"
)

// dialling is a pool with one server to which a loop connects.
type dialling struct {
	*Pool
	t    *testing.T
	told bell
}

func newDialling(t *testing.T, to string, o Options) *dialling {
	t.Helper()
	o.To, o.Retries, o.Concurrency = []string{to}, Retries{Attempts: 1}, 2
	p, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &dialling{p, t, nil}
}

// begin has a loop connect and try to send.
func (d *dialling) begin() *Exchange {
	d.t.Helper()
	x := new(Exchange)
	d.told = make(bell)
	if !d.Begin(x, 0, &Request{Path: "/"}, d.told) || !x.Connects() {
		d.t.Fatal("the loop does not connect")
	}
	if !d.send(x) {
		d.t.Fatal("it cannot go on")
	}
	return x
}

func (d *dialling) send(x *Exchange) bool {
	return x.Send(&Request{Path: "/"}, nil, make([]byte, 0, 4<<10))
}

// writable waits until a line is connected, or has failed.
func (d *dialling) writable(x *Exchange) {
	d.t.Helper()
	f, err := syscall.Dup(x.line.fd)
	if err != nil {
		d.t.Fatal(err)
	}
	file := os.NewFile(uintptr(f), "line")
	defer file.Close()
	_ = file.SetDeadline(time.Now().Add(20 * time.Second))
	raw, err := file.SyscallConn()
	if err == nil {
		first := true
		err = raw.Write(func(uintptr) bool { was := first; first = false; return !was })
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// finish has a goroutine go on.
func (d *dialling) finish(ctx context.Context, x *Exchange) (string, error) {
	a, err := d.Continue(ctx, &Request{Path: "/"}, x, nil)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	return string(b), err
}

// clean checks that no place, and no descriptor more than before, is taken.
func (d *dialling) clean(before int) {
	d.t.Helper()
	for end := time.Now().Add(10 * time.Second); (d.Servers()[0].Running > 0 || descriptors(d.t) > before) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n, running := descriptors(d.t), d.Servers()[0].Running; running != 0 || n > before {
		d.t.Errorf("%d places are taken, and %d descriptors, where there were %d", running, n, before)
	}
}

// descriptors counts those of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestDialRefused: nobody listens.
func TestDialRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := newDialling(t, "http://"+ln.Addr().String(), Options{})
	ln.Close()
	before := descriptors(t)
	x := d.begin()
	if !x.Waits() {
		t.Fatal("the loop does not notice")
	}
	if <-d.told; x.Enter() {
		t.Fatal("there is a connection")
	}
	_, err = d.finish(t.Context(), x)
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "dial tcp "+ln.Addr().String()+": connect: connection refused") {
		t.Errorf("the error is %v", err)
	}
	if s := d.Servers()[0]; s.Fails != 1 || s.Requests != 1 {
		t.Errorf("it counts as %d failures of %d requests", s.Fails, s.Requests)
	}
	d.clean(before)
}

// TestHeaderTimeoutFromLoop: the time in which a loop has waited for the head of an answer
// counts.
func TestHeaderTimeoutFromLoop(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // which never answers
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := newDialling(t, "http://"+ln.Addr().String(), Options{HeaderTimeout: time.Hour})
	before := descriptors(t)
	x := d.begin()
	for x.Connects() {
		if d.writable(x); !x.Enter() || !d.send(x) {
			t.Fatal("it is not sent")
		}
	}
	x.asked -= time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(10*time.Second, cancel).Stop()
	if _, err := d.finish(ctx, x); !errors.Is(err, ErrTimeout) {
		t.Errorf("the error is %v", err)
	}
	d.clean(before)
}

// busy is a listener whose queue is full: who connects waits, until take.
type busy struct {
	net.Listener
	filler []net.Conn
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		t.Fatalf("a %T", ln)
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), 0) })
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &busy{Listener: ln}
	for {
		nc, err := net.DialTimeout("tcp", ln.Addr().String(), 200*time.Millisecond)
		if err != nil {
			return b
		}
		t.Cleanup(func() { nc.Close() })
		b.filler = append(b.filler, nc)
	}
}

// take makes room, and serves who comes then.
func (b *busy) take(t *testing.T, serve func(net.Conn)) {
	t.Helper()
	go func() {
		for n := 0; ; n++ {
			nc, err := b.Accept()
			if err != nil {
				return
			}
			if n < len(b.filler) {
				nc.Close()
				continue
			}
			serve(nc)
			nc.Close()
		}
	}()
}

// TestDialSlow: a connection that is not there at once, and comes, comes too late, is
// refused in the end, or whose client leaves before; on the loop, and on a goroutine that
// goes on.
func TestDialSlow(t *testing.T) {
	t.Run("comes on the loop", func(t *testing.T) {
		b := newBusy(t)
		d := newDialling(t, "http://"+b.Addr().String(), Options{})
		before := descriptors(t)
		x := d.begin()
		if !x.Connects() {
			t.Fatal("it does not wait for the connection")
		}
		b.take(t, oneAnswer(t))
		for d.writable(x); x.Connects(); {
			if !x.Enter() || !d.send(x) {
				t.Fatal("it is not sent")
			}
		}
		if got, err := d.finish(t.Context(), x); got != "here" || err != nil {
			t.Errorf("the answer is %q, %v", got, err)
		}
		d.closeIdle()
		d.clean(before + len(b.filler))
	})
	t.Run("comes for a goroutine", func(t *testing.T) {
		b := newBusy(t)
		d := newDialling(t, "http://"+b.Addr().String(), Options{})
		x := d.begin()
		time.AfterFunc(20*time.Millisecond, func() { b.take(t, oneAnswer(t)) })
		if got, err := d.finish(t.Context(), x); got != "here" || err != nil {
			t.Errorf("the answer is %q, %v", got, err)
		}
	})
	t.Run("speaks first", func(t *testing.T) {
		b := newBusy(t)
		d := newDialling(t, "http://"+b.Addr().String(), Options{})
		x := d.begin()
		b.take(t, func(nc net.Conn) {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"+faulty.Secret[:5])
			time.Sleep(200 * time.Millisecond)
		})
		d.writable(x)
		time.Sleep(50 * time.Millisecond)
		if x.Enter() && d.send(x) {
			t.Fatal("a request is sent")
		}
		if got, err := d.finish(t.Context(), x); !errors.Is(err, errEarly) {
			t.Errorf("the answer is %q, %v", got, err)
		}
	})
	t.Run("too late", func(t *testing.T) {
		b := newBusy(t)
		d := newDialling(t, "http://"+b.Addr().String(), Options{ConnectTimeout: 250 * time.Millisecond})
		before := descriptors(t)
		began := time.Now()
		_, err := d.finish(t.Context(), d.begin())
		if took := time.Since(began); !errors.Is(err, ErrTimeout) || took > 5*time.Second || took < 200*time.Millisecond {
			t.Errorf("after %s the error is %v", took, err)
		}
		d.clean(before)
	})
	t.Run("client leaves the loop", func(t *testing.T) {
		b := newBusy(t)
		d := newDialling(t, "http://"+b.Addr().String(), Options{})
		before := descriptors(t)
		for range 5 { // more than there are places
			d.begin().Discard()
		}
		d.clean(before)
		if s := d.Servers()[0]; s.Requests != 0 || s.Fails != 0 {
			t.Errorf("%d requests are counted, and %d failures", s.Requests, s.Fails)
		}
	})
	t.Run("client leaves the goroutine", func(t *testing.T) {
		b := newBusy(t)
		d := newDialling(t, "http://"+b.Addr().String(), Options{})
		before := descriptors(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := d.finish(ctx, d.begin()); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		d.clean(before)
		if s := d.Servers()[0]; s.Fails != 0 {
			t.Errorf("%d failures are counted", s.Fails)
		}
	})
}

// oneAnswer answers one request.
func oneAnswer(t *testing.T) func(net.Conn) {
	return func(nc net.Conn) {
		if _, err := nc.Read(make([]byte, 4<<10)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhere")
	}
}

// closeIdle closes the connections that are kept.
func (d *dialling) closeIdle() { d.servers[0].client.closeIdle() }

// TestDialResets: the server takes the connection and resets it.
func TestDialResets(t *testing.T) {
	s, err := faulty.Start(faulty.Script{faulty.Request(), faulty.Reset()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := newDialling(t, s.URL, Options{})
	before := descriptors(t)
	x := d.begin()
	if x.Connects() || x.Waits() {
		t.Fatal("it was not sent at once")
	}
	if got, err := d.finish(t.Context(), x); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the answer is %q, %v", got, err)
	}
	d.clean(before)
}

// TestDialNames: a name that was looked up a moment ago needs no goroutine; that another
// address of it may do is a goroutine's affair.
func TestDialNames(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			oneAnswer(t)(nc)
			nc.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for name, found := range map[string][]string{"one": {"127.0.0.2"}, "the second": {"127.0.0.1", "127.0.0.2"}} {
		d := newDialling(t, "http://api.test:"+port, Options{})
		d.servers[0].way.names.Find = func(context.Context, string) (all []netip.Addr, err error) {
			for _, a := range found {
				all = append(all, netip.MustParseAddr(a))
			}
			return all, nil
		}
		x := new(Exchange)
		d.told = make(bell)
		if !d.Begin(x, 0, &Request{Path: "/"}, d.told) || !x.Waits() {
			t.Fatalf("%s: a loop connects to a name that nobody has looked up", name)
		}
		<-d.told
		if got, err := d.finish(t.Context(), x); got != "here" || err != nil {
			t.Errorf("%s: the answer is %q, %v", name, got, err)
		}
		before := descriptors(t)
		x = d.begin()
		if len(found) > 1 && !x.Waits() {
			t.Fatalf("%s: nobody tries the other address", name)
		}
		if x.Waits() {
			<-d.told
		}
		if got, err := d.finish(t.Context(), x); got != "here" || err != nil {
			t.Errorf("%s, by a loop: the answer is %q, %v", name, got, err)
		}
		d.clean(before)
	}
}
