package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// helperVariable makes the test's executable a process for the tests to watch.
const helperVariable = "MILLRACE_RECORD_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		if err := obey(os.Stdin, os.Stdout); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// A helper is a process that does what it is told. It ends when its standard
// input does.
type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func spawn() (*helper, error) {
	cmd := exec.Command(os.Args[0])
	// With the race detector a process sleeps a second before it ends.
	cmd.Env = append(os.Environ(), helperVariable+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &helper{cmd, in, bufio.NewScanner(out)}, nil
}

// start is spawn for tests: the helper ends with the test.
func start(t testing.TB) *helper {
	t.Helper()
	h, err := spawn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.end)
	return h
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

// end ends the helper and waits for it.
func (h *helper) end() {
	h.in.Close()
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// say gives an order and returns the answer, when it is carried out.
func (h *helper) say(order string) (string, error) {
	if _, err := fmt.Fprintln(h.in, order); err != nil {
		return "", err
	}
	if !h.out.Scan() {
		return "", fmt.Errorf("the helper ended at the order %q", order)
	}
	answer, ok := strings.CutPrefix(h.out.Text(), "done ")
	if !ok {
		return "", fmt.Errorf("the helper at the order %q: %s", order, h.out.Text())
	}
	return answer, nil
}

// do gives orders in turn and returns the last answer.
func (h *helper) do(t testing.TB, orders ...string) (answer string) {
	t.Helper()
	for _, order := range orders {
		var err error
		if answer, err = h.say(order); err != nil {
			t.Fatal(err)
		}
	}
	return answer
}

// number is do with an answer that is a number.
func (h *helper) number(t testing.TB, order string) int {
	t.Helper()
	n, err := strconv.Atoi(h.do(t, order))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// servant is the state of a helper process.
type servant struct {
	kept    []*os.File
	memory  [][]byte
	child   *helper
	sockets []net.Listener
}

// obey carries out orders until there are no more.
func obey(in io.Reader, out io.Writer) error {
	var s servant
	orders := bufio.NewScanner(in)
	for orders.Scan() {
		verb, rest, _ := strings.Cut(orders.Text(), " ")
		answer, err := s.carryOut(verb, rest)
		if err != nil {
			return fmt.Errorf("%s: %w", orders.Text(), err)
		}
		fmt.Fprintln(out, "done", answer)
	}
	return orders.Err()
}

func (s *servant) carryOut(verb, rest string) (answer string, err error) {
	n, _ := strconv.Atoi(rest)
	switch verb {
	case "burn": // n ms of CPU time
		burn(time.Duration(n) * time.Millisecond)
	case "open": // n descriptors
		for range n {
			f, err := os.Open("/dev/null")
			if err != nil {
				return "", err
			}
			s.kept = append(s.kept, f)
		}
	case "threads": // n more, which wait
		ready := make(chan bool)
		for range n {
			go func() {
				runtime.LockOSThread()
				ready <- true
				select {}
			}()
			<-ready
		}
	case "thread": // a thread that burns n ms and ends
		done := make(chan bool)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends
			burn(time.Duration(n) * time.Millisecond)
			for range 100 {
				unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil) // a voluntary switch each
			}
			close(done)
		}()
		<-done
	case "memory": // n MB
		block := make([]byte, n<<20)
		for i := 0; i < len(block); i += 1024 {
			block[i] = 1
		}
		s.memory = append(s.memory, block)
	case "read": // n times 4 KB
		return "", readZeros(n)
	case "sendfile": // n times
		return "", sendfile(n)
	case "ignore": // children
		signal.Ignore(syscall.SIGCHLD)
	case "listen":
		l, err := net.Listen("tcp", rest)
		if err != nil {
			return "", err
		}
		s.sockets = append(s.sockets, l)
		return l.Addr().String(), nil
	default:
		return s.order(verb, rest)
	}
	return "", nil
}

// order carries out what has to do with children.
func (s *servant) order(verb, rest string) (string, error) {
	switch verb {
	case "child": // which obeys what follows
		var err error
		s.child, err = spawn()
		if err != nil {
			return "", err
		}
		return strconv.Itoa(s.child.pid()), nil
	case "tell":
		return s.child.say(rest)
	case "end": // the child, and wait
		s.child.in.Close()
		s.child.cmd.Wait()
		return "", nil
	case "leave": // a child that lives as long as somebody holds the named pipe at this path
		cmd := exec.Command("/bin/sh", "-c", `read line <"$0"`, rest)
		if err := cmd.Start(); err != nil {
			return "", err
		}
		return strconv.Itoa(cmd.Process.Pid), nil
	case "share": // the first socket, with a child
		f, err := s.sockets[0].(*net.TCPListener).File()
		if err != nil {
			return "", err
		}
		cmd := exec.Command("/bin/sh", "-c", `read line <"$0"`, rest)
		cmd.ExtraFiles = []*os.File{f}
		if err := cmd.Start(); err != nil {
			return "", err
		}
		return strconv.Itoa(cmd.Process.Pid), nil
	}
	return "", errors.New("no such order")
}

// burn uses CPU time, all threads of this process counted together.
func burn(d time.Duration) {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now)
	end := now.Nano() + int64(d)
	for x := 1; now.Nano() < end; {
		for range 10000 {
			x = x*7 + 1
		}
		unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now)
	}
}

func readZeros(n int) error {
	fd, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	for range n {
		if _, err := unix.Read(fd, buf); err != nil {
			return err
		}
	}
	return nil
}

func sendfile(n int) error {
	from, err := os.Open(os.Args[0])
	if err != nil {
		return err
	}
	defer from.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	buf := make([]byte, 100)
	for range n {
		var at int64
		if _, err := unix.Sendfile(pair[0], int(from.Fd()), &at, len(buf)); err != nil {
			return err
		}
		if _, err := unix.Read(pair[1], buf); err != nil {
			return err
		}
	}
	return nil
}
