package php

import (
	"errors"
	"io"
	"net/http"

	"millrace/internal/upstream/spool"
)

// Bounds of what is held for one request or answer: in memory, and then in a
// file that has no name. All of them together are bounded by the room.
const (
	spoolMemory = 256 << 10
	spoolFile   = 1 << 30
)

// errLong means that a request's body is longer than is buffered for one request.
var errLong = errors.New("more than is held for one request")

// upload is a request's body, of which all has come.
type upload struct {
	*spool.Queue // nil: none
	size         int64
}

// takeIn reads all of the request's body, so that a slow client occupies no worker.
func (h *Handler) takeIn(r *http.Request) (*upload, error) {
	u := &upload{}
	if r.Body == nil || r.Body == http.NoBody {
		return u, nil
	}
	u.Queue = h.room.NewQueue(spoolMemory, spoolFile)
	if err := u.Fill(&counted{r.Body, &u.size}, false); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// body is what php-fpm gets.
func (u *upload) body() io.Reader {
	if u.Queue == nil {
		return http.NoBody
	}
	return u.Queue
}

// close gives back what the body takes.
func (u *upload) close() {
	if u.Queue != nil {
		_ = u.Close() // of a file that nobody needs any more
	}
}

// counted counts a body, and ends one that is too long.
type counted struct {
	io.Reader
	n *int64
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if *c.n += int64(n); *c.n > spoolFile {
		return 0, errLong
	}
	return n, err //nolint:wrapcheck // as it is
}
