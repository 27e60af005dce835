package php

import (
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

// upload is a request's body, of which all has come.
type upload struct {
	*spool.Queue // nil: none
}

// takeIn reads all of the request's body, so that a slow client occupies no worker.
func (h *Handler) takeIn(r *http.Request) (*upload, error) {
	u := &upload{}
	if r.Body == nil || r.Body == http.NoBody {
		return u, nil
	}
	u.Queue = h.room.NewQueue(spoolMemory, spoolFile)
	if err := u.Fill(r.Body, false); err != nil {
		u.close()
		return nil, err //nolint:wrapcheck // as it is
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

// length is how many bytes it has.
func (u *upload) length() int64 {
	if u.Queue == nil {
		return 0
	}
	return u.Size()
}

// close gives back what the body takes.
func (u *upload) close() {
	if u.Queue != nil {
		_ = u.Close() // of a file that nobody needs any more
	}
}
