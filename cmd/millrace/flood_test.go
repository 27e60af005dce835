//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// latencies asks for a page from an address of its own, every few milliseconds, and
// returns how long each answer took.
func latencies(t *testing.T, addr, from string, lasts time.Duration) (all []time.Duration) {
	t.Helper()
	nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	tick := time.NewTicker(4 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < lasts; <-tick.C {
		at := time.Now()
		if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: "+addr+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
		all = append(all, time.Since(at))
	}
	slices.Sort(all)
	return all
}

// TestFlood: a client that asks 50,000 times a second, and is refused by a rate
// limit, leaves another one's answers within twice the time that they take
// otherwise. It is a measurement, for a machine that does nothing else:
// MILLRACE_FLOOD=1.
func TestFlood(t *testing.T) {
	if os.Getenv("MILLRACE_FLOOD") == "" {
		t.Skip("MILLRACE_FLOOD=1 measures it, in 25 seconds")
	}
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), make([]byte, 501), 0o600); err != nil {
		t.Fatal(err)
	}
	const victim, lasts = "127.0.0.3", 10 * time.Second
	u := startUpgraded(t, fmt.Sprintf("/: {static: {root: %q}, rate_limit: {rate: 100/s, except: [%s]}}", files, victim))
	found, err := exec.LookPath("millrace")
	if err != nil {
		t.Fatal(err)
	}
	idle := latencies(t, u.addr, victim, lasts)
	flood := exec.Command(found, "lab", "load", "http://"+u.addr+"/", "-c", "50", "--rate", "50000", "--warmup", "1s", "-d", (lasts + 3*time.Second).String())
	var said strings.Builder
	flood.Stdout, flood.Stderr = &said, &said
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	busy := latencies(t, u.addr, victim, lasts)
	if err := flood.Wait(); err != nil {
		t.Log(err) // the answers are refusals
	}
	p := func(all []time.Duration, share float64) time.Duration { return all[int(float64(len(all)-1)*share)] }
	t.Logf("idle: p50 %s, p99 %s; in the flood: p50 %s, p99 %s; the flood:\n%s", p(idle, .5), p(idle, .99), p(busy, .5), p(busy, .99), &said)
	if p(busy, .99) > 2*p(idle, .99) {
		t.Errorf("p99 is %.1f times what it was", float64(p(busy, .99))/float64(p(idle, .99)))
	}
}

// floodConnections opens connections from an address, so many in a second, until the time is
// over, and sends the same on each of them. It keeps the last 500.
func floodConnections(t *testing.T, addr, from, sends string, rate int, lasts time.Duration) (opened int) {
	t.Helper()
	to := netip.MustParseAddrPort(addr)
	server := &syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	client := &syscall.SockaddrInet4{Addr: netip.MustParseAddr(from).As4()}
	open := make([]int, 0, 500)
	gone := func(fd int) {
		// With a reset, or the ports would soon be used up (RFC 9293, 3.6.1).
		_ = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
		_ = syscall.Close(fd)
	}
	defer func() {
		for _, fd := range open {
			gone(fd)
		}
	}()
	for begun := time.Now(); time.Since(begun) < lasts; {
		if opened > int(time.Since(begun).Seconds()*float64(rate)) {
			time.Sleep(time.Millisecond)
			continue
		}
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return opened
		}
		if err := syscall.Bind(fd, client); err != nil {
			t.Error(err)
			gone(fd)
			return opened
		}
		_ = syscall.Connect(fd, server) // goes on by itself
		_, _ = syscall.Write(fd, []byte(sends))
		if opened++; len(open) == cap(open) {
			gone(open[0])
			open = append(open[:0], open[1:]...)
		}
		open = append(open, fd)
	}
	return opened
}

// TestFloodOfConnections: a client that opens 5,000 connections a second, of which it
// may have 100, leaves another one's answers within twice the time that they take
// on a machine where the same flood comes to another program: connections with
// nothing, with half a request, and with a whole one. Like TestFlood a measurement.
func TestFloodOfConnections(t *testing.T) {
	if os.Getenv("MILLRACE_FLOOD") == "" {
		t.Skip("MILLRACE_FLOOD=1 measures it, in 40 seconds")
	}
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "index.html"), make([]byte, 501), 0o600); err != nil {
		t.Fatal(err)
	}
	u := newUpgraded(t)
	u.timeout = "2s, connections_per_address: 100"
	u.start(fmt.Sprintf("/: {static: {root: %q}}", files))
	const victim, lasts = "127.0.0.3", 4 * time.Second
	p := func(all []time.Duration, share float64) time.Duration { return all[int(float64(len(all)-1)*share)] }
	idle := latencies(t, u.addr, victim, lasts)
	t.Logf("idle: p50 %s, p99 %s", p(idle, .5), p(idle, .99))
	other, err := net.Listen("tcp", "127.0.0.1:0") // does nothing but accept
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		for {
			nc, err := other.Accept()
			if err != nil {
				return
			}
			_ = nc.Close()
		}
	}()
	least := p(idle, .99)
	for _, sends := range []string{"", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		for _, at := range []string{other.Addr().String(), u.addr} {
			opened := make(chan int)
			go func() { opened <- floodConnections(t, at, "127.0.0.2", sends, 5000, lasts+2*time.Second) }()
			time.Sleep(time.Second)
			busy := latencies(t, u.addr, victim, lasts)
			t.Logf("%d connections with %q, to the server %v: p50 %s, p99 %s", <-opened, sends, at == u.addr, p(busy, .5), p(busy, .99))
			switch {
			case at != u.addr:
				least = max(least, p(busy, .99))
			case p(busy, .99) > 2*least:
				t.Errorf("p99 is %.1f times what it is without", float64(p(busy, .99))/float64(least))
			}
		}
	}
}
