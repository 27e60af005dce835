// Package handover has one process give its listening sockets to a successor: the
// same program, started anew. The old one goes on serving until the new one says
// that it does, so that what fails on the way costs nothing.
//
// They talk over a pair of sockets, a line each:
//
//	successor   prepared          its config is good; it needs the folders that only one may open
//	old         go state          they are free; what else is to be taken over, as JSON
//	successor   ready             it serves
//	            failed: why       instead of either, before it ends
//
// Whoever reads the end instead of a line knows that the other one is gone.
package handover

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Variable is what tells a process that it is a successor, and of how many sockets.
const Variable = "MILLRACE_SUCCESSOR"

const (
	firstDescriptor = 3    // after the standard streams
	mostSockets     = 256  // more listeners than any config has
	mostWords       = 8000 // bytes of a line

	prepared, carryOn, ready, failed = "prepared", "go ", "ready", "failed: "
)

// Sockets are those that a process listens on.
type Sockets struct {
	Public []*os.File
	Admin  *os.File // nil: none
}

func (s Sockets) all() []*os.File {
	if s.Admin == nil {
		return s.Public
	}
	return append([]*os.File{s.Admin}, s.Public...)
}

// Close closes our descriptors of them.
func (s Sockets) Close() {
	for _, f := range s.all() {
		_ = f.Close() // what is given away is used no more
	}
}

// Successor is a process that is to take over.
type Successor struct {
	cmd   *exec.Cmd
	talk  net.Conn
	lines *bufio.Reader
	ended chan struct{} // closed when the process has
	why   error         // valid from then on
}

// Start starts program with these arguments, which inherits the environment, the
// standard streams and the sockets.
func Start(program string, args []string, s Sockets) (*Successor, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("starting the new process: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Command(program)
	cmd.Args = args
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	admin := 0
	if s.Admin != nil {
		admin = 1
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d", Variable, len(s.Public), admin))
	cmd.ExtraFiles = append([]*os.File{theirs}, s.all()...)
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("starting the new process: %w", err)
	}
	n := &Successor{cmd: cmd, talk: ours, lines: bufio.NewReaderSize(io.LimitReader(ours, 4*mostWords), mostWords), ended: make(chan struct{})}
	go func() { // ends with the process
		defer close(n.ended)
		n.why = cmd.Wait()
	}()
	return n, nil
}

// Pid is the process's number.
func (n *Successor) Pid() int { return n.cmd.Process.Pid }

// Prepared waits until the successor has understood its config.
func (n *Successor) Prepared(patience time.Duration) error { return n.await(prepared, patience) }

// State is what commands have told a process, and its successor has to know.
type State struct {
	Maintenance json.RawMessage `json:"maintenance,omitempty"`
	Proofs      []byte          `json:"proofs,omitempty"` // signs the proofs of clients
}

// Go lets it open the folders that only one may.
func (n *Successor) Go(state State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("telling the new process what it has to know: %w", err)
	}
	if _, err := io.WriteString(n.talk, carryOn+string(text)+"\n"); err != nil {
		return fmt.Errorf("the new process is gone: %w", err)
	}
	return nil
}

// Ready waits until the successor serves.
func (n *Successor) Ready(patience time.Duration) error { return n.await(ready, patience) }

func (n *Successor) await(word string, patience time.Duration) error {
	_ = n.talk.SetReadDeadline(time.Now().Add(patience))
	line, err := n.lines.ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	why, told := strings.CutPrefix(line, failed)
	switch {
	case err == nil && line == word:
		return nil
	case err == nil && told:
		return errors.New(strings.ReplaceAll(why, "\x00", "\n"))
	case err == nil:
		return fmt.Errorf("the new process says %q and not %q: is it another program?", line, word)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the new process has not said %q for %s; it was ended", word, patience)
	}
	select {
	case <-n.ended:
		if n.why != nil {
			return fmt.Errorf("the new process has ended: %w", n.why)
		}
	case <-time.After(time.Second):
	}
	return errors.New("the new process has ended without a word; its messages are among those of this one")
}

// Kill ends the process, and returns when it has.
func (n *Successor) Kill() {
	_ = n.cmd.Process.Kill() // if it has not ended
	<-n.ended
	_ = n.talk.Close()
}

// Predecessor is who has started this process to take over. A nil one is nobody.
type Predecessor struct {
	Sockets Sockets
	State   State // known after Prepared

	talk  net.Conn
	lines *bufio.Reader
	gone  chan struct{}
}

// Inherited returns who has started this process to take over, nil if nobody has.
func Inherited(getenv func(string) string) (*Predecessor, error) {
	text := getenv(Variable)
	if text == "" {
		return nil, nil
	}
	_ = os.Unsetenv(Variable) // it is not for processes that this one starts
	public, admin, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(public)
	if err != nil || n < 0 || n > mostSockets || admin != "0" && admin != "1" {
		return nil, fmt.Errorf("%s is %q, which `millrace upgrade` does not write: unset it", Variable, text)
	}
	file := inheritedFile(firstDescriptor, "upgrade")
	talk, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		return nil, fmt.Errorf("%s is set, and nobody has started this process to take over: unset it: %w", Variable, err)
	}
	p := &Predecessor{talk: talk, lines: bufio.NewReaderSize(io.LimitReader(talk, mostWords), mostWords), gone: make(chan struct{})}
	next := firstDescriptor + 1
	if admin == "1" {
		p.Sockets.Admin = inheritedFile(next, "admin")
		next++
	}
	for i := range n {
		p.Sockets.Public = append(p.Sockets.Public, inheritedFile(next+i, "socket"+strconv.Itoa(i)))
	}
	return p, nil
}

// Prepared says that the config is good, and waits until the folders are free. If
// the predecessor has ended meanwhile, they are.
func (p *Predecessor) Prepared() {
	if p == nil {
		return
	}
	_, _ = io.WriteString(p.talk, prepared+"\n")
	line, _ := p.lines.ReadString('\n')
	if text, ok := strings.CutPrefix(line, carryOn); ok {
		_ = json.Unmarshal([]byte(text), &p.State) // a newer program may say what this one does not know
	}
}

// Ready says that this process serves.
func (p *Predecessor) Ready() {
	if p == nil {
		return
	}
	_, _ = io.WriteString(p.talk, ready+"\n") // nobody listens: nobody serves but us
	go func() {                               // ends with the predecessor, or with this process
		_, _ = io.Copy(io.Discard, p.talk)
		close(p.gone)
	}()
}

// Failed says why this process cannot take over.
func (p *Predecessor) Failed(why error) {
	if p == nil {
		return
	}
	text := strings.ReplaceAll(why.Error(), "\n", "\x00")
	_, _ = io.WriteString(p.talk, failed+text[:min(len(text), mostWords/2)]+"\n")
}

// Gone is closed when the predecessor has ended. Call it after Ready.
func (p *Predecessor) Gone() <-chan struct{} {
	if p == nil {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	return p.gone
}
