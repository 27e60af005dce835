//go:build linux

package main

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// notified is what systemd would hear, and from whom.
type notified struct {
	t  *testing.T
	nc *net.UnixConn
}

func listenForNotifications(t *testing.T) (n *notified, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "n")
	nc, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	raw, err := nc.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return &notified{t, nc}, path
}

// next is the next message within a time; "" if none comes.
func (n *notified) next(within time.Duration) (text string, pid int) {
	n.t.Helper()
	_ = n.nc.SetReadDeadline(time.Now().Add(within))
	b, oob := make([]byte, 4096), make([]byte, 256)
	size, oobn, _, _, err := n.nc.ReadMsgUnix(b, oob)
	if err != nil {
		return "", 0
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) == 0 {
		n.t.Fatal(err)
	}
	from, err := syscall.ParseUnixCredentials(&messages[0])
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b[:size]), int(from.Pid)
}

// await drops messages until one begins with a text.
func (n *notified) await(prefix string) (rest string, pid int) {
	n.t.Helper()
	for begun := time.Now(); time.Since(begun) < 20*time.Second; {
		if text, from := n.next(5 * time.Second); strings.HasPrefix(text, prefix) {
			return strings.TrimPrefix(text, prefix), from
		}
	}
	n.t.Fatalf("%q never comes", prefix)
	return "", 0
}

// TestServiceOfSystemd: systemd hears when the service is ready, reloads, has
// another main process, and stops. The watchdog hears of the one that serves, as
// long as that is not stuck.
func TestServiceOfSystemd(t *testing.T) {
	n, path := listenForNotifications(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "400000")
	t.Setenv("WATCHDOG_PID", "")
	u := startUpgraded(t, "/: {respond: fine}")
	_, first := n.await("READY=1\n")
	if _, from := n.await("WATCHDOG=1"); from != first {
		t.Errorf("the watchdog hears from %d, not %d", from, first)
	}
	if text, err := u.ask("reload"); err != nil {
		t.Error(text)
	}
	if at, _ := n.await("RELOADING=1\nMONOTONIC_USEC="); len(at) < 6 {
		t.Errorf("a reload began at %q", at)
	}
	n.await("READY=1\nSTATUS=serving")
	u.config("/: {nonsense: 1}")
	if text, err := u.ask("reload"); err == nil || !strings.Contains(text, "nonsense") {
		t.Error(text)
	}
	n.await("READY=1\nSTATUS=serving by the old config")
	u.config("/: {respond: fine}")
	if err := syscall.Kill(first, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	n.await("RELOADING=1")

	if text, err := u.upgrade(); err != nil {
		t.Fatal(text)
	}
	main, from := n.await("MAINPID=")
	second, err := strconv.Atoi(main)
	if err != nil || from != first {
		t.Fatalf("the main process is %q, says %d", main, from)
	}
	for range 3 {
		if _, from := n.await("WATCHDOG=1"); from != second {
			t.Errorf("the watchdog hears from %d, not %d", from, second)
		}
	}
	_ = syscall.Kill(second, syscall.SIGSTOP)
	for {
		if text, _ := n.next(time.Second); text == "" {
			break // it is stuck, and nobody says otherwise
		}
	}
	_ = syscall.Kill(second, syscall.SIGCONT)
	n.await("WATCHDOG=1")
	_ = syscall.Kill(second, syscall.SIGTERM)
	n.await("STOPPING=1")
	u.waitFor(func() bool { return len(u.processes()) == 0 })
}
