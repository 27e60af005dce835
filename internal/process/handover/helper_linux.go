package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A confined process cannot start an unconfined one. So it starts a helper before: this
// program with another verb, which only waits. The helper knows from its own start which
// program to start, with which arguments, in which folder and environment. All that it
// can be asked for is:
//
//	server   start SOCKETS   with the descriptors for the new process
//	         kill            the process that it has started
//	helper   started PID
//	         failed: why     instead
//	         ended: why      "ended: " after status 0
//
// Each message is one packet. The helper ends when the server has ended.
const (
	starts, kills, startedAs, endedWith = "start ", "kill", "started ", "ended: "

	// mostMessage is how long a message may be, in bytes, and mostPassed how many
	// descriptors go with one (SCM_MAX_FD, unix(7)).
	mostMessage = 1024
	mostPassed  = 253
)

// ErrNoHelper is returned when the helper is gone.
var ErrNoHelper = errors.New("the process that starts successors is gone")

// Helper is the server's end of the connection with its helper.
type Helper struct {
	talk    *net.UnixConn
	mu      sync.Mutex   // held by Start
	answers chan started // for Start; closed when the helper has ended
}

// started is the answer to a request: a process, or why there is none.
type started struct {
	process *process
	why     error
}

// StartHelper starts command, which calls [Help], and returns the descriptor that
// [NewHelper] takes.
func StartHelper(command []string) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("starting the helper for upgrades: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "helper"), os.NewFile(uintptr(fds[1]), "server")
	defer theirs.Close()
	unmark, err := markInherited()
	if err == nil {
		defer unmark()
		cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // this program
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.ExtraFiles = []*os.File{theirs}
		if err = cmd.Start(); err == nil {
			return ours, cmd.Process.Release() //nolint:wrapcheck // never fails
		}
	}
	_ = ours.Close()
	return nil, fmt.Errorf("starting the helper for upgrades: %w", err)
}

// markInherited marks the descriptors that this process was started with, above all
// sockets, so that the next process that it starts does not inherit them.
func markInherited() (undo func(), err error) {
	var marked []uintptr
	for fd := uintptr(firstDescriptor); fd < firstDescriptor+2*mostSockets; fd++ {
		flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, err //nolint:wrapcheck // the caller says what was done
		}
		marked = append(marked, fd)
	}
	return func() {
		for _, fd := range marked {
			_, _ = unix.FcntlInt(fd, unix.F_SETFD, 0) // as it was
		}
	}, nil
}

// NewHelper takes the descriptor of StartHelper.
func NewHelper(f *os.File) (*Helper, error) {
	talk, err := packets(f)
	if err != nil {
		return nil, err
	}
	h := &Helper{talk: talk, answers: make(chan started, 1)}
	go h.receive() // ends with the helper, or with this process
	return h, nil
}

func packets(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("the helper for upgrades: %w", err)
	}
	talk, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("the helper for upgrades: it is a %T", c)
	}
	return talk, nil
}

// Start is a [Starter] for one process at a time.
func (h *Helper) Start(files []*os.File, sockets string) (*process, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(files) > mostPassed {
		return nil, fmt.Errorf("%d sockets cannot be handed over at once: %d can", len(files), mostPassed)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if _, _, err := h.talk.WriteMsgUnix([]byte(starts+sockets), unix.UnixRights(fds...), nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoHelper, err)
	}
	answer, ok := <-h.answers
	if !ok {
		return nil, ErrNoHelper
	}
	return answer.process, answer.why
}

// receive reads the helper's messages.
func (h *Helper) receive() {
	var current *process
	end := func(why error) {
		if current != nil {
			current.why = why
			close(current.ended)
			current = nil
		}
	}
	defer end(ErrNoHelper)
	defer close(h.answers)
	b := make([]byte, mostMessage)
	for {
		n, err := h.talk.Read(b)
		if err != nil || n == 0 {
			return
		}
		text := string(b[:n])
		if why, ok := strings.CutPrefix(text, endedWith); ok {
			var err error
			if why != "" {
				err = errors.New(why)
			}
			end(err)
			continue
		}
		answer := started{why: errors.New(strings.TrimPrefix(text, failed))}
		number, ok := strings.CutPrefix(text, startedAs)
		if pid, err := strconv.Atoi(number); ok && err == nil {
			current = &process{pid: pid, kill: h.kill, ended: make(chan struct{})}
			answer = started{process: current}
		}
		select {
		case h.answers <- answer:
		default: // Start does not wait for it
		}
	}
}

// kill has the helper end the process that it has started. Without a helper there is no
// parent that could.
func (h *Helper) kill() { _, _ = h.talk.Write([]byte(kills)) }

// Help is the helper's life: it starts program with these arguments when the server, at
// the other end of descriptor 3, asks for it. It returns when the server has ended.
func Help(program string, args []string) error {
	talk, err := packets(inheritedFile(firstDescriptor, "server"))
	if err != nil {
		return err
	}
	h := &helperState{talk: talk, start: Program(program, args)}
	message, control := make([]byte, mostMessage), make([]byte, unix.CmsgSpace(mostPassed*4))
	for {
		n, nc, _, _, err := talk.ReadMsgUnix(message, control)
		if err != nil || n == 0 {
			return nil // the server has ended
		}
		files := passed(control[:nc])
		h.do(string(message[:n]), files)
		for _, f := range files {
			_ = f.Close() // the new process has its own
		}
	}
}

// helperState is the state of a helper.
type helperState struct {
	talk    *net.UnixConn
	start   Starter
	current *process
}

func (h *helperState) do(asked string, files []*os.File) {
	if asked == kills && h.current != nil {
		h.current.kill()
		return
	}
	sockets, ok := strings.CutPrefix(asked, starts)
	if !ok || !wellFormed(sockets, len(files)) {
		return
	}
	if h.lives() {
		h.send(failed + "there is a new process already")
		return
	}
	p, err := h.start(files, sockets)
	if err != nil {
		h.send(failed + err.Error())
		return
	}
	h.current = p
	h.send(startedAs + strconv.Itoa(p.pid))
	go func() { // ends with the process, or with this one
		<-p.ended
		why := ""
		if p.why != nil {
			why = p.why.Error()
		}
		h.send(endedWith + why)
	}()
}

// wellFormed reports whether the text is what Start writes for so many descriptors: an
// attacker who controls the server may write anything.
func wellFormed(sockets string, files int) bool {
	public, admin, _ := strings.Cut(sockets, "/")
	n, err := strconv.ParseUint(public, 10, 16)
	if err != nil || admin != "0" && admin != "1" {
		return false
	}
	if admin == "1" {
		n++
	}
	return int(n)+1 == files //nolint:gosec // 16 bits
}

// lives reports whether the process that was started last is still there.
func (h *helperState) lives() bool {
	if h.current == nil {
		return false
	}
	select {
	case <-h.current.ended:
		return false
	default:
		return true
	}
}

// send sends the server a message. An error means that the server is gone.
func (h *helperState) send(text string) {
	_, _ = h.talk.Write([]byte(text[:min(len(text), mostMessage)]))
}

// passed returns the descriptors that came with a message.
func passed(control []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files
}
