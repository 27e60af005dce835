package handover

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperOfTest makes the test binary a helper for successors of one kind.
const helperOfTest = "HANDOVER_TEST_HELPER"

// helper starts one, and the end of a server.
func helper(t *testing.T, told, does string) *Helper {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(helperOfTest, "1")
	f, err := StartHelper([]string{self, self, self, told, does})
	if err != nil {
		t.Fatal(err)
	}
	os.Unsetenv(helperOfTest) // Setenv has put the old value back afterwards
	h, err := NewHelper(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.talk.Close() })
	return h
}

// TestHelper: what it starts is a successor as any other, with the sockets.
func TestHelper(t *testing.T) {
	told := filepath.Join(t.TempDir(), "told")
	h := helper(t, told, "good")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	n, err := Start(h.Start, Sockets{Public: []*os.File{f}, Admin: f})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Prepared(time.Minute); err != nil {
		t.Fatal(err)
	}
	if open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(n.Pid()), "fd")); err != nil || len(open) < 6 {
		t.Errorf("%d descriptors are open, %v", len(open), err)
	}
	if _, err := Start(h.Start, Sockets{}); err == nil || !strings.Contains(err.Error(), "there is a new process already") {
		t.Errorf("a second one at the same time: %v", err)
	}
	_ = n.Go(State{Maintenance: []byte(`{"on":true}`)})
	if err := n.Ready(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := n.Notify("news"); err != nil {
		t.Fatal(err)
	}
	n.Kill()
	if n, err = Start(h.Start, Sockets{}); err != nil { // the next one, after that has ended
		t.Fatal(err)
	}
	n.Kill()
	_ = h.talk.Close()
	if _, err := Start(h.Start, Sockets{}); !errors.Is(err, ErrNoHelper) {
		t.Errorf("without a helper: %v", err)
	}
}

// TestHelperFails: it says how a process has ended, and why none was started.
func TestHelperFails(t *testing.T) {
	n, err := Start(helper(t, "", "crash").Start, Sockets{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Prepared(time.Minute); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Error(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(helperOfTest, "1")
	f, err := StartHelper([]string{self, "/nowhere/at/all", "x"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHelper(f)
	if err != nil {
		t.Fatal(err)
	}
	defer h.talk.Close()
	if _, err := Start(h.Start, Sockets{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	if _, err := h.Start(make([]*os.File, mostPassed+1), "253/0"); err == nil {
		t.Error("more descriptors than a message takes")
	}
}

// TestHelperObeysNothingElse: whoever has taken the server over can have the
// program started, and nothing else.
func TestHelperObeysNothingElse(t *testing.T) {
	told := filepath.Join(t.TempDir(), "told")
	h := helper(t, told, "good")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, text := range []string{"", "kill", "stop", "start", "start ", "start /bin/sh", "start 0/0 x", "start 2/0", "start -1/0", "start 0/2", "start 0/0\nLD_PRELOAD=x", "start 0/0\x00", strings.Repeat("x", 4000)} {
		var rights []byte
		if strings.HasPrefix(text, starts) {
			rights = unix.UnixRights(int(null.Fd()))
		}
		if text == "" {
			continue // that is the end
		}
		if _, _, err := h.talk.WriteMsgUnix([]byte(text), rights, nil); err != nil {
			t.Fatal(err)
		}
	}
	n, err := Start(h.Start, Sockets{}) // answers come in order: nothing was said to the others
	if err != nil {
		t.Fatal(err)
	}
	defer n.Kill()
	if err := n.Prepared(time.Minute); err != nil {
		t.Error(err)
	}
}

// TestHelperKeepsNothing: sockets that a process was started with do not go to its
// helper, which would keep ports open.
func TestHelperKeepsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	helper(t, "", "good")
	if flags, err := unix.FcntlInt(w.Fd(), unix.F_GETFD, 0); err != nil || flags != 0 {
		t.Errorf("it is %d afterwards, %v", flags, err)
	}
	_ = w.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("somebody else has it open: %v", err)
	}
}
