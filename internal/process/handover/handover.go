// Package handover gives the listening sockets of one process to a successor: the same
// program, started anew. The old process goes on serving until the new one says that it
// serves, so that a failure on the way costs nothing.
//
// The two talk over a pair of sockets, one line for each message:
//
//	successor   prepared          its config is good; it needs the folders that only one process may open
//	old         go state          the folders are free; the rest of its state, as JSON
//	successor   ready             it serves
//	            failed: why       instead of either, before it ends
//	old         news something    at any time: a command that it got meanwhile, as JSON
//	successor   heard             after "ready": it has carried the command out
//
// The end of the stream means that the other process is gone.
package handover

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Variable is the environment variable that makes a process a successor. Its value is the
// number of sockets.
const Variable = "MILLRACE_SUCCESSOR"

const (
	firstDescriptor = 3       // after the standard streams
	mostSockets     = 256     // more listeners than any config has
	maxLine         = 8000    // bytes of a successor's line
	maxState        = 8 << 20 // bytes of a predecessor's line
	// newsTimeout is how long a successor that serves may take for news, and taking how
	// long the line may be full while it does not serve yet.
	newsTimeout, writeTimeout = time.Second, time.Second

	prepared, goOn, ready, failed, news, heard = "prepared", "go ", "ready", "failed: ", "news ", "heard"
)

// Sockets are the sockets that a process listens on.
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

// Close closes this process's descriptors of them.
func (s Sockets) Close() {
	for _, f := range s.all() {
		_ = f.Close() // they were handed over, and are not used here any more
	}
}

// Successor is a process that was started to take over.
type Successor struct {
	*process
	talk  net.Conn
	lines *bufio.Reader

	mu             sync.Mutex // held for what follows, and while news are sent
	unacknowledged int        // news without an answer
	serves         bool
	lost           error // why no news can be sent any more
}

// Start starts a process that inherits the environment, the standard streams and the
// sockets.
func Start(by Starter, s Sockets) (*Successor, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("starting the new process: %w", err)
	}
	defer theirs.Close()
	admin := 0
	if s.Admin != nil {
		admin = 1
	}
	p, err := by(append([]*os.File{theirs}, s.all()...), fmt.Sprintf("%d/%d", len(s.Public), admin))
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("starting the new process: %w", err)
	}
	return &Successor{process: p, talk: ours, lines: bufio.NewReaderSize(ours, maxLine)}, nil
}

// Pid is the process's number.
func (n *Successor) Pid() int { return n.pid }

// Prepared waits until the successor has read its config and found it good.
func (n *Successor) Prepared(timeout time.Duration) error { return n.await(prepared, timeout) }

// State is what a process has learned since its start, and its successor needs.
type State struct {
	// Hot are the requests that come most often, for package lane.
	Hot json.RawMessage `json:"hot,omitempty"`
	// Tickets are the keys of TLS session tickets, for package server.
	Tickets     []byte          `json:"tickets,omitempty"`
	Maintenance json.RawMessage `json:"maintenance,omitempty"`
	Proofs      []byte          `json:"proofs,omitempty"` // signs the proofs of clients
	// Limits is what rate limits have counted, for package admit.
	Limits []byte `json:"limits,omitempty"`
	// Predecessors is how many processes have handed over before the one that sends
	// this.
	Predecessors int `json:"predecessors,omitempty"`
}

// Go says that the folders are free which only one process may open.
func (n *Successor) Go(state State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("telling the new process what it has to know: %w", err)
	}
	if _, err := io.WriteString(n.talk, goOn+string(text)+"\n"); err != nil {
		return fmt.Errorf("the new process is gone: %w", err)
	}
	return nil
}

// Ready waits until the successor serves.
func (n *Successor) Ready(timeout time.Duration) error {
	err := n.await(ready, timeout)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serves = err == nil
	return err
}

// Notify sends the successor a command that this process has got. Once the successor
// serves, Notify returns when it has carried the command out. After an error every
// further call returns the same error.
func (n *Successor) Notify(what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("telling the new process: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost != nil {
		return n.lost
	}
	if err := n.notify(string(text)); err != nil {
		n.lost = fmt.Errorf("telling the new process: %w", err)
	}
	return n.lost
}

func (n *Successor) notify(text string) error {
	_ = n.talk.SetWriteDeadline(time.Now().Add(writeTimeout)) // never fails on an open socket
	if _, err := io.WriteString(n.talk, news+text+"\n"); err != nil {
		return err //nolint:wrapcheck // Notify says what was done
	}
	n.unacknowledged++
	if !n.serves {
		return nil
	}
	_ = n.talk.SetReadDeadline(time.Now().Add(newsTimeout)) // likewise
	for ; n.unacknowledged > 0; n.unacknowledged-- {
		line, err := n.lines.ReadString('\n')
		if err != nil {
			return err //nolint:wrapcheck // likewise
		}
		if line != heard+"\n" {
			return fmt.Errorf("it says %q and not %q", line, heard)
		}
	}
	return nil
}

// await waits for a line of the successor.
func (n *Successor) await(word string, timeout time.Duration) error {
	_ = n.talk.SetReadDeadline(time.Now().Add(timeout))
	text, err := n.lines.ReadSlice('\n')
	line := strings.TrimSuffix(string(text), "\n")
	why, hasFailed := strings.CutPrefix(line, failed)
	switch {
	case err == nil && line == word:
		return nil
	case err == nil && hasFailed:
		return errors.New(strings.ReplaceAll(why, "\x00", "\n"))
	case err == nil, errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("the new process says %.80q and not %q: is it another program?", line, word)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the new process has not said %q for %s; it was ended", word, timeout)
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
	n.kill() // if it has not ended
	<-n.ended
	_ = n.talk.Close()
}

// Predecessor is the process that has started this one to take over. The methods of nil
// do nothing.
type Predecessor struct {
	Sockets Sockets
	State   State // known after Prepared

	talk  net.Conn
	lines *lines
	early []json.RawMessage // news that came before Ready
	gone  chan struct{}
}

// lines reads a predecessor's lines, each of maxState bytes at the most.
type lines struct {
	from *io.LimitedReader
	text *bufio.Reader
}

func linesOf(r io.Reader) *lines {
	limited := &io.LimitedReader{R: r}
	return &lines{limited, bufio.NewReader(limited)}
}

// next returns the next line, split behind its first word, or an error at the end.
func (l *lines) next() (word, rest string, err error) {
	l.from.N = maxState
	line, err := l.text.ReadString('\n')
	if err != nil {
		return "", "", err //nolint:wrapcheck // whatever it is, the predecessor is gone
	}
	for _, word := range []string{goOn, news} {
		if rest, ok := strings.CutPrefix(line, word); ok {
			return word, rest, nil
		}
	}
	return "", line, nil // unknown: a newer program may send it
}

// Inherited returns the process that has started this one to take over, nil if none has.
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
	p := &Predecessor{talk: talk, lines: linesOf(talk), gone: make(chan struct{})}
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

// Prepared says that the config is good, and waits until the folders are free: until Go,
// or until the predecessor has ended.
func (p *Predecessor) Prepared() {
	if p == nil {
		return
	}
	_, _ = io.WriteString(p.talk, prepared+"\n")
	for {
		switch word, rest, err := p.lines.next(); {
		case err != nil:
			return
		case word == news:
			p.early = append(p.early, json.RawMessage(rest))
		case word == goOn:
			_ = json.Unmarshal([]byte(rest), &p.State) // unknown: a newer program may send it
			return
		}
	}
}

// Ready says that this process serves. From then on onNews is called with each command
// that the predecessor gets, one after the other.
func (p *Predecessor) Ready(onNews func(json.RawMessage)) {
	if p == nil {
		return
	}
	_, _ = io.WriteString(p.talk, ready+"\n") // an error: the predecessor is gone
	take := func(what json.RawMessage) {
		onNews(what)
		_, _ = io.WriteString(p.talk, heard+"\n") // likewise
	}
	go func() { // ends with the predecessor, or with this process
		defer close(p.gone)
		for _, what := range p.early {
			take(what)
		}
		for {
			switch word, rest, err := p.lines.next(); {
			case err != nil:
				return
			case word == news:
				take(json.RawMessage(rest))
			}
		}
	}()
}

// Failed tells the predecessor why this process cannot take over.
func (p *Predecessor) Failed(why error) {
	if p == nil {
		return
	}
	text := strings.ReplaceAll(why.Error(), "\n", "\x00")
	_, _ = io.WriteString(p.talk, failed+text[:min(len(text), maxLine/2)]+"\n")
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
