package redis

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/process/servertest"
)

func TestMain(m *testing.M) {
	// A cluster's client leaves two behind that sleep for up to 5 s and end by
	// themselves: one closes connections to servers that have gone, one looks
	// at the cluster again.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// patience is how long a test waits for what must happen; a machine in tests
// may be slow. calls have as much.
const patience = 20 * time.Second

// A server is a real redis-server of its own.
type server struct {
	*servertest.Process
	t       *testing.T
	dir     string
	network string
	addr    string // what raw commands go to
	args    []string
}

// start runs redis-server; args replace or add to its settings.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{Process: servertest.New(t), t: t, dir: t.TempDir(), network: "tcp"}
	port := servertest.FreePort(t)
	s.addr = "127.0.0.1:" + port
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, args...)
	s.run()
	return s
}

func program(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("neither redis-server nor valkey-server is installed")
	return ""
}

func (s *server) run() {
	s.t.Helper()
	s.Run(exec.Command(program(s.t), append(s.args, "--dir", s.dir)...), patience, func() error {
		answer, err := s.try("PING")
		if err == nil && answer != "+PONG" && !strings.HasPrefix(answer, "-NOAUTH") {
			err = errors.New(answer)
		}
		return err
	})
}

// try sends one inline command and returns the first line of its answer.
func (s *server) try(command string) (string, error) {
	c, err := net.DialTimeout(s.network, s.addr, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// do is try for what must work.
func (s *server) do(format string, args ...any) string {
	s.t.Helper()
	command := fmt.Sprintf(format, args...)
	answer, err := s.try(command)
	if err != nil || strings.HasPrefix(answer, "-") {
		s.t.Fatalf("%s: %q, %v", command, answer, err)
	}
	return answer
}

func (s *server) url() string { return "redis://" + s.addr }

// open opens a store that is closed at the test's end.
func open(t *testing.T, o Options) *Redis {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	if o.Message != nil && o.Began == nil {
		o.Began = func(string) {}
	}
	if o.ErrorLog == nil {
		o.ErrorLog = slog.New(slog.DiscardHandler)
	}
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// told collects what Message and Began are called with.
type told struct {
	mu       sync.Mutex
	messages []string
	lost     int
	runs     []string
}

func (c *told) began(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, run)
}

func (c *told) message(m []byte, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost {
		c.lost++
		c.messages = append(c.messages, "LOST")
	} else {
		c.messages = append(c.messages, string(m))
	}
}

func (c *told) has(message string) func() bool {
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.messages, message)
	}
}

func (c *told) count() (lost int, messages string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost, strings.Join(c.messages, " ")
}

// socketDir is short enough for the path of a UNIX socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Clean(dir)
}
