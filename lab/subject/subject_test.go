package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperVariable makes the test's executable a server for the tests to start.
const helperVariable = "MILLRACE_SUBJECT_HELPER"

// startTime is how long a test waits for a server: far longer than any takes.
const startTime = 30 * time.Second

func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		if err := help(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// help is what the started process does.
func help(role string, args []string) error {
	switch role {
	case "listen": // at args[0], and prints first
		fmt.Println("hello from the helper")
		return listenAt(args[0])
	case "stubborn": // does not end when asked
		signal.Ignore(syscall.SIGTERM)
		return listenAt(args[0])
	case "end": // prints much, then ends
		for i := range 1000 {
			fmt.Println("line", i)
		}
		return errors.New("no such thing as a config")
	case "leave": // serves until somebody connects a second time, then ends
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			return err
		}
		for range 2 {
			if conn, err := l.Accept(); err == nil {
				conn.Close()
			}
		}
		return errors.New("out of patience")
	case "parent": // starts a server that holds descriptor 3, and waits to be killed
		cmd := helper("listen", args[0])
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "held")}
		if _, err := Start(context.Background(), cmd, args[0], startTime); err != nil {
			return err
		}
		fmt.Println("started")
		select {}
	}
	return fmt.Errorf("no role %q", role)
}

func listenAt(address string) error {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		conn.Close()
	}
}

func helper(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("servers are started on Linux only")
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func start(t *testing.T, cmd *exec.Cmd, address string) *Process {
	t.Helper()
	needLinux(t)
	p, err := Start(t.Context(), cmd, address, startTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	return p
}

func mustConnect(t *testing.T, address string) {
	t.Helper()
	if err := connect(t.Context(), address); err != nil {
		t.Errorf("%s does not accept connections: %v", address, err)
	}
}

func mustNotConnect(t *testing.T, address string) {
	t.Helper()
	if connect(t.Context(), address) == nil {
		t.Errorf("%s accepts connections", address)
	}
}

func TestStartAndStop(t *testing.T) {
	for _, address := range []string{freeAddress(t), "unix:" + filepath.Join(t.TempDir(), "s")} {
		p := start(t, helper("listen", address), address)
		if p.Address() != address {
			t.Errorf("Address = %q, want %q", p.Address(), address)
		}
		mustConnect(t, address)
		for range 2 {
			if err := p.Stop(); err != nil {
				t.Errorf("Stop = %v", err)
			}
		}
		mustNotConnect(t, address)
		if !strings.Contains(p.Output(), "hello from the helper") {
			t.Errorf("Output = %q", p.Output())
		}
		if syscall.Kill(p.PID, 0) == nil {
			t.Error("the process is still there")
		}
	}
}

// TestAddressFound starts servers that are not told to us where they listen.
func TestAddressFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a name with spaces")
	port := freeAddress(t)
	_, number, _ := net.SplitHostPort(port)
	for listens, want := range map[string]string{
		port:                port,
		"unix:" + path:      "unix:" + path,
		"0.0.0.0:" + number: "127.0.0.1:" + number,
	} {
		p := start(t, helper("listen", listens), "")
		// Where IPv6 is on, Go opens one socket for both.
		if got := p.Address(); got != want && got != "[::1]:"+number {
			t.Errorf("listening at %q: Address = %q, want %q", listens, got, want)
		}
		mustConnect(t, p.Address())
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestAddressOfChild finds the address where a child of the shell listens, and
// stops both.
func TestAddressOfChild(t *testing.T) {
	needLinux(t)
	address := freeAddress(t)
	cmd := Shell("cd / && " + os.Args[0] + " " + address + "; true")
	cmd.Env = append(os.Environ(), helperVariable+"=listen")
	p := start(t, cmd, "")
	if p.Address() != address {
		t.Errorf("Address = %q, want %q", p.Address(), address)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	mustNotConnect(t, address)
}

func TestStopInsists(t *testing.T) {
	address := freeAddress(t)
	p := start(t, helper("stubborn", address), address)
	p.grace = time.Millisecond
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	mustNotConnect(t, address)
}

// TestLeftBehind: what a server forked ends with it.
func TestLeftBehind(t *testing.T) {
	needLinux(t)
	address := freeAddress(t)
	cmd := exec.Command("/bin/sh", "-c", `"$0" "$1" & read line; exit 7`, os.Args[0], address)
	cmd.Env = append(os.Environ(), helperVariable+"=listen")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd, address)
	stdin.Close()
	<-p.ended
	err = p.Stop()
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "hello from the helper") {
		t.Errorf("Stop = %v, want one that quotes the status and the output", err)
	}
	mustNotConnect(t, address)
}

func TestEndedByItself(t *testing.T) {
	address := freeAddress(t)
	p := start(t, helper("leave", address), address)
	mustConnect(t, address)
	<-p.ended
	for range 2 {
		if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "out of patience") {
			t.Errorf("Stop = %v, want one that quotes the output", err)
		}
	}
}

func TestStartFails(t *testing.T) {
	needLinux(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx     context.Context
		cmd     *exec.Cmd
		address string
		wait    time.Duration
		want    []string
	}{
		"it ends":        {t.Context(), helper("end"), freeAddress(t), startTime, []string{"exit status 3", "no such thing as a config", "…"}},
		"it ends well":   {t.Context(), Shell("exit 0"), freeAddress(t), startTime, []string{"foreground", "printed nothing"}},
		"other address":  {t.Context(), helper("listen", freeAddress(t)), freeAddress(t), 500 * time.Millisecond, []string{"not ready within 500ms"}},
		"no address":     {t.Context(), exec.Command("sleep", "100"), "", 200 * time.Millisecond, []string{"not ready within 200ms", "listens nowhere"}},
		"address in use": {t.Context(), helper("listen", busy.Addr().String()), busy.Addr().String(), startTime, []string{"already"}},
		"no program":     {t.Context(), exec.Command("/nowhere/server"), freeAddress(t), startTime, []string{"no such file"}},
		"interrupted":    {ended, exec.Command("sleep", "100"), freeAddress(t), startTime, []string{"canceled"}},
	} {
		p, err := Start(c.ctx, c.cmd, c.address, c.wait)
		if err == nil {
			p.Stop()
			t.Errorf("%s: Start succeeds", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Start = %v, want it to say %q", name, err, want)
			}
		}
		if len(err.Error()) > tailBytes+500 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

// TestParentDies kills the process that started a server, and sees the server
// end by the closing of a descriptor that both hold.
func TestParentDies(t *testing.T) {
	needLinux(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := helper("parent", freeAddress(t))
	cmd.ExtraFiles = []*os.File{write}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if _, err := io.ReadFull(out, make([]byte, len("started"))); err != nil {
		t.Error("the helper started no server:", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := read.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("reading = %v, want the end", err)
	}
}

func TestShell(t *testing.T) {
	for line, want := range map[string]string{
		"server -p 8080":       "exec server -p 8080",
		"  server 'a b' >log ": "exec server 'a b' >log",
		"A=1 B=2 server":       "exec env A=1 B=2 server",
		"cd dir && server":     "cd dir && server",
		"cd dir":               "cd dir",
		"exec server":          "exec server",
		"a | b":                "a | b",
		"exporter --web":       "exec exporter --web",
		"":                     "",
	} {
		if got := Shell(line).Args[2]; got != want {
			t.Errorf("Shell(%q) runs %q, want %q", line, got, want)
		}
	}
	out, err := Shell(`A=7 printenv A`).Output()
	if err != nil || string(out) != "7\n" {
		t.Errorf("output = %q, %v", out, err)
	}
}

func TestTail(t *testing.T) {
	var kept tail
	if kept.Write([]byte("short")); kept.String() != "short" {
		t.Errorf("String = %q", kept.String())
	}
	all := "short"
	for i := range 3000 {
		line := fmt.Sprintln("line", i)
		all += line
		kept.Write([]byte(line))
	}
	if want := "…" + all[len(all)-tailBytes:]; kept.String() != want {
		t.Errorf("after many lines it keeps %q", kept.String())
	}
	kept.Write([]byte(all))
	if want := "…" + all[len(all)-tailBytes:]; kept.String() != want {
		t.Errorf("after a long write it keeps %q", kept.String())
	}
}

func TestVersion(t *testing.T) {
	for script, want := range map[string]string{
		"echo; echo server/1.2 >&2; echo more": "server/1.2",
		"echo server/1.2; exit 1":              "",
		"true":                                 "",
		"yes | head -c 100000":                 "y",
	} {
		if got := Version(t.Context(), "/bin/sh", "-c", script); got != want {
			t.Errorf("Version of %q = %q, want %q", script, got, want)
		}
	}
	if got := Version(t.Context(), "/nowhere/server"); got != "" {
		t.Errorf("Version of nothing = %q", got)
	}
}

func TestLook(t *testing.T) {
	if path, err := Look("sh", "dash"); err != nil || !filepath.IsAbs(path) {
		t.Errorf("Look(sh) = %q, %v", path, err)
	}
	_, err := Look("no-such-server", "a-package")
	if missing, ok := errors.AsType[Missing](err); !ok || missing.Package != "a-package" || !strings.Contains(err.Error(), "install a-package") {
		t.Errorf("Look of nothing = %v", err)
	}
}
