package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain is the successor too: what it does is in its last argument.
func TestMain(m *testing.M) {
	if os.Getenv("HANDOVER_TEST_HELPER") != "" && os.Getenv(Variable) == "" {
		if err := Help(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(8)
		}
		os.Exit(0)
	}
	if os.Getenv(Variable) == "" {
		os.Exit(m.Run())
	}
	p, err := Inherited(os.Getenv)
	if err != nil {
		os.Exit(9)
	}
	switch os.Args[len(os.Args)-1] {
	case "good":
		p.Prepared()
		if string(p.State.Maintenance) != `{"on":true}` {
			p.Failed(fmt.Errorf("the state is %s", p.State.Maintenance))
			break
		}
		p.Ready(func(what json.RawMessage) {
			f, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err == nil {
				_, _ = f.Write(what)
				_ = f.Close()
			}
		})
		<-p.Gone()
	case "bad config":
		p.Failed(errors.New("line 1\nline 2"))
	case "crash":
		os.Exit(7)
	case "hang":
		time.Sleep(time.Minute)
	case "late":
		p.Prepared()
		p.Failed(errors.New("the port is in use"))
	}
	os.Exit(0)
}

func successor(t *testing.T, does string) (n *Successor, told string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	told = filepath.Join(t.TempDir(), "told")
	n, err = Start(Program(self, []string{self, told, does}), Sockets{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n, told
}

func TestSuccessor(t *testing.T) {
	n, file := successor(t, "good")
	large := strings.Repeat("x", 1<<20)
	for _, step := range []func() error{
		func() error { return n.Prepared(time.Minute) },
		func() error { return n.Notify("before it goes on") },
		func() error { return n.Go(State{Maintenance: []byte(`{"on":true}`), Tickets: []byte(large)}) },
		func() error { return n.Notify("before it serves") },
		func() error { return n.Ready(time.Minute) },
		func() error { return n.Notify("from then on") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if told, err := os.ReadFile(file); err != nil || string(told) != "\"before it goes on\"\n\"before it serves\"\n\"from then on\"\n" {
		t.Errorf("%q, %v", told, err)
	}
	n.Kill()
	for range 2 {
		if n.Notify("one that is gone") == nil {
			t.Error("one that is gone has heard")
		}
	}
	if n.Pid() <= 0 {
		t.Error(n.Pid())
	}
	for does, want := range map[string]string{"bad config": "line 1\nline 2", "crash": "exit status 7", "hang": "has not said", "nothing": "ended without a word"} {
		patience := time.Minute
		if does == "hang" {
			patience = time.Second
		}
		n, _ := successor(t, does)
		if err := n.Prepared(patience); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", does, err)
		}
	}
	n, _ = successor(t, "late")
	if err := n.Prepared(time.Minute); err != nil {
		t.Fatal(err)
	}
	_ = n.Go(State{})
	if err := n.Ready(time.Minute); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
}

func TestNoProgram(t *testing.T) {
	if _, err := Start(Program("/nowhere/at/all", nil), Sockets{}); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}

func TestNobody(t *testing.T) {
	p, err := Inherited(func(string) string { return "" })
	if p != nil || err != nil {
		t.Error(p, err)
	}
	p.Prepared()
	p.Ready(nil)
	p.Failed(errors.New("x"))
	<-p.Gone()
	for _, text := range []string{"x", "-1/0", "1", "9999/0", "1/2"} {
		if _, err := Inherited(func(string) string { return text }); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skip(err)
	}
	defer c.Close()
	env := map[string]string{"NOTIFY_SOCKET": path}
	getenv := func(k string) string { return env[k] }
	if err := Notify(getenv, "MAINPID=4711"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "MAINPID=4711" {
		t.Errorf("%q, %v", b[:n], err)
	}
	env["NOTIFY_SOCKET"] = path + "x"
	if Notify(getenv, "READY=1") == nil {
		t.Error("nobody was told")
	}
	delete(env, "NOTIFY_SOCKET")
	if err := Notify(getenv, "READY=1"); err != nil {
		t.Error(err)
	}
}
