//go:build amd64 || arm64

package sendfile

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"millrace/lab/record"
	"millrace/lab/subject"
)

// tracedServer is set in the environment of the process that TestTraceMoves
// traces: the path of its socket.
const tracedServer = "MILLRACE_TEST_TRACED_SERVER"

// TestTracedServer is not a test but that process: it sends one file by sendfile
// and by copying.
func TestTracedServer(t *testing.T) {
	socket := os.Getenv(tracedServer)
	if socket == "" {
		t.Skip("it is the server of TestTraceMoves")
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket+".tcp", []byte(tcp.Addr().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(socket), "file")
	mux := http.NewServeMux()
	mux.HandleFunc("/sendfile", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("/copy", func(w http.ResponseWriter, _ *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		_, _ = io.Copy(struct{ io.Writer }{w}, f)
	})
	go http.Serve(tcp, mux)
	t.Fatal(http.Serve(l, mux))
}

func TestTraceMoves(t *testing.T) {
	dir, err := os.MkdirTemp("", "trace") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const size = 4 << 20
	if err := os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("mill"), size/4), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := grandchild(os.Args[0], "-test.run=^TestTracedServer$")
	cmd.Env = append(os.Environ(), tracedServer+"="+socket)
	server, err := subject.Start(t.Context(), cmd, "unix:"+socket, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	var address []byte
	for range 1000 {
		if address, err = os.ReadFile(socket + ".tcp"); err == nil && len(address) > 0 {
			break
		}
		time.Sleep(time.Millisecond) // it writes this right after it listens
	}
	pids, err := tracees(server.PID)
	if err != nil || len(pids) != 1 {
		t.Fatal(pids, err)
	}
	trace := func(path string) record.Moved {
		t.Helper()
		got, err := record.TraceMoves(pids, func() error {
			return download(t.Context(), "http://"+string(address), path, size)
		})
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EIO) {
			t.Skip("tracing is forbidden here: ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 2 { // released after the first time, it can be traced again
		if got := trace("/sendfile"); got.Sendfile.Bytes < size*9/10 || got.Sendfile.Calls == 0 || got.Write.Bytes > size/100 {
			t.Errorf("by sendfile: %+v", got)
		}
		if got := trace("/copy"); got.Sendfile.Bytes != 0 || got.Read.Bytes < size || got.Write.Bytes < size {
			t.Errorf("by copying: %+v", got)
		}
	}
	if err := download(t.Context(), "http://"+string(address), "/sendfile", size); err != nil {
		t.Errorf("the server after the trace: %v", err)
	}
	broken := errors.New("broken")
	if _, err := record.TraceMoves(pids, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the download's error became %v", err)
	}
}
