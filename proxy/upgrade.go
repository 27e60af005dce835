package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"millrace/internal/upstream"
	"millrace/internal/wire/field"
)

// upgradeBuffers are the copy buffers of upgraded connections, one for each
// direction. They are small, because ten thousand WebSockets that mostly wait are
// more likely than one that needs the throughput.
var upgradeBuffers = sync.Pool{New: func() any { b := make([]byte, 4<<10); return &b }}

// upgradeGrace is how long the client may take to read the header of the answer.
const upgradeGrace = 10 * time.Second

// errHalf ends both directions if a connection cannot be closed in one direction.
var errHalf = errors.New("the connection cannot be closed in one direction only")

// upgrade joins the client's connection with the upstream's until either breaks,
// both have ended, or the server drains (RFC 9110, 7.8).
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request, out *outgoing, a *upstream.Answer, e Editor) {
	back, ok := a.Body.(io.ReadWriteCloser)
	protocol, asked := a.Fields.First("Upgrade"), out.Fields.First("Upgrade")
	switch {
	case !ok || asked == "":
		a.Body.Close()
		h.Fail(w, r, fmt.Errorf("%w: it switches protocols without being asked to", upstream.ErrProtocol))
		return
	case protocol == "" || !out.Fields.Lists("Upgrade", protocol):
		a.Body.Close()
		h.Fail(w, r, fmt.Errorf("%w: it switches to %.64q, not to %.64q", upstream.ErrProtocol, protocol, asked))
		return
	}
	defer back.Close()
	h.edit(a, out.from.asked, e)
	front, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.Fail(w, r, fmt.Errorf("taking over the client's connection: %w", err))
		return
	}
	defer front.Close()
	a.Fields.Set("Connection", "Upgrade")
	a.Fields.Set("Upgrade", protocol)
	a.Fields.Delete("Content-Length") // RFC 9110, 8.6
	if switchProtocols(front, buf.Writer, a.Fields) != nil {
		return
	}
	h.join(front, buf.Reader, back, r)
}

// switchProtocols sends the header of the 101 answer.
func switchProtocols(front net.Conn, w *bufio.Writer, l field.Lines) error {
	// The only deadline that net/http leaves is in the past: it ended its background read.
	_ = front.SetDeadline(time.Time{})
	_ = front.SetWriteDeadline(time.Now().Add(upgradeGrace))
	field.SortLines(l)
	head := []byte("HTTP/1.1 101 Switching Protocols\r\n")
	for i := range l {
		head = fmt.Appendf(head, "%s: %s\r\n", field.Spelling(l[i].Name), l[i].Value)
	}
	if _, err := w.Write(append(head, "\r\n"...)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return front.SetWriteDeadline(time.Time{})
}

// join copies both ways. It starts a goroutine for each direction and waits for
// both, which end when the connections are closed.
func (h *Handler) join(front net.Conn, early *bufio.Reader, back io.ReadWriteCloser, r *http.Request) {
	ended := make(chan error, 2)
	var both sync.WaitGroup
	both.Go(func() { ended <- copyHalf(back, io.MultiReader(io.LimitReader(early, int64(early.Buffered())), front)) })
	both.Go(func() { ended <- copyHalf(front, back) })
	for range 2 {
		var err error
		select {
		case err = <-ended:
		case <-h.drained(r):
			err = http.ErrServerClosed
		case <-r.Context().Done():
			err = r.Context().Err()
		}
		if err != nil {
			break
		}
	}
	front.Close()
	back.Close()
	both.Wait()
}

// copyHalf copies up to the end of src, and then ends dst's side.
func copyHalf(dst io.Writer, src io.Reader) error {
	buf := upgradeBuffers.Get().(*[]byte)
	defer upgradeBuffers.Put(buf)
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, *buf); err != nil {
		return err
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalf
}
