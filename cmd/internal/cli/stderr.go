package cli

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxUnread is what a server keeps of its messages while nobody reads them,
	// in bytes: some thousand lines.
	maxUnread = 256 << 10
	// lastWords is how long the end waits for somebody to read the last ones.
	lastWords = time.Second
)

// BufferedStderr is a server's standard error: what is written waits for its reader,
// and the server does not. What there is no room for is counted.
type BufferedStderr struct {
	to      io.Writer
	json    atomic.Bool               // what it says is for programs
	forward atomic.Pointer[forwarded] // messages go there; nil: to this one

	mu     sync.Mutex
	unread []byte
	lost   int
	ending bool

	more chan struct{} // something is unread, or it ends
	done chan struct{} // closed when all is written
}

// NewBufferedStderr starts the goroutine that writes. It ends with close; where the
// standard error takes nothing, with the process.
func NewBufferedStderr(to io.Writer) *BufferedStderr {
	c := &BufferedStderr{to: to, more: make(chan struct{}, 1), done: make(chan struct{})}
	go c.print()
	return c
}

// Write implements [io.Writer].
func (c *BufferedStderr) Write(p []byte) (int, error) {
	c.mu.Lock()
	if len(c.unread)+len(p) > maxUnread {
		c.lost++
	} else {
		c.unread = append(c.unread, p...)
	}
	c.mu.Unlock()
	c.wake()
	return len(p), nil
}

func (c *BufferedStderr) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *BufferedStderr) print() {
	defer close(c.done)
	for range c.more {
		c.mu.Lock()
		text, lost, ending := c.unread, c.lost, c.ending
		c.unread, c.lost = nil, 0
		c.mu.Unlock()
		if lost > 0 {
			text = c.appendLost(text, lost)
		}
		_, _ = c.to.Write(text) // there is nobody to tell
		if ending {
			return
		}
	}
}

// appendLost adds how many messages there was no room for.
func (c *BufferedStderr) appendLost(text []byte, lost int) []byte {
	b := bytes.NewBuffer(text)
	message := fmt.Sprintf("nobody read the standard error, %s lost", Count(lost, "message"))
	if c.json.Load() {
		slog.New(slog.NewJSONHandler(b, nil)).Warn(message)
	} else {
		fmt.Fprintf(b, "millrace: %s\n", message)
	}
	return b.Bytes()
}

// Close waits a moment for what is unread to be written.
func (c *BufferedStderr) Close() {
	c.forward.Swap(nil).close()
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.wake()
	select {
	case <-c.done:
	case <-time.After(lastWords):
	}
}
